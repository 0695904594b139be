//! Shared by the tests of all kits: names, random fences, and the model that a kit must agree with.

// Each test file uses only a part of this module.
#![allow(dead_code)]

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};

use leasehold_core::rng::{RandomExt, SeededRandom};
use leasehold_core::{Fence, Name};
use leasehold_fence::Verdict;
use proptest::prelude::*;

pub(crate) fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

pub(crate) fn fence(number: u64) -> Fence {
    Fence::new(number).unwrap()
}

/// Names that try to break out of a statement, a script, a pattern or a key.
pub(crate) const HOSTILE_NAMES: [&str; 8] = [
    "';DROP/**/TABLE/**/leasehold_fences;--",
    "\"quoted\"",
    "a%b_c*?[d]",
    "job:42:fence",
    "tagged:job:42",
    "%41\\0\\n$(id)`id`",
    "überweisung:📦",
    "'||(SELECT/**/1)||'",
];

/// Source of fences for racing holders. Its highest fence rises with every offer, so that all
/// holders have newer, equal and stale fences until the end.
#[derive(Debug, Default)]
pub(crate) struct FenceSource {
    offered: AtomicU64,
    highest: AtomicU64,
}

impl FenceSource {
    /// The fences that one holder offers.
    pub(crate) fn offers(&self, seed: u64, count: usize) -> impl Iterator<Item = Fence> {
        let random = SeededRandom::new(seed);
        std::iter::repeat_with(move || {
            let number = 1 + self.offered.fetch_add(1, Ordering::SeqCst) / 4 + random.below(10);
            self.highest.fetch_max(number, Ordering::SeqCst);
            fence(number)
        })
        .take(count)
    }

    /// The highest fence that any holder was given.
    pub(crate) fn highest(&self) -> Fence {
        fence(self.highest.load(Ordering::SeqCst))
    }
}

/// Checks invariant I3 on the data: the applied fences, in order of application.
pub(crate) fn assert_never_goes_back(applied: &[u64]) {
    let back = applied.windows(2).find(|pair| pair[0] > pair[1]);
    assert_eq!(back, None, "an older fence was applied after a newer one");
    // A race in which everything was refused, or nothing was contended, would prove nothing.
    assert!(applied.len() > 5, "only {} writes were applied", applied.len());
}

/// One write to a resource.
#[derive(Debug, Clone)]
pub(crate) struct ModelStep {
    pub(crate) resource: usize,
    pub(crate) fence: Fence,
    /// Whether the write is rolled back after the check, where a kit supports that.
    pub(crate) undone: bool,
}

/// Few resources and close numbers, and the ends of the range where digits get lost.
pub(crate) fn steps() -> impl Strategy<Value = Vec<ModelStep>> {
    let top = Fence::MAX.get();
    let number = prop_oneof![1..12u64, (top - 3)..=top, (1u64 << 32) - 2..(1 << 32) + 2, 98..102u64];
    let step = (0..3usize, number, any::<bool>()).prop_map(|(resource, number, undone)| ModelStep {
        resource,
        fence: fence(number),
        undone,
    });
    proptest::collection::vec(step, 1..40)
}

/// The newest fence of each resource, which is all that a kit has to know.
#[derive(Debug, Default)]
pub(crate) struct Model(HashMap<usize, Fence>);

impl Model {
    /// The expected verdict; remembered unless the write is rolled back.
    pub(crate) fn admit(&mut self, step: &ModelStep, remember: bool) -> Result<(), Fence> {
        match self.0.get(&step.resource) {
            Some(newest) if step.fence < *newest => Err(*newest),
            _ => {
                if remember {
                    self.0.insert(step.resource, step.fence);
                }
                Ok(())
            }
        }
    }

    pub(crate) fn newest(&self, resource: usize) -> Option<Fence> {
        self.0.get(&resource).copied()
    }
}

/// Converts a kit's verdict to the model's form, and checks the data it carries.
pub(crate) fn verdict_as_result<T>(verdict: Verdict<T>, resource: &str, offered: Fence) -> Result<(), Fence> {
    verdict.into_result().map(|_| ()).map_err(|stale| {
        assert_eq!((stale.resource.as_str(), stale.offered), (resource, offered));
        stale.newest
    })
}

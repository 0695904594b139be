//! One client process: its clock, its breaker, its gate, its acquires and the lives it keeps.

use std::collections::BTreeMap;
use std::sync::Arc;

use leasehold_core::breaker::Breaker;
use leasehold_core::policy::Class;
use leasehold_core::rng::SeededRandom;
use leasehold_core::word::{Fence, Holder};

use crate::acquiring::Attempt;
use crate::clock::{DriftingClock, Nanos};
use crate::keeping::Entry;
use crate::plan::Plan;

/// One client.
#[derive(Debug)]
pub(crate) struct Client {
    pub(crate) number: usize,
    pub(crate) clock: DriftingClock,
    pub(crate) holder: Holder,
    pub(crate) random: SeededRandom,
    pub(crate) breaker: Breaker,
    /// The highest fence seen, by name.
    pub(crate) floors: Vec<Option<Fence>>,
    /// Who is inside, by name: the process-local gate.
    pub(crate) inside: Vec<Option<u64>>,
    pub(crate) classes: Vec<Arc<Class>>,
    pub(crate) attempts: BTreeMap<u64, Attempt>,
    pub(crate) entries: BTreeMap<u64, Entry>,
    pub(crate) incarnation: u32,
    pub(crate) alive: bool,
    pub(crate) paused_until: Nanos,
    /// How many acquires ended in a lease.
    pub(crate) held: u64,
    next: u64,
}

impl Client {
    pub(crate) fn new(number: usize, clock: DriftingClock, plan: &Plan, seed: u64) -> Self {
        Self {
            number,
            clock,
            holder: Holder::new(&format!("client-{number}")).unwrap(),
            random: SeededRandom::new(seed),
            breaker: Breaker::default(),
            floors: vec![None; plan.names],
            inside: vec![None; plan.names],
            classes: plan.classes.clone(),
            attempts: BTreeMap::new(),
            entries: BTreeMap::new(),
            incarnation: 0,
            alive: true,
            paused_until: 0,
            held: 0,
            next: 1,
        }
    }

    pub(crate) fn next_id(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    pub(crate) fn saw(&mut self, name: usize, fence: Fence) {
        self.floors[name] = self.floors[name].max(Some(fence));
    }

    /// Everything in the process is gone; its clock, its number and its policy file are not.
    pub(crate) fn die(&mut self) {
        self.alive = false;
        self.incarnation += 1;
        self.attempts.clear();
        self.entries.clear();
        self.breaker = Breaker::default();
        self.floors.iter_mut().for_each(|floor| *floor = None);
        self.inside.iter_mut().for_each(|inside| *inside = None);
    }
}

/// The class of this name as it is now: it may have changed since an acquire began.
pub(crate) fn in_force<'a>(classes: &'a [Arc<Class>], class: &'a Arc<Class>) -> &'a Arc<Class> {
    classes.iter().find(|now| now.name == class.name).unwrap_or(class)
}

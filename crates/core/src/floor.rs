//! The highest fence this client has seen, by name, in bounded memory.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::atomic::{AtomicU64, Ordering};

use crate::word::{Fence, Name};

/// Names share buckets: a floor that is too high only makes fences grow faster.
const BUCKETS: usize = 4096;

/// Sent with every ask, so that a store that lost its counter (a flush, a fail-over) cannot issue an old number again
/// to anyone who asks through this client.
#[derive(Debug)]
pub(crate) struct Floors(Vec<AtomicU64>);

impl Default for Floors {
    fn default() -> Self {
        Self((0..BUCKETS).map(|_| AtomicU64::new(0)).collect())
    }
}

impl Floors {
    pub(crate) fn saw(&self, name: &Name, fence: Fence) {
        if let Some(bucket) = self.bucket(name) {
            bucket.fetch_max(fence.get(), Ordering::Relaxed);
        }
    }

    pub(crate) fn of(&self, name: &Name) -> Option<Fence> {
        self.bucket(name)
            .and_then(|bucket| Fence::new(bucket.load(Ordering::Relaxed)))
    }

    fn bucket(&self, name: &Name) -> Option<&AtomicU64> {
        let mut hasher = DefaultHasher::new();
        name.hash(&mut hasher);
        usize::try_from(hasher.finish() % BUCKETS as u64)
            .ok()
            .and_then(|at| self.0.get(at))
    }
}

//! The highest fence this client has seen for each name, in bounded memory.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::atomic::{AtomicU64, Ordering};

use crate::types::{Fence, Name};

// Names share buckets to bound the memory: a floor that is too high only makes fences grow faster.
const FENCE_FLOOR_BUCKETS: usize = 4096;

/// The floors that every acquire request carries. A store that lost its counter (a flush, a
/// fail-over) therefore cannot issue an old fence to this client again.
#[derive(Debug)]
pub(crate) struct FenceFloors(Vec<AtomicU64>);

impl Default for FenceFloors {
    fn default() -> Self {
        Self((0..FENCE_FLOOR_BUCKETS).map(|_| AtomicU64::new(0)).collect())
    }
}

impl FenceFloors {
    pub(crate) fn record(&self, name: &Name, fence: Fence) {
        if let Some(bucket) = self.bucket(name) {
            // Each bucket stands alone, so no ordering with other memory is needed.
            bucket.fetch_max(fence.get(), Ordering::Relaxed);
        }
    }

    pub(crate) fn get(&self, name: &Name) -> Option<Fence> {
        self.bucket(name).and_then(|bucket| Fence::new(bucket.load(Ordering::Relaxed)))
    }

    fn bucket(&self, name: &Name) -> Option<&AtomicU64> {
        let mut hasher = DefaultHasher::new();
        name.hash(&mut hasher);
        usize::try_from(hasher.finish() % FENCE_FLOOR_BUCKETS as u64).ok().and_then(|at| self.0.get(at))
    }
}

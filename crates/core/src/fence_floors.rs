//! The highest fence this client has seen for each name, in bounded memory.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::atomic::{AtomicU64, Ordering};

use crate::store::{AcquireRequest, AcquireResponse};
use crate::types::{Fence, Name};

// Names share buckets to bound the memory: a floor that is too high only makes fences grow faster.
const FENCE_FLOOR_BUCKETS: usize = 4096;

/// The floors that every acquire request carries. A store that lost its counter (a flush, a
/// fail-over) therefore cannot issue an old fence to this client again.
#[derive(Debug)]
pub struct FenceFloors(Vec<AtomicU64>);

impl Default for FenceFloors {
    fn default() -> Self {
        Self((0..FENCE_FLOOR_BUCKETS).map(|_| AtomicU64::new(0)).collect())
    }
}

impl FenceFloors {
    /// Records the fence of a response, and raises the request's floor to what is known of its name:
    /// a later grant must be above the holder's fence.
    pub fn learn(&self, response: &AcquireResponse, request: &mut AcquireRequest) {
        let fence = match response {
            AcquireResponse::Granted(grant) => Some(grant.fence),
            AcquireResponse::Busy(busy) => busy.fence,
            AcquireResponse::Void => None,
        };
        if let Some(fence) = fence {
            self.record(request.names.first(), fence);
            request.floor = request.floor.max(self.get(request.names.first()));
        }
    }

    /// Records a fence that was seen for this name.
    pub fn record(&self, name: &Name, fence: Fence) {
        if let Some(bucket) = self.bucket(name) {
            // Each bucket stands alone, so no ordering with other memory is needed.
            bucket.fetch_max(fence.get(), Ordering::Relaxed);
        }
    }

    /// A fence that is at least as high as every recorded one of this name.
    #[must_use]
    pub fn get(&self, name: &Name) -> Option<Fence> {
        self.bucket(name).and_then(|bucket| Fence::new(bucket.load(Ordering::Relaxed)))
    }

    /// The highest fence that was recorded for any name.
    #[must_use]
    pub fn highest(&self) -> Option<Fence> {
        let highest = self.0.iter().map(|bucket| bucket.load(Ordering::Relaxed)).max();
        highest.and_then(Fence::new)
    }

    fn bucket(&self, name: &Name) -> Option<&AtomicU64> {
        let mut hasher = DefaultHasher::new();
        name.hash(&mut hasher);
        usize::try_from(hasher.finish() % FENCE_FLOOR_BUCKETS as u64).ok().and_then(|at| self.0.get(at))
    }
}

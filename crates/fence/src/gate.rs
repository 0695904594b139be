//! The newest fences, kept in the memory of one process.
//!
//! One mutex per resource orders its writers. The work runs while that mutex is held, so that no
//! newer fence is admitted between the check and the write. The map of resources has its own mutex,
//! which is never held while waiting for a resource's.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use leasehold_core::store::{StoreError, StoreErrorKind};
use leasehold_core::{Fence, Name};

use crate::{StaleFence, Verdict};

/// Guards data in this process's memory: a cache, a device, an actor's state.
///
/// # Memory
/// The gate remembers one fence per resource, for up to [`capacity`](Self::capacity) resources. It
/// never forgets one by itself, since an older fence would then be admitted again. When it is full,
/// a *new* resource gets a [`StoreError`] (nothing was written) and known ones work as before. Call
/// [`forget`](Self::forget) for resources that are gone for good.
///
/// # Restart
/// A gate starts empty: it protects data that a restart loses too. For data that survives, keep the
/// mark next to the data ([`sqlite`](crate::sqlite), [`redis`](crate::redis)).
pub struct FenceGate {
    /// Every resource ever admitted and not forgotten. Admissions add to it; only `forget` removes.
    slots: Mutex<HashMap<Name, Arc<Mutex<ResourceSlot>>>>,
    /// Limit of resources in `slots`.
    capacity: usize,
}

/// The state of one resource. A thread that has it locked may write the resource.
enum ResourceSlot {
    /// Created for an admission that has not locked it yet.
    Empty,
    /// The newest admitted fence.
    Marked(Fence),
    /// Removed from the map while a writer waited for it: that writer must
    /// look the resource up again.
    Forgotten,
}

impl FenceGate {
    /// Default capacity: about 10 MB with names of ordinary length.
    pub const CAPACITY: usize = 65_536;

    /// Creates a gate for [`Self::CAPACITY`] resources.
    #[must_use]
    pub fn new() -> Self {
        Self::with_capacity(Self::CAPACITY)
    }

    /// Creates a gate for at most `capacity` resources. Memory is allocated as they arrive.
    #[must_use]
    pub fn with_capacity(capacity: usize) -> Self {
        Self { slots: Mutex::default(), capacity }
    }

    /// Compares and remembers the fence. A write that follows is *not* atomic with the
    /// check: a newer holder may be admitted in between. Use
    /// [`admit_with`](Self::admit_with) for the write itself.
    ///
    /// # Errors
    /// The gate is full and this resource is new to it.
    pub fn admit(&self, name: &Name, fence: Fence) -> Result<Verdict, StoreError> {
        self.admit_with(name, fence, || ())
    }

    /// Runs `work` if `fence` is not older than the newest one admitted for `name`. No other
    /// fence is admitted for `name` until it returns. Blocks the thread while another writer of
    /// the same resource is at work, so keep `work` short. Calling the gate for the same resource
    /// inside `work` is a deadlock.
    ///
    /// The fence is remembered before `work` starts: if `work` panics, older writers stay refused.
    ///
    /// # Errors
    /// The gate is full and this resource is new to it; `work` did not run.
    pub fn admit_with<T>(
        &self,
        name: &Name,
        fence: Fence,
        work: impl FnOnce() -> T,
    ) -> Result<Verdict<T>, StoreError> {
        loop {
            let slot = self.slot(name)?;
            let mut slot = lock(&slot);
            match *slot {
                // `forget` removed this slot while we waited for its lock:
                // look the resource up again.
                ResourceSlot::Forgotten => {}
                ResourceSlot::Marked(newest) if fence < newest => {
                    return Ok(Verdict::Stale(StaleFence::new(name.as_str(), fence, newest)));
                }
                ResourceSlot::Empty | ResourceSlot::Marked(_) => {
                    // Before the work: if it panics half-way, older writers must stay refused.
                    *slot = ResourceSlot::Marked(fence);
                    return Ok(Verdict::Admitted(work()));
                }
            }
        }
    }

    /// The newest fence admitted for `name`, for diagnostics: it may be
    /// outdated when the caller reads it.
    #[must_use]
    pub fn newest(&self, name: &Name) -> Option<Fence> {
        let slot = lock(&self.slots).get(name).map(Arc::clone)?;
        match *lock(&slot) {
            ResourceSlot::Marked(newest) => Some(newest),
            ResourceSlot::Empty | ResourceSlot::Forgotten => None,
        }
    }

    /// Forgets a resource and returns its newest fence. Waits for a writer that is at work on it.
    ///
    /// Afterwards *any* fence is admitted for it again. Only use it for resources that are never
    /// written again, e.g. of a deleted job.
    pub fn forget(&self, name: &Name) -> Option<Fence> {
        let slot = lock(&self.slots).get(name).map(Arc::clone)?;
        // Wait for a running writer first. If its slot left the map now, a second
        // writer could start on a new slot.
        let mut state = lock(&slot);
        let was = std::mem::replace(&mut *state, ResourceSlot::Forgotten);
        if !matches!(was, ResourceSlot::Forgotten) {
            // The map still holds this slot: only the thread that sets `Forgotten`
            // removes it, and we hold its lock.
            lock(&self.slots).remove(name);
        }
        match was {
            ResourceSlot::Marked(newest) => Some(newest),
            ResourceSlot::Empty | ResourceSlot::Forgotten => None,
        }
    }

    /// Number of resources that the gate remembers.
    #[must_use]
    pub fn len(&self) -> usize {
        lock(&self.slots).len()
    }

    /// Whether the gate remembers no resource.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Limit of resources that the gate can remember.
    #[must_use]
    pub const fn capacity(&self) -> usize {
        self.capacity
    }

    fn slot(&self, name: &Name) -> Result<Arc<Mutex<ResourceSlot>>, StoreError> {
        let mut slots = lock(&self.slots);
        if let Some(slot) = slots.get(name) {
            return Ok(Arc::clone(slot));
        }
        // Refuse instead of evicting: a forgotten resource would admit an older fence again.
        if slots.len() >= self.capacity {
            return Err(StoreError::not_done(
                StoreErrorKind::Overloaded,
                format!(
                    "the fence gate already remembers {} resources, all it was made for; \
                     forget those that are gone, or give it a greater capacity",
                    self.capacity
                ),
            ));
        }
        let slot = Arc::new(Mutex::new(ResourceSlot::Empty));
        slots.insert(name.clone(), Arc::clone(&slot));
        Ok(slot)
    }
}

/// A panic inside `admit_with` poisons its slot. The mark was set before the work
/// began, so it is still valid.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Default for FenceGate {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for FenceGate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FenceGate").field("resources", &self.len()).field("capacity", &self.capacity).finish()
    }
}

//! A process's own memory of the newest fences.
//!
//! One mutex per resource orders its writers; the work runs while that mutex is held, so that no newer fence can
//! be admitted between the check and the write. The map of resources has a mutex of its own, which is never held
//! while a resource's is waited for.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use leasehold_core::store::{Cause, Failure};
use leasehold_core::{Fence, Name};

use crate::{Stale, Verdict};

/// Guards what lives in this process's memory: a cache, a device, an actor's state.
///
/// # Memory
/// The gate remembers one fence for each resource, for up to [`capacity`](Self::capacity) resources, and never
/// forgets one by itself: whatever it dropped, an older fence could come back to. When it is full, a *new*
/// resource is a [`Failure`] (nothing was written) and known ones go on as before. [`forget`](Self::forget)
/// resources that are gone for good.
///
/// # Restart
/// A gate starts empty: it protects data that a restart loses too. For data that survives, keep the mark next to
/// the data ([`sqlite`](crate::sqlite), [`redis`](crate::redis)).
pub struct FenceGate {
    /// Every resource ever admitted and not forgotten. Grown by admissions, shrunk by `forget` only.
    slots: Mutex<HashMap<Name, Arc<Mutex<Slot>>>>,
    /// The most resources in `slots`.
    capacity: usize,
}

/// One resource's memory. Whoever has it locked may write the resource.
enum Slot {
    /// Made for an admission that has not got here yet.
    Fresh,
    /// The newest admitted fence.
    Marked(Fence),
    /// Taken out of the map while someone waited for it: look the resource up again.
    Forgotten,
}

impl FenceGate {
    /// Resources a gate remembers unless told otherwise: some 10 MB with names of ordinary length.
    pub const CAPACITY: usize = 65_536;

    /// A gate for [`Self::CAPACITY`] resources.
    #[must_use]
    pub fn new() -> Self {
        Self::with_capacity(Self::CAPACITY)
    }

    /// A gate for at most `capacity` resources. Memory is taken as they come.
    #[must_use]
    pub fn with_capacity(capacity: usize) -> Self {
        Self {
            slots: Mutex::default(),
            capacity,
        }
    }

    /// Compares and remembers. A write that follows is *not* one step with the check: a newer holder may be
    /// admitted in between. Use [`admit_with`](Self::admit_with) for the write itself.
    ///
    /// # Errors
    /// The gate is full and this resource is new to it.
    pub fn admit(&self, name: &Name, fence: Fence) -> Result<Verdict, Failure> {
        self.admit_with(name, fence, || ())
    }

    /// Runs `work` if `fence` is not older than the newest one admitted for `name`; no other fence is admitted for
    /// `name` until it has returned. Blocks the thread while another writer of the same resource is at work, so
    /// keep `work` short. Asking the gate about the same resource inside `work` would wait for itself for ever.
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
    ) -> Result<Verdict<T>, Failure> {
        loop {
            let slot = self.slot(name)?;
            let mut slot = lock(&slot);
            match *slot {
                Slot::Forgotten => {}
                Slot::Marked(newest) if fence < newest => {
                    return Ok(Verdict::Stale(Stale::new(name.as_str(), fence, newest)));
                }
                Slot::Fresh | Slot::Marked(_) => {
                    *slot = Slot::Marked(fence);
                    return Ok(Verdict::Admitted(work()));
                }
            }
        }
    }

    /// The newest fence admitted for `name`, for people to look at: by the time it is read, it may be history.
    #[must_use]
    pub fn newest(&self, name: &Name) -> Option<Fence> {
        let slot = lock(&self.slots).get(name).map(Arc::clone)?;
        match *lock(&slot) {
            Slot::Marked(newest) => Some(newest),
            Slot::Fresh | Slot::Forgotten => None,
        }
    }

    /// Forgets a resource, after waiting for a writer that is at work on it, and says what was remembered.
    ///
    /// From then on *any* fence is admitted for it again. Only for resources that nobody will write any more,
    /// e.g. of a job that was deleted.
    pub fn forget(&self, name: &Name) -> Option<Fence> {
        let slot = lock(&self.slots).get(name).map(Arc::clone)?;
        let mut state = lock(&slot);
        let was = std::mem::replace(&mut *state, Slot::Forgotten);
        if !matches!(was, Slot::Forgotten) {
            // Still the one in the map: only who turns a slot to `Forgotten` takes it out, and its lock is held.
            lock(&self.slots).remove(name);
        }
        match was {
            Slot::Marked(newest) => Some(newest),
            Slot::Fresh | Slot::Forgotten => None,
        }
    }

    /// How many resources are remembered.
    #[must_use]
    pub fn len(&self) -> usize {
        lock(&self.slots).len()
    }

    /// Nothing is remembered.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many resources can be remembered.
    #[must_use]
    pub const fn capacity(&self) -> usize {
        self.capacity
    }

    fn slot(&self, name: &Name) -> Result<Arc<Mutex<Slot>>, Failure> {
        let mut slots = lock(&self.slots);
        if let Some(slot) = slots.get(name) {
            return Ok(Arc::clone(slot));
        }
        if slots.len() >= self.capacity {
            return Err(Failure::not_done(
                Cause::Overloaded,
                format!(
                    "the fence gate already remembers {} resources, all it was made for; \
                     forget those that are gone, or give it a greater capacity",
                    self.capacity
                ),
            ));
        }
        let slot = Arc::new(Mutex::new(Slot::Fresh));
        slots.insert(name.clone(), Arc::clone(&slot));
        Ok(slot)
    }
}

/// A panic inside `admit_with` poisons its slot, but the mark was set before the work began: it is whole.
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
        f.debug_struct("FenceGate")
            .field("resources", &self.len())
            .field("capacity", &self.capacity)
            .finish()
    }
}

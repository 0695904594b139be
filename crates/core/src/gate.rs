//! The process-local gate: one FIFO queue per name.
//!
//! Only one contender per process and name talks to the store, so a thousand tasks that want one
//! lock cost the store one waiter. The gate is also the lock that remains when a fail-open class
//! runs without the store.

use std::collections::{HashMap, VecDeque};
use std::panic::Location;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;

use crate::clock::{Clock, Moment, run_until};
use crate::types::Name;

/// The source location of the acquire call.
pub type CallSite = &'static Location<'static>;

/// The queues of all names that this process holds or waits for.
#[derive(Debug, Clone, Default)]
pub struct Gate {
    names: Arc<Mutex<HashMap<Name, NameQueue>>>,
}

// The queue of one name. It exists only while a permit for the name does.
#[derive(Debug)]
struct NameQueue {
    holder_site: CallSite,
    waiters: VecDeque<(CallSite, oneshot::Sender<Permit>)>,
}

/// The permit to contend for a name. Dropping it grants the permit to the next waiter.
#[derive(Debug)]
pub struct Permit {
    name: Name,
    gate: Option<Gate>,
}

/// The timeout ended while another task of this process held the permit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HeldLocally {
    /// The acquire call of that task.
    pub at: CallSite,
}

impl Gate {
    /// Waits for the permit until `deadline`. Dropping the future leaves the queue.
    ///
    /// # Errors
    /// Another task of this process still has the permit.
    pub async fn enter(
        &self,
        name: &Name,
        place: CallSite,
        deadline: Moment,
        clock: &dyn Clock,
    ) -> Result<Permit, HeldLocally> {
        let turn = {
            let mut names = self.lock();
            let Some(line) = names.get_mut(name) else {
                names.insert(name.clone(), NameQueue { holder_site: place, waiters: VecDeque::new() });
                return Ok(Permit { name: name.clone(), gate: Some(self.clone()) });
            };
            if clock.now() >= deadline {
                return Err(HeldLocally { at: line.holder_site });
            }
            // Removes cancelled waiters here, so that a queue of short waits cannot grow without
            // bound.
            line.waiters.retain(|(_, turn)| !turn.is_closed());
            let (sender, turn) = oneshot::channel();
            line.waiters.push_back((place, sender));
            turn
        };
        match run_until(clock, deadline, turn).await {
            Some(Ok(permit)) => Ok(permit),
            _ => Err(HeldLocally { at: self.lock().get(name).map_or(place, |line| line.holder_site) }),
        }
    }

    /// The number of names that this process holds or waits for.
    #[must_use]
    pub fn len(&self) -> usize {
        self.lock().len()
    }

    /// Returns true if this process neither holds nor waits for a name.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.lock().is_empty()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Name, NameQueue>> {
        // No step under this lock can panic half way, so a poisoned lock is harmless.
        self.names.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Grants the permit to the first waiter that still exists.
    fn release_permit(&self, name: &Name) {
        let mut names = self.lock();
        let Some(line) = names.get_mut(name) else { return };
        while let Some((place, turn)) = line.waiters.pop_front() {
            let permit = Permit { name: name.clone(), gate: Some(self.clone()) };
            match turn.send(permit) {
                Ok(()) => {
                    line.holder_site = place;
                    return;
                }
                // The waiter was dropped. Defuse the returned permit: its drop would call this
                // function again under the lock.
                Err(mut permit) => permit.gate = None,
            }
        }
        names.remove(name);
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        if let Some(gate) = self.gate.take() {
            gate.release_permit(&self.name);
        }
    }
}

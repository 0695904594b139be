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

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::clock::RuntimeClock;

    fn name() -> Name {
        Name::new("n").unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn permits_are_granted_in_arrival_order() {
        let (gate, clock) = (Gate::default(), RuntimeClock::shared());
        let here = Location::caller();
        let first = gate.enter(&name(), here, Moment::ZERO, &*clock).await.unwrap();
        let order = Arc::new(Mutex::new(Vec::new()));
        let mut tasks = Vec::new();
        for i in 0..5 {
            let (gate, clock, order) = (gate.clone(), Arc::clone(&clock), Arc::clone(&order));
            tasks.push(tokio::spawn(async move {
                let permit = gate.enter(&name(), here, Moment::FAR, &*clock).await.unwrap();
                order.lock().unwrap().push(i);
                tokio::task::yield_now().await;
                drop(permit);
            }));
            tokio::task::yield_now().await;
        }
        drop(first);
        for task in tasks {
            task.await.unwrap();
        }
        assert_eq!(*order.lock().unwrap(), [0, 1, 2, 3, 4]);
        assert!(gate.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn reports_the_call_site_of_the_holder_and_times_out() {
        let (gate, clock) = (Gate::default(), RuntimeClock::shared());
        let here = Location::caller();
        let inside = gate.enter(&name(), here, Moment::ZERO, &*clock).await.unwrap();
        assert_eq!((gate.len(), gate.is_empty()), (1, false));
        assert_eq!(
            gate.enter(&name(), here, Moment::ZERO, &*clock).await.unwrap_err(),
            HeldLocally { at: here }
        );
        let end = clock.now() + Duration::from_secs(2);
        assert_eq!(gate.enter(&name(), here, end, &*clock).await.unwrap_err().at, here);
        assert_eq!(clock.now(), end);
        drop(inside);
        assert_eq!((gate.len(), gate.is_empty()), (0, true));
    }

    #[tokio::test(start_paused = true)]
    async fn cancelled_waiters_do_not_block_the_queue() {
        let (gate, clock) = (Gate::default(), RuntimeClock::shared());
        let here = Location::caller();
        let first = gate.enter(&name(), here, Moment::ZERO, &*clock).await.unwrap();
        let (waits, watch) = (gate.clone(), Arc::clone(&clock));
        let gone = tokio::spawn(async move { waits.enter(&name(), here, Moment::FAR, &*watch).await });
        tokio::task::yield_now().await;
        gone.abort();
        let _ = gone.await;
        drop(first);
        gate.enter(&name(), here, Moment::ZERO, &*clock).await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn a_permit_sent_to_a_dropped_waiter_is_passed_on() {
        let (gate, clock) = (Gate::default(), RuntimeClock::shared());
        let here = Location::caller();
        let first = gate.enter(&name(), here, Moment::ZERO, &*clock).await.unwrap();
        let wanted = name();
        let mut waits = Box::pin(gate.enter(&wanted, here, Moment::FAR, &*clock));
        assert!(futures_util::poll!(&mut waits).is_pending());
        drop(first); // the permit is in the channel now
        drop(waits); // and its receiver goes away with it
        assert!(gate.is_empty());
    }
}

//! The process-local gate: one FIFO queue per name.
//!
//! One contender per process and name talks to the store, so a thousand tasks that want one lock cost the store
//! one waiter. It is also the lock that is left when a fail-open class runs without the store.

use std::collections::{HashMap, VecDeque};
use std::panic::Location;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;

use crate::clock::{Clock, Moment, until};
use crate::word::Name;

/// Where in the caller's code a hold was asked for.
pub type Place = &'static Location<'static>;

/// All names that this process holds or waits for.
#[derive(Debug, Clone, Default)]
pub struct Gate {
    names: Arc<Mutex<HashMap<Name, Line>>>,
}

/// One name: who is inside, who waits.
#[derive(Debug)]
struct Line {
    inside: Place,
    waiting: VecDeque<(Place, oneshot::Sender<Permit>)>,
}

/// The right to be inside. Dropping it lets the next one in.
#[derive(Debug)]
pub struct Permit {
    name: Name,
    gate: Option<Gate>,
}

/// The name is held in this very process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HeldHere {
    /// Where it was asked for.
    pub at: Place,
}

impl Gate {
    /// Waits for its turn until `deadline`. Dropping the future leaves the line.
    ///
    /// # Errors
    /// Someone in this process is still inside.
    pub async fn enter(
        &self,
        name: &Name,
        place: Place,
        deadline: Moment,
        clock: &dyn Clock,
    ) -> Result<Permit, HeldHere> {
        let turn = {
            let mut names = self.lock();
            let Some(line) = names.get_mut(name) else {
                names.insert(
                    name.clone(),
                    Line {
                        inside: place,
                        waiting: VecDeque::new(),
                    },
                );
                return Ok(Permit {
                    name: name.clone(),
                    gate: Some(self.clone()),
                });
            };
            if clock.now() >= deadline {
                return Err(HeldHere { at: line.inside });
            }
            line.waiting.retain(|(_, turn)| !turn.is_closed());
            let (sender, turn) = oneshot::channel();
            line.waiting.push_back((place, sender));
            turn
        };
        match until(clock, deadline, turn).await {
            Some(Ok(permit)) => Ok(permit),
            _ => Err(HeldHere {
                at: self.lock().get(name).map_or(place, |line| line.inside),
            }),
        }
    }

    /// How many names are held or waited for here.
    #[must_use]
    pub fn len(&self) -> usize {
        self.lock().len()
    }

    /// No name is held here.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.lock().is_empty()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Name, Line>> {
        // No step under this lock can panic half way.
        self.names.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The next one that is still there goes in.
    fn leave(&self, name: &Name) {
        let mut names = self.lock();
        let Some(line) = names.get_mut(name) else { return };
        while let Some((place, turn)) = line.waiting.pop_front() {
            let permit = Permit {
                name: name.clone(),
                gate: Some(self.clone()),
            };
            match turn.send(permit) {
                Ok(()) => {
                    line.inside = place;
                    return;
                }
                // It has gone: take the permit back without its drop leaving once more, and try the next.
                Err(mut permit) => permit.gate = None,
            }
        }
        names.remove(name);
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        if let Some(gate) = self.gate.take() {
            gate.leave(&self.name);
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
    async fn first_come_first_served() {
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
    async fn says_where_it_is_held_and_stops_on_time() {
        let (gate, clock) = (Gate::default(), RuntimeClock::shared());
        let here = Location::caller();
        let inside = gate.enter(&name(), here, Moment::ZERO, &*clock).await.unwrap();
        assert_eq!((gate.len(), gate.is_empty()), (1, false));
        assert_eq!(
            gate.enter(&name(), here, Moment::ZERO, &*clock)
                .await
                .unwrap_err(),
            HeldHere { at: here }
        );
        let end = clock.now() + Duration::from_secs(2);
        assert_eq!(
            gate.enter(&name(), here, end, &*clock).await.unwrap_err().at,
            here
        );
        assert_eq!(clock.now(), end);
        drop(inside);
        assert_eq!((gate.len(), gate.is_empty()), (0, true));
    }

    #[tokio::test(start_paused = true)]
    async fn the_gone_do_not_hold_up_the_line() {
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
    async fn a_permit_sent_to_one_who_left_goes_on_to_the_next() {
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

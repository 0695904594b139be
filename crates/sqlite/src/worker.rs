//! A thread with a connection of its own, and two lanes into it.
//!
//! SQLite blocks, so it must not run on the runtime's threads. Renewals and releases take the first lane and
//! are always served before what waits in the second: a flood of acquires makes nobody lose a lease. A
//! question whose asker has gone, or whose time is up before its turn, is not put to the database at all.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use leasehold_core::clock::SharedClock;
use leasehold_core::store::{Cause, Failure};
use tokio::sync::oneshot;

use crate::connection::Session;

/// How urgent a question is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lane {
    /// Of someone who holds a lease, or gives one back.
    First,
    /// Of someone who wants one, or just looks.
    Second,
}

/// The most questions that may wait in the second lane: memory stays bounded under a flood. The first needs
/// no bound of its own, as only those who were granted something use it.
const WAITING: usize = 16 * 1024;

/// A question with all it needs, and the way back to its asker.
type Job = Box<dyn FnOnce(&mut Session) + Send>;

#[derive(Default)]
struct Queue {
    /// Renewals and releases, in the order in which they came.
    first: VecDeque<Job>,
    /// All else, in the order in which it came.
    second: VecDeque<Job>,
    /// The handle is gone: the thread ends.
    closed: bool,
}

/// What the handle and the thread share.
#[derive(Default)]
struct Lanes {
    /// Locked for a push or a pop, never while a job runs.
    queue: Mutex<Queue>,
    /// Rung when there is something to do, or nothing ever will be.
    bell: Condvar,
}

impl Lanes {
    fn lock(&self) -> MutexGuard<'_, Queue> {
        // Jobs run outside the lock; a panic inside it leaves nothing half done.
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for the next job; `None` means that there will be none.
    fn next(&self) -> Option<Job> {
        let mut queue = self.lock();
        loop {
            if queue.closed {
                return None;
            }
            if let Some(job) = queue.first.pop_front().or_else(|| queue.second.pop_front()) {
                return Some(job);
            }
            queue = self.bell.wait(queue).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

/// The handle. Dropping it ends the thread after the step it is in; it does not wait for that.
pub(crate) struct Worker {
    lanes: Arc<Lanes>,
    /// Tells whether a question's time was up before its turn.
    clock: SharedClock,
}

impl Worker {
    /// Starts the thread.
    pub(crate) fn start(mut session: Session, clock: SharedClock) -> Result<Self, Failure> {
        let lanes = Arc::new(Lanes::default());
        let served = Arc::clone(&lanes);
        thread::Builder::new()
            .name("leasehold-sqlite".to_owned())
            .spawn(move || {
                while let Some(job) = served.next() {
                    // A panic costs its asker the answer (which makes it unknown), not everybody the store.
                    // The transaction it was in has been rolled back by then.
                    if catch_unwind(AssertUnwindSafe(|| job(&mut session))).is_err() {
                        tracing::error!("a step of the SQLite store panicked: please report it");
                    }
                }
            })
            .map_err(|error| {
                Failure::not_done(
                    Cause::Overloaded,
                    "cannot start the database's thread: raise the limit of processes and threads",
                )
                .with_source(error)
            })?;
        Ok(Self { lanes, clock })
    }

    /// Puts a question and waits for its answer. `work` is told how much of `within` is left when its turn
    /// comes.
    pub(crate) async fn ask<T, F>(&self, lane: Lane, within: Duration, work: F) -> Result<T, Failure>
    where
        T: Send + 'static,
        F: FnOnce(&mut Session, Duration) -> Result<T, Failure> + Send + 'static,
    {
        let (answer, answered) = oneshot::channel();
        let clock = Arc::clone(&self.clock);
        let ends = clock.now() + within;
        self.push(
            lane,
            Box::new(move |session| {
                if answer.is_closed() {
                    return;
                }
                let left = ends.since(clock.now());
                let out = if left.is_zero() {
                    Err(Failure::not_done(
                        Cause::Overloaded,
                        "the question waited for its turn until its time was up: fewer callers, or more time",
                    ))
                } else {
                    work(session, left)
                };
                // Nobody there any more: a dropped call counts as unknown, and its owner undoes it.
                drop(answer.send(out));
            }),
        )?;
        answered.await.unwrap_or_else(|_| {
            Err(Failure::unknown(
                Cause::Unreachable,
                "the database's thread ended before it answered",
            ))
        })
    }

    fn push(&self, lane: Lane, job: Job) -> Result<(), Failure> {
        let mut queue = self.lanes.lock();
        match lane {
            Lane::First => queue.first.push_back(job),
            Lane::Second if queue.second.len() < WAITING => queue.second.push_back(job),
            Lane::Second => {
                return Err(Failure::not_done(
                    Cause::Overloaded,
                    format!("{WAITING} questions wait already: ask again later"),
                ));
            }
        }
        drop(queue);
        self.lanes.bell.notify_one();
        Ok(())
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        let mut queue = self.lanes.lock();
        queue.closed = true;
        queue.first.clear();
        queue.second.clear();
        drop(queue);
        self.lanes.bell.notify_one();
    }
}

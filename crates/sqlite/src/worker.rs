//! A thread with its own connection, fed by a queue with two priorities.
//!
//! SQLite calls block, so they must not run on the async runtime's threads. Renewals and releases
//! run before queued acquires and listings: a flood of acquires must not make a holder lose its
//! lease. A job whose caller has gone, or whose deadline has passed, never reaches the database.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use leasehold_core::clock::SharedClock;
use leasehold_core::store::{StoreError, StoreErrorKind};
use tokio::sync::oneshot;

use crate::connection::Session;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Priority {
    /// Renewals and releases, and reads of one lease.
    High,
    /// Acquires and listings.
    Normal,
}

/// Limit of queued jobs of normal priority; bounds memory under a flood.
const MAX_QUEUED_JOBS: usize = 16 * 1024;

/// Limit of queued jobs of high priority. Higher, so that a flood of acquires is refused before renewals are.
const MAX_QUEUED_HIGH_JOBS: usize = 4 * MAX_QUEUED_JOBS;

/// A request with its arguments and the channel for its response.
type Job = Box<dyn FnOnce(&mut Session) + Send>;

#[derive(Default)]
struct QueuedJobs {
    high: VecDeque<Job>,
    normal: VecDeque<Job>,
    /// Set when the handle is dropped: the thread ends.
    closed: bool,
}

/// Shared by the handle and the thread.
#[derive(Default)]
struct JobQueue {
    /// Locked for a push or a pop, never while a job runs.
    queue: Mutex<QueuedJobs>,
    /// Signalled after a push and on close.
    changed: Condvar,
}

impl JobQueue {
    fn lock(&self) -> MutexGuard<'_, QueuedJobs> {
        // Jobs run outside the lock, so a poisoned queue is still consistent.
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for the next job; `None` after close.
    fn next(&self) -> Option<Job> {
        let mut queue = self.lock();
        loop {
            if queue.closed {
                return None;
            }
            if let Some(job) = queue.high.pop_front().or_else(|| queue.normal.pop_front()) {
                return Some(job);
            }
            queue = self.changed.wait(queue).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

/// Handle of the thread. Dropping it ends the thread after the current step, without waiting.
pub(crate) struct Worker {
    queue: Arc<JobQueue>,
    /// Checks whether a job's deadline passed while it was queued.
    clock: SharedClock,
}

impl Worker {
    pub(crate) fn start(mut session: Session, clock: SharedClock) -> Result<Self, StoreError> {
        let lanes = Arc::new(JobQueue::default());
        let served = Arc::clone(&lanes);
        thread::Builder::new()
            .name("leasehold-sqlite".to_owned())
            .spawn(move || {
                while let Some(job) = served.next() {
                    // A panic costs one caller its response (its outcome is then unknown), not all
                    // callers the store. Unwinding has already rolled the transaction back.
                    if catch_unwind(AssertUnwindSafe(|| job(&mut session))).is_err() {
                        tracing::error!("a step of the SQLite store panicked: please report it");
                    }
                }
            })
            .map_err(|error| {
                StoreError::not_done(
                    StoreErrorKind::Overloaded,
                    "cannot start the database's thread: raise the limit of processes and threads",
                )
                .with_source(error)
            })?;
        Ok(Self { queue: lanes, clock })
    }

    /// Queues a job and waits for its result. `work` gets the part of `within`
    /// that remains when it starts.
    pub(crate) async fn run<T, F>(&self, lane: Priority, within: Duration, work: F) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: FnOnce(&mut Session, Duration) -> Result<T, StoreError> + Send + 'static,
    {
        let (answer, answered) = oneshot::channel();
        let clock = Arc::clone(&self.clock);
        let ends = clock.now() + within;
        self.push(
            lane,
            Box::new(move |session| {
                // The caller has dropped its future: skip the work, no client would own the result.
                if answer.is_closed() {
                    return;
                }
                let left = ends.since(clock.now());
                let out = if left.is_zero() {
                    Err(StoreError::not_done(
                        StoreErrorKind::Overloaded,
                        "the question waited for its turn until its time was up: fewer callers, or more time",
                    ))
                } else {
                    work(session, left)
                };
                // A send error means that the caller has gone. It treats a dropped
                // call as unknown and undoes it.
                drop(answer.send(out));
            }),
        )?;
        answered.await.unwrap_or_else(|_| {
            Err(StoreError::unknown(
                StoreErrorKind::Unreachable,
                "the database's thread ended before it answered",
            ))
        })
    }

    fn push(&self, lane: Priority, job: Job) -> Result<(), StoreError> {
        let mut queue = self.queue.lock();
        let (jobs, most) = match lane {
            Priority::High => (&mut queue.high, MAX_QUEUED_HIGH_JOBS),
            Priority::Normal => (&mut queue.normal, MAX_QUEUED_JOBS),
        };
        if jobs.len() >= most {
            return Err(StoreError::not_done(
                StoreErrorKind::Overloaded,
                format!("{most} requests wait already: retry later"),
            ));
        }
        jobs.push_back(job);
        drop(queue);
        self.queue.changed.notify_one();
        Ok(())
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        let mut queue = self.queue.lock();
        queue.closed = true;
        queue.high.clear();
        queue.normal.clear();
        drop(queue);
        self.queue.changed.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use leasehold_core::clock::BootClock;

    use super::*;

    /// Finding 28 of the security review: jobs of high priority were queued without a limit.
    #[test]
    fn finding_28_both_queues_are_bounded() {
        // No thread: nothing takes the jobs from the queue.
        let worker = Worker { queue: Arc::default(), clock: BootClock::shared() };
        for (lane, most) in [(Priority::High, MAX_QUEUED_HIGH_JOBS), (Priority::Normal, MAX_QUEUED_JOBS)] {
            let push = || worker.push(lane, Box::new(|_| {}));
            assert!((0..most).all(|_| push().is_ok()), "{lane:?}");
            let refused = push().unwrap_err();
            assert!(refused.kind == StoreErrorKind::Overloaded && !refused.unknown, "{refused}");
        }
    }
}

//! One replica: scheduler, engine and loops in one process. Any number of replicas share one store.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use leasehold_core::ShutdownReport;
use leasehold_core::clock::{ClockExt, run_until};
use leasehold_core::rng::RandomExt;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::loops::{LoopKind, LoopRunner};
use crate::plane::Plane;
use crate::scheduler::Scheduler;
use crate::store::Queue;
use crate::work::Executors;
use crate::workflow::Engine;

/// A running replica. Dropping it stops new work without waiting; call [`stop`](Self::stop) to drain it.
#[derive(Debug)]
pub struct Replica {
    plane: Plane,
    scheduler: Scheduler,
    /// Cancelled: no new messages are received and no loop ticks.
    stop: CancellationToken,
    /// The loops and the queue readers.
    readers: TaskTracker,
    /// Deliveries in progress. Apart from the readers, because a drain waits for these with a limit.
    deliveries: TaskTracker,
}

/// The result of [`Replica::stop`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct StopReport {
    /// All deliveries in progress ended within the limit.
    pub drained: bool,
    /// The lock client's own shutdown report.
    pub locks: ShutdownReport,
}

impl Replica {
    /// Starts everything on the current runtime.
    #[must_use]
    pub fn start(plane: Plane, works: Executors) -> Self {
        let scheduler = Scheduler::new(plane.writer().clone(), works);
        let replica = Self {
            scheduler,
            stop: CancellationToken::new(),
            readers: TaskTracker::new(),
            deliveries: TaskTracker::new(),
            plane,
        };
        let engine = Engine::new(replica.plane.writer().clone());
        let scheduler = replica.scheduler.clone();
        replica.spawn_reader(Queue::Jobs, move |message| {
            let scheduler = scheduler.clone();
            async move { scheduler.handle_delivery(&message).await }
        });
        replica.spawn_reader(Queue::Runs, move |message| {
            let engine = engine.clone();
            async move { engine.handle_delivery(&message).await }
        });
        for which in LoopKind::ALL {
            let ticker = LoopRunner::new(which, replica.scheduler.clone());
            replica.readers.spawn(ticker.run(replica.stop.clone()));
        }
        replica.readers.spawn(watch_cancel_requests(replica.scheduler.clone(), replica.stop.clone()));
        replica
    }

    /// This replica's scheduler, which serves the calls of pull workers.
    #[must_use]
    pub fn scheduler(&self) -> &Scheduler {
        &self.scheduler
    }

    /// The client API of this replica.
    #[must_use]
    pub fn plane(&self) -> &Plane {
        &self.plane
    }

    /// Stops in order: accepts no new work and lets running work finish within `bound`. The rest is fenced
    /// and its locks are released, so another replica takes it over at its next poll.
    pub async fn stop(self, bound: Duration) -> StopReport {
        let drained = self.drain(bound).await;
        let locks = self.plane.locks().shutdown(Duration::from_secs(2)).await;
        StopReport { drained, locks }
    }

    /// The first half of [`stop`](Self::stop), for a program that shares the lock client and shuts it down
    /// later. Accepts no new work and waits up to `bound`; returns true if all running work finished.
    pub async fn drain(&self, bound: Duration) -> bool {
        self.stop.cancel();
        // Readers first: only then can no further delivery be spawned, and the wait below is complete.
        self.readers.close();
        self.readers.wait().await;
        self.deliveries.close();
        let clock = self.plane.locks().clock();
        run_until(&**clock, clock.now() + bound, self.deliveries.wait()).await.is_some()
    }

    /// Spawns the reader of one queue. It receives as many messages as there are free slots and handles
    /// each in a task of its own.
    fn spawn_reader<F, T>(&self, queue: Queue, deliver: F)
    where
        F: Fn(crate::store::Delivery) -> T + Send + 'static,
        T: Future<Output = ()> + Send + 'static,
    {
        let (plane, stop, turns) = (self.plane.clone(), self.stop.clone(), self.deliveries.clone());
        self.readers.spawn(async move {
            let writer = plane.writer();
            let clock = Arc::clone(writer.locks.clock());
            let slots = Arc::new(Semaphore::new(writer.settings.slots));
            loop {
                let free = tokio::select! {
                    () = stop.cancelled() => return,
                    slot = Arc::clone(&slots).acquire_owned() => slot,
                };
                // Waits for one free slot before receiving: a received message is hidden from other replicas,
                // so it must not wait here.
                let Ok(first) = free else { return };
                let wanted = 1 + slots.available_permits();
                // Subscribed before receiving, so that a message sent in between still wakes this reader.
                let mut notifier = pin!(writer.message_sent.notified());
                notifier.as_mut().enable();
                let asked = writer
                    .call(writer.store.receive(queue, wanted, writer.settings.visibility_timeout))
                    .await;
                let taken = asked.unwrap_or_else(|failure| {
                    tracing::warn!(queue = queue.as_str(), %failure, "messages cannot be read");
                    Vec::new()
                });
                let none = taken.is_empty();
                let mut first = Some(first);
                for message in taken {
                    let slot = match first.take() {
                        Some(slot) => Some(slot),
                        None => Arc::clone(&slots).acquire_owned().await.ok(),
                    };
                    let turn = deliver(message);
                    turns.spawn(async move {
                        turn.await;
                        drop(slot);
                    });
                }
                drop(first);
                // After a non-empty receive there may be more due messages, so only an empty one waits.
                if none {
                    tokio::select! {
                        () = stop.cancelled() => return,
                        () = notifier => {}
                        () = clock.sleep(writer.random.jitter(writer.settings.message_poll)) => {}
                    }
                }
            }
        });
    }
}

impl Drop for Replica {
    // A drop cannot wait: deliveries in progress run on in their own tasks.
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

/// Cancels local work within one poll of a cancel request.
async fn watch_cancel_requests(scheduler: Scheduler, stop: CancellationToken) {
    let writer = scheduler.writer.clone();
    let clock = Arc::clone(writer.locks.clock());
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            () = clock.sleep(writer.settings.poll) => {}
        }
        // An idle replica must not query the store at every poll.
        if scheduler.jobs_in_progress().is_empty() {
            continue;
        }
        if let Ok(requirements) = writer.open_cancel_requests(1000).await {
            for wish in requirements {
                let _here = scheduler.cancel_local_work(&wish.id);
            }
        }
    }
}

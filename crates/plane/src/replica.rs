//! One replica: scheduler, engine and loops in one process. Any number run side by side on one store.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use leasehold_core::Shutdown;
use leasehold_core::clock::{ClockExt, until};
use leasehold_core::rng::RandomExt;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::loops::{Ticker, Which};
use crate::plane::Plane;
use crate::scheduler::Scheduler;
use crate::store::Queue;
use crate::work::Works;
use crate::workflow::Engine;

/// A running replica. Dropping it stops new work but waits for nothing: call [`stop`](Self::stop).
#[derive(Debug)]
pub struct Replica {
    plane: Plane,
    scheduler: Scheduler,
    /// No new mail, no more ticks.
    stop: CancellationToken,
    /// Loops and readers of mail.
    readers: TaskTracker,
    /// Deliveries under way.
    turns: TaskTracker,
}

/// How a replica's end went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stopped {
    /// Everything it had begun was done in time.
    pub drained: bool,
    /// What became of its locks.
    pub locks: Shutdown,
}

impl Replica {
    /// Starts everything on the current runtime.
    #[must_use]
    pub fn start(plane: Plane, works: Works) -> Self {
        let scheduler = Scheduler::new(plane.ledger().clone(), works);
        let replica = Self {
            scheduler,
            stop: CancellationToken::new(),
            readers: TaskTracker::new(),
            turns: TaskTracker::new(),
            plane,
        };
        let engine = Engine::new(replica.plane.ledger().clone());
        let scheduler = replica.scheduler.clone();
        replica.read(Queue::Jobs, move |mail| {
            let scheduler = scheduler.clone();
            async move { scheduler.deliver(&mail).await }
        });
        replica.read(Queue::Runs, move |mail| {
            let engine = engine.clone();
            async move { engine.deliver(&mail).await }
        });
        for which in Which::ALL {
            let ticker = Ticker::new(which, replica.scheduler.clone());
            replica.readers.spawn(ticker.run(replica.stop.clone()));
        }
        replica
            .readers
            .spawn(listen(replica.scheduler.clone(), replica.stop.clone()));
        replica
    }

    /// Its scheduler: what pull workers talk to.
    #[must_use]
    pub fn scheduler(&self) -> &Scheduler {
        &self.scheduler
    }

    /// Its plane: what clients talk to.
    #[must_use]
    pub fn plane(&self) -> &Plane {
        &self.plane
    }

    /// The orderly end: no new work; what is under way may finish for `bound`; the rest is fenced, its locks are given
    /// back, and another replica takes it over at its next poll.
    pub async fn stop(self, bound: Duration) -> Stopped {
        let drained = self.drain(bound).await;
        let locks = self.plane.locks().shutdown(Duration::from_secs(2)).await;
        Stopped { drained, locks }
    }

    /// The first half of [`stop`](Self::stop), for whoever shares its locks and shuts them down later: no new work; what
    /// is under way may finish for `bound`. True if all of it did.
    pub async fn drain(&self, bound: Duration) -> bool {
        self.stop.cancel();
        self.readers.close();
        self.readers.wait().await;
        self.turns.close();
        let clock = self.plane.locks().clock();
        until(&**clock, clock.now() + bound, self.turns.wait())
            .await
            .is_some()
    }

    /// Reads one queue's mail: as much as there are free slots, each delivery in a task of its own.
    fn read<F, T>(&self, queue: Queue, deliver: F)
    where
        F: Fn(crate::store::Taken) -> T + Send + 'static,
        T: Future<Output = ()> + Send + 'static,
    {
        let (plane, stop, turns) = (self.plane.clone(), self.stop.clone(), self.turns.clone());
        self.readers.spawn(async move {
            let ledger = plane.ledger();
            let clock = Arc::clone(ledger.locks.clock());
            let slots = Arc::new(Semaphore::new(ledger.settings.slots));
            loop {
                let free = tokio::select! {
                    () = stop.cancelled() => return,
                    slot = Arc::clone(&slots).acquire_owned() => slot,
                };
                let Ok(first) = free else { return };
                let wanted = 1 + slots.available_permits();
                // Listened to before looking, so that what is sent in between is not missed.
                let mut bell = pin!(ledger.bell.notified());
                bell.as_mut().enable();
                let asked = ledger
                    .call(ledger.store.take(queue, wanted, ledger.settings.visible))
                    .await;
                let taken = asked.unwrap_or_else(|failure| {
                    tracing::warn!(queue = queue.word(), %failure, "no mail could be read");
                    Vec::new()
                });
                let none = taken.is_empty();
                let mut first = Some(first);
                for mail in taken {
                    let slot = match first.take() {
                        Some(slot) => Some(slot),
                        None => Arc::clone(&slots).acquire_owned().await.ok(),
                    };
                    let turn = deliver(mail);
                    turns.spawn(async move {
                        turn.await;
                        drop(slot);
                    });
                }
                drop(first);
                if none {
                    tokio::select! {
                        () = stop.cancelled() => return,
                        () = bell => {}
                        () = clock.sleep(ledger.random.jitter(ledger.settings.mail_poll)) => {}
                    }
                }
            }
        });
    }
}

impl Drop for Replica {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

/// Sees within one poll who wants work of this replica called off.
async fn listen(scheduler: Scheduler, stop: CancellationToken) {
    let ledger = scheduler.ledger.clone();
    let clock = Arc::clone(ledger.locks.clock());
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            () = clock.sleep(ledger.settings.poll) => {}
        }
        if scheduler.at_work().is_empty() {
            continue;
        }
        if let Ok(wishes) = ledger.open_wishes(1000).await {
            for wish in wishes {
                let _here = scheduler.call_off(&wish.id);
            }
        }
    }
}

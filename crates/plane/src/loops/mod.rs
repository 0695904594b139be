//! The loops that repair what got stuck. Each runs in every replica and ticks in one of them.
//!
//! Whoever has a loop's lock keeps it, renewed, and ticks every poll; the others look every poll at most. The lease lives
//! two polls and is never given back but left to run out, so there is one tick per window across all replicas, and a
//! crashed ticker is followed within its TTL and one poll.

mod clean;
mod reconcile;
mod replay;
mod runs;

use std::time::Duration;

use leasehold_core::clock::Moment;
use leasehold_core::rng::RandomExt;
use leasehold_core::{Acquired, Hold};
use tokio_util::sync::CancellationToken;

use crate::error::PlaneError;
use crate::ledger::Ledger;
use crate::note::Note;
use crate::scheduler::{Scheduler, guarded};

/// Which loop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Which {
    /// Ends jobs that are stuck or late, takes over those whose owner is gone, grants wishes.
    Reconciler,
    /// Submits jobs again that nobody has taken up.
    Replayer,
    /// Looks at runs that do not move.
    RunReconciler,
    /// Wakes runs whose delay is over.
    DelayPoller,
    /// Forgets what ended long ago.
    DeadLetters,
}

impl Which {
    /// Every loop.
    pub const ALL: [Self; 5] = [
        Self::Reconciler,
        Self::Replayer,
        Self::RunReconciler,
        Self::DelayPoller,
        Self::DeadLetters,
    ];

    /// Its name; its lock is `loop:` and this.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Reconciler => "reconciler",
            Self::Replayer => "replayer",
            Self::RunReconciler => "workflow-reconciler",
            Self::DelayPoller => "delay-poller",
            Self::DeadLetters => "dlq-cleanup",
        }
    }

    const fn class(self) -> &'static str {
        match self {
            Self::Replayer => "replayer",
            _ => "reconciler",
        }
    }
}

/// One loop of one replica.
#[derive(Debug)]
pub struct Ticker {
    which: Which,
    ledger: Ledger,
    scheduler: Scheduler,
    hold: Option<Hold>,
    /// When the lease of the one who ticks runs out, as last seen.
    over_at: Option<Moment>,
}

impl Ticker {
    /// A loop that has not begun.
    #[must_use]
    pub fn new(which: Which, scheduler: Scheduler) -> Self {
        Self {
            which,
            ledger: scheduler.ledger.clone(),
            scheduler,
            hold: None,
            over_at: None,
        }
    }

    /// Ticks until stopped. The lease is left to run out.
    pub async fn run(mut self, stop: CancellationToken) {
        let clock = std::sync::Arc::clone(self.ledger.locks.clock());
        while !stop.is_cancelled() {
            let began = clock.now();
            let ticked = tokio::select! {
                biased;
                () = stop.cancelled() => return,
                ticked = self.turn() => ticked,
            };
            let poll = self.ledger.settings.poll;
            // Whoever ticks keeps time. Those who look come a little sooner, each at its own moment, so that they do not all
            // ask at once, and none later than one poll after the lease is free.
            let pause = if ticked {
                poll
            } else {
                poll / 2 + self.ledger.random.jitter(poll / 4)
            };
            tokio::select! {
                () = stop.cancelled() => return,
                () = clock.sleep_until(began + pause) => {}
            }
        }
    }

    /// One turn: take the lock or keep it, and tick. Answers whether this replica is the one who ticks.
    pub async fn turn(&mut self) -> bool {
        let name = self.which.name();
        if self.hold.as_ref().is_none_or(|hold| hold.check().is_err()) {
            self.hold = None;
            self.hold = self.take().await;
        }
        let Some(hold) = &self.hold else { return false };
        let skipped = |why| self.ledger.note(&Note::Skipped { name, why });
        match guarded(hold, self.tick(hold)).await {
            Ok(mended) => self.ledger.note(&Note::Ticked { name, mended }),
            Err(PlaneError::Lost(_)) => {
                skipped("lost");
                self.hold = None;
                return false;
            }
            Err(error) => {
                tracing::warn!(loop_name = name, %error, "the tick did not come to its end");
                skipped("error");
            }
        }
        true
    }

    async fn take(&mut self) -> Option<Hold> {
        let name = self.which.name();
        let ttl = self.ledger.settings.poll * 2;
        let locks = self
            .ledger
            .locks
            .class(self.which.class())
            .ttl(ttl)
            .wait(Duration::ZERO);
        let now = || self.ledger.locks.clock().now();
        match locks.acquire(format!("loop:{name}").as_str()).await {
            Ok(Acquired::Held(hold)) => {
                if let Some(over_at) = self.over_at.take() {
                    self.ledger.note(&Note::Takeover {
                        what: "loop",
                        name: name.to_owned(),
                        took: Some(now().since(over_at)),
                    });
                }
                Some(hold)
            }
            Ok(Acquired::Busy(busy)) => {
                self.over_at = busy.remaining.map(|left| now() + left);
                self.ledger.note(&Note::Skipped { name, why: "busy" });
                None
            }
            Err(error) => {
                tracing::debug!(loop_name = name, %error, "the tick is skipped");
                self.ledger.note(&Note::Skipped { name, why: "error" });
                None
            }
        }
    }

    /// One tick, under the loop's hold. Answers how much was mended.
    async fn tick(&self, hold: &Hold) -> Result<usize, PlaneError> {
        match self.which {
            Which::Reconciler => reconcile::tick(&self.scheduler, hold).await,
            Which::Replayer => replay::tick(&self.ledger, hold).await,
            Which::RunReconciler => runs::stuck(&self.ledger, hold).await,
            Which::DelayPoller => runs::delayed(&self.ledger, hold).await,
            Which::DeadLetters => clean::tick(&self.ledger, hold).await,
        }
    }
}

//! The background loops that repair stuck jobs and runs. Each runs in every replica and ticks in one.
//!
//! The replica that acquires a loop's lock keeps it, renewed, and ticks once per poll. The others try
//! the lock at most once per poll. The lease lasts two polls and is never released but left to expire,
//! so there is one tick per window across all replicas. A crashed replica is replaced within its TTL
//! plus one poll.

mod cleanup;
mod reconcile;
mod replay;
mod runs;

use std::time::Duration;

use leasehold_core::clock::Moment;
use leasehold_core::rng::RandomExt;
use leasehold_core::{Acquired, Hold};
use tokio_util::sync::CancellationToken;

use crate::error::PlaneError;
use crate::events::PlaneEvent;
use crate::fenced_writer::FencedWriter;
use crate::scheduler::{Scheduler, while_held};

/// The background loops.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum LoopKind {
    /// Ends stuck or late jobs, takes over jobs whose owner is gone, applies cancel requests.
    Reconciler,
    /// Sends the message of jobs again that no scheduler has taken.
    Replayer,
    /// Sends runs that make no progress to the engine.
    RunReconciler,
    /// Wakes runs whose delay step is over.
    DelayPoller,
    /// Purges documents that ended long ago.
    DeadLetters,
}

impl LoopKind {
    /// All loops; each replica runs every one of them.
    pub const ALL: [Self; 5] =
        [Self::Reconciler, Self::Replayer, Self::RunReconciler, Self::DelayPoller, Self::DeadLetters];

    /// The loop's name; its lock is `loop:<name>`.
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
pub struct LoopRunner {
    kind: LoopKind,
    writer: FencedWriter,
    scheduler: Scheduler,
    hold: Option<Hold>,
    /// When the current holder's lease ends, as last observed; for the takeover metric.
    lease_ends_at: Option<Moment>,
}

impl LoopRunner {
    /// A loop that has not started.
    #[must_use]
    pub fn new(which: LoopKind, scheduler: Scheduler) -> Self {
        Self { kind: which, writer: scheduler.writer.clone(), scheduler, hold: None, lease_ends_at: None }
    }

    /// Ticks until stopped. The lease is left to expire.
    pub(crate) async fn run(mut self, stop: CancellationToken) {
        let clock = std::sync::Arc::clone(self.writer.locks.clock());
        while !stop.is_cancelled() {
            let began = clock.now();
            let ticked = tokio::select! {
                biased;
                () = stop.cancelled() => return,
                ticked = self.run_once() => ticked,
            };
            let poll = self.writer.settings.poll;
            // The holder ticks at a fixed rate. The other replicas try earlier and with jitter: so they do
            // not all ask at once, and one of them tries within one poll after the lease has expired.
            let pause = if ticked { poll } else { poll / 2 + self.writer.random.jitter(poll / 4) };
            tokio::select! {
                () = stop.cancelled() => return,
                () = clock.sleep_until(began + pause) => {}
            }
        }
    }

    /// One round: acquires or keeps the lock, and ticks. Returns whether this replica holds the lock.
    pub async fn run_once(&mut self) -> bool {
        let name = self.kind.name();
        if self.hold.as_ref().is_none_or(|hold| hold.check().is_err()) {
            self.hold = None;
            // The lost hold must be dropped before another one on the same name is acquired.
            self.hold = self.acquire_lock().await;
        }
        let Some(hold) = &self.hold else { return false };
        let skipped = |why| self.writer.emit(&PlaneEvent::LoopSkipped { name, why });
        match while_held(hold, self.tick(hold)).await {
            Ok(mended) => self.writer.emit(&PlaneEvent::LoopTicked { name, repaired: mended }),
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

    async fn acquire_lock(&mut self) -> Option<Hold> {
        let name = self.kind.name();
        let ttl = self.writer.settings.poll * 2;
        let locks = self.writer.locks.class(self.kind.class()).ttl(ttl).wait(Duration::ZERO);
        let now = || self.writer.locks.clock().now();
        match locks.acquire(format!("loop:{name}").as_str()).await {
            Ok(Acquired::Held(hold)) => {
                if let Some(over_at) = self.lease_ends_at.take() {
                    self.writer.emit(&PlaneEvent::Takeover {
                        what: "loop",
                        name: name.to_owned(),
                        took: Some(now().since(over_at)),
                    });
                }
                Some(hold)
            }
            Ok(Acquired::Busy(busy)) => {
                self.lease_ends_at = busy.remaining.map(|left| now() + left);
                self.writer.emit(&PlaneEvent::LoopSkipped { name, why: "busy" });
                None
            }
            Err(error) => {
                tracing::debug!(loop_name = name, %error, "the tick is skipped");
                self.writer.emit(&PlaneEvent::LoopSkipped { name, why: "error" });
                None
            }
        }
    }

    /// One tick, under the loop's hold. Returns how many items it repaired.
    async fn tick(&self, hold: &Hold) -> Result<usize, PlaneError> {
        match self.kind {
            LoopKind::Reconciler => reconcile::tick(&self.scheduler, hold).await,
            LoopKind::Replayer => replay::tick(&self.writer, hold).await,
            LoopKind::RunReconciler => runs::wake_stuck(&self.writer, hold).await,
            LoopKind::DelayPoller => runs::wake_delayed(&self.writer, hold).await,
            LoopKind::DeadLetters => cleanup::tick(&self.writer, hold).await,
        }
    }
}

//! The guard that a successful acquire returns.

use std::fmt;
use std::future::Future;
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Poll;
use std::time::Duration;

use tokio::sync::{oneshot, watch};
use tokio_util::sync::CancellationToken;

use crate::clock::SharedClock;
use crate::deadline::Deadline;
use crate::error::{FenceError, LeaseLost};
use crate::event::Loss;
use crate::keeper::{KeeperCommand, KeeperHandle};
use crate::life::{HoldMachine, ReleaseOutcome};
use crate::types::{Fence, Name};

/// The scope in which a hold is exclusive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exclusivity {
    /// Exclusive among all clients of the store.
    Distributed,
    /// Exclusive in this process only: the store did not answer and the class is fail-open.
    LocalOnly,
}

/// The status of a hold at the moment of the call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum HoldStatus {
    /// The store confirmed the lease and its deadline has not passed.
    Proven,
    /// Work continues without a lease that can be proven.
    Unproven,
    /// The hold never had a lease.
    LocalOnly,
    /// The hold ended for this reason.
    Lost(Loss),
    /// The guard was released or dropped. Only [`Hold::deadlines`] shows it, since no guard is left.
    Released,
}

/// The state of one hold that the keeper and the guard share. The keeper writes it; the guard reads
/// it at the moment of use.
#[derive(Debug)]
pub(crate) struct SharedHold {
    fence: Mutex<Option<Fence>>,
    deadline: watch::Sender<Deadline>,
    cancel: CancellationToken,
}

impl SharedHold {
    pub(crate) fn new(life: &HoldMachine) -> Arc<Self> {
        Arc::new(Self {
            fence: Mutex::new(life.fence()),
            deadline: watch::Sender::new(life.deadline()),
            cancel: CancellationToken::new(),
        })
    }

    /// Copies the state of the machine.
    pub(crate) fn update(&self, life: &HoldMachine) {
        *self.fence.lock().unwrap_or_else(PoisonError::into_inner) = life.fence();
        let next = life.deadline();
        self.deadline.send_if_modified(|current| {
            let before = *current;
            match (before.status, next.status) {
                // The first end is final: a lost hold stays lost when its guard is dropped.
                (HoldStatus::Lost(_) | HoldStatus::Released, _) => {}
                // The moments stay: the supervisor of a lost hold still needs them.
                (_, HoldStatus::Lost(_) | HoldStatus::Released) => current.status = next.status,
                _ => *current = next,
            }
            *current != before
        });
    }

    /// Fires the cancellation. `update` must have stored the reason before.
    pub(crate) fn cancel(&self) {
        self.cancel.cancel();
    }

    fn fence(&self) -> Option<Fence> {
        *self.fence.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn deadline(&self) -> Deadline {
        *self.deadline.borrow()
    }
}

/// A held lock.
///
/// **Dropping it** releases the lease in the background, with the same bounds and accounting as
/// [`release`](Self::release). The drop never blocks and never panics, but only `release` reports
/// the outcome. If the process ends first, the lease expires by its TTL.
pub struct Hold {
    pub(crate) id: u64,
    pub(crate) name: Name,
    pub(crate) class: Arc<str>,
    pub(crate) shared: Arc<SharedHold>,
    pub(crate) keeper: KeeperHandle,
    pub(crate) clock: SharedClock,
}

impl Hold {
    /// The locked name.
    #[must_use]
    pub fn name(&self) -> &Name {
        &self.name
    }

    /// The class under which it was acquired.
    #[must_use]
    pub fn class(&self) -> &str {
        &self.class
    }

    /// Checks that work may continue. Reads the clock: call it right before each protected step. A
    /// process that was suspended past its lease finds out here, before it acts.
    ///
    /// # Errors
    /// The hold ended: stop the work.
    pub fn check(&self) -> Result<(), LeaseLost> {
        match self.status() {
            HoldStatus::Lost(reason) => Err(self.lost_error(reason)),
            _ => Ok(()),
        }
    }

    /// The status now.
    #[must_use]
    pub fn status(&self) -> HoldStatus {
        self.deadline().judge(self.clock.now())
    }

    /// The deadline of the work, as the last step left it.
    #[must_use]
    pub fn deadline(&self) -> Deadline {
        self.shared.deadline()
    }

    /// The deadline of the work, with a notification when it moves and when the hold ends. The
    /// receiver may outlive the hold.
    #[must_use]
    pub fn deadlines(&self) -> watch::Receiver<Deadline> {
        self.shared.deadline.subscribe()
    }

    /// The scope of exclusivity now.
    #[must_use]
    pub fn exclusivity(&self) -> Exclusivity {
        match self.status() {
            HoldStatus::LocalOnly => Exclusivity::LocalOnly,
            _ => Exclusivity::Distributed,
        }
    }

    /// The fence to send with each protected write. Checks the hold first.
    ///
    /// # Errors
    /// The hold ended, or it is local-only and no store has issued a fence.
    pub fn fence(&self) -> Result<Fence, FenceError> {
        self.check()?;
        self.shared.fence().ok_or_else(|| FenceError::LocalOnly { name: self.name.clone() })
    }

    /// Like [`fence`](Self::fence), but returns `None` for a local-only hold. For targets that
    /// accept a repeated write.
    ///
    /// # Errors
    /// The hold ended.
    pub fn fence_if_any(&self) -> Result<Option<Fence>, LeaseLost> {
        self.check()?;
        Ok(self.shared.fence())
    }

    /// How long work may continue without another confirmed renewal; zero if the hold ended.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        self.deadline().remaining(self.clock.now())
    }

    /// How long no other client can be granted the name: the rest of the confirmed lease, zero if
    /// no lease can be proven. Shorter than [`remaining`](Self::remaining) only where the class
    /// lets unproven work continue.
    #[must_use]
    pub fn proven_for(&self) -> Duration {
        self.deadline().proven_for(self.clock.now())
    }

    /// Checks that this hold covers `name`. Locks are not reentrant: pass the hold to code that
    /// needs `name` locked, and let that code call this.
    ///
    /// # Errors
    /// The hold is for another name, or it ended.
    pub fn cover(&self, name: &Name) -> Result<&Self, CoverError> {
        if self.name != *name {
            return Err(CoverError::OtherName { held: self.name.clone(), wanted: name.clone() });
        }
        self.check()?;
        Ok(self)
    }

    /// Completes when the hold is lost, with the reason. It does not depend on a live keeper: the
    /// deadline is watched here too.
    pub async fn lost(&self) -> LeaseLost {
        loop {
            let deadline = self.deadline();
            if let HoldStatus::Lost(reason) = deadline.judge(self.clock.now()) {
                return self.lost_error(reason);
            }
            tokio::select! {
                // Fixed order: a random one would break replay from a seed.
                biased;
                () = self.shared.cancel.cancelled() => {
                    if let HoldStatus::Lost(reason) = self.status() {
                        return self.lost_error(reason);
                    }
                    // Cancellation is final; the reason is about to be stored.
                    tokio::task::yield_now().await;
                }
                // A renewal may have moved the deadline: compare again.
                () = self.clock.sleep_until(deadline.stop_at()) => {}
            }
        }
    }

    /// Tells other tasks that the hold is lost; may outlive the hold.
    #[must_use]
    pub fn cancellation(&self) -> LossSignal {
        LossSignal(self.shared.cancel.clone())
    }

    /// Runs `work` while the hold is good. The hold is checked before every poll of the work, so a
    /// process that wakes up past its deadline runs none of it. On loss the work is dropped.
    ///
    /// # Errors
    /// The hold was lost; with the work's result, if it had one by then.
    pub async fn run<T>(&self, work: impl Future<Output = T>) -> Result<T, (LeaseLost, Option<T>)> {
        let mut work = pin!(work);
        let mut lost = pin!(self.lost());
        std::future::poll_fn(|cx| {
            if let Poll::Ready(lost) = lost.as_mut().poll(cx) {
                return Poll::Ready(Err((lost, None)));
            }
            // Timers can fire late after a suspension; the comparison cannot.
            if let Err(lost) = self.check() {
                return Poll::Ready(Err((lost, None)));
            }
            match work.as_mut().poll(cx) {
                Poll::Ready(out) => Poll::Ready(match self.check() {
                    Ok(()) => Ok(out),
                    Err(lost) => Err((lost, Some(out))),
                }),
                Poll::Pending => Poll::Pending,
            }
        })
        .await
    }

    /// Releases the lease and returns the outcome. The release does not depend on this future: it
    /// continues if the future is dropped. It never fails: an unconfirmed release is
    /// [`ReleaseOutcome::Debt`].
    pub async fn release(self) -> ReleaseOutcome {
        let (answer, outcome) = oneshot::channel();
        self.keeper.send(KeeperCommand::Release { id: self.id, answer: Some(answer) });
        match outcome.await {
            Ok(outcome) => outcome,
            // The keeper ended without an answer: the lease will expire by its TTL.
            Err(_) => ReleaseOutcome::Skipped,
        }
    }

    fn lost_error(&self, reason: Loss) -> LeaseLost {
        LeaseLost { name: self.name.clone(), reason }
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        // After `release` this is a repetition, which the machine ignores.
        self.keeper.send(KeeperCommand::Release { id: self.id, answer: None });
    }
}

impl fmt::Debug for Hold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hold")
            .field("name", &self.name)
            .field("class", &self.class)
            .field("status", &self.status())
            .field("fence", &self.shared.fence())
            .finish_non_exhaustive()
    }
}

/// Set once, when its hold is lost. A clone is the same signal.
#[derive(Debug, Clone)]
pub struct LossSignal(CancellationToken);

impl LossSignal {
    /// Whether the hold is lost.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.0.is_cancelled()
    }

    /// Completes when the hold is lost; never if the hold is released before.
    pub async fn cancelled(&self) {
        self.0.cancelled().await;
    }
}

/// The hold does not cover the name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CoverError {
    /// The hold is for another name.
    #[error("a hold of {held} does not cover {wanted}")]
    OtherName {
        /// The name that the hold locks.
        held: Name,
        /// The name that the caller needs locked.
        wanted: Name,
    },
    /// The hold ended.
    #[error(transparent)]
    Lost(#[from] LeaseLost),
}

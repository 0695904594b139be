//! Sends each new deadline to the guardian as soon as a renewal has moved it.

use std::time::Duration;

use leasehold_core::clock::Moment;
use leasehold_core::{Deadline, Hold, HoldStatus};
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::guardian_client::GuardianPipe;

/// The deadlines of all holds that a command runs under: the earliest one counts.
#[derive(Debug, Clone)]
pub(crate) struct Deadlines(Vec<watch::Receiver<Deadline>>);

impl Deadlines {
    pub(crate) fn of(holds: &[&Hold]) -> Self {
        Self(holds.iter().map(|hold| hold.deadlines()).collect())
    }

    /// When the command must begin to stop. A lost hold keeps the moment it had.
    pub(crate) fn stop_at(&self) -> Moment {
        let all = self.0.iter().map(|deadline| deadline.borrow().stop_at());
        all.min().unwrap_or(Moment::FAR)
    }

    fn any_ended(&self) -> bool {
        let ended = |status| matches!(status, HoldStatus::Lost(_) | HoldStatus::Released);
        self.0.iter().any(|deadline| ended(deadline.borrow().status))
    }

    /// Sends the current deadline.
    pub(crate) fn send_to(&self, guardian: &GuardianPipe, grace: Duration) {
        // After a loss the guardian keeps the last deadline, so that it still acts in time.
        if !self.any_ended() {
            guardian.send_deadline(self.stop_at(), grace);
        }
    }
}

/// Tasks of their own, so that a blocked terminal cannot delay a deadline. They end when this is dropped.
#[derive(Debug)]
pub(crate) struct DeadlineForwarder {
    _tasks: JoinSet<()>,
}

impl DeadlineForwarder {
    /// Sends the current deadline, and each later one.
    pub(crate) fn start(deadlines: &Deadlines, guardian: &GuardianPipe, grace: Duration) -> Self {
        let mut tasks = JoinSet::new();
        // Subscribed before the first deadline is sent, so that no change falls in between.
        for mut hold in deadlines.0.iter().cloned() {
            hold.mark_unchanged();
            let (all, guardian) = (deadlines.clone(), guardian.clone());
            tasks.spawn(async move {
                while hold.changed().await.is_ok() {
                    all.send_to(&guardian, grace);
                }
            });
        }
        deadlines.send_to(guardian, grace);
        Self { _tasks: tasks }
    }
}

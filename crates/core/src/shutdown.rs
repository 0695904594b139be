//! Client shutdown: refuse new locks, let holds finish within a bound, fence the rest, release, and
//! report what remains.

use std::time::Duration;

use tokio::sync::oneshot;

use crate::client::Locks;
use crate::clock::{ClockExt, Moment};
use crate::keeper::{KeeperCommand, PendingWork};

// The keeper has no notification for "drained"; shutdown is rare, so polling is enough.
const DRAIN_POLL_INTERVAL: Duration = Duration::from_millis(10);

/// The result of a shutdown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct ShutdownReport {
    /// The number of holds that did not finish in time and were fenced.
    pub fenced: usize,
    /// Work that was not done in time. The leases concerned expire by their TTL.
    pub pending: PendingWork,
}

impl Locks {
    /// Shuts the client down. New and waiting acquires fail with
    /// [`Error::Closed`](crate::Error::Closed) at once. Holds may finish for `bound`, then they are
    /// fenced. Releases and undos in flight get `bound` once more. Undos that are due later
    /// continue as long as the client's runtime lives.
    pub async fn shutdown(&self, bound: Duration) -> ShutdownReport {
        // First, so that no new hold appears while the existing ones finish.
        self.inner.closing.cancel();
        let clock = &self.inner.context.clock;
        self.wait_until_drained(clock.now() + bound, |left| left.holds == 0).await;
        let fenced = self.pending().await.holds;
        self.inner.keeper.send(KeeperCommand::EndAll);
        // Deferred undos wait for leases to expire, up to a TTL: a shutdown does not wait for them.
        let remains = self
            .wait_until_drained(clock.now() + bound, |left| {
                PendingWork { deferred_undos: 0, ..*left } == PendingWork::default()
            })
            .await;
        self.inner.acquire_slots.close();
        ShutdownReport { fenced, pending: remains }
    }

    /// Waits, at most for `bound`, until no release, debt or undo is pending, and returns what is
    /// pending then. Holds and acquires continue.
    pub async fn drain(&self, bound: Duration) -> PendingWork {
        let by = self.inner.context.clock.now() + bound;
        self.wait_until_drained(by, |left| (left.releasing, left.debts, left.undos) == (0, 0, 0)).await
    }

    /// Counts the pending work of this client.
    pub async fn pending(&self) -> PendingWork {
        let (answer, left) = oneshot::channel();
        self.inner.keeper.send(KeeperCommand::Count(answer));
        // A keeper that ended has no pending work.
        left.await.unwrap_or_default()
    }

    async fn wait_until_drained(&self, until: Moment, enough: impl Fn(&PendingWork) -> bool) -> PendingWork {
        let clock = &self.inner.context.clock;
        loop {
            let left = self.pending().await;
            if enough(&left) || clock.now() >= until {
                return left;
            }
            clock.sleep(DRAIN_POLL_INTERVAL).await;
        }
    }
}

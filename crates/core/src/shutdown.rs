//! The orderly end: no new locks, let holds finish up to a bound, fence the rest, release all, report what remains.

use std::time::Duration;

use tokio::sync::oneshot;

use crate::client::Locks;
use crate::clock::{ClockExt, Moment};
use crate::keeper::{Command, Left};

/// How often the end is looked for.
const LOOK: Duration = Duration::from_millis(10);

/// How a shutdown went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Shutdown {
    /// Holds that did not finish in time and were fenced.
    pub fenced: usize,
    /// What is left: leases that run out by themselves.
    pub remains: Left,
}

impl Locks {
    /// Ends this client. Acquires, new ones and those that wait, answer [`Error::Closed`](crate::Error::Closed) at
    /// once; holds may finish for `bound`, then they are fenced; releases and undos that are on their way get `bound`
    /// once more. Undos whose time has not come go on as long as the client's runtime does.
    pub async fn shutdown(&self, bound: Duration) -> Shutdown {
        self.inner.closing.cancel();
        let clock = &self.inner.tools.clock;
        self.drained(clock.now() + bound, |left| left.holds == 0).await;
        let fenced = self.left().await.holds;
        self.inner.keeper.send(Command::EndAll);
        let remains = self
            .drained(clock.now() + bound, |left| {
                Left { later: 0, ..*left } == Left::default()
            })
            .await;
        self.inner.asking.close();
        Shutdown { fenced, remains }
    }

    /// Waits, at most for `bound`, until nothing is being given back or undone any more, and says what is left then. Holds and
    /// acquires go on.
    pub async fn settled(&self, bound: Duration) -> Left {
        let by = self.inner.tools.clock.now() + bound;
        self.drained(by, |left| (left.releasing, left.debts, left.undos) == (0, 0, 0))
            .await
    }

    /// What this client still has to do.
    pub async fn left(&self) -> Left {
        let (answer, left) = oneshot::channel();
        self.inner.keeper.send(Command::Count(answer));
        // A keeper that is gone has nothing left.
        left.await.unwrap_or_default()
    }

    async fn drained(&self, until: Moment, enough: impl Fn(&Left) -> bool) -> Left {
        let clock = &self.inner.tools.clock;
        loop {
            let left = self.left().await;
            if enough(&left) || clock.now() >= until {
                return left;
            }
            clock.sleep(LOOK).await;
        }
    }
}

//! Each new deadline is told to the guardian as soon as a renewal has moved it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use leasehold::Hold;
use leasehold::clock::Moment;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::guard::{Line, deadline};

/// Tells the guardian each new deadline, whatever else we are busy with (writing to a terminal that does not read).
#[derive(Debug)]
pub(super) struct Follower {
    shared: Arc<Following>,
    task: JoinHandle<()>,
}

#[derive(Debug)]
struct Following {
    hold: Arc<Hold>,
    line: Line,
    grace: Duration,
    /// The last deadline that was told, in nanoseconds.
    last: AtomicU64,
}

impl Follower {
    /// Tells the deadline there is, and each one to come.
    pub(super) fn start(
        hold: &Arc<Hold>,
        line: Line,
        grace: Duration,
        mut news: watch::Receiver<u64>,
    ) -> Self {
        let shared = Arc::new(Following {
            hold: Arc::clone(hold),
            line,
            grace,
            last: AtomicU64::new(Moment::FAR.as_nanos()),
        });
        shared.tell();
        let following = Arc::clone(&shared);
        let task = tokio::spawn(async move {
            while news.changed().await.is_ok() {
                following.tell();
            }
        });
        Self { shared, task }
    }

    /// Tells it again, to a new guardian.
    pub(super) fn tell(&self) {
        self.shared.tell();
    }

    /// The last one that was told; a lost hold has none any more.
    pub(super) fn last_deadline(&self) -> Moment {
        Moment::from_nanos(self.shared.last.load(Ordering::Acquire))
    }

    /// Lets go of the hold.
    pub(super) async fn stop(self) {
        self.task.abort();
        let _ = self.task.await;
    }
}

impl Following {
    fn tell(&self) {
        // A lost hold has no deadline any more: what was told last stands.
        if self.hold.check().is_err() {
            return;
        }
        let deadline = deadline(&self.hold);
        let nanos = deadline.unwrap_or(Moment::FAR).as_nanos();
        self.last.store(nanos, Ordering::Release);
        self.line.tell_deadline(deadline, self.grace);
    }
}

//! Undoes acquires whose callers disconnected or could not be answered, if the caller cannot repeat
//! the request.
//!
//! A caller with an id or token of its own can repeat the request: over a new connection before the
//! daemon notices that the first one is dead, or long before a delayed first request arrives.
//! Undoing one request could release what the other was granted, here or through another daemon. So
//! such a caller only loses its place in the queue. Its lease waits for it and expires by itself.
//!
//! The undo is retried for as long as there could be something to undo. Core's [`ReleaseDriver`] decides
//! that, so the daemon retries exactly as a client would.

use std::sync::Arc;
use std::time::Duration;

use leasehold::Name;
use leasehold::clock::{Clock, Moment, run_until};
use leasehold::policy::Class;
use leasehold::store::{AcquireRequest, ReleaseRequest, ReleaseResponse};
use leasehold_core::Token;
use leasehold_core::acquire::ReleaseDriver;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::state::app::App;

// Undos beyond this get one try only. Otherwise a store outage would make the daemon remember every
// request of the outage.
const MAX_RETRIED_UNDOS: usize = 1024;

/// Undoes a running acquire when dropped, unless disarmed.
pub(crate) struct UndoGuard {
    app: Arc<App>,
    pending: Option<PendingUndo>,
}

/// One undo, and what it undoes.
struct PendingUndo {
    driver: ReleaseDriver,
    name: Name,
    token: Token,
}

impl UndoGuard {
    /// Arms a guard for this acquire. `unrepeatable`: its caller cannot repeat the request.
    pub(crate) fn new(
        app: &Arc<App>,
        request: &AcquireRequest,
        class: &Arc<Class>,
        unrepeatable: bool,
        wait: Option<Duration>,
    ) -> Self {
        let (name, token) = (&request.names, &request.token);
        let release = match (unrepeatable, wait) {
            (true, _) => Some(ReleaseRequest::undo(name.clone(), token.clone())),
            (false, Some(_)) => Some(ReleaseRequest::leave_queue(name.clone(), token.clone())),
            (false, None) => None,
        };
        let pending = release.map(|release| PendingUndo {
            driver: ReleaseDriver::new(release, Arc::clone(class)),
            name: request.names.first().clone(),
            token: request.token.clone(),
        });
        Self { app: Arc::clone(app), pending }
    }

    /// Disarms the guard: the caller gets a definite answer.
    pub(crate) fn disarm(&mut self) {
        self.pending = None;
    }
}

impl Drop for UndoGuard {
    fn drop(&mut self) {
        if let Some(undo) = self.pending.take() {
            UndoQueue::spawn_undo(&self.app, undo);
        }
    }
}

/// The undos in progress.
#[derive(Debug)]
pub(crate) struct UndoQueue {
    tasks: TaskTracker,
    /// Permits for undos that retry.
    retry_permits: Arc<Semaphore>,
    /// Cancelled when the daemon no longer waits for undos.
    aborted: CancellationToken,
}

impl UndoQueue {
    pub(crate) fn new() -> Self {
        Self {
            tasks: TaskTracker::new(),
            retry_permits: Arc::new(Semaphore::new(MAX_RETRIED_UNDOS)),
            aborted: CancellationToken::new(),
        }
    }

    fn spawn_undo(app: &Arc<App>, undo: PendingUndo) {
        let (room, enough) = app.undo_queue.retry_permit(&app.stopping);
        let (io, over) = (app.driver_io(), app.undo_queue.aborted.clone());
        let PendingUndo { driver, name, token } = undo;
        let in_task = Arc::clone(app);
        app.undo_queue.tasks.spawn(async move {
            let (_room, app) = (room, in_task);
            tokio::select! {
                biased;
                () = over.cancelled() => {}
                undone = driver.with_stop(enough).run(&io) => match undone {
                    // A grant that was recorded ends here, and is not counted any longer.
                    Ok(ReleaseResponse::Released) => {
                        app.client_leases.released(&name, &token, ReleaseResponse::Released, true, app.clock.now());
                    }
                    Ok(ReleaseResponse::NotOwned) => {}
                    // The lease expires by itself then.
                    Err(error) => tracing::warn!(why = %error, "what a caller left behind could not be taken back"),
                }
            }
        });
    }

    /// A permit to retry, if one is free, and the token that ends the retries. Retries end when the
    /// daemon stops, since they would delay the stop.
    fn retry_permit(
        &self,
        stopping: &CancellationToken,
    ) -> (Option<OwnedSemaphorePermit>, CancellationToken) {
        let room = Arc::clone(&self.retry_permits).try_acquire_owned().ok();
        let enough = match &room {
            Some(_) => stopping.clone(),
            None => {
                let at_once = CancellationToken::new();
                at_once.cancel();
                at_once
            }
        };
        (room, enough)
    }

    /// Waits for running undos until `end`, then aborts the rest.
    pub(crate) async fn drain(&self, clock: &dyn Clock, end: Moment) {
        self.tasks.close();
        run_until(clock, end, self.tasks.wait()).await;
        self.aborted.cancel();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn undos_beyond_the_limit_get_one_try() {
        let (undo_queue, stopping) = (UndoQueue::new(), CancellationToken::new());
        let patient = || !undo_queue.retry_permit(&stopping).1.is_cancelled();
        let many: Vec<_> = (0..MAX_RETRIED_UNDOS).map(|_| undo_queue.retry_permit(&stopping)).collect();
        assert!(many.iter().all(|(_, enough)| !enough.is_cancelled()) && !patient());
        drop(many);
        assert!(patient());
    }
}

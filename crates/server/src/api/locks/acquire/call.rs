//! The store calls of one acquire, in a task of their own.
//!
//! The task outlives a caller that disconnects, so that what the store has done is recorded.

use std::sync::Arc;
use std::time::Duration;

use leasehold::clock::Moment;
use leasehold::policy::Class;
use leasehold::store::{AcquireRequest, AcquireResponse, Store, StoreError, StoreErrorKind, WakeListener};
use leasehold_core::acquire::{AcquireDriver, AcquireHooks, AcquireOutcome, CallAdmission};
use tokio_util::sync::CancellationToken;

use super::{CheckedAcquire, unknown_response};
use crate::auth::Principal;
use crate::state::app::App;
use crate::state::audit::AuditEntry;
use crate::state::undo::UndoGuard;

/// One acquire in its own task.
pub(super) struct AcquireCall {
    pub(super) app: Arc<App>,
    pub(super) who: Principal,
    pub(super) acquire: CheckedAcquire,
    pub(super) caller_gone: CancellationToken,
}

type AcquireResult = Result<AcquireResponse, StoreError>;

impl AcquireCall {
    /// Acquires, and records what the store has answered. The guard undoes the acquire unless the
    /// caller gets that answer; none if there is nothing to undo any more.
    pub(super) async fn run_recorded(&self) -> (AcquireResult, Option<UndoGuard>) {
        let Self { app, who, acquire, .. } = self;
        let started = app.clock.now();
        let (answer, undo_guard) = match acquire.wait {
            Some(wait) => self.run_waiting(wait).await,
            None => self.run_once().await,
        };
        let now = app.clock.now();
        let (took, waited) = (now.since(started), acquire.wait.is_some());
        app.client_leases.acquired(who.id(), &acquire.request, &answer, took, waited, now);
        if let Ok(AcquireResponse::Granted(grant)) = &answer {
            let name = acquire.request.names.first();
            app.audit.record(AuditEntry::new("acquire", who).name(name).fence(grant.fence));
        }
        (answer, undo_guard)
    }

    fn undo_guard(&self) -> UndoGuard {
        let acquire = &self.acquire;
        UndoGuard::new(&self.app, &acquire.request, &acquire.class, acquire.unrepeatable, acquire.wait)
    }

    /// Acquires with a single store call.
    async fn run_once(&self) -> (AcquireResult, Option<UndoGuard>) {
        let (undo_guard, acquire) = (self.undo_guard(), &self.acquire);
        let answer = send_once(&self.app, &self.who, acquire.request.clone(), acquire.store_timeout).await;
        // After an unknown answer the guard is dropped here, and undoes.
        let is_unknown = matches!(&answer, Err(failure) if failure.unknown);
        (answer, (!is_unknown).then_some(undo_guard))
    }
}

/// Sends one acquire to the store. The listener is set up before the waiter is registered, so that
/// no hint is lost.
async fn send_once(
    app: &App,
    who: &Principal,
    mut request: AcquireRequest,
    within: Duration,
) -> Result<AcquireResponse, StoreError> {
    if let Some(keep) = request.queue {
        let now = app.clock.now();
        app.waiters.listen(who.id(), &**app.store(), request.names.first(), &request.token, keep, now);
    }
    let answer = app.with_timeout(within, app.store().acquire(&request, within)).await;
    if let Ok(response) = &answer {
        app.locks.fence_floors().learn(response, &mut request);
    }
    match answer {
        Ok(AcquireResponse::Granted(_) | AcquireResponse::Void) => {
            app.waiters.forget(request.names.first(), &request.token)
        }
        Ok(AcquireResponse::Busy(_)) | Err(_) => {}
        Ok(_) => return Err(unknown_response()),
    }
    answer
}

impl AcquireCall {
    /// Acquires with waiting, by core's [`AcquireDriver`].
    async fn run_waiting(&self, wait: Duration) -> (AcquireResult, Option<UndoGuard>) {
        let (undo_guard, Self { app, who, acquire, caller_gone }) = (self.undo_guard(), self);
        let (class, request) = (Arc::clone(&acquire.class), acquire.request.clone());
        let hooks = WaitHooks { app, who, class: &acquire.class.name, caller_gone, voided: false };
        let mut driver = AcquireDriver::new(app.driver_io(), class, wait, request, hooks);
        let ended = driver.run().await;
        app.waiters.forget(acquire.request.names.first(), &acquire.request.token);
        if driver.hooks().voided {
            return (Ok(AcquireResponse::Void), Some(undo_guard));
        }
        let maybe_granted = driver.machine().maybe_granted() && !acquire.unrepeatable;
        let Ok(outcome) = ended else {
            return (Err(interrupted_error(app.stopping.is_cancelled(), maybe_granted)), None);
        };
        let answer = match outcome {
            AcquireOutcome::Held { grant, .. } => {
                return (Ok(AcquireResponse::Granted(grant)), Some(undo_guard));
            }
            // A caller that can repeat the request is not undone. It must know that an earlier call may
            // still be granted.
            AcquireOutcome::Busy(_) if maybe_granted => {
                let said = "another client holds it, but the store did not answer an earlier request of this wait, which may still be \
                        granted: retry with the same id or token";
                Err(StoreError::unknown(StoreErrorKind::TimedOut, said))
            }
            // The guard gives up the place in the queue when this function returns.
            AcquireOutcome::Busy(busy) => {
                let mut busy = busy;
                busy.queued = false;
                Ok(AcquireResponse::Busy(busy))
            }
            AcquireOutcome::Unavailable { cause, message } | AcquireOutcome::FallBack { cause, message } => {
                Err(StoreError::unknown(cause, message))
            }
            AcquireOutcome::TooLate => {
                let said = "the grant came too late to be used";
                Err(StoreError::unknown(StoreErrorKind::TimedOut, said))
            }
        };
        (answer, None)
    }
}

/// What the daemon adds to the driver: its table of listeners and its stop. Floors and policies are
/// those of its lock client. It has no breaker: ADR 20 says why.
struct WaitHooks<'a> {
    app: &'a App,
    who: &'a Principal,
    class: &'a str,
    caller_gone: &'a CancellationToken,
    /// The store has voided the token, which is an answer for the caller and not an error.
    voided: bool,
}

impl AcquireHooks for WaitHooks<'_> {
    type Permit = ();

    // The wait slot of the request already limits the calls.
    async fn admit(&mut self, _within: Duration) -> CallAdmission<()> {
        CallAdmission::Admitted(())
    }

    // From the table: it keeps a hint for the caller's next request, and each call extends that.
    fn listen(
        &mut self,
        current: Option<Arc<WakeListener>>,
        store: &dyn Store,
        request: &AcquireRequest,
    ) -> Arc<WakeListener> {
        // The table has it too, unless another request of the token has ended and removed it.
        drop(current);
        let (keep, now) = (request.queue.unwrap_or_default(), self.app.clock.now());
        self.app.waiters.listen(self.who.id(), store, request.names.first(), &request.token, keep, now)
    }

    fn on_response(&mut self, response: &AcquireResponse, request: &mut AcquireRequest, _now: Moment) {
        self.voided |= matches!(response, AcquireResponse::Void);
        self.app.locks.fence_floors().learn(response, request);
    }

    fn class_in_force(&mut self, _now: Moment) -> Option<Arc<Class>> {
        self.app.class(self.class).ok()
    }

    async fn stopped(&self) {
        tokio::select! {
            biased;
            () = self.caller_gone.cancelled() => {}
            _ = self.app.interrupted(self.who) => {}
        }
    }
}

/// The error of a wait that ends because the daemon stops, or because the caller has lost the right.
fn interrupted_error(stopping: bool, unknown: bool) -> StoreError {
    let (kind, why) = if stopping {
        (StoreErrorKind::Overloaded, "the daemon is stopping")
    } else {
        (StoreErrorKind::Denied, "the caller has lost its right to wait")
    };
    if unknown {
        let message = format!(
            "{why}, and the store did not answer an earlier request of this wait, which may still be granted: retry with the \
             same id or token"
        );
        return StoreError::unknown(kind, message);
    }
    StoreError::not_done(kind, format!("{why}; retry once that is over"))
}

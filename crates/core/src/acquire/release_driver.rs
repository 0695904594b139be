//! The one loop of releases and undos for users without a keeper: the daemon and the CLI.
//!
//! Core's [`HoldMachine`] decides when to retry and when nothing can be left in the store. The
//! keeper runs the same machine for the library.

use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use super::driver::DriverIo;
use super::machine::WAITER_REGISTRATION_TTL;
use crate::clock::Moment;
use crate::life::{Effect, HoldMachine, Input, ReleaseResult};
use crate::policy::Class;
use crate::store::{
    ReleaseAuthority, ReleaseRequest, ReleaseResponse, StoreError, StoreErrorKind, bounded_call,
};

/// A lease to be released, or an acquire to be undone.
#[derive(Debug)]
pub struct ReleaseDriver {
    request: ReleaseRequest,
    class: Arc<Class>,
    max_attempts: u32,
    stop_retrying: CancellationToken,
    // A caller waits until then. `FAR`: the loop runs in the background.
    caller_waits_until: Moment,
}

impl ReleaseDriver {
    /// Sends `request` until the store has answered. `class` has the TTL and lock delay of the
    /// acquire: they tell how long its lease could live.
    #[must_use]
    pub fn new(request: ReleaseRequest, class: Arc<Class>) -> Self {
        Self {
            request,
            class,
            max_attempts: u32::MAX,
            stop_retrying: CancellationToken::new(),
            caller_waits_until: Moment::FAR,
        }
    }

    /// Gives up at `end`, and at once after an error that a retry cannot cure, because a caller
    /// waits for the result.
    #[must_use]
    pub fn with_end(mut self, end: Moment) -> Self {
        self.caller_waits_until = end;
        self
    }

    /// Gives up after this many attempts, and makes at least one.
    #[must_use]
    pub fn with_max_attempts(mut self, attempts: u32) -> Self {
        self.max_attempts = attempts;
        self
    }

    /// Gives up after a failed attempt once `stop` is cancelled.
    #[must_use]
    pub fn with_stop(mut self, stop: CancellationToken) -> Self {
        self.stop_retrying = stop;
        self
    }

    /// Releases until the store has answered, there is nothing left to undo, or it gives up.
    ///
    /// # Errors
    /// The last failure, if no attempt was answered. What is left then expires by itself.
    pub async fn run(self, io: &DriverIo) -> Result<ReleaseResponse, StoreError> {
        let (store, clock) = (&*io.store, &*io.clock);
        let end = self.end(clock.now());
        let mut machine = HoldMachine::undo(Arc::clone(&self.class), io.random.bits(), clock.now());
        let (mut input, mut effects) = (Input::Tick, Vec::new());
        let (mut attempts, mut ambiguous) = (0, false);
        let mut last_error = StoreError::not_done(StoreErrorKind::TimedOut, "there was no time to release");
        loop {
            machine.step(input, clock.now(), &mut effects);
            let send = effects.drain(..).any(|effect| matches!(effect, Effect::Release { .. }));
            input = if send {
                attempts += 1;
                let within = self.class.release.timeout.min(self.caller_waits_until.since(clock.now()));
                match bounded_call(clock, within, store.release(&self.request, within)).await {
                    // An earlier attempt without a response may have released the lease.
                    Ok(ReleaseResponse::NotOwned) if ambiguous => return Ok(ReleaseResponse::Released),
                    // Any response ends an undo. *Not owned* means that nothing was granted.
                    Ok(response) => return Ok(response),
                    Err(error) => {
                        let unknown = error.unknown;
                        let permanent = self.caller_waits_until < Moment::FAR && !error.is_transient();
                        ambiguous |= unknown;
                        last_error = error;
                        if permanent {
                            break;
                        }
                        Input::ReleaseAnswered(ReleaseResult::Failed { unknown })
                    }
                }
            } else {
                let next = machine.wake_at();
                let over = machine.is_finished() || next >= end || attempts >= self.max_attempts;
                if over || self.stop_retrying.is_cancelled() {
                    break;
                }
                tokio::select! {
                    biased;
                    () = self.stop_retrying.cancelled() => break,
                    () = clock.sleep_until(next) => {}
                }
                Input::Tick
            };
        }
        Err(last_error)
    }

    /// The time after which nothing can be left to undo. For a lease the machine knows it.
    fn end(&self, now: Moment) -> Moment {
        let over = match self.request.authority {
            // The last acquire may still be on its way, and its registration lives from its arrival
            // on.
            ReleaseAuthority::Waiter(_) => now + self.class.acquire.timeout + WAITER_REGISTRATION_TTL,
            _ => Moment::FAR,
        };
        over.min(self.caller_waits_until)
    }
}

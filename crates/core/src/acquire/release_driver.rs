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

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::adapter::{Fault, FaultyStore, StoreOp};
    use crate::clock::{ClockExt, RuntimeClock};
    use crate::memory::MemoryStore;
    use crate::policy::PolicyBook;
    use crate::rng::SeededRandom;
    use crate::types::{Holder, Name, Token};

    /// A store that answers no release, on virtual time, and an undo of class `approval`.
    fn unanswering_store(
        request: impl Fn(Name, Token) -> ReleaseRequest,
    ) -> (FaultyStore, DriverIo, ReleaseDriver) {
        let clock = RuntimeClock::shared();
        let faulty = FaultyStore::new(Arc::new(MemoryStore::new(Arc::clone(&clock))), Arc::clone(&clock));
        faulty.release().down(true);
        let class = PolicyBook::builtin().class("approval", clock.now()).unwrap();
        let token = Token::fresh(&Holder::new("me").unwrap(), "approval", &*SeededRandom::shared(7));
        let undo = ReleaseDriver::new(request(Name::new("job:1").unwrap(), token), class);
        let io = DriverIo { store: faulty.store(), clock, random: SeededRandom::shared(7) };
        (faulty, io, undo)
    }

    #[tokio::test(start_paused = true)]
    async fn undo_is_retried_while_something_could_be_left() {
        for (request, least, most) in [
            // The registration's lifetime, and the time for which its request may be on its way.
            (ReleaseRequest::leave_queue as fn(Name, Token) -> ReleaseRequest, 2, 10),
            // A minute in which the request may arrive, and the lease that would begin then.
            (ReleaseRequest::undo, 60, 80),
        ] {
            let (faulty, io, undo) = unanswering_store(request);
            let began = io.clock.now();
            assert!(undo.run(&io).await.is_err());
            let took = io.clock.now().since(began).as_secs();
            assert!((least..=most).contains(&took), "{took}");
            // The backoff starts at 100 ms and ends at 5 s.
            let calls = faulty.calls(StoreOp::Release);
            assert!((4..=40).contains(&calls), "{calls}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn undo_ends_when_the_store_answers_or_its_user_stops() {
        let (faulty, io, undo) = unanswering_store(ReleaseRequest::undo);
        let back = async {
            faulty.wait_for_calls(StoreOp::Release, 3).await;
            faulty.release().down(false);
        };
        let (undone, ()) = tokio::join!(undo.run(&io), back);
        assert!(undone.is_ok());
        assert_eq!((faulty.calls(StoreOp::Release), faulty.applied(StoreOp::Release)), (4, 1));

        let (faulty, io, undo) = unanswering_store(ReleaseRequest::undo);
        let stopping = CancellationToken::new();
        let stop = async {
            faulty.wait_for_calls(StoreOp::Release, 3).await;
            stopping.cancel();
        };
        let began = io.clock.now();
        let (undone, ()) = tokio::join!(undo.with_stop(stopping.clone()).run(&io), stop);
        assert!(undone.is_err());
        assert_eq!(faulty.calls(StoreOp::Release), 3);
        assert!(io.clock.now().since(began) < Duration::from_secs(1));

        // An undo that begins during the stop gets one attempt.
        let (faulty, io, undo) = unanswering_store(ReleaseRequest::leave_queue);
        assert!(undo.with_stop(stopping.clone()).run(&io).await.is_err());
        assert_eq!(faulty.calls(StoreOp::Release), 1);
        io.clock.sleep(Duration::from_secs(600)).await;
        assert_eq!(faulty.calls(StoreOp::Release), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn undo_ends_after_its_attempts() {
        let (faulty, io, undo) = unanswering_store(ReleaseRequest::undo);
        let undone = undo.with_max_attempts(3).run(&io).await;
        assert!(undone.is_err());
        assert_eq!(faulty.calls(StoreOp::Release), 3);
    }

    #[tokio::test(start_paused = true)]
    async fn a_release_that_a_caller_waits_for_ends_in_time_or_at_a_permanent_error() {
        let (faulty, io, release) = unanswering_store(ReleaseRequest::by_owner);
        faulty.release().down(false).hang(true);
        let end = io.clock.now() + Duration::from_millis(700);
        assert!(release.with_end(end).run(&io).await.is_err_and(|error| error.unknown));
        assert_eq!(io.clock.now(), end);

        let (faulty, io, release) = unanswering_store(ReleaseRequest::by_owner);
        faulty.release().clear().script(9, Fault::Refuse(StoreErrorKind::Denied));
        let end = io.clock.now() + Duration::from_secs(60);
        assert!(release.with_end(end).run(&io).await.is_err());
        assert_eq!(faulty.calls(StoreOp::Release), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn not_owned_after_an_unanswered_release_means_released() {
        for (unanswered, expected) in [(0, ReleaseResponse::NotOwned), (1, ReleaseResponse::Released)] {
            let (faulty, io, release) = unanswering_store(ReleaseRequest::by_owner);
            faulty.release().clear().lose_reply(unanswered);
            assert_eq!(release.run(&io).await.ok(), Some(expected));
        }
    }
}

//! The loop of releases and undos: when it retries, and when it gives up.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use std::sync::Arc;
use std::time::Duration;

use leasehold_core::acquire::{DriverIo, ReleaseDriver};
use leasehold_core::adapter::{Fault, FaultyStore, StoreOp};
use leasehold_core::clock::{ClockExt, RuntimeClock};
use leasehold_core::memory::MemoryStore;
use leasehold_core::policy::PolicyBook;
use leasehold_core::rng::SeededRandom;
use leasehold_core::store::{ReleaseRequest, ReleaseResponse, StoreErrorKind};
use leasehold_core::types::{Holder, Name, Token};
use tokio_util::sync::CancellationToken;

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
    let io = DriverIo::new(faulty.store(), clock, SeededRandom::shared(7));
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

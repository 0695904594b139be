//! The breaker: when acquires fail without a store request, which request is the probe, and how
//! recovery is detected.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

use crate::fixture::{Fixture, assert_at, ms, secs};
use leasehold_core::adapter::StoreOp;
use leasehold_core::{Acquired, Error, ReleaseOutcome};

#[tokio::test(start_paused = true)]
async fn an_open_breaker_fails_fast_and_detects_recovery_with_one_probe() {
    let fixture = Fixture::new();
    let a = fixture.client("a");
    let held = a.hold("scheduler", "held").await;
    let ends = a.hold("scheduler", "ends").await;
    // Undos hang too: any response would prove that the store is up.
    fixture.faults.for_ops(&[StoreOp::Acquire, StoreOp::Release]).hang(true);
    for job in 0..3 {
        a.expect_error("scheduler", &format!("job:{job}")).await;
    }
    // Open: no request is sent, and the error returns at once.
    for _ in 0..50 {
        let (from, calls) = (fixture.now(), fixture.call_count(StoreOp::Acquire));
        let Error::Unavailable { message, .. } = a.expect_error("scheduler", "x").await else { panic!() };
        if fixture.call_count(StoreOp::Acquire) == calls {
            assert_eq!(fixture.now(), from);
            // The message repeats the last error, not only that no request was sent.
            assert!(message.starts_with("no answer within 2s; the next try is due in "), "{message}");
        }
    }
    assert_eq!(
        (fixture.call_count(StoreOp::Acquire), a.event_count("unavailable")),
        (2 + 5, 53),
        "five failures open it"
    );
    fixture.faults.release().clear();
    // Renewals and releases bypass the breaker, and their responses do not close it.
    assert_eq!(ends.release().await, ReleaseOutcome::Released);
    fixture.advance(secs(70)).await;
    held.check().unwrap();
    // Recovery: one probe at a time, and the first answered probe closes the breaker for all.
    fixture.faults.acquire().clear().down(true);
    for _ in 0..20 {
        a.expect_error("workflow-critical", "x").await;
    }
    fixture.advance(secs(6)).await;
    fixture.faults.acquire().clear().delay(ms(500));
    let calls = fixture.call_count(StoreOp::Acquire);
    let requests = (0..20).map(|job| a.class("workflow-critical").acquire(format!("probe:{job}")));
    let answers = futures_util::future::join_all(requests).await;
    let held = answers.iter().filter(|answer| matches!(answer, Ok(Acquired::Held(_)))).count();
    assert_eq!((held, fixture.call_count(StoreOp::Acquire) - calls), (1, 1), "one probe");
    let requests = (0..20).map(|job| a.class("workflow-critical").acquire(format!("after:{job}")));
    let answers = futures_util::future::join_all(requests).await;
    assert!(answers.iter().all(|answer| matches!(answer, Ok(Acquired::Held(_)))));
}

/// A probe whose caller is cancelled does not leave the breaker open.
#[tokio::test(start_paused = true)]
async fn a_cancelled_probe_does_not_keep_the_breaker_open() {
    let fixture = Fixture::new();
    let a = fixture.client("a");
    fixture.faults.acquire().down(true);
    for _ in 0..10 {
        a.expect_error("workflow-critical", "x").await;
    }
    fixture.advance(secs(6)).await;
    fixture.faults.acquire().clear().hang(true);
    let probe = tokio::spawn(a.class("workflow-critical").acquire("probe"));
    fixture.wait_for_calls(StoreOp::Acquire, 6).await;
    probe.abort();
    let _ = probe.await;
    fixture.faults.acquire().clear();
    a.hold("workflow-critical", "next").await.check().unwrap();
}

/// The first request after an outage may fail on a connection that died during the outage. The
/// acquire retries, because only a retry tells whether it was granted. The breaker must admit that
/// retry although this very request opened it or kept it open; otherwise the caller gets an error
/// while the store is up.
#[tokio::test(start_paused = true)]
async fn the_breaker_admits_the_retry_of_a_request_with_unknown_outcome() {
    for opens in [true, false] {
        let fixture = Fixture::new();
        let a = fixture.client("a");
        fixture.faults.acquire().down(true);
        for _ in 0..if opens { 4 } else { 5 } {
            a.expect_error("workflow-critical", "x").await;
        }
        fixture.advance(secs(6)).await;
        fixture.faults.acquire().clear().vanish_next(1);
        let calls = fixture.call_count(StoreOp::Acquire);
        a.hold("workflow-critical", "next").await.check().unwrap();
        assert_eq!(fixture.call_count(StoreOp::Acquire) - calls, 2);
        // The response closed the breaker for all.
        a.hold("workflow-critical", "after").await.check().unwrap();
    }
}

/// A probe fails if it is refused or if its outcome stays unknown. No request is sent before the
/// next pause is over.
#[tokio::test(start_paused = true)]
async fn a_failed_probe_is_not_retried_before_the_next_pause() {
    let fixture = Fixture::new();
    let a = fixture.client("a");
    // Undos hang too: any response would prove that the store is up.
    fixture.faults.release().hang(true);
    fixture.faults.acquire().down(true);
    for _ in 0..5 {
        a.expect_error("workflow-critical", "x").await;
    }
    fixture.advance(secs(6)).await;
    a.expect_error("scheduler", "waits").await;
    assert_eq!(fixture.call_count(StoreOp::Acquire), 6, "although it would wait");
    fixture.advance(secs(6)).await;
    fixture.faults.acquire().clear().hang(true);
    for _ in 0..2 {
        a.expect_error("workflow-critical", "x").await;
        assert_eq!(fixture.call_count(StoreOp::Acquire), 7);
    }
}

/// A probe whose wait ends has learnt nothing; the next acquire probes again.
#[tokio::test(start_paused = true)]
async fn a_probe_whose_wait_ends_does_not_keep_the_breaker_open() {
    let fixture = Fixture::new();
    let (a, b) = (fixture.client("a"), fixture.client("b"));
    let _hold = a.hold("scheduler", "job:1").await;
    let waits = tokio::spawn(b.class("scheduler").wait(ms(1500)).acquire("job:1"));
    fixture.advance(ms(100)).await;
    // Any response would prove that the store is up.
    fixture.faults.release().hang(true);
    fixture.faults.acquire().fail_next(4).vanish_next(50);
    for _ in 0..4 {
        b.expect_error("workflow-critical", "x").await;
    }
    let calls = fixture.call_count(StoreOp::Acquire);
    let answer = waits.await.unwrap();
    assert!(matches!(answer, Ok(Acquired::Busy(_))), "{answer:?}");
    assert!(fixture.call_count(StoreOp::Acquire) > calls + 1, "it was the probe");
    fixture.faults.acquire().clear();
    fixture.advance(secs(6)).await;
    b.hold("scheduler", "job:2").await.check().unwrap();
}

/// A request sent before the breaker opened fails while the probe is in flight. It neither ends the
/// probe nor lengthens the pause before the next one.
#[tokio::test(start_paused = true)]
async fn an_earlier_request_does_not_affect_the_probe() {
    let fixture = Fixture::new();
    let a = fixture.client("a");
    // Undos hang too: any response would prove that the store is up.
    fixture.faults.release().hang(true);
    fixture.faults.acquire().hang_next(1);
    let before = tokio::spawn(a.class("workflow-critical").acquire("before"));
    fixture.wait_for_calls(StoreOp::Acquire, 1).await;
    let from = fixture.now();
    fixture.faults.acquire().fail_next(5);
    for _ in 0..5 {
        a.expect_error("workflow-critical", "x").await;
    }
    fixture.advance(ms(300)).await;
    fixture.faults.acquire().hang_next(1);
    let probe = tokio::spawn(a.class("workflow-critical").acquire("probe"));
    fixture.wait_for_calls(StoreOp::Acquire, 7).await;
    assert!(matches!(before.await.unwrap(), Err(Error::Unavailable { .. })));
    assert_at(fixture.now(), from, secs(2));
    a.expect_error("workflow-critical", "x").await;
    assert_eq!(fixture.call_count(StoreOp::Acquire), 7, "the probe is still on its way");
    assert!(matches!(probe.await.unwrap(), Err(Error::Unavailable { .. })));
    assert_at(fixture.now(), from, ms(2_300));
    // One probe has failed, so this is the second pause, not the third.
    fixture.advance(ms(510)).await;
    a.hold("workflow-critical", "next").await.check().unwrap();
}

//! The breaker: when acquires are refused without asking, who asks as its probe, and how recovery is found.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test fails by panicking"
)]

use crate::bed::{Bed, assert_at, ms, secs};
use leasehold_core::adapter::Verb;
use leasehold_core::{Acquired, Error, Outcome};

#[tokio::test(start_paused = true)]
async fn the_breaker_answers_at_once_and_finds_recovery_with_one_probe() {
    let bed = Bed::new();
    let a = bed.client("a");
    let held = a.hold("scheduler", "held").await;
    let ends = a.hold("scheduler", "ends").await;
    // Undos hang too: an answer to anyone would show that the store is there.
    bed.chaos.on(&[Verb::Acquire, Verb::Release]).hang(true);
    for job in 0..3 {
        a.refused("scheduler", &format!("job:{job}")).await;
    }
    // Open: no ask goes out, and the answer takes no time.
    for _ in 0..50 {
        let (from, calls) = (bed.now(), bed.calls(Verb::Acquire));
        let Error::Unavailable { message, .. } = a.refused("scheduler", "x").await else {
            panic!()
        };
        if bed.calls(Verb::Acquire) == calls {
            assert_eq!(bed.now(), from);
            // What was wrong when it was asked, not only that it was not asked.
            assert!(
                message.starts_with("no answer within 2s; the next try is due in "),
                "{message}"
            );
        }
    }
    assert_eq!(
        (bed.calls(Verb::Acquire), a.count("unavailable")),
        (2 + 5, 53),
        "five failures open it"
    );
    bed.chaos.release().calm();
    // Renewals and releases pass, and their answers do not come through the breaker.
    assert_eq!(ends.release().await, Outcome::Released);
    bed.pass(secs(70)).await;
    held.check().unwrap();
    // Back: one probe at a time, and the first that is answered opens the way for all.
    bed.chaos.acquire().calm().down(true);
    for _ in 0..20 {
        a.refused("workflow-critical", "x").await;
    }
    bed.pass(secs(6)).await;
    bed.chaos.acquire().calm().delay(ms(500));
    let calls = bed.calls(Verb::Acquire);
    let asks = (0..20).map(|job| a.class("workflow-critical").acquire(format!("probe:{job}")));
    let answers = futures_util::future::join_all(asks).await;
    let held = answers
        .iter()
        .filter(|answer| matches!(answer, Ok(Acquired::Held(_))))
        .count();
    assert_eq!((held, bed.calls(Verb::Acquire) - calls), (1, 1), "one probe");
    let asks = (0..20).map(|job| a.class("workflow-critical").acquire(format!("after:{job}")));
    let answers = futures_util::future::join_all(asks).await;
    assert!(
        answers
            .iter()
            .all(|answer| matches!(answer, Ok(Acquired::Held(_))))
    );
}

/// A probe whose caller goes away does not leave the breaker shut.
#[tokio::test(start_paused = true)]
async fn a_cancelled_probe_does_not_shut_the_way_for_ever() {
    let bed = Bed::new();
    let a = bed.client("a");
    bed.chaos.acquire().down(true);
    for _ in 0..10 {
        a.refused("workflow-critical", "x").await;
    }
    bed.pass(secs(6)).await;
    bed.chaos.acquire().calm().hang(true);
    let probe = tokio::spawn(a.class("workflow-critical").acquire("probe"));
    bed.reached(Verb::Acquire, 6).await;
    probe.abort();
    let _ = probe.await;
    bed.chaos.acquire().calm();
    a.hold("workflow-critical", "next").await.check().unwrap();
}

/// The first ask after an outage may end on a connection that died in it. The acquire asks again to learn what became of it, and the
/// breaker, which that very ask opened or kept open, lets it: otherwise it would be told that the store is not there when it is.
#[tokio::test(start_paused = true)]
async fn whoever_does_not_know_what_became_of_its_ask_is_not_refused_the_next() {
    for opens in [true, false] {
        let bed = Bed::new();
        let a = bed.client("a");
        bed.chaos.acquire().down(true);
        for _ in 0..if opens { 4 } else { 5 } {
            a.refused("workflow-critical", "x").await;
        }
        bed.pass(secs(6)).await;
        bed.chaos.acquire().calm().vanish_next(1);
        let calls = bed.calls(Verb::Acquire);
        a.hold("workflow-critical", "next").await.check().unwrap();
        assert_eq!(bed.calls(Verb::Acquire) - calls, 2);
        // Its answer opened the way for all.
        a.hold("workflow-critical", "after").await.check().unwrap();
    }
}

/// A probe that was turned away for sure, or that ended without knowing, has failed: nobody asks again before the next pause is over.
#[tokio::test(start_paused = true)]
async fn a_probe_that_failed_is_over() {
    let bed = Bed::new();
    let a = bed.client("a");
    // Undos too: an answer to anyone would show that the store is there.
    bed.chaos.release().hang(true);
    bed.chaos.acquire().down(true);
    for _ in 0..5 {
        a.refused("workflow-critical", "x").await;
    }
    bed.pass(secs(6)).await;
    a.refused("scheduler", "waits").await;
    assert_eq!(bed.calls(Verb::Acquire), 6, "although it would wait");
    bed.pass(secs(6)).await;
    bed.chaos.acquire().calm().hang(true);
    for _ in 0..2 {
        a.refused("workflow-critical", "x").await;
        assert_eq!(bed.calls(Verb::Acquire), 7);
    }
}

/// One whose wait ends while it is the probe found out nothing: the next acquire does.
#[tokio::test(start_paused = true)]
async fn a_probe_whose_wait_is_over_does_not_shut_the_way_for_ever() {
    let bed = Bed::new();
    let (a, b) = (bed.client("a"), bed.client("b"));
    let _hold = a.hold("scheduler", "job:1").await;
    let waits = tokio::spawn(b.class("scheduler").wait(ms(1500)).acquire("job:1"));
    bed.pass(ms(100)).await;
    // An answer to anyone would show that the store is there.
    bed.chaos.release().hang(true);
    bed.chaos.acquire().fail_next(4).vanish_next(50);
    for _ in 0..4 {
        b.refused("workflow-critical", "x").await;
    }
    let calls = bed.calls(Verb::Acquire);
    let answer = waits.await.unwrap();
    assert!(matches!(answer, Ok(Acquired::Busy(_))), "{answer:?}");
    assert!(bed.calls(Verb::Acquire) > calls + 1, "it was the probe");
    bed.chaos.acquire().calm();
    bed.pass(secs(6)).await;
    b.hold("scheduler", "job:2").await.check().unwrap();
}

/// An ask that was on its way before the breaker opened fails beside the probe: it neither ends the probe nor makes the next
/// one later.
#[tokio::test(start_paused = true)]
async fn an_ask_from_before_says_nothing_about_the_probe() {
    let bed = Bed::new();
    let a = bed.client("a");
    // Undos too: an answer to anyone would show that the store is there.
    bed.chaos.release().hang(true);
    bed.chaos.acquire().hang_next(1);
    let before = tokio::spawn(a.class("workflow-critical").acquire("before"));
    bed.reached(Verb::Acquire, 1).await;
    let from = bed.now();
    bed.chaos.acquire().fail_next(5);
    for _ in 0..5 {
        a.refused("workflow-critical", "x").await;
    }
    bed.pass(ms(300)).await;
    bed.chaos.acquire().hang_next(1);
    let probe = tokio::spawn(a.class("workflow-critical").acquire("probe"));
    bed.reached(Verb::Acquire, 7).await;
    assert!(matches!(before.await.unwrap(), Err(Error::Unavailable { .. })));
    assert_at(bed.now(), from, secs(2));
    a.refused("workflow-critical", "x").await;
    assert_eq!(bed.calls(Verb::Acquire), 7, "the probe is still on its way");
    assert!(matches!(probe.await.unwrap(), Err(Error::Unavailable { .. })));
    assert_at(bed.now(), from, ms(2_300));
    // One probe has failed: the second pause, not the third.
    bed.pass(ms(510)).await;
    a.hold("workflow-critical", "next").await.check().unwrap();
}

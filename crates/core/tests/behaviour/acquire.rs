//! Acquire: its results, and that an unanswered request leaves nothing in the store.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

use crate::fixture;
use std::time::Duration;

use crate::fixture::{Fixture, assert_at, ms, run_ready_tasks, secs};
use leasehold_core::adapter::{Fault, StoreOp};
use leasehold_core::store::StoreErrorKind;
use leasehold_core::{Error, ReleaseOutcome};

/// `acquire` accepts text, a name, or a reference to a name.
#[tokio::test(start_paused = true)]
async fn acquire_accepts_every_form_of_a_name() {
    let fixture = Fixture::new();
    let a = fixture.client("a");
    let name = fixture::name("job:1");
    for form in 0..4 {
        let class = a.class("scheduler");
        let answer = match form {
            0 => class.acquire("job:1").await,
            1 => class.acquire("job:1".to_owned()).await,
            2 => class.acquire(&name).await,
            _ => class.acquire(name.clone()).await,
        };
        assert_eq!(answer.unwrap().held().unwrap().release().await, ReleaseOutcome::Released);
    }
}

#[tokio::test(start_paused = true)]
async fn busy_reports_holder_remaining_time_and_waited_time() {
    let fixture = Fixture::new();
    let (a, b) = (fixture.client("a"), fixture.client("b"));
    let hold = a.hold("scheduler", "job:1").await;
    fixture.advance(secs(10)).await;
    let busy = b.expect_busy("approval", "job:1").await;
    assert_eq!((busy.holder.as_str(), busy.class.as_deref()), ("a", Some("scheduler")));
    assert_eq!(busy.fence, hold.fence().ok());
    let left = busy.remaining.unwrap();
    assert!(left > secs(47) && left <= secs(48), "60 s less 10 less 2 of waiting: {left:?}");
    assert!(busy.waited >= secs(2) && busy.waited <= ms(2002), "{:?}", busy.waited);
    assert!(!busy.held_here && busy.held_at.is_none());
    assert!(busy.to_string().contains("job:1 is held by a (class scheduler)"), "{busy}");
    // Two classes exclude each other on one name: the class is not part of the key.
    assert_eq!(b.expect_busy("workflow", "job:1").await.waited, Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn trap_31_self_contention_reports_its_call_site_and_runs_no_work() {
    let fixture = Fixture::new();
    let a = fixture.client("a");
    let line = line!() + 1;
    let hold = a.hold("scheduler", "job:1").await;
    let from = fixture.now();
    let busy = a.expect_busy("scheduler", "job:1").await;
    assert_at(fixture.now(), from, secs(2));
    assert!(busy.held_here);
    let at = busy.held_at.expect("where");
    assert!(at.file().ends_with("acquire.rs"), "{at}");
    assert_eq!(at.line(), line, "where it was asked for, not inside the library");
    assert!(busy.to_string().contains("in this process"), "{busy}");
    let mut ran = false;
    let out = a.class("workflow").run("job:1", async |_| ran = true).await;
    assert!(matches!(out, Err(leasehold_core::RunError::Busy(busy)) if busy.held_here));
    assert!(!ran, "no success without work");
    assert_eq!(fixture.call_count(StoreOp::Acquire), 1, "the store is not asked");
    // Code that locks the same name is called under `cover`.
    assert!(hold.cover(&fixture::name("job:1")).is_ok());
    assert!(hold.cover(&fixture::name("job:2")).is_err());
}

#[tokio::test(start_paused = true)]
async fn invalid_input_is_reported_without_a_store_request() {
    let fixture = Fixture::new();
    let a = fixture.client("a");
    let long = "x".repeat(513);
    for bad in ["", "two words", "br{ce", long.as_str()] {
        assert!(matches!(a.expect_error("scheduler", bad).await, Error::Invalid(_)), "{bad:?}");
    }
    let error = a.expect_error("schedule", "job:1").await.to_string();
    assert!(error.contains("scheduler"), "names the nearest class: {error}");
    let too_short = a.class("scheduler").ttl(ms(10)).acquire("job:1").await;
    assert!(matches!(too_short, Err(Error::Invalid(_))));
    let no_time = a.class("scheduler").stop_grace(secs(60)).acquire("job:1").await;
    assert!(matches!(no_time, Err(Error::Invalid(_))));
    assert_eq!((fixture.call_count(StoreOp::Acquire), a.local_name_count()), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn an_acquire_with_a_lost_reply_is_retried_with_the_same_token() {
    for fault in [Fault::LoseReply, Fault::Vanish(StoreErrorKind::TimedOut)] {
        let fixture = Fixture::new();
        let a = fixture.client("a");
        fixture.faults.acquire().script(1, fault);
        let hold = a.hold("scheduler", "job:1").await;
        let asked = fixture.recorder.acquires();
        assert_eq!((asked.len(), &asked[0].token), (2, &asked[1].token));
        assert_eq!(fixture.live_lease("job:1").await.unwrap().fence, hold.fence().ok(), "one grant");
        assert_eq!(hold.release().await, ReleaseOutcome::Released);
        assert_eq!(fixture.footprint().await, (0, 0, 0));
    }
}

/// No path ends with a lease without a holder (I6), however the requests and their undo fail.
#[tokio::test(start_paused = true)]
async fn an_acquire_that_gives_up_leaves_no_orphan() {
    for fault in [Fault::LoseReply, Fault::HangAfter, Fault::Hang] {
        let fixture = Fixture::new();
        let (a, b) = (fixture.client("a"), fixture.client("b"));
        fixture.faults.acquire().script(200, fault);
        fixture.faults.release().fail_next(1).lose_reply(1);
        let error = a.expect_error("workflow-critical", "job:1").await;
        assert!(matches!(error, Error::Unavailable { cause: StoreErrorKind::TimedOut, .. }), "{error:?}");
        fixture.faults.acquire().clear();
        a.wait_until_idle().await;
        assert_eq!(fixture.live_lease("job:1").await, None, "{fault:?}");
        b.hold("workflow-critical", "job:1").await.release().await;
        assert_eq!(a.event_count("undone"), 1);
        assert_eq!(fixture.footprint().await, (0, 0, 0), "{fault:?}");
    }
}

/// The undo leaves a tombstone, so the request is refused if it arrives later.
#[tokio::test(start_paused = true)]
async fn a_request_that_arrives_after_its_undo_is_void() {
    let fixture = Fixture::new();
    let a = fixture.client("a");
    fixture.faults.acquire().hang_next(2);
    assert!(matches!(a.expect_error("workflow-critical", "job:1").await, Error::Unavailable { .. }));
    a.wait_until_idle().await;
    fixture.faults.acquire().clear();
    let late = fixture.recorder.acquires().remove(0);
    let request = leasehold_core::store::AcquireRequest::new(
        late.name,
        late.token,
        leasehold_core::Ttl::new(secs(30)).unwrap(),
    );
    let answer = fixture.recorder.store().acquire(&request, secs(1)).await.unwrap();
    assert_eq!(answer, leasehold_core::store::AcquireResponse::Void);
    assert_eq!(fixture.live_lease("job:1").await, None);
}

/// A grant whose deadline has passed when the response arrives is released, not used.
#[tokio::test(start_paused = true)]
async fn a_grant_that_arrives_too_late_is_released() {
    const SHORT_TTL_POLICY: &str = r#"
[class.short]
ttl = "1s"
acquire = { timeout = "5s", wait = "0s" }
renew = { every = "200ms", timeout = "100ms" }
"#;
    let fixture = Fixture::new();
    let a = fixture.client_with("a", SHORT_TTL_POLICY);
    fixture.faults.acquire().delay_reply(ms(980));
    let error = a.expect_error("short", "job:1").await;
    assert!(matches!(error, Error::Unavailable { .. }), "{error:?}");
    assert_eq!((a.event_count("too_late"), a.event_count("acquired")), (1, 0));
    run_ready_tasks().await;
    assert_eq!(fixture.live_lease("job:1").await, None, "given back before it ran out");
    a.wait_until_idle().await;
    // A slightly earlier response is still used.
    fixture.faults.acquire().clear().delay_reply(ms(950));
    a.hold("short", "job:1").await.check().unwrap();
}

/// Renewals have their own budget: ten thousand hanging acquire requests do not cost a hold.
#[tokio::test(start_paused = true)]
async fn a_flood_of_acquires_ends_in_time_and_does_not_starve_renewals() {
    let fixture = Fixture::new();
    let a = fixture.client("a");
    let hold = a.hold("scheduler", "held").await;
    fixture.faults.acquire().hang(true);
    let from = fixture.now();
    let flood: Vec<_> =
        (0..10_000).map(|job| tokio::spawn(a.class("scheduler").acquire(format!("flood:{job}")))).collect();
    run_ready_tasks().await;
    assert!(fixture.call_count(StoreOp::Acquire) < 1_000, "most queue here, not in the store");
    for asked in flood {
        assert!(matches!(asked.await.unwrap(), Err(Error::Unavailable { .. })));
    }
    // Each acquire waits for its own timeout at most, not for those queued before it.
    assert!(fixture.now().since(from) <= secs(5), "{:?}", fixture.now().since(from));
    fixture.advance(secs(120)).await;
    hold.check().unwrap();
    assert_eq!((a.event_count("renew_failed"), a.event_count("abandoned")), (0, 0));
    fixture.faults.acquire().clear();
    assert_eq!(hold.release().await, ReleaseOutcome::Released);
    fixture.advance(secs(10)).await;
    a.hold("scheduler", "after").await.check().unwrap();
}

/// A class that requires more than the store promises is refused. If the promise cannot be read,
/// the acquire is unavailable and counted.
#[tokio::test(start_paused = true)]
async fn an_unmet_store_requirement_is_refused_an_unknown_one_is_counted() {
    let fixture = Fixture::new();
    let a = fixture.client_with("a", "[class.workflow]\nrequires = \"durable\"");
    let error = a.expect_error("workflow", "run:1").await;
    assert!(matches!(error, Error::Invalid(_)), "fail-open or not: {error:?}");
    assert_eq!((fixture.call_count(StoreOp::Acquire), a.metric_total("fallback_total", "")), (0, 0.0));
    fixture.faults.for_ops(&[StoreOp::Promise]).down(true);
    assert!(matches!(a.expect_error("workflow", "run:1").await, Error::Unavailable { .. }));
    assert_eq!(a.metric_total("acquire_total", "unavailable"), 1.0);
}

//! `fence`: the hold ends after the class's number of failures, or at the deadline. It ends once,
//! and in time.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::fixture::{Fixture, assert_at, run_ready_tasks, secs};
use leasehold_core::adapter::{Fault, StoreOp};
use leasehold_core::policy::{Class, PolicyBook};
use leasehold_core::store::StoreErrorKind;
use leasehold_core::{HoldStatus, Loss, ReleaseOutcome};

/// Slow failures and little slack: the deadline comes before the third failure.
const TIGHT_POLICY: &str = r#"
[class.tight]
ttl = "10s"
renew = { every = "4s", timeout = "2500ms" }
"#;

#[tokio::test(start_paused = true)]
async fn abandonment_after_exactly_three_failures() {
    let fixture = Fixture::new();
    let a = fixture.client("a");
    let hold = a.hold("scheduler", "job:1").await;
    let fired = Arc::new(AtomicUsize::new(0));
    let (token, counts) = (hold.cancellation(), Arc::clone(&fired));
    let watch = tokio::spawn(async move {
        token.cancelled().await;
        counts.fetch_add(1, Ordering::SeqCst);
    });
    fixture.faults.renew().down(true);

    fixture.wait_for_calls(StoreOp::Renew, 2).await;
    run_ready_tasks().await;
    hold.check().expect("two strikes are not three");
    assert_eq!((a.event_count("abandoned"), fired.load(Ordering::SeqCst)), (0, 0));

    let lost = fixture.wait_for_loss(&hold).await;
    watch.await.unwrap();
    assert_eq!(lost.reason, Loss::MaxFailures);
    assert_eq!(fixture.call_count(StoreOp::Renew), 3);
    assert_eq!(a.metric_total("abandoned_total", "max_failures"), 1.0);
    assert_eq!((a.event_count("abandoned"), a.event_count("renew_failed")), (1, 3));
    assert_eq!(fired.load(Ordering::SeqCst), 1);

    // The lease is not released: it may belong to another client by now.
    assert_eq!(fixture.live_lease("job:1").await.unwrap().holder, "a");
    assert_eq!(hold.release().await, ReleaseOutcome::Skipped);
    run_ready_tasks().await;
    assert_eq!(fixture.call_count(StoreOp::Release), 0);
    assert!(fixture.live_lease("job:1").await.is_some());
    fixture.advance(secs(600)).await;
    assert_eq!((fixture.call_count(StoreOp::Renew), fixture.call_count(StoreOp::Release)), (3, 0));
    assert_eq!((a.event_count("abandoned"), a.metric_total("abandoned_total", "max_failures")), (1, 1.0));
    a.wait_until_idle().await;
}

#[tokio::test(start_paused = true)]
async fn abandonment_by_the_deadline_before_the_third_failure() {
    let fixture = Fixture::new();
    let a = fixture.client_with("a", TIGHT_POLICY);
    fixture.faults.renew().hang(true);
    let (hold, from) = (a.hold("tight", "job:1").await, fixture.now());
    let lost = fixture.wait_for_loss(&hold).await;
    assert_eq!(lost.reason, Loss::Deadline);
    // The TTL of 10 s, minus twice 10 ms and one per cent.
    assert_at(fixture.now(), from, secs(10) - Class::default_drift(secs(10)));
    run_ready_tasks().await; // the guard watches the deadline itself and may be ahead of the keeper
    assert!(a.event_count("renew_failed") < 3);
    assert_eq!((a.event_count("abandoned"), a.metric_total("abandoned_total", "deadline")), (1, 1.0));
    assert_eq!(hold.release().await, ReleaseOutcome::Skipped);
    assert_eq!(fixture.call_count(StoreOp::Release), 0);
    // The third response arrives after the end and changes nothing.
    fixture.advance(secs(30)).await;
    assert_eq!(a.event_count("abandoned"), 1);
}

#[tokio::test(start_paused = true)]
async fn trap_01_a_dead_network_stops_the_work_before_the_lease_expires() {
    let fixture = Fixture::new();
    let a = fixture.client("a");
    let expires = fixture.now() + secs(60);
    let locks = a.locks.clone();
    let (ran, clock) = (Arc::new(AtomicUsize::new(0)), Arc::clone(&fixture.clock));
    let counts = Arc::clone(&ran);
    let work = tokio::spawn(async move {
        locks
            .class("scheduler")
            .run("job:1", async |_| {
                loop {
                    assert!(clock.now() < expires, "a step past the lease");
                    counts.fetch_add(1, Ordering::SeqCst);
                    leasehold_core::clock::ClockExt::sleep(&*clock, secs(1)).await;
                }
            })
            .await
    });
    run_ready_tasks().await;
    fixture.faults.all().hang(true);
    let error = work.await.unwrap().unwrap_err();
    assert!(matches!(error, leasehold_core::RunError::<()>::Lost { result: None, .. }));
    assert!(fixture.now() < expires);
    let steps = ran.load(Ordering::SeqCst);
    assert!(steps > 10);
    fixture.advance(secs(100)).await;
    assert_eq!(ran.load(Ordering::SeqCst), steps);
}

#[tokio::test(start_paused = true)]
async fn trap_03_errors_for_longer_than_the_lease_signal_once_and_stop() {
    let fixture = Fixture::new();
    let a = fixture.client("a");
    let hold = a.hold("scheduler", "job:1").await;
    fixture.faults.all().down(true);
    fixture.advance(secs(600)).await;
    assert_eq!((a.event_count("abandoned"), fixture.call_count(StoreOp::Renew)), (1, 3));
    fixture.faults.all().down(false);
    fixture.advance(secs(600)).await;
    assert_eq!((a.event_count("abandoned"), fixture.call_count(StoreOp::Renew)), (1, 3));
    assert_eq!(hold.release().await, ReleaseOutcome::Skipped);
    assert_eq!(a.event_count("abandoned"), 1);
}

/// The articles' scheduler could fence at or after expiry: it failed at 20, 40 and 60 s of a 60 s lease.
#[tokio::test(start_paused = true)]
async fn trap_29_the_third_failure_never_comes_after_the_lease_expired() {
    let faults = [
        Fault::Refuse(StoreErrorKind::Unreachable),
        Fault::Vanish(StoreErrorKind::TimedOut),
        Fault::LoseReply,
        Fault::Hang,
        Fault::Panic,
    ];
    for seed in 0..8 {
        for fault in faults {
            let fixture = Fixture::new();
            let a =
                fixture.build_client(&format!("a{seed}"), PolicyBook::builtin(), Arc::clone(&fixture.clock));
            for class in ["scheduler", "workflow-critical", "approval", "reconciler", "admission"] {
                let asked = fixture.now();
                let hold = a.hold(class, class).await;
                let now = fixture.now();
                let ttl = a.policies().class(class, now).unwrap().ttl.get();
                fixture.faults.renew().script(5, fault);
                // A lost reply extends the lease without the holder's knowledge, so the holder must
                // not rely on it.
                fixture.wait_for_loss(&hold).await;
                assert!(fixture.now().since(asked) < ttl, "{class} {fault:?}");
                assert!(fixture.live_lease(class).await.is_some(), "{class} {fault:?}: lost after expiry");
                fixture.faults.renew().clear();
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn fifty_parallel_abandonments_are_each_counted_once() {
    let fixture = Fixture::new();
    let a = fixture.client("a");
    let mut holds = Vec::new();
    for job in 0..50 {
        holds.push(a.hold("scheduler", &format!("job:{job}")).await);
    }
    fixture.faults.renew().down(true);
    let lost = futures_util::future::join_all(holds.iter().map(|hold| hold.lost())).await;
    assert!(lost.iter().all(|lost| lost.reason == Loss::MaxFailures));
    fixture.advance(secs(300)).await;
    assert_eq!(a.metric_total("abandoned_total", "max_failures"), 50.0);
    let mut ids: Vec<_> = a.events_of("abandoned").iter().map(|event| event.hold).collect();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!((a.event_count("abandoned"), ids.len()), (50, 50));
    assert!(holds.iter().all(|hold| hold.cancellation().is_cancelled()));
    assert_eq!(a.event_count("renew_failed"), 150, "exactly three strikes each");
    for hold in holds {
        assert_eq!(hold.release().await, ReleaseOutcome::Skipped);
    }
    a.wait_until_idle().await;
}

/// A lost hold stays lost: a late response does not restore it.
#[tokio::test(start_paused = true)]
async fn late_responses_do_not_restore_an_abandoned_hold() {
    let fixture = Fixture::new();
    let a = fixture.client_with("a", TIGHT_POLICY);
    // Each renewal is applied but answered after its timeout, so the lease stays alive in the store.
    fixture.faults.renew().script(10, Fault::HangAfter);
    let hold = a.hold("tight", "job:1").await;
    fixture.wait_for_loss(&hold).await;
    fixture.faults.renew().clear();
    assert!(fixture.live_lease("job:1").await.is_some());
    fixture.advance(secs(5)).await;
    assert_eq!(hold.status(), HoldStatus::Lost(Loss::Deadline));
    assert!(hold.fence().is_err() && hold.fence_if_any().is_err() && hold.remaining().is_zero());
}

/// A clean release frees the name at once; after an unclean loss it stays blocked for `lock_delay` more.
#[tokio::test(start_paused = true)]
async fn lock_delay_counts_after_an_unclean_loss_only() {
    const LOCK_DELAY_POLICY: &str = "[class.scheduler]\nrelease = { lock_delay = \"30s\" }";
    let fixture = Fixture::new();
    let (a, b) = (fixture.client_with("a", LOCK_DELAY_POLICY), fixture.client("b"));
    a.hold("scheduler", "job:1").await.release().await;
    let hold = b.hold("workflow", "job:1").await;
    hold.release().await;

    let (hold, from) = (a.hold("scheduler", "job:1").await, fixture.now());
    fixture.faults.renew().down(true);
    fixture.wait_for_loss(&hold).await;
    assert!(fixture.now().since(from) < secs(60), "the holder counts the TTL only");
    drop(hold);
    fixture.advance((from + secs(89)).since(fixture.now())).await;
    assert_eq!(b.expect_busy("workflow", "job:1").await.holder, "a");
    fixture.advance(secs(1)).await;
    b.hold("workflow", "job:1").await.check().unwrap();
}

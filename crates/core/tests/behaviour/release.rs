//! Release: bounded, confirmed or owed, independent of the caller, and never hiding the result of the work.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

use crate::fixture;
use crate::fixture::{Fixture, assert_at, ms, run_ready_tasks, secs};
use leasehold_core::adapter::StoreOp;
use leasehold_core::event::{DebtResolution, EventKind};
use leasehold_core::{Loss, ReleaseOutcome, RunError};

#[tokio::test(start_paused = true)]
async fn a_release_retried_once_frees_the_lock() {
    let fixture = Fixture::new();
    let a = fixture.client("a");
    fixture.faults.release().fail_next(1);
    let hold = a.hold("scheduler", "job:1").await;
    assert_eq!(hold.release().await, ReleaseOutcome::Released);
    assert_eq!(fixture.call_count(StoreOp::Release), 2);
    assert_eq!(fixture.live_lease("job:1").await, None);
    assert!(matches!(a.only_event("released").what, EventKind::Released { attempts: 2, .. }));
    assert_eq!(a.event_count("release_failed"), 1);
}

/// *Not owned* after an attempt that may have been applied means that it was applied.
#[tokio::test(start_paused = true)]
async fn a_release_with_a_lost_reply_is_released_not_an_error() {
    let fixture = Fixture::new();
    let a = fixture.client("a");
    fixture.faults.release().lose_reply(1);
    let hold = a.hold("scheduler", "job:1").await;
    assert_eq!(hold.release().await, ReleaseOutcome::Released);
    assert_eq!((fixture.call_count(StoreOp::Release), a.event_count("not_owned")), (2, 0));
    assert_eq!(a.event_count("released"), 1);
}

#[tokio::test(start_paused = true)]
async fn trap_07_release_happens_after_the_callers_cancellation() {
    let fixture = Fixture::new();
    let a = fixture.client("a");
    fixture.faults.release().delay(ms(300));
    // The release is dropped before its first poll, and while it waits for the response.
    for polls in [0, 1] {
        let mut release = Box::pin(a.hold("scheduler", "job:1").await.release());
        for _ in 0..polls {
            assert!(futures_util::poll!(&mut release).is_pending());
        }
        drop(release);
        fixture.advance(ms(310)).await;
        assert_eq!(fixture.live_lease("job:1").await, None, "dropped after {polls} polls");
        a.wait_until_idle().await;
    }
    assert_eq!(a.event_count("released"), 2);
    // The guard is dropped.
    drop(a.hold("scheduler", "job:1").await);
    fixture.advance(ms(310)).await;
    assert_eq!((fixture.live_lease("job:1").await, a.event_count("released")), (None, 3));
    // The task that owns the guard is aborted.
    let locks = a.locks.clone();
    let task = tokio::spawn(async move {
        let work = async |_: &leasehold_core::Hold| std::future::pending::<()>().await;
        locks.class("scheduler").run("job:1", work).await
    });
    fixture.wait_for_calls(StoreOp::Acquire, 4).await;
    run_ready_tasks().await;
    assert!(fixture.live_lease("job:1").await.is_some());
    task.abort();
    let _ = task.await;
    fixture.advance(ms(310)).await;
    assert_eq!((fixture.live_lease("job:1").await, a.event_count("released")), (None, 4));
}

/// The caller is cancelled during a failing release: the release is retried, then owed and
/// collected, without the caller.
#[tokio::test(start_paused = true)]
async fn trap_09_cancel_during_release_leaves_it_finished_or_retried() {
    let fixture = Fixture::new();
    let a = fixture.client("a");
    fixture.faults.release().hang_next(1).fail_next(3);
    let mut release = Box::pin(a.hold("scheduler", "job:1").await.release());
    assert!(futures_util::poll!(&mut release).is_pending());
    fixture.wait_for_calls(StoreOp::Release, 1).await;
    drop(release);
    fixture.wait_for_calls(StoreOp::Release, 5).await;
    a.wait_until_idle().await;
    assert_eq!(fixture.live_lease("job:1").await, None);
    assert_eq!((a.event_count("debt"), a.event_count("debt_cleared")), (1, 1));
    a.hold("scheduler", "job:1").await.check().unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_release_is_bounded_in_the_foreground_then_owed() {
    let fixture = Fixture::new();
    let (a, b) = (fixture.client("a"), fixture.client("b"));
    fixture.faults.release().hang(true);
    let granted = fixture.now();
    let hold = a.hold("scheduler", "job:1").await;
    let from = fixture.now();
    let outcome = hold.release().await;
    assert_at(fixture.now(), from, secs(4));
    let ReleaseOutcome::Debt { until } = outcome else { panic!("{outcome:?}") };
    assert!(until >= granted + secs(60) && until <= granted + secs(61), "{until:?}");
    assert_eq!((a.metric_total("debt_holds", ""), a.pending().await.debts), (1.0, 1));
    assert_eq!(b.expect_busy("workflow", "job:1").await.holder, "a");
    // The store is back: the collector frees the name long before the lease would expire.
    fixture.faults.release().clear();
    let back = fixture.now();
    a.wait_until_idle().await;
    assert!(fixture.now().since(back) < secs(10), "the collector's longest pause and time-out");
    assert_eq!(fixture.live_lease("job:1").await, None);
    assert_eq!(a.metric_total("debt_holds", ""), 0.0);
    let cleared = a.only_event("debt_cleared");
    let EventKind::DebtCleared { after, how } = cleared.what else { panic!() };
    assert_eq!(how, DebtResolution::Released);
    assert_eq!(a.metric_total("debt_seconds_total", ""), after.as_secs_f64());
}

#[tokio::test(start_paused = true)]
async fn a_debt_ends_with_the_lease_at_the_latest() {
    let fixture = Fixture::new();
    let a = fixture.client("a");
    fixture.faults.release().down(true);
    let from = fixture.now();
    let ReleaseOutcome::Debt { until } = a.hold("scheduler", "job:1").await.release().await else {
        panic!("not a debt")
    };
    a.wait_until_idle().await;
    assert!(fixture.now() >= until && fixture.now() <= until + ms(20));
    assert!(fixture.now().since(from) <= secs(61));
    assert_eq!(fixture.live_lease("job:1").await, None);
    assert!(matches!(
        a.only_event("debt_cleared").what,
        EventKind::DebtCleared { how: DebtResolution::Expired, .. }
    ));
    // The collector backs off: it does not loop against a store that is down.
    assert!(fixture.call_count(StoreOp::Release) < 40, "{}", fixture.call_count(StoreOp::Release));
}

/// The waiting time that a debt has caused is measured.
#[tokio::test(start_paused = true)]
async fn waiting_behind_the_clients_own_debt_is_measured() {
    let fixture = Fixture::new();
    let a = fixture.client("a");
    fixture.faults.release().down(true);
    let debt = a.hold("scheduler", "job:1").await.release().await;
    assert!(matches!(debt, ReleaseOutcome::Debt { .. }));
    let from = fixture.now();
    let waits = a.class("scheduler").wait(secs(90)).acquire("job:1");
    let hold = waits.await.unwrap().held().expect("held once the lease is over");
    hold.check().unwrap();
    let waited = fixture.now().since(from).as_secs_f64();
    assert!((55.0..61.0).contains(&waited));
    assert!((a.metric_total("busy_after_debt_seconds", "") - waited).abs() < 0.01);
}

#[tokio::test(start_paused = true)]
async fn trap_08_a_failing_release_does_not_hide_the_works_result() {
    let fixture = Fixture::new();
    let a = fixture.client("a");
    for (order, name) in ["down", "hang", "lost", "panic"].into_iter().zip(["n:1", "n:2", "n:3", "n:4"]) {
        fixture.faults.release().clear();
        match order {
            "down" => fixture.faults.release().down(true),
            "hang" => fixture.faults.release().hang(true),
            "lost" => fixture.faults.release().lose_reply(9),
            _ => fixture.faults.release().panic_next(9),
        };
        let ok = a.class("scheduler").run(name, async |_| Ok::<_, &str>(42)).await;
        assert_eq!(ok.unwrap(), Ok(42), "{order}");
        fixture.faults.release().clear();
        fixture.advance(secs(70)).await;
        fixture.faults.release().down(true);
        let failed = a.class("scheduler").run(name, async |_| Err::<(), _>("mine")).await;
        assert_eq!(failed.unwrap(), Err("mine"), "{order}");
        fixture.faults.release().clear();
        fixture.advance(secs(70)).await;
    }
}

/// I9: work that ends after the loss of its lease gets an error that carries its result.
#[tokio::test(start_paused = true)]
async fn lease_lost_carries_the_works_result() {
    let fixture = Fixture::new();
    let manual = fixture::faulty_clocks::ManualClock::new();
    let a = fixture.client_with_clock("a", std::sync::Arc::new(manual.clone()));
    let hold = a.hold("scheduler", "job:1").await;
    let ended = hold
        .run(async {
            manual.jump(secs(61));
            "the result"
        })
        .await;
    let (lost, result) = ended.unwrap_err();
    assert_eq!((lost.reason, result), (Loss::Deadline, Some("the result")));
    // The same when the request acquires and runs in one call.
    let ended = a
        .class("scheduler")
        .run("job:2", async |_| {
            manual.jump(secs(61));
            "the result"
        })
        .await;
    match ended.unwrap_err() {
        RunError::Lost { lost, result, .. } => {
            assert_eq!((lost.reason, result), (Loss::Deadline, Some("the result")));
        }
        other => panic!("{other:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn trap_14_dropped_and_panicked_holds_are_released() {
    let fixture = Fixture::new();
    let a = fixture.client("a");
    let locks = a.locks.clone();
    let task = tokio::spawn(async move {
        let work = async |_: &leasehold_core::Hold| panic!("the work's own panic");
        let _: Result<(), _> = locks.class("scheduler").run("job:1", work).await;
    });
    assert!(task.await.unwrap_err().is_panic());
    run_ready_tasks().await;
    assert_eq!((fixture.live_lease("job:1").await, a.local_name_count()), (None, 0));
    // The process dies without a release; the lease expires after its TTL.
    let hold = a.hold("scheduler", "job:1").await;
    fixture.faults.all().down(true);
    fixture.advance(secs(60)).await;
    assert_eq!(fixture.live_lease("job:1").await, None);
    drop(hold);
}

/// The lease is released once: a second release, or a later drop of the guard, does nothing.
#[tokio::test(start_paused = true)]
async fn a_hold_is_released_once() {
    let fixture = Fixture::new();
    let (a, b) = (fixture.client("a"), fixture.client("b"));
    fixture.faults.release().delay_reply(ms(100));
    a.hold("scheduler", "job:1").await.release().await;
    let next = b.hold("scheduler", "job:1").await;
    run_ready_tasks().await;
    fixture.advance(secs(100)).await;
    assert_eq!((fixture.call_count(StoreOp::Release), a.event_count("released")), (1, 1));
    next.check().unwrap();
}

/// `when = "expired"`: one run per window across all replicas.
#[tokio::test(start_paused = true)]
async fn a_kept_lease_expires_by_itself() {
    let fixture = Fixture::new();
    let (a, b) = (fixture.client("a"), fixture.client("b"));
    let from = fixture.now();
    let ReleaseOutcome::Kept { until } = a.hold("reconciler", "tick").await.release().await else {
        panic!("not kept")
    };
    assert!(until >= from + secs(60));
    assert_eq!((fixture.call_count(StoreOp::Release), a.local_name_count()), (0, 0));
    for client in [&a, &b] {
        assert_eq!(client.expect_busy("reconciler", "tick").await.holder, "a");
    }
    fixture.advance(secs(60)).await;
    b.hold("reconciler", "tick").await.release().await;
    assert_eq!(fixture.call_count(StoreOp::Renew), 0, "nobody renews a lease whose work is done");
    assert_eq!(a.metric_total("release_total", "kept"), 1.0);
}

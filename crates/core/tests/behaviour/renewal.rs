//! Renewal: it keeps the lease, stops with the work, survives transient errors, and reports the rest.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

use crate::fixture::{Fixture, assert_at, ms, run_ready_tasks, secs};
use leasehold_core::adapter::{Fault, StoreOp};
use leasehold_core::event::EventKind;
use leasehold_core::store::StoreErrorKind;
use leasehold_core::{HoldStatus, Loss, ReleaseOutcome};

#[tokio::test(start_paused = true)]
async fn renewal_keeps_a_lock_alive_past_its_first_ttl() {
    let fixture = Fixture::new();
    let (a, b) = (fixture.client("a"), fixture.client("b"));
    let hold = a.hold("scheduler", "job:1").await;
    let fence = hold.fence().unwrap();
    for _ in 0..50 {
        fixture.advance(secs(10)).await;
        hold.check().unwrap();
        assert_eq!(b.expect_busy("workflow", "job:1").await.holder, "a");
    }
    assert_eq!(hold.fence().unwrap(), fence, "one lease, one fence");
    assert_eq!(hold.release().await, ReleaseOutcome::Released);
    assert_eq!(fixture.live_lease("job:1").await, None);
}

/// The control: the same without successful renewals.
#[tokio::test(start_paused = true)]
async fn without_renewal_the_same_lock_is_lost_before_its_ttl() {
    let fixture = Fixture::new();
    let a = fixture.client("a");
    fixture.faults.renew().hang(true);
    let (hold, from) = (a.hold("scheduler", "job:1").await, fixture.now());
    let lost = fixture.wait_for_loss(&hold).await;
    assert!(fixture.now().since(from) < secs(60), "before the lease can expire");
    assert!(hold.check().is_err());
    assert_eq!(a.only_event("abandoned").at, fixture.now());
    assert!(matches!(lost.reason, Loss::MaxFailures | Loss::Deadline));
}

#[tokio::test(start_paused = true)]
async fn renewal_stops_on_completion() {
    let fixture = Fixture::new();
    let a = fixture.client("a");
    let hold = a.hold("scheduler", "job:1").await;
    fixture.advance(secs(50)).await;
    assert_eq!(hold.release().await, ReleaseOutcome::Released);
    let before = fixture.call_count(StoreOp::Renew);
    assert!(before >= 2);
    fixture.advance(secs(60 * 20)).await;
    assert_eq!(fixture.call_count(StoreOp::Renew), before);
}

#[tokio::test(start_paused = true)]
async fn renewal_stops_on_cancellation_of_the_work() {
    let fixture = Fixture::new();
    let a = fixture.client("a");
    let locks = a.locks.clone();
    let task = tokio::spawn(async move {
        locks.class("scheduler").run("job:1", async |_| std::future::pending::<()>().await).await
    });
    fixture.advance(secs(50)).await;
    assert!(fixture.live_lease("job:1").await.is_some());
    task.abort();
    assert!(task.await.unwrap_err().is_cancelled());
    run_ready_tasks().await;
    assert_eq!(fixture.live_lease("job:1").await, None, "released in the background");
    let before = fixture.call_count(StoreOp::Renew);
    fixture.advance(secs(60 * 20)).await;
    assert_eq!(fixture.call_count(StoreOp::Renew), before);
    a.wait_until_idle().await;
}

#[tokio::test(start_paused = true)]
async fn renewal_stops_after_abandonment() {
    let fixture = Fixture::new();
    let a = fixture.client("a");
    fixture.faults.renew().down(true);
    let hold = a.hold("scheduler", "job:1").await;
    fixture.wait_for_loss(&hold).await;
    let before = fixture.call_count(StoreOp::Renew);
    fixture.faults.renew().down(false);
    fixture.advance(secs(60 * 20)).await;
    assert_eq!(fixture.call_count(StoreOp::Renew), before, "even though the store is back");
}

#[tokio::test(start_paused = true)]
async fn trap_02_one_transient_error_with_time_left_keeps_the_lock() {
    for fault in [
        Fault::Refuse(StoreErrorKind::Unreachable),
        Fault::Vanish(StoreErrorKind::TimedOut),
        Fault::Hang,
        Fault::Panic,
    ] {
        let fixture = Fixture::new();
        let a = fixture.client("a");
        let hold = a.hold("approval", "job:1").await;
        for _ in 0..10 {
            fixture.faults.renew().script(1, fault);
            fixture.advance(secs(10)).await;
            hold.check().unwrap();
        }
        assert_eq!(a.event_count("renew_failed"), 10, "{fault:?}");
        assert_eq!(a.event_count("abandoned"), 0, "{fault:?}");
        assert_eq!(fixture.live_lease("job:1").await.unwrap().fence, hold.fence().ok());
    }
}

/// Any success resets the count: fail, ok, fail, fail, ok … never gives three failures in a row.
#[tokio::test(start_paused = true)]
async fn intermittent_failure_does_not_abandon() {
    let fixture = Fixture::new();
    let a = fixture.client("a");
    for _ in 0..20 {
        fixture.faults.renew().fail_next(1).pass_next(1).fail_next(2).pass_next(1);
    }
    let hold = a.hold("approval", "job:1").await;
    fixture.wait_for_calls(StoreOp::Renew, 100).await;
    hold.check().unwrap();
    assert!(a.event_count("renew_failed") >= 59 && a.event_count("abandoned") == 0);
    let most = a.events_of("renew_failed").into_iter().map(|event| match event.what {
        EventKind::RenewFailed { failures, .. } => failures,
        _ => 0,
    });
    assert_eq!(most.max(), Some(2));
}

/// Errors are retried sooner than the next regular renewal.
#[tokio::test(start_paused = true)]
async fn a_failed_renewal_is_retried_before_the_next_tick() {
    let fixture = Fixture::new();
    let a = fixture.client("a");
    fixture.faults.renew().fail_next(1);
    let _hold = a.hold("scheduler", "job:1").await;
    fixture.wait_for_calls(StoreOp::Renew, 2).await;
    let sent: Vec<_> = fixture.recorder.renew_batches().iter().map(|(at, _)| *at).collect();
    assert!(sent[1].since(sent[0]) < secs(20) * 3 / 4 + ms(2), "{sent:?}");
}

#[tokio::test(start_paused = true)]
async fn trap_04_a_renewal_whose_reply_is_lost_does_not_conflict_with_the_next() {
    let fixture = Fixture::new();
    let a = fixture.client("a");
    let hold = a.hold("scheduler", "job:1").await;
    let fence = hold.fence().unwrap();
    for _ in 0..10 {
        fixture.faults.renew().lose_reply(2);
        fixture.advance(secs(60)).await;
        assert_eq!(hold.fence().unwrap(), fence);
    }
    assert_eq!(
        fixture.faults.applied(StoreOp::Renew),
        fixture.call_count(StoreOp::Renew),
        "each was applied"
    );
    assert_eq!(a.metric_total("renew_total", "unknown"), 20.0);
    assert_eq!((a.event_count("not_owned"), a.event_count("abandoned")), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn trap_28_a_definite_not_owned_ends_the_hold_at_once() {
    let fixture = Fixture::new();
    let a = fixture.client("a");
    let hold = a.hold("scheduler", "job:1").await;
    fixture.memory.table().clear_all_data();
    let lost = fixture.wait_for_loss(&hold).await;
    assert_eq!(lost.reason, Loss::NotOwned);
    assert_eq!(fixture.call_count(StoreOp::Renew), 1, "the first answer, not the third strike");
    assert_eq!(fixture.recorder.renew_batches()[0].0, fixture.now());
    assert_eq!((a.event_count("not_owned"), a.event_count("abandoned")), (1, 1));
    assert_eq!(a.metric_total("not_owned_total", "renew"), 1.0);
    assert_eq!(a.metric_total("abandoned_total", "not_owned"), 1.0);
}

/// The release waits for a renewal in flight, so that none can arrive after it.
#[tokio::test(start_paused = true)]
async fn trap_10_a_late_renewal_cannot_revive_a_released_lease() {
    let fixture = Fixture::new();
    let a = fixture.client("a");
    let hold = a.hold("scheduler", "job:1").await;
    fixture.faults.renew().delay(ms(1500));
    fixture.wait_for_calls(StoreOp::Renew, 1).await;
    let (asked, sent) = (fixture.now(), fixture.call_count(StoreOp::Release));
    assert_eq!(sent, 0);
    assert_eq!(hold.release().await, ReleaseOutcome::Released);
    assert_at(fixture.now(), asked, ms(1500));
    assert_eq!((fixture.faults.applied(StoreOp::Renew), fixture.call_count(StoreOp::Release)), (1, 1));
    assert_eq!(fixture.live_lease("job:1").await, None);
    fixture.advance(secs(300)).await;
    assert_eq!((fixture.live_lease("job:1").await, fixture.call_count(StoreOp::Renew)), (None, 1));
    // A lost renewal delays the release by its timeout at most.
    fixture.faults.renew().clear().hang_next(1);
    let hold = a.hold("scheduler", "job:2").await;
    fixture.wait_for_calls(StoreOp::Renew, 2).await;
    let asked = fixture.now();
    assert_eq!(hold.release().await, ReleaseOutcome::Released);
    assert_at(fixture.now(), asked, secs(2));
}

#[tokio::test(start_paused = true)]
async fn trap_26_max_hold_ends_a_hold_whose_renewals_succeed() {
    let fixture = Fixture::new();
    let a = fixture.client("a");
    let (hold, from) = (a.hold("scheduler", "job:1").await, fixture.now());
    let lost = fixture.wait_for_loss(&hold).await;
    assert_eq!(lost.reason, Loss::MaxHold);
    assert_at(fixture.now(), from, secs(15 * 60));
    run_ready_tasks().await;
    assert!(a.event_count("renewed") >= 45 && a.event_count("renew_failed") == 0);
    assert_eq!(a.metric_total("abandoned_total", "max_hold"), 1.0);
    assert_eq!(hold.release().await, ReleaseOutcome::Skipped);
    // The same in a class that otherwise continues.
    let b = fixture.client_with("b", "[class.workflow]\nmax_hold = \"2m\"");
    let (hold, from) = (b.hold("workflow", "run:1").await, fixture.now());
    assert_eq!(fixture.wait_for_loss(&hold).await.reason, Loss::MaxHold);
    assert_at(fixture.now(), from, secs(120));
}

/// A panic in the store's code counts as a missing response; the hold is not kept silently.
#[tokio::test(start_paused = true)]
async fn a_renewal_that_panics_counts_as_a_failure() {
    let fixture = Fixture::new();
    let a = fixture.client("a");
    fixture.faults.renew().panic_next(3);
    let hold = a.hold("scheduler", "job:1").await;
    assert_eq!(fixture.wait_for_loss(&hold).await.reason, Loss::MaxFailures);
    assert_eq!(a.metric_total("renew_total", "unknown"), 3.0);
    // The keeper is alive: the next hold is renewed.
    let next = a.hold("scheduler", "job:2").await;
    fixture.advance(secs(200)).await;
    next.check().unwrap();
}

#[tokio::test(start_paused = true)]
async fn the_early_warning_reports_the_remaining_share() {
    let fixture = Fixture::new();
    let a = fixture.client("a");
    let _hold = a.hold("scheduler", "job:1").await;
    fixture.advance(secs(70)).await;
    for event in a.events_of("renewed") {
        let EventKind::Renewed { left, .. } = event.what else {
            continue;
        };
        // Sent at 18 to 20 of 59.38 usable seconds.
        assert!((0.66..0.71).contains(&left), "{left}");
    }
    assert!(a.event_count("renewed") >= 3);
}

#[tokio::test(start_paused = true)]
async fn a_client_whose_runtime_ends_marks_its_holds_lost() {
    // A separate runtime, because it must end while the hold is alive.
    let (send, receive) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        let (hold, client) = runtime.block_on(async {
            let fixture = Fixture::new();
            let client = fixture.client("a");
            let hold = client.hold("workflow", "run:1").await;
            run_ready_tasks().await;
            (hold, client)
        });
        assert_eq!(hold.status(), HoldStatus::Proven);
        drop(runtime);
        send.send((hold.status(), client.event_count("abandoned"), hold.cancellation().is_cancelled()))
    });
    let seen = receive.recv().unwrap();
    assert_eq!(seen, (HoldStatus::Lost(Loss::KeeperGone), 1, true));
}

/// The early warning: the smallest remaining share of the usable time at a renewal, not the last
/// and not the average.
#[tokio::test(start_paused = true)]
async fn the_closest_renewal_is_recorded() {
    let fixture = Fixture::new();
    let a = fixture.client("a");
    let _hold = a.hold("scheduler", "job:1").await;
    fixture.advance(secs(100)).await;
    let calm = a.metric_total("renew_remaining_ratio", "");
    assert!(calm > 0.6 && calm < 0.75, "{calm}");
    fixture.faults.renew().fail_next(1);
    fixture.advance(secs(60)).await;
    let close = a.metric_total("renew_remaining_ratio", "");
    assert!(close < calm, "{close} {calm}");
    fixture.advance(secs(200)).await;
    assert_eq!(a.metric_total("renew_remaining_ratio", "").to_bits(), close.to_bits());
}

/// A supervisor follows the deadline without asking: each renewal moves it, and each end is announced.
#[tokio::test(start_paused = true)]
async fn deadlines_announce_each_renewal_the_loss_and_the_release() {
    let fixture = Fixture::new();
    let a = fixture.client("a");
    let hold = a.hold("scheduler", "job:1").await;
    let mut deadlines = hold.deadlines();
    let first = *deadlines.borrow_and_update();
    assert_eq!(first.judge(fixture.now()), HoldStatus::Proven);
    assert_eq!(first.stop_at().since(fixture.now()), hold.remaining());
    fixture.advance(secs(25)).await;
    assert!(deadlines.has_changed().unwrap(), "a renewal");
    let renewed = *deadlines.borrow_and_update();
    assert!(renewed.stop_at() > first.stop_at());
    assert_eq!(renewed.stop_at().since(fixture.now()), hold.remaining());
    assert_eq!(hold.release().await, ReleaseOutcome::Released);
    assert!(deadlines.changed().await.is_ok(), "a release");
    assert_eq!(deadlines.borrow_and_update().status, HoldStatus::Released);

    fixture.faults.renew().hang(true);
    let hold = a.hold("scheduler", "job:2").await;
    let mut deadlines = hold.deadlines();
    let held = *deadlines.borrow_and_update();
    let lost = fixture.wait_for_loss(&hold).await;
    run_ready_tasks().await;
    let last = *deadlines.borrow_and_update();
    assert_eq!(last.status, HoldStatus::Lost(lost.reason));
    assert_eq!(last.stop_at(), held.stop_at(), "the time left to stop stays readable");
    drop(hold);
    run_ready_tasks().await;
    assert_eq!(deadlines.borrow().status, HoldStatus::Lost(lost.reason), "final");
}

//! While holding: renewal keeps the lease, stops with the work, survives what is transient, and is honest about the rest.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test fails by panicking"
)]

use crate::bed::{Bed, assert_at, ms, secs, settle};
use leasehold_core::adapter::{Fault, Verb};
use leasehold_core::event::What;
use leasehold_core::store::Cause;
use leasehold_core::{Loss, Outcome, Standing};

#[tokio::test(start_paused = true)]
async fn renewal_keeps_a_lock_alive_past_its_first_ttl() {
    let bed = Bed::new();
    let (a, b) = (bed.client("a"), bed.client("b"));
    let hold = a.hold("scheduler", "job:1").await;
    let fence = hold.fence().unwrap();
    for _ in 0..50 {
        bed.pass(secs(10)).await;
        hold.check().unwrap();
        assert_eq!(b.busy("workflow", "job:1").await.holder, "a");
    }
    assert_eq!(hold.fence().unwrap(), fence, "one lease, one fence");
    assert_eq!(hold.release().await, Outcome::Released);
    assert_eq!(bed.lease("job:1").await, None);
}

/// The control: the same without a renewal that arrives.
#[tokio::test(start_paused = true)]
async fn without_renewal_the_same_lock_is_lost_before_its_ttl() {
    let bed = Bed::new();
    let a = bed.client("a");
    bed.chaos.renew().hang(true);
    let (hold, from) = (a.hold("scheduler", "job:1").await, bed.now());
    let lost = bed.lost(&hold).await;
    assert!(bed.now().since(from) < secs(60), "before the lease can expire");
    assert!(hold.check().is_err());
    assert_eq!(a.only("abandoned").at, bed.now());
    assert!(matches!(lost.reason, Loss::MaxFailures | Loss::Deadline));
}

#[tokio::test(start_paused = true)]
async fn renewal_stops_on_completion() {
    let bed = Bed::new();
    let a = bed.client("a");
    let hold = a.hold("scheduler", "job:1").await;
    bed.pass(secs(50)).await;
    assert_eq!(hold.release().await, Outcome::Released);
    let before = bed.calls(Verb::Renew);
    assert!(before >= 2);
    bed.pass(secs(60 * 20)).await;
    assert_eq!(bed.calls(Verb::Renew), before);
}

#[tokio::test(start_paused = true)]
async fn renewal_stops_on_cancellation_of_the_work() {
    let bed = Bed::new();
    let a = bed.client("a");
    let locks = a.locks.clone();
    let task = tokio::spawn(async move {
        locks
            .class("scheduler")
            .run("job:1", async |_| std::future::pending::<()>().await)
            .await
    });
    bed.pass(secs(50)).await;
    assert!(bed.lease("job:1").await.is_some());
    task.abort();
    assert!(task.await.unwrap_err().is_cancelled());
    settle().await;
    assert_eq!(bed.lease("job:1").await, None, "released in the background");
    let before = bed.calls(Verb::Renew);
    bed.pass(secs(60 * 20)).await;
    assert_eq!(bed.calls(Verb::Renew), before);
    a.idle().await;
}

#[tokio::test(start_paused = true)]
async fn renewal_stops_after_abandonment() {
    let bed = Bed::new();
    let a = bed.client("a");
    bed.chaos.renew().down(true);
    let hold = a.hold("scheduler", "job:1").await;
    bed.lost(&hold).await;
    let before = bed.calls(Verb::Renew);
    bed.chaos.renew().down(false);
    bed.pass(secs(60 * 20)).await;
    assert_eq!(bed.calls(Verb::Renew), before, "even though the store is back");
}

#[tokio::test(start_paused = true)]
async fn trap_02_one_transient_error_with_time_left_keeps_the_lock() {
    for fault in [
        Fault::Refuse(Cause::Unreachable),
        Fault::Vanish(Cause::TimedOut),
        Fault::Hang,
        Fault::Panic,
    ] {
        let bed = Bed::new();
        let a = bed.client("a");
        let hold = a.hold("approval", "job:1").await;
        for _ in 0..10 {
            bed.chaos.renew().script(1, fault);
            bed.pass(secs(10)).await;
            hold.check().unwrap();
        }
        assert_eq!(a.count("renew_failed"), 10, "{fault:?}");
        assert_eq!(a.count("abandoned"), 0, "{fault:?}");
        assert_eq!(bed.lease("job:1").await.unwrap().fence, hold.fence().ok());
    }
}

/// Any success resets the count: fail, ok, fail, fail, ok … never gives three in a row.
#[tokio::test(start_paused = true)]
async fn intermittent_failure_does_not_abandon() {
    let bed = Bed::new();
    let a = bed.client("a");
    for _ in 0..20 {
        bed.chaos
            .renew()
            .fail_next(1)
            .pass_next(1)
            .fail_next(2)
            .pass_next(1);
    }
    let hold = a.hold("approval", "job:1").await;
    bed.reached(Verb::Renew, 100).await;
    hold.check().unwrap();
    assert!(a.count("renew_failed") >= 59 && a.count("abandoned") == 0);
    let most = a.all("renew_failed").into_iter().map(|event| match event.what {
        What::RenewFailed { failures, .. } => failures,
        _ => 0,
    });
    assert_eq!(most.max(), Some(2));
}

/// Errors are retried sooner than the next regular renewal.
#[tokio::test(start_paused = true)]
async fn a_failed_renewal_is_retried_before_the_next_tick() {
    let bed = Bed::new();
    let a = bed.client("a");
    bed.chaos.renew().fail_next(1);
    let _hold = a.hold("scheduler", "job:1").await;
    bed.reached(Verb::Renew, 2).await;
    let sent: Vec<_> = bed.tap.batches().iter().map(|(at, _)| *at).collect();
    assert!(sent[1].since(sent[0]) < secs(20) * 3 / 4 + ms(2), "{sent:?}");
}

#[tokio::test(start_paused = true)]
async fn trap_04_a_renewal_whose_reply_is_lost_does_not_conflict_with_the_next() {
    let bed = Bed::new();
    let a = bed.client("a");
    let hold = a.hold("scheduler", "job:1").await;
    let fence = hold.fence().unwrap();
    for _ in 0..10 {
        bed.chaos.renew().lose_reply(2);
        bed.pass(secs(60)).await;
        assert_eq!(hold.fence().unwrap(), fence);
    }
    assert_eq!(
        bed.chaos.applied(Verb::Renew),
        bed.calls(Verb::Renew),
        "each was applied"
    );
    assert_eq!(a.total("renew_total", "unknown"), 20.0);
    assert_eq!((a.count("not_owned"), a.count("abandoned")), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn trap_28_a_definite_not_owned_ends_the_hold_at_once() {
    let bed = Bed::new();
    let a = bed.client("a");
    let hold = a.hold("scheduler", "job:1").await;
    bed.memory.table().lose_everything();
    let lost = bed.lost(&hold).await;
    assert_eq!(lost.reason, Loss::NotOwned);
    assert_eq!(
        bed.calls(Verb::Renew),
        1,
        "the first answer, not the third strike"
    );
    assert_eq!(bed.tap.batches()[0].0, bed.now());
    assert_eq!((a.count("not_owned"), a.count("abandoned")), (1, 1));
    assert_eq!(a.total("not_owned_total", "renew"), 1.0);
    assert_eq!(a.total("abandoned_total", "not_owned"), 1.0);
}

/// The release waits for a renewal that is on its way, so none can arrive after it.
#[tokio::test(start_paused = true)]
async fn trap_10_a_late_renewal_cannot_revive_a_released_lease() {
    let bed = Bed::new();
    let a = bed.client("a");
    let hold = a.hold("scheduler", "job:1").await;
    bed.chaos.renew().delay(ms(1500));
    bed.reached(Verb::Renew, 1).await;
    let (asked, sent) = (bed.now(), bed.calls(Verb::Release));
    assert_eq!(sent, 0);
    assert_eq!(hold.release().await, Outcome::Released);
    assert_at(bed.now(), asked, ms(1500));
    assert_eq!((bed.chaos.applied(Verb::Renew), bed.calls(Verb::Release)), (1, 1));
    assert_eq!(bed.lease("job:1").await, None);
    bed.pass(secs(300)).await;
    assert_eq!((bed.lease("job:1").await, bed.calls(Verb::Renew)), (None, 1));
    // One that is lost on its way does not hold the release up for longer than its time-out.
    bed.chaos.renew().calm().hang_next(1);
    let hold = a.hold("scheduler", "job:2").await;
    bed.reached(Verb::Renew, 2).await;
    let asked = bed.now();
    assert_eq!(hold.release().await, Outcome::Released);
    assert_at(bed.now(), asked, secs(2));
}

#[tokio::test(start_paused = true)]
async fn trap_26_max_hold_ends_a_hold_whose_renewals_succeed() {
    let bed = Bed::new();
    let a = bed.client("a");
    let (hold, from) = (a.hold("scheduler", "job:1").await, bed.now());
    let lost = bed.lost(&hold).await;
    assert_eq!(lost.reason, Loss::MaxHold);
    assert_at(bed.now(), from, secs(15 * 60));
    settle().await;
    assert!(a.count("renewed") >= 45 && a.count("renew_failed") == 0);
    assert_eq!(a.total("abandoned_total", "max_hold"), 1.0);
    assert_eq!(hold.release().await, Outcome::Skipped);
    // Also where the class goes on in every other case.
    let b = bed.client_with("b", "[class.workflow]\nmax_hold = \"2m\"");
    let (hold, from) = (b.hold("workflow", "run:1").await, bed.now());
    assert_eq!(bed.lost(&hold).await.reason, Loss::MaxHold);
    assert_at(bed.now(), from, secs(120));
}

/// A store whose own code panics is a store that did not answer: never a silent hold.
#[tokio::test(start_paused = true)]
async fn a_renewal_that_panics_counts_as_a_failure() {
    let bed = Bed::new();
    let a = bed.client("a");
    bed.chaos.renew().panic_next(3);
    let hold = a.hold("scheduler", "job:1").await;
    assert_eq!(bed.lost(&hold).await.reason, Loss::MaxFailures);
    assert_eq!(a.total("renew_total", "unknown"), 3.0);
    // The keeper is alive: the next hold is renewed.
    let next = a.hold("scheduler", "job:2").await;
    bed.pass(secs(200)).await;
    next.check().unwrap();
}

#[tokio::test(start_paused = true)]
async fn the_early_warning_says_how_much_was_left() {
    let bed = Bed::new();
    let a = bed.client("a");
    let _hold = a.hold("scheduler", "job:1").await;
    bed.pass(secs(70)).await;
    for event in a.all("renewed") {
        let What::Renewed { left, .. } = event.what else {
            continue;
        };
        // Sent at 18 to 20 of 59.38 usable seconds.
        assert!((0.66..0.71).contains(&left), "{left}");
    }
    assert!(a.count("renewed") >= 3);
}

#[tokio::test(start_paused = true)]
async fn a_client_whose_runtime_ends_marks_its_holds_lost() {
    // A runtime of its own, as it must end while the hold is alive.
    let (send, receive) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .unwrap();
        let (hold, client) = runtime.block_on(async {
            let bed = Bed::new();
            let client = bed.client("a");
            let hold = client.hold("workflow", "run:1").await;
            settle().await;
            (hold, client)
        });
        assert_eq!(hold.standing(), Standing::Proven);
        drop(runtime);
        send.send((
            hold.standing(),
            client.count("abandoned"),
            hold.cancellation().is_cancelled(),
        ))
    });
    let seen = receive.recv().unwrap();
    assert_eq!(seen, (Standing::Lost(Loss::KeeperGone), 1, true));
}

/// The early warning: the least share of the usable time that was left at a renewal, not the last and not the average.
#[tokio::test(start_paused = true)]
async fn the_closest_renewal_is_remembered() {
    let bed = Bed::new();
    let a = bed.client("a");
    let _hold = a.hold("scheduler", "job:1").await;
    bed.pass(secs(100)).await;
    let calm = a.total("renew_remaining_ratio", "");
    assert!(calm > 0.6 && calm < 0.75, "{calm}");
    bed.chaos.renew().fail_next(1);
    bed.pass(secs(60)).await;
    let close = a.total("renew_remaining_ratio", "");
    assert!(close < calm, "{close} {calm}");
    bed.pass(secs(200)).await;
    assert_eq!(a.total("renew_remaining_ratio", "").to_bits(), close.to_bits());
}

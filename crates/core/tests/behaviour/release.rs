//! Giving back: bounded, confirmed or owed, independent of the caller, and never in the way of the work's result.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test fails by panicking"
)]

use crate::bed;
use crate::bed::{Bed, assert_at, ms, secs, settle};
use leasehold_core::adapter::Verb;
use leasehold_core::event::{Cleared, What};
use leasehold_core::{Loss, Outcome, RunError};

#[tokio::test(start_paused = true)]
async fn a_release_retried_once_frees_the_lock() {
    let bed = Bed::new();
    let a = bed.client("a");
    bed.chaos.release().fail_next(1);
    let hold = a.hold("scheduler", "job:1").await;
    assert_eq!(hold.release().await, Outcome::Released);
    assert_eq!(bed.calls(Verb::Release), 2);
    assert_eq!(bed.lease("job:1").await, None);
    assert!(matches!(
        a.only("released").what,
        What::Released { attempts: 2, .. }
    ));
    assert_eq!(a.count("release_failed"), 1);
}

/// *Not owned* after an attempt that may have been applied means that it was.
#[tokio::test(start_paused = true)]
async fn a_release_whose_reply_is_lost_is_released_not_a_fault() {
    let bed = Bed::new();
    let a = bed.client("a");
    bed.chaos.release().lose_reply(1);
    let hold = a.hold("scheduler", "job:1").await;
    assert_eq!(hold.release().await, Outcome::Released);
    assert_eq!((bed.calls(Verb::Release), a.count("not_owned")), (2, 0));
    assert_eq!(a.count("released"), 1);
}

#[tokio::test(start_paused = true)]
async fn trap_07_release_happens_after_the_callers_cancellation() {
    let bed = Bed::new();
    let a = bed.client("a");
    bed.chaos.release().delay(ms(300));
    // Dropped before it was ever polled, and while it waits for the answer.
    for polls in [0, 1] {
        let mut release = Box::pin(a.hold("scheduler", "job:1").await.release());
        for _ in 0..polls {
            assert!(futures_util::poll!(&mut release).is_pending());
        }
        drop(release);
        bed.pass(ms(310)).await;
        assert_eq!(bed.lease("job:1").await, None, "dropped after {polls} polls");
        a.idle().await;
    }
    assert_eq!(a.count("released"), 2);
    // The guard itself.
    drop(a.hold("scheduler", "job:1").await);
    bed.pass(ms(310)).await;
    assert_eq!((bed.lease("job:1").await, a.count("released")), (None, 3));
    // The task that holds it.
    let locks = a.locks.clone();
    let task = tokio::spawn(async move {
        let work = async |_: &leasehold_core::Hold| std::future::pending::<()>().await;
        locks.class("scheduler").run("job:1", work).await
    });
    bed.reached(Verb::Acquire, 4).await;
    settle().await;
    assert!(bed.lease("job:1").await.is_some());
    task.abort();
    let _ = task.await;
    bed.pass(ms(310)).await;
    assert_eq!((bed.lease("job:1").await, a.count("released")), (None, 4));
}

/// Cancelled in the middle of a release that fails: it is retried, and then owed and collected, without the caller.
#[tokio::test(start_paused = true)]
async fn trap_09_cancel_during_release_leaves_it_finished_or_retried() {
    let bed = Bed::new();
    let a = bed.client("a");
    bed.chaos.release().hang_next(1).fail_next(3);
    let mut release = Box::pin(a.hold("scheduler", "job:1").await.release());
    assert!(futures_util::poll!(&mut release).is_pending());
    bed.reached(Verb::Release, 1).await;
    drop(release);
    bed.reached(Verb::Release, 5).await;
    a.idle().await;
    assert_eq!(bed.lease("job:1").await, None);
    assert_eq!((a.count("debt"), a.count("debt_cleared")), (1, 1));
    a.hold("scheduler", "job:1").await.check().unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_release_is_bounded_in_the_foreground_then_owed() {
    let bed = Bed::new();
    let (a, b) = (bed.client("a"), bed.client("b"));
    bed.chaos.release().hang(true);
    let granted = bed.now();
    let hold = a.hold("scheduler", "job:1").await;
    let from = bed.now();
    let outcome = hold.release().await;
    assert_at(bed.now(), from, secs(4));
    let Outcome::Debt { until } = outcome else {
        panic!("{outcome:?}")
    };
    assert!(
        until >= granted + secs(60) && until <= granted + secs(61),
        "{until:?}"
    );
    assert_eq!((a.total("debt_holds", ""), a.left().await.debts), (1.0, 1));
    assert_eq!(b.busy("workflow", "job:1").await.holder, "a");
    // The store is back: the collector frees the name long before the lease would have ended.
    bed.chaos.release().calm();
    let back = bed.now();
    a.idle().await;
    assert!(
        bed.now().since(back) < secs(10),
        "the collector's longest pause and time-out"
    );
    assert_eq!(bed.lease("job:1").await, None);
    assert_eq!(a.total("debt_holds", ""), 0.0);
    let cleared = a.only("debt_cleared");
    let What::DebtCleared { after, how } = cleared.what else {
        panic!()
    };
    assert_eq!(how, Cleared::Released);
    assert_eq!(a.total("debt_seconds_total", ""), after.as_secs_f64());
}

#[tokio::test(start_paused = true)]
async fn a_debt_ends_with_the_lease_at_the_latest() {
    let bed = Bed::new();
    let a = bed.client("a");
    bed.chaos.release().down(true);
    let from = bed.now();
    let Outcome::Debt { until } = a.hold("scheduler", "job:1").await.release().await else {
        panic!("not a debt")
    };
    a.idle().await;
    assert!(bed.now() >= until && bed.now() <= until + ms(20));
    assert!(bed.now().since(from) <= secs(61));
    assert_eq!(bed.lease("job:1").await, None);
    assert!(matches!(
        a.only("debt_cleared").what,
        What::DebtCleared {
            how: Cleared::Expired,
            ..
        }
    ));
    // Collecting backs off: it is not a loop against a store that is down.
    assert!(bed.calls(Verb::Release) < 40, "{}", bed.calls(Verb::Release));
}

/// What waiting a debt has caused, measured.
#[tokio::test(start_paused = true)]
async fn waiting_behind_ones_own_debt_is_measured() {
    let bed = Bed::new();
    let a = bed.client("a");
    bed.chaos.release().down(true);
    let debt = a.hold("scheduler", "job:1").await.release().await;
    assert!(matches!(debt, Outcome::Debt { .. }));
    let from = bed.now();
    let waits = a.class("scheduler").wait(secs(90)).acquire("job:1");
    let hold = waits.await.unwrap().held().expect("held once the lease is over");
    hold.check().unwrap();
    let waited = bed.now().since(from).as_secs_f64();
    assert!((55.0..61.0).contains(&waited));
    assert!((a.total("busy_after_debt_seconds", "") - waited).abs() < 0.01);
}

#[tokio::test(start_paused = true)]
async fn trap_08_a_failing_release_does_not_hide_the_works_result() {
    let bed = Bed::new();
    let a = bed.client("a");
    for (order, name) in ["down", "hang", "lost", "panic"]
        .into_iter()
        .zip(["n:1", "n:2", "n:3", "n:4"])
    {
        bed.chaos.release().calm();
        match order {
            "down" => bed.chaos.release().down(true),
            "hang" => bed.chaos.release().hang(true),
            "lost" => bed.chaos.release().lose_reply(9),
            _ => bed.chaos.release().panic_next(9),
        };
        let ok = a.class("scheduler").run(name, async |_| Ok::<_, &str>(42)).await;
        assert_eq!(ok.unwrap(), Ok(42), "{order}");
        bed.chaos.release().calm();
        bed.pass(secs(70)).await;
        bed.chaos.release().down(true);
        let failed = a
            .class("scheduler")
            .run(name, async |_| Err::<(), _>("mine"))
            .await;
        assert_eq!(failed.unwrap(), Err("mine"), "{order}");
        bed.chaos.release().calm();
        bed.pass(secs(70)).await;
    }
}

/// I9: work that ends after its lease was lost is told so, and its result is not thrown away.
#[tokio::test(start_paused = true)]
async fn lost_carries_the_works_result() {
    let bed = Bed::new();
    let manual = bed::clocks::Manual::new();
    let a = bed.client_on("a", std::sync::Arc::new(manual.clone()));
    let hold = a.hold("scheduler", "job:1").await;
    let ended = hold
        .run(async {
            manual.jump(secs(61));
            "the result"
        })
        .await;
    let (lost, result) = ended.unwrap_err();
    assert_eq!((lost.reason, result), (Loss::Deadline, Some("the result")));
    // And through the short way.
    let ended = a
        .class("scheduler")
        .run("job:2", async |_| {
            manual.jump(secs(61));
            "the result"
        })
        .await;
    match ended.unwrap_err() {
        RunError::Lost { lost, result } => {
            assert_eq!((lost.reason, result), (Loss::Deadline, Some("the result")));
        }
        other => panic!("{other:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn trap_14_dropped_and_panicked_holds_are_given_back() {
    let bed = Bed::new();
    let a = bed.client("a");
    let locks = a.locks.clone();
    let task = tokio::spawn(async move {
        let work = async |_: &leasehold_core::Hold| panic!("the work's own panic");
        let _: Result<(), _> = locks.class("scheduler").run("job:1", work).await;
    });
    assert!(task.await.unwrap_err().is_panic());
    settle().await;
    assert_eq!((bed.lease("job:1").await, a.names_here()), (None, 0));
    // The process dies: nobody releases, and the lease is over by its TTL.
    let hold = a.hold("scheduler", "job:1").await;
    bed.chaos.all().down(true);
    bed.pass(secs(60)).await;
    assert_eq!(bed.lease("job:1").await, None);
    drop(hold);
}

/// The lease is freed once: a second release finds nothing to do, and a guard's drop after it neither.
#[tokio::test(start_paused = true)]
async fn a_hold_is_released_once() {
    let bed = Bed::new();
    let (a, b) = (bed.client("a"), bed.client("b"));
    bed.chaos.release().delay_reply(ms(100));
    a.hold("scheduler", "job:1").await.release().await;
    let next = b.hold("scheduler", "job:1").await;
    settle().await;
    bed.pass(secs(100)).await;
    assert_eq!((bed.calls(Verb::Release), a.count("released")), (1, 1));
    next.check().unwrap();
}

/// `when = "expired"`: one tick per window across all replicas.
#[tokio::test(start_paused = true)]
async fn a_kept_lease_runs_out_by_itself() {
    let bed = Bed::new();
    let (a, b) = (bed.client("a"), bed.client("b"));
    let from = bed.now();
    let Outcome::Kept { until } = a.hold("reconciler", "tick").await.release().await else {
        panic!("not kept")
    };
    assert!(until >= from + secs(60));
    assert_eq!((bed.calls(Verb::Release), a.names_here()), (0, 0));
    for client in [&a, &b] {
        assert_eq!(client.busy("reconciler", "tick").await.holder, "a");
    }
    bed.pass(secs(60)).await;
    b.hold("reconciler", "tick").await.release().await;
    assert_eq!(
        bed.calls(Verb::Renew),
        0,
        "nobody renews a lease whose work is done"
    );
    assert_eq!(a.total("release_total", "kept"), 1.0);
}

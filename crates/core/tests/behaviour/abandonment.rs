//! `fence`: after as many failures as the class allows, or at the deadline, the hold is over. Once, and in time.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test fails by panicking"
)]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::bed::{Bed, assert_at, secs, settle};
use leasehold_core::adapter::{Fault, Verb};
use leasehold_core::policy::{Class, PolicyBook};
use leasehold_core::store::Cause;
use leasehold_core::{Loss, Outcome, Standing};

/// Slow to fail and hardly any room: the deadline comes before the third strike.
const TIGHT: &str = r#"
[class.tight]
ttl = "10s"
renew = { every = "4s", timeout = "2500ms" }
"#;

#[tokio::test(start_paused = true)]
async fn abandonment_after_exactly_three_failures() {
    let bed = Bed::new();
    let a = bed.client("a");
    let hold = a.hold("scheduler", "job:1").await;
    let fired = Arc::new(AtomicUsize::new(0));
    let (token, counts) = (hold.cancellation(), Arc::clone(&fired));
    let watch = tokio::spawn(async move {
        token.cancelled().await;
        counts.fetch_add(1, Ordering::SeqCst);
    });
    bed.chaos.renew().down(true);

    bed.reached(Verb::Renew, 2).await;
    settle().await;
    hold.check().expect("two strikes are not three");
    assert_eq!((a.count("abandoned"), fired.load(Ordering::SeqCst)), (0, 0));

    let lost = bed.lost(&hold).await;
    watch.await.unwrap();
    assert_eq!(lost.reason, Loss::MaxFailures);
    assert_eq!(bed.calls(Verb::Renew), 3);
    assert_eq!(a.total("abandoned_total", "max_failures"), 1.0);
    assert_eq!((a.count("abandoned"), a.count("renew_failed")), (1, 3));
    assert_eq!(fired.load(Ordering::SeqCst), 1);

    // The lease is left alone: it may be someone else's by now.
    assert_eq!(bed.lease("job:1").await.unwrap().holder, "a");
    assert_eq!(hold.release().await, Outcome::Skipped);
    settle().await;
    assert_eq!(bed.calls(Verb::Release), 0);
    assert!(bed.lease("job:1").await.is_some());
    bed.pass(secs(600)).await;
    assert_eq!((bed.calls(Verb::Renew), bed.calls(Verb::Release)), (3, 0));
    assert_eq!(
        (a.count("abandoned"), a.total("abandoned_total", "max_failures")),
        (1, 1.0)
    );
    a.idle().await;
}

#[tokio::test(start_paused = true)]
async fn abandonment_by_the_deadline_before_the_third_strike() {
    let bed = Bed::new();
    let a = bed.client_with("a", TIGHT);
    bed.chaos.renew().hang(true);
    let (hold, from) = (a.hold("tight", "job:1").await, bed.now());
    let lost = bed.lost(&hold).await;
    assert_eq!(lost.reason, Loss::Deadline);
    // ttl 10 s, less twice 10 ms and one per cent.
    assert_at(bed.now(), from, secs(10) - Class::default_drift(secs(10)));
    settle().await; // the guard watches the deadline itself and may be ahead of the keeper
    assert!(a.count("renew_failed") < 3);
    assert_eq!(
        (a.count("abandoned"), a.total("abandoned_total", "deadline")),
        (1, 1.0)
    );
    assert_eq!(hold.release().await, Outcome::Skipped);
    assert_eq!(bed.calls(Verb::Release), 0);
    // The third answer comes after the end and changes nothing.
    bed.pass(secs(30)).await;
    assert_eq!(a.count("abandoned"), 1);
}

#[tokio::test(start_paused = true)]
async fn trap_01_a_black_network_stops_the_work_before_the_lease_can_expire() {
    let bed = Bed::new();
    let a = bed.client("a");
    let expires = bed.now() + secs(60);
    let locks = a.locks.clone();
    let (ran, clock) = (Arc::new(AtomicUsize::new(0)), Arc::clone(&bed.clock));
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
    settle().await;
    bed.chaos.all().hang(true);
    let error = work.await.unwrap().unwrap_err();
    assert!(matches!(
        error,
        leasehold_core::RunError::<()>::Lost { result: None, .. }
    ));
    assert!(bed.now() < expires);
    let steps = ran.load(Ordering::SeqCst);
    assert!(steps > 10);
    bed.pass(secs(100)).await;
    assert_eq!(ran.load(Ordering::SeqCst), steps);
}

#[tokio::test(start_paused = true)]
async fn trap_03_errors_for_longer_than_the_lease_signal_once_and_stop() {
    let bed = Bed::new();
    let a = bed.client("a");
    let hold = a.hold("scheduler", "job:1").await;
    bed.chaos.all().down(true);
    bed.pass(secs(600)).await;
    assert_eq!((a.count("abandoned"), bed.calls(Verb::Renew)), (1, 3));
    bed.chaos.all().down(false);
    bed.pass(secs(600)).await;
    assert_eq!((a.count("abandoned"), bed.calls(Verb::Renew)), (1, 3));
    assert_eq!(hold.release().await, Outcome::Skipped);
    assert_eq!(a.count("abandoned"), 1);
}

/// The articles' scheduler could fence at or after expiry: failures at 20, 40 and 60 s of a 60 s lease.
#[tokio::test(start_paused = true)]
async fn trap_29_the_third_strike_never_comes_after_the_lease_has_expired() {
    let faults = [
        Fault::Refuse(Cause::Unreachable),
        Fault::Vanish(Cause::TimedOut),
        Fault::LoseReply,
        Fault::Hang,
        Fault::Panic,
    ];
    for seed in 0..8 {
        for fault in faults {
            let bed = Bed::new();
            let a = bed.build(&format!("a{seed}"), PolicyBook::builtin(), Arc::clone(&bed.clock));
            for class in [
                "scheduler",
                "workflow-critical",
                "approval",
                "reconciler",
                "admission",
            ] {
                let asked = bed.now();
                let hold = a.hold(class, class).await;
                let now = bed.now();
                let ttl = a.policies().class(class, now).unwrap().ttl.get();
                bed.chaos.renew().script(5, fault);
                // A lost reply extends the lease without our knowing; the holder must not count on it.
                bed.lost(&hold).await;
                assert!(bed.now().since(asked) < ttl, "{class} {fault:?}");
                assert!(
                    bed.lease(class).await.is_some(),
                    "{class} {fault:?}: lost after expiry"
                );
                bed.chaos.renew().calm();
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn fifty_parallel_abandonments_are_each_counted_once() {
    let bed = Bed::new();
    let a = bed.client("a");
    let mut holds = Vec::new();
    for job in 0..50 {
        holds.push(a.hold("scheduler", &format!("job:{job}")).await);
    }
    bed.chaos.renew().down(true);
    let lost = futures_util::future::join_all(holds.iter().map(|hold| hold.lost())).await;
    assert!(lost.iter().all(|lost| lost.reason == Loss::MaxFailures));
    bed.pass(secs(300)).await;
    assert_eq!(a.total("abandoned_total", "max_failures"), 50.0);
    let mut ids: Vec<_> = a.all("abandoned").iter().map(|event| event.hold).collect();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!((a.count("abandoned"), ids.len()), (50, 50));
    assert!(holds.iter().all(|hold| hold.cancellation().is_cancelled()));
    assert_eq!(a.count("renew_failed"), 150, "exactly three strikes each");
    for hold in holds {
        assert_eq!(hold.release().await, Outcome::Skipped);
    }
    a.idle().await;
}

/// A hold that is lost stays lost: an answer that comes late does not bring it back.
#[tokio::test(start_paused = true)]
async fn nothing_brings_an_abandoned_hold_back() {
    let bed = Bed::new();
    let a = bed.client_with("a", TIGHT);
    // Each is applied, but answered after its time-out: the lease lives on in the store.
    bed.chaos.renew().script(10, Fault::HangAfter);
    let hold = a.hold("tight", "job:1").await;
    bed.lost(&hold).await;
    bed.chaos.renew().calm();
    assert!(bed.lease("job:1").await.is_some());
    bed.pass(secs(5)).await;
    assert_eq!(hold.standing(), Standing::Lost(Loss::Deadline));
    assert!(hold.fence().is_err() && hold.unfenced().is_err() && hold.remaining().is_zero());
}

/// A clean release frees the name at once; an unclean loss keeps it shut for `lock_delay` more.
#[tokio::test(start_paused = true)]
async fn lock_delay_counts_after_an_unclean_loss_only() {
    const DELAYED: &str = "[class.scheduler]\nrelease = { lock_delay = \"30s\" }";
    let bed = Bed::new();
    let (a, b) = (bed.client_with("a", DELAYED), bed.client("b"));
    a.hold("scheduler", "job:1").await.release().await;
    let hold = b.hold("workflow", "job:1").await;
    hold.release().await;

    let (hold, from) = (a.hold("scheduler", "job:1").await, bed.now());
    bed.chaos.renew().down(true);
    bed.lost(&hold).await;
    assert!(bed.now().since(from) < secs(60), "the holder counts the TTL only");
    drop(hold);
    bed.pass((from + secs(89)).since(bed.now())).await;
    assert_eq!(b.busy("workflow", "job:1").await.holder, "a");
    bed.pass(secs(1)).await;
    b.hold("workflow", "job:1").await.check().unwrap();
}

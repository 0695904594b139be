//! Clocks that are stepped, paused or lost: validity is a comparison made at the moment of use.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test fails by panicking"
)]

use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Poll;

use crate::bed::clocks::{Manual, Stepped};
use crate::bed::{Bed, ms, secs, settle};
use leasehold_core::clock::RuntimeClock;
use leasehold_core::{Loss, NoFence, Outcome, Standing};

/// A process that is stopped past its lease and then continued: its work is polled again before any timer fires.
#[tokio::test(start_paused = true)]
async fn trap_05_no_protected_step_runs_after_a_pause_past_the_deadline() {
    let bed = Bed::new();
    let manual = Manual::new();
    let a = bed.client_on("a", Arc::new(manual.clone()));
    let hold = a.hold("scheduler", "job:1").await;
    let old = hold.fence().unwrap();
    let steps = AtomicUsize::new(0);
    let run = hold.run(poll_fn(|cx| {
        let step = steps.fetch_add(1, Ordering::SeqCst);
        assert!(step <= 4, "a step after the pause");
        if step == 4 {
            manual.jump(secs(61)); // the pause begins in the middle of a step …
        }
        cx.waker().wake_by_ref(); // … and the next one is due at once
        Poll::<()>::Pending
    }));
    let (lost, result) = run.await.unwrap_err();
    assert_eq!(
        (lost.reason, result, steps.load(Ordering::SeqCst)),
        (Loss::Deadline, None, 5)
    );
    // Whoever asks finds out too, before any timer has fired.
    assert!(hold.check().is_err() && hold.unfenced().is_err());
    assert!(matches!(hold.fence(), Err(NoFence::Lost(_))));
    assert_eq!(
        (hold.standing(), hold.remaining()),
        (Standing::Lost(Loss::Deadline), ms(0))
    );
    // The keeper learns of it when its timers ring, says it once, and leaves the lease alone.
    manual.ring();
    settle().await;
    assert_eq!(
        (a.count("abandoned"), a.total("abandoned_total", "deadline")),
        (1, 1.0)
    );
    assert_eq!(hold.release().await, Outcome::Skipped);
    // The other side: the old fence is older than the next owner's.
    bed.pass(secs(61)).await;
    let b = bed.client("b");
    assert!(b.hold("scheduler", "job:1").await.fence().unwrap() > old);
}

/// A keeper that is starved is a lost hold, not a silent one (L4): the guard watches the deadline itself.
#[tokio::test(start_paused = true)]
async fn a_starved_keeper_does_not_keep_a_hold_alive() {
    let bed = Bed::new();
    let manual = Manual::new();
    let a = bed.client_on("a", Arc::new(manual.clone()));
    let hold = a.hold("scheduler", "job:1").await;
    manual.jump(secs(59));
    hold.check().expect("59 of 59.38 seconds");
    manual.jump(ms(380));
    assert!(hold.check().is_err());
    let lost = hold.lost().await;
    assert_eq!(lost.reason, Loss::Deadline);
    let work = hold.run(async { panic!("must not be polled") }).await;
    assert!(matches!(work, Err((_, None::<()>))));
}

/// `continue`: the same pause makes it unproven at the moment of use, though no timer has told anyone.
#[tokio::test(start_paused = true)]
async fn a_pause_makes_a_continuing_hold_unproven_not_proven() {
    let bed = Bed::new();
    let manual = Manual::new();
    let a = bed.client_on("a", Arc::new(manual.clone()));
    let hold = a.hold("workflow", "run:1").await;
    manual.jump(secs(31));
    assert_eq!(hold.standing(), Standing::Unproven);
    hold.check().unwrap();
}

#[tokio::test(start_paused = true)]
async fn trap_23_a_stepped_wall_clock_has_no_effect() {
    let runtime = RuntimeClock::shared();
    let bed = Bed::with_store_clock(Arc::clone(&runtime), Arc::clone(&runtime));
    let stepped = Stepped::new(runtime);
    let (a, b) = (bed.client_on("a", Arc::clone(&stepped) as _), bed.client("b"));
    let hold = a.hold("scheduler", "job:1").await;
    let fence = hold.fence().unwrap();
    for by in [3600, -3600, 3600, 0, -3000] {
        let left = hold.remaining();
        stepped.step(by);
        assert_eq!(hold.remaining(), left, "stepped by {by} s");
        bed.pass(secs(50)).await;
        assert_eq!(hold.fence().unwrap(), fence);
        assert_eq!(b.busy("workflow", "job:1").await.holder, "a");
    }
    // A wait, a deadline and a release across a step.
    stepped.step(3600);
    let from = bed.now();
    bed.chaos.renew().hang(true);
    bed.lost(&hold).await;
    assert!(bed.now().since(from) > secs(30) && bed.now().since(from) < secs(60));
    let told = ["clock_jump", "renew_failed"].map(|label| a.count(label));
    assert_eq!(told[0], 0, "not taken for the store's clock");
    assert!(told[1] <= 3);
}

/// The store forgets everything and its clock is an hour back: fences still grow for whoever has seen one.
#[tokio::test(start_paused = true)]
async fn trap_24_fences_grow_after_the_store_lost_everything() {
    let runtime = RuntimeClock::shared();
    let stores = Stepped::new(Arc::clone(&runtime));
    let bed = Bed::with_store_clock(runtime, Arc::clone(&stores) as _);
    let (a, b) = (bed.client("a"), bed.client("b"));
    let first = a.hold("scheduler", "job:1").await.fence().unwrap();
    settle().await;
    bed.memory.table().lose_everything();
    stores.step(-3500);
    let hold = a.hold("scheduler", "job:1").await;
    let second = hold.fence().unwrap();
    assert!(second > first, "{second} after {first}");
    // One that has only met the fence in an answer has seen it too.
    b.busy("workflow", "job:1").await;
    drop(hold);
    settle().await;
    bed.memory.table().lose_everything();
    stores.step(-3550);
    let third = b.hold("workflow", "job:1").await.fence().unwrap();
    assert!(third > second, "{third} after {second}");
}

/// A lease that is handed over to a waiter is a grant like any other: above what that waiter has seen.
#[tokio::test(start_paused = true)]
async fn trap_24_a_handed_over_lease_keeps_to_the_waiters_floor() {
    let runtime = RuntimeClock::shared();
    let stores = Stepped::new(Arc::clone(&runtime));
    let bed = Bed::with_store_clock(runtime, Arc::clone(&stores) as _);
    let (seen, stranger) = (bed.client("seen"), bed.client("stranger"));
    let hold = seen.hold("scheduler", "job:1").await;
    let newest = hold.fence().unwrap();
    hold.release().await;
    bed.memory.table().lose_everything();
    stores.step(-3500);
    let low = stranger.hold("scheduler", "job:1").await;
    assert!(low.fence().unwrap() < newest, "a stranger cannot know");
    let waits = tokio::spawn(seen.class("scheduler").wait(secs(30)).acquire("job:1"));
    bed.pass(secs(5)).await;
    let released = bed.now();
    low.release().await;
    let hold = waits.await.unwrap().unwrap().held().unwrap();
    assert_eq!(bed.now(), released, "handed over, not polled");
    assert!(
        hold.fence().unwrap() > newest,
        "{:?} after {newest}",
        hold.fence()
    );
}

/// As long as the store's clock did not go back, that holds for strangers as well.
#[tokio::test(start_paused = true)]
async fn fences_grow_for_strangers_after_a_flush() {
    let bed = Bed::new();
    let mut newest = None;
    for round in 0..20 {
        let client = bed.client(&format!("c{round}"));
        let hold = client.hold("scheduler", "job:1").await;
        let fence = hold.fence().ok();
        assert!(fence > newest, "{fence:?} after {newest:?}");
        newest = fence;
        match round % 3 {
            0 => drop(hold),
            1 => assert_eq!(hold.release().await, Outcome::Released),
            _ => drop(hold),
        }
        bed.pass(ms(1)).await;
        bed.memory.table().lose_everything();
    }
}

/// I5, with a slow way there and back: what is confirmed counts from before it was sent, never from its answer.
#[tokio::test(start_paused = true)]
async fn a_deadline_never_lies_after_the_stores_expiry() {
    let bed = Bed::new();
    let a = bed.client("a");
    bed.chaos.all().delay(ms(600)).delay_reply(ms(1200));
    let hold = a.hold("scheduler", "job:1").await;
    for _ in 0..400 {
        let lease = bed.lease("job:1").await.unwrap();
        assert!(
            hold.remaining() < lease.remaining.unwrap(),
            "{:?} {lease:?}",
            hold.remaining()
        );
        bed.pass(ms(250)).await;
    }
    assert!(a.count("renewed") >= 4);
}

/// The store's clock jumps while a lease is held: told, because leases then end early or late.
#[tokio::test(start_paused = true)]
async fn a_jump_of_the_stores_clock_is_told() {
    let (runtime, stores) = (RuntimeClock::shared(), Manual::new());
    let bed = Bed::with_store_clock(runtime, Arc::new(stores.clone()));
    let a = bed.client("a");
    let hold = a.hold("scheduler", "job:1").await;
    // The store's time stands still: the lease has more left than it should.
    bed.pass(secs(21)).await;
    assert_eq!(a.count("clock_jump"), 1);
    stores.jump(secs(70));
    bed.pass(secs(20)).await;
    assert_eq!(
        hold.standing(),
        Standing::Lost(Loss::NotOwned),
        "it ran out early there"
    );
}

//! Stepped, paused and reset clocks: validity is compared with the clock at the moment of use.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Poll;

use crate::fixture::faulty_clocks::{ManualClock, SteppedClock};
use crate::fixture::{Fixture, ms, run_ready_tasks, secs};
use leasehold_core::clock::RuntimeClock;
use leasehold_core::{FenceError, HoldStatus, Loss, ReleaseOutcome};

/// A process is stopped past its lease and then continued: its work is polled again before any timer fires.
#[tokio::test(start_paused = true)]
async fn trap_05_no_protected_step_runs_after_a_pause_past_the_deadline() {
    let fixture = Fixture::new();
    let manual = ManualClock::new();
    let a = fixture.client_with_clock("a", Arc::new(manual.clone()));
    let hold = a.hold("scheduler", "job:1").await;
    let old = hold.fence().unwrap();
    let steps = AtomicUsize::new(0);
    let run = hold.run(poll_fn(|cx| {
        let step = steps.fetch_add(1, Ordering::SeqCst);
        assert!(step <= 4, "a step after the pause");
        if step == 4 {
            manual.jump(secs(61)); // the pause begins in the middle of a step …
        }
        cx.waker().wake_by_ref(); // … and the next step is due at once
        Poll::<()>::Pending
    }));
    let (lost, result) = run.await.unwrap_err();
    assert_eq!((lost.reason, result, steps.load(Ordering::SeqCst)), (Loss::Deadline, None, 5));
    // A direct check fails too, before any timer has fired.
    assert!(hold.check().is_err() && hold.fence_if_any().is_err());
    assert!(matches!(hold.fence(), Err(FenceError::Lost(_))));
    assert_eq!((hold.status(), hold.remaining()), (HoldStatus::Lost(Loss::Deadline), ms(0)));
    // The keeper notices when its timers fire, reports it once, and does not release the lease.
    manual.fire_timers();
    run_ready_tasks().await;
    assert_eq!((a.event_count("abandoned"), a.metric_total("abandoned_total", "deadline")), (1, 1.0));
    assert_eq!(hold.release().await, ReleaseOutcome::Skipped);
    // The next owner's fence is greater than the old one.
    fixture.advance(secs(61)).await;
    let b = fixture.client("b");
    assert!(b.hold("scheduler", "job:1").await.fence().unwrap() > old);
}

/// A starved keeper loses the hold instead of keeping it silently (L4): the guard watches the deadline itself.
#[tokio::test(start_paused = true)]
async fn a_starved_keeper_does_not_keep_a_hold_alive() {
    let fixture = Fixture::new();
    let manual = ManualClock::new();
    let a = fixture.client_with_clock("a", Arc::new(manual.clone()));
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

/// `continue`: after the same pause the hold is unproven at the moment of use, although no timer has fired.
#[tokio::test(start_paused = true)]
async fn a_pause_makes_a_continuing_hold_unproven() {
    let fixture = Fixture::new();
    let manual = ManualClock::new();
    let a = fixture.client_with_clock("a", Arc::new(manual.clone()));
    let hold = a.hold("workflow", "run:1").await;
    manual.jump(secs(31));
    assert_eq!(hold.status(), HoldStatus::Unproven);
    hold.check().unwrap();
}

#[tokio::test(start_paused = true)]
async fn trap_23_a_stepped_wall_clock_has_no_effect() {
    let runtime = RuntimeClock::shared();
    let fixture = Fixture::with_store_clock(Arc::clone(&runtime), Arc::clone(&runtime));
    let stepped = SteppedClock::new(runtime);
    let (a, b) = (fixture.client_with_clock("a", Arc::clone(&stepped) as _), fixture.client("b"));
    let hold = a.hold("scheduler", "job:1").await;
    let fence = hold.fence().unwrap();
    for by in [3600, -3600, 3600, 0, -3000] {
        let left = hold.remaining();
        stepped.set_wall_offset(by);
        assert_eq!(hold.remaining(), left, "stepped by {by} s");
        fixture.advance(secs(50)).await;
        assert_eq!(hold.fence().unwrap(), fence);
        assert_eq!(b.expect_busy("workflow", "job:1").await.holder, "a");
    }
    // A wait, a deadline and a release across a clock step.
    stepped.set_wall_offset(3600);
    let from = fixture.now();
    fixture.faults.renew().hang(true);
    fixture.wait_for_loss(&hold).await;
    assert!(fixture.now().since(from) > secs(30) && fixture.now().since(from) < secs(60));
    let told = ["clock_jump", "renew_failed"].map(|label| a.event_count(label));
    assert_eq!(told[0], 0, "not taken for the store's clock");
    assert!(told[1] <= 3);
}

/// The store loses everything and its clock is an hour back: fences still grow for clients that
/// have seen one.
#[tokio::test(start_paused = true)]
async fn trap_24_fences_grow_after_the_store_lost_everything() {
    let runtime = RuntimeClock::shared();
    let stores = SteppedClock::new(Arc::clone(&runtime));
    let fixture = Fixture::with_store_clock(runtime, Arc::clone(&stores) as _);
    let (a, b) = (fixture.client("a"), fixture.client("b"));
    let first = a.hold("scheduler", "job:1").await.fence().unwrap();
    run_ready_tasks().await;
    fixture.memory.table().clear_all_data();
    stores.set_wall_offset(-3500);
    let hold = a.hold("scheduler", "job:1").await;
    let second = hold.fence().unwrap();
    assert!(second > first, "{second} after {first}");
    // A client that saw the fence only in a busy response knows it too.
    b.expect_busy("workflow", "job:1").await;
    drop(hold);
    run_ready_tasks().await;
    fixture.memory.table().clear_all_data();
    stores.set_wall_offset(-3550);
    let third = b.hold("workflow", "job:1").await.fence().unwrap();
    assert!(third > second, "{third} after {second}");
}

/// A handover to a waiter is a grant like any other: its fence is above those the waiter has seen.
#[tokio::test(start_paused = true)]
async fn trap_24_a_handover_respects_the_waiters_fence_floor() {
    let runtime = RuntimeClock::shared();
    let stores = SteppedClock::new(Arc::clone(&runtime));
    let fixture = Fixture::with_store_clock(runtime, Arc::clone(&stores) as _);
    let (seen, stranger) = (fixture.client("seen"), fixture.client("stranger"));
    let hold = seen.hold("scheduler", "job:1").await;
    let newest = hold.fence().unwrap();
    hold.release().await;
    fixture.memory.table().clear_all_data();
    stores.set_wall_offset(-3500);
    let low = stranger.hold("scheduler", "job:1").await;
    assert!(low.fence().unwrap() < newest, "a stranger cannot know");
    let waits = tokio::spawn(seen.class("scheduler").wait(secs(30)).acquire("job:1"));
    fixture.advance(secs(5)).await;
    let released = fixture.now();
    low.release().await;
    let hold = waits.await.unwrap().unwrap().held().unwrap();
    assert_eq!(fixture.now(), released, "handed over, not polled");
    assert!(hold.fence().unwrap() > newest, "{:?} after {newest}", hold.fence());
}

/// If the store's clock did not go back, this also holds for clients that have seen no fence.
#[tokio::test(start_paused = true)]
async fn fences_grow_for_new_clients_after_a_flush() {
    let fixture = Fixture::new();
    let mut newest = None;
    for round in 0..20 {
        let client = fixture.client(&format!("c{round}"));
        let hold = client.hold("scheduler", "job:1").await;
        let fence = hold.fence().ok();
        assert!(fence > newest, "{fence:?} after {newest:?}");
        newest = fence;
        match round % 3 {
            0 => drop(hold),
            1 => assert_eq!(hold.release().await, ReleaseOutcome::Released),
            _ => drop(hold),
        }
        fixture.advance(ms(1)).await;
        fixture.memory.table().clear_all_data();
    }
}

/// I5 with slow messages: a deadline counts from before the request was sent, never from the response.
#[tokio::test(start_paused = true)]
async fn a_deadline_is_never_after_the_stores_expiry() {
    let fixture = Fixture::new();
    let a = fixture.client("a");
    fixture.faults.all().delay(ms(600)).delay_reply(ms(1200));
    let hold = a.hold("scheduler", "job:1").await;
    for _ in 0..400 {
        let lease = fixture.live_lease("job:1").await.unwrap();
        assert!(hold.remaining() < lease.remaining.unwrap(), "{:?} {lease:?}", hold.remaining());
        fixture.advance(ms(250)).await;
    }
    assert!(a.event_count("renewed") >= 4);
}

/// The store's clock jumps while a lease is held. This is reported, because leases then end early or late.
#[tokio::test(start_paused = true)]
async fn a_jump_of_the_stores_clock_is_reported() {
    let (runtime, stores) = (RuntimeClock::shared(), ManualClock::new());
    let fixture = Fixture::with_store_clock(runtime, Arc::new(stores.clone()));
    let a = fixture.client("a");
    let hold = a.hold("scheduler", "job:1").await;
    // The store's clock stands still, so the lease has more time left than expected.
    fixture.advance(secs(21)).await;
    assert_eq!(a.event_count("clock_jump"), 1);
    stores.jump(secs(70));
    fixture.advance(secs(20)).await;
    assert_eq!(hold.status(), HoldStatus::Lost(Loss::NotOwned), "it ran out early there");
}

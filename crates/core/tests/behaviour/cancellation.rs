//! A cancelled acquire leaves nothing behind (L3), at whatever point its future is dropped.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;

use crate::fixture::{Client, Fixture, ms, run_ready_tasks, secs};
use leasehold_core::adapter::Fault;

/// When the future is dropped after its last poll.
#[derive(Debug, Clone, Copy)]
enum DropTiming {
    AtOnce,
    WhenNextWoken,
}

/// Polls `work` at most `polls` times, then drops it. Returns `true` if it completed before.
async fn poll_then_drop(work: impl Future, polls: usize, drop: DropTiming) -> bool {
    let mut work = pin!(work);
    let mut done = 0;
    poll_fn(|cx| {
        if done == polls {
            return Poll::Ready(false);
        }
        done += 1;
        match work.as_mut().poll(cx) {
            Poll::Ready(_) => Poll::Ready(true),
            Poll::Pending if done == polls && matches!(drop, DropTiming::AtOnce) => Poll::Ready(false),
            Poll::Pending => Poll::Pending,
        }
    })
    .await
}

fn alive_tasks() -> usize {
    tokio::runtime::Handle::current().metrics().num_alive_tasks()
}

/// Asserts that nothing of the acquire is left in the store, the gate, the keeper or the runtime.
async fn assert_nothing_left(fixture: &Fixture, client: &Client, baseline: usize, told: &str) {
    client.wait_until_idle().await;
    run_ready_tasks().await;
    assert_eq!(client.local_name_count(), 0, "{told}: the gate");
    assert_eq!(fixture.memory.listener_count(), 0, "{told}: listeners");
    assert_eq!(fixture.live_lease("job:1").await, None, "{told}: the lease");
    let (rows, waiters, _) = fixture.memory.table().footprint();
    assert_eq!((rows, waiters), (0, 0), "{told}: rows and waiters");
    assert_eq!(alive_tasks(), baseline, "{told}: tasks");
}

#[tokio::test(start_paused = true)]
async fn trap_06_an_acquire_cancelled_at_every_await_point_leaves_nothing() {
    for drop in [DropTiming::AtOnce, DropTiming::WhenNextWoken] {
        for fault in [Fault::Pass, Fault::LoseReply, Fault::HangAfter] {
            let fixture = Fixture::new();
            let a = fixture.client("a");
            fixture.faults.acquire().delay(ms(20)).delay_reply(ms(20));
            run_ready_tasks().await;
            let (baseline, mut cancelled) = (alive_tasks(), 0);
            for polls in 0..40 {
                fixture.faults.acquire().script(1, fault);
                let ended = poll_then_drop(a.class("scheduler").acquire("job:1"), polls, drop).await;
                let told = format!("{fault:?} {drop:?} after {polls} polls");
                assert_nothing_left(&fixture, &a, baseline, &told).await;
                fixture.faults.acquire().clear().delay(ms(20)).delay_reply(ms(20));
                if ended {
                    break;
                }
                cancelled += 1;
            }
            assert!(cancelled >= 3, "before, in and between the asks");
            assert_eq!(fixture.footprint().await, (0, 0, 0));
        }
    }
}

/// The same while waiting behind another client, with and without hints, and during the handover itself.
#[tokio::test(start_paused = true)]
async fn trap_06_a_waiter_cancelled_at_every_await_point_leaves_nothing() {
    for drop in [DropTiming::AtOnce, DropTiming::WhenNextWoken] {
        for hints in [true, false] {
            let fixture = Fixture::new();
            let (a, b) = (fixture.client("a"), fixture.client("b"));
            fixture.faults.drop_hints(!hints);
            run_ready_tasks().await;
            let baseline = alive_tasks();
            for polls in 0..60 {
                let other = b.hold("scheduler", "job:1").await;
                fixture.faults.acquire().delay(ms(5)).delay_reply(ms(5));
                let waiter = a.class("scheduler").wait(secs(5)).acquire("job:1");
                let ended = tokio::join!(poll_then_drop(waiter, polls, drop), async {
                    fixture.advance(ms(200)).await;
                    other.release().await;
                })
                .0;
                fixture.faults.acquire().clear();
                // A lease that was handed over blocks the name no longer than the claim TTL.
                fixture.advance(ms(600)).await;
                b.wait_until_idle().await;
                let told = format!("hints {hints} {drop:?} after {polls} polls");
                assert_nothing_left(&fixture, &a, baseline, &told).await;
                if ended {
                    assert!(polls > 4, "{told}");
                    break;
                }
            }
            assert_eq!(fixture.footprint().await, (0, 0, 0));
        }
    }
}

/// Cancelled in the gate, behind a task of the same process.
#[tokio::test(start_paused = true)]
async fn trap_06_an_acquire_cancelled_in_the_gate_leaves_nothing() {
    let fixture = Fixture::new();
    let a = fixture.client("a");
    for polls in 0..2 {
        let hold = a.hold("scheduler", "job:1").await;
        let waits = a.class("scheduler").acquire("job:1");
        assert!(!poll_then_drop(waits, polls, DropTiming::AtOnce).await);
        assert_eq!(hold.release().await, leasehold_core::ReleaseOutcome::Released);
        run_ready_tasks().await;
        assert_eq!((a.local_name_count(), fixture.live_lease("job:1").await), (0, None));
    }
}

/// An acquire that was polled is counted as cancelled, whatever it waited for. One that was never
/// polled is not counted.
#[tokio::test(start_paused = true)]
async fn every_cancelled_acquire_is_counted_once() {
    let fixture = Fixture::new();
    let a = fixture.client("a");
    let hold = a.hold("scheduler", "job:1").await;
    std::mem::drop(a.class("scheduler").acquire("job:2"));
    assert_eq!(a.metric_total("acquire_total", "cancelled"), 0.0);
    poll_then_drop(a.class("scheduler").acquire("job:1"), 1, DropTiming::AtOnce).await;
    assert_eq!(a.metric_total("acquire_total", "cancelled"), 1.0, "in the gate");
    fixture.faults.acquire().hang(true);
    poll_then_drop(a.class("scheduler").acquire("job:2"), 1, DropTiming::AtOnce).await;
    assert_eq!(a.metric_total("acquire_total", "cancelled"), 2.0, "at the store");
    hold.release().await;
    a.wait_until_idle().await;
}

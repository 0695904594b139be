//! A cancelled acquire leaves nothing (L3): at whatever point its future is dropped.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test fails by panicking"
)]

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;

use crate::bed::{Bed, Client, ms, secs, settle};
use leasehold_core::adapter::Fault;

/// When the future is dropped after its last poll.
#[derive(Debug, Clone, Copy)]
enum Drop {
    AtOnce,
    WhenNextWoken,
}

/// Polls `work` at most `polls` times, then drops it; `true` if it came to its end before.
async fn polled(work: impl Future, polls: usize, drop: Drop) -> bool {
    let mut work = pin!(work);
    let mut done = 0;
    poll_fn(|cx| {
        if done == polls {
            return Poll::Ready(false);
        }
        done += 1;
        match work.as_mut().poll(cx) {
            Poll::Ready(_) => Poll::Ready(true),
            Poll::Pending if done == polls && matches!(drop, Drop::AtOnce) => Poll::Ready(false),
            Poll::Pending => Poll::Pending,
        }
    })
    .await
}

fn tasks() -> usize {
    tokio::runtime::Handle::current().metrics().num_alive_tasks()
}

/// Nothing of the acquire is left: in the store, in the gate, in the keeper, on the runtime.
async fn nothing_left(bed: &Bed, client: &Client, baseline: usize, told: &str) {
    client.idle().await;
    settle().await;
    assert_eq!(client.names_here(), 0, "{told}: the gate");
    assert_eq!(bed.memory.listening(), 0, "{told}: listeners");
    assert_eq!(bed.lease("job:1").await, None, "{told}: the lease");
    let (rows, waiters, _) = bed.memory.table().footprint();
    assert_eq!((rows, waiters), (0, 0), "{told}: rows and waiters");
    assert_eq!(tasks(), baseline, "{told}: tasks");
}

#[tokio::test(start_paused = true)]
async fn trap_06_an_acquire_cancelled_at_every_await_point_leaves_nothing() {
    for drop in [Drop::AtOnce, Drop::WhenNextWoken] {
        for fault in [Fault::Pass, Fault::LoseReply, Fault::HangAfter] {
            let bed = Bed::new();
            let a = bed.client("a");
            bed.chaos.acquire().delay(ms(20)).delay_reply(ms(20));
            settle().await;
            let (baseline, mut cancelled) = (tasks(), 0);
            for polls in 0..40 {
                bed.chaos.acquire().script(1, fault);
                let ended = polled(a.class("scheduler").acquire("job:1"), polls, drop).await;
                let told = format!("{fault:?} {drop:?} after {polls} polls");
                nothing_left(&bed, &a, baseline, &told).await;
                bed.chaos.acquire().calm().delay(ms(20)).delay_reply(ms(20));
                if ended {
                    break;
                }
                cancelled += 1;
            }
            assert!(cancelled >= 3, "before, in and between the asks");
            assert_eq!(bed.footprint().await, (0, 0, 0));
        }
    }
}

/// The same while waiting: behind another client, with hints and without, and handed the lock at that very moment.
#[tokio::test(start_paused = true)]
async fn trap_06_a_waiter_cancelled_at_every_await_point_leaves_nothing() {
    for drop in [Drop::AtOnce, Drop::WhenNextWoken] {
        for hints in [true, false] {
            let bed = Bed::new();
            let (a, b) = (bed.client("a"), bed.client("b"));
            bed.chaos.drop_hints(!hints);
            settle().await;
            let baseline = tasks();
            for polls in 0..60 {
                let other = b.hold("scheduler", "job:1").await;
                bed.chaos.acquire().delay(ms(5)).delay_reply(ms(5));
                let waiter = a.class("scheduler").wait(secs(5)).acquire("job:1");
                let ended = tokio::join!(polled(waiter, polls, drop), async {
                    bed.pass(ms(200)).await;
                    other.release().await;
                })
                .0;
                bed.chaos.acquire().calm();
                // What was handed over is not kept shut for longer than a claim.
                bed.pass(ms(600)).await;
                b.idle().await;
                let told = format!("hints {hints} {drop:?} after {polls} polls");
                nothing_left(&bed, &a, baseline, &told).await;
                if ended {
                    assert!(polls > 4, "{told}");
                    break;
                }
            }
            assert_eq!(bed.footprint().await, (0, 0, 0));
        }
    }
}

/// In the gate, behind a task of the same process.
#[tokio::test(start_paused = true)]
async fn trap_06_cancelled_in_the_gate() {
    let bed = Bed::new();
    let a = bed.client("a");
    for polls in 0..2 {
        let hold = a.hold("scheduler", "job:1").await;
        let waits = a.class("scheduler").acquire("job:1");
        assert!(!polled(waits, polls, Drop::AtOnce).await);
        assert_eq!(hold.release().await, leasehold_core::Outcome::Released);
        settle().await;
        assert_eq!((a.names_here(), bed.lease("job:1").await), (0, None));
    }
}

/// One that was polled is counted as cancelled, wherever it stood; one that never ran has not happened.
#[tokio::test(start_paused = true)]
async fn every_cancelled_acquire_is_counted_once() {
    let bed = Bed::new();
    let a = bed.client("a");
    let hold = a.hold("scheduler", "job:1").await;
    std::mem::drop(a.class("scheduler").acquire("job:2"));
    assert_eq!(a.total("acquire_total", "cancelled"), 0.0);
    polled(a.class("scheduler").acquire("job:1"), 1, Drop::AtOnce).await;
    assert_eq!(a.total("acquire_total", "cancelled"), 1.0, "in the gate");
    bed.chaos.acquire().hang(true);
    polled(a.class("scheduler").acquire("job:2"), 1, Drop::AtOnce).await;
    assert_eq!(a.total("acquire_total", "cancelled"), 2.0, "at the store");
    hold.release().await;
    a.idle().await;
}

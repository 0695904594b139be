//! Concurrency: mutual exclusion between clients and inside them, and ten thousand holds in one keeper.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::fixture::{Fixture, ms, secs};
use leasehold_core::event::EventKind;
use leasehold_core::policy::PolicyBook;
use leasehold_core::{Fence, Hold};

/// A counter that loses updates, and panics, if two holders are inside at once.
#[derive(Default)]
struct RacyCounter {
    inside: AtomicBool,
    value: AtomicU64,
    newest_fence: AtomicU64,
}

impl RacyCounter {
    async fn add(&self, hold: &Hold) {
        assert!(!self.inside.swap(true, Ordering::SeqCst), "two inside");
        let fence: Fence = hold.fence().unwrap();
        let before = self.newest_fence.swap(fence.get(), Ordering::SeqCst);
        assert!(before < fence.get(), "I2: {before} then {fence}");
        let read = self.value.load(Ordering::SeqCst);
        tokio::task::yield_now().await;
        self.value.store(read + 1, Ordering::SeqCst);
        self.inside.store(false, Ordering::SeqCst);
    }
}

async fn count_under_contention(fixture: &Fixture, clients: usize, tasks: usize, rounds: usize) -> u64 {
    let fragile = Arc::new(RacyCounter::default());
    let mut running = Vec::new();
    for client in 0..clients {
        let client = Arc::new(fixture.client(&format!("c{client}")));
        for _ in 0..tasks {
            let (client, fragile) = (Arc::clone(&client), Arc::clone(&fragile));
            running.push(tokio::spawn(async move {
                for _ in 0..rounds {
                    let patient = client.class("scheduler").wait(secs(3600));
                    let done = patient.run("job:1", async |hold| fragile.add(hold).await).await;
                    done.expect("held in the end");
                }
            }));
        }
    }
    for task in running {
        task.await.unwrap();
    }
    fragile.value.load(Ordering::SeqCst)
}

#[tokio::test(start_paused = true)]
async fn two_clients_exclude_each_other() {
    let fixture = Fixture::new();
    assert_eq!(count_under_contention(&fixture, 2, 20, 20).await, 2 * 20 * 20);
}

/// Half of all calls fail on the way there or back.
#[tokio::test(start_paused = true)]
async fn two_clients_exclude_each_other_through_faults() {
    let odds = leasehold_core::adapter::FaultOdds { refuse: 150, vanish: 100, lose_reply: 150, hang: 20 };
    let fixture = Fixture::new();
    fixture.faults.all().seeded(42, odds);
    let fragile = Arc::new(RacyCounter::default());
    let mut running = Vec::new();
    for client in 0..3 {
        let client = Arc::new(fixture.client(&format!("c{client}")));
        for _ in 0..6 {
            let (client, fragile) = (Arc::clone(&client), Arc::clone(&fragile));
            running.push(tokio::spawn(async move {
                let mut done = 0;
                for _ in 0..30 {
                    let patient = client.class("scheduler").wait(secs(600));
                    let ran = patient.run("job:1", async |hold| fragile.add(hold).await).await;
                    done += u64::from(ran.is_ok());
                }
                done
            }));
        }
    }
    let mut done = 0;
    for task in running {
        done += task.await.unwrap();
    }
    assert!(done > 100, "{done} of 540 ran");
    assert_eq!(fragile.value.load(Ordering::SeqCst), done, "no update lost, none without a hold");
}

/// The same on real threads and in real time.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn two_clients_exclude_each_other_on_threads() {
    let fixture = Fixture::new();
    assert_eq!(count_under_contention(&fixture, 2, 8, 10).await, 2 * 8 * 10);
}

#[tokio::test(start_paused = true)]
async fn trap_27_ten_thousand_holds_are_renewed_without_missing_a_cadence() {
    const HOLD_COUNT: usize = 10_000;
    let fixture = Fixture::new();
    let a = fixture.build_client("a", PolicyBook::builtin(), Arc::clone(&fixture.clock));
    // A store with a realistic round trip.
    fixture.faults.renew().delay(ms(5)).delay_reply(ms(5));
    let mut holds = Vec::with_capacity(HOLD_COUNT);
    for job in 0..HOLD_COUNT {
        holds.push(a.hold("workflow-critical", &format!("job:{job}")).await);
    }
    fixture.advance(secs(95)).await;
    assert!(holds.iter().all(|hold| hold.check().is_ok()));
    assert_eq!((a.event_count("renew_failed"), a.event_count("abandoned")), (0, 0));
    // Renewals are nine to ten seconds apart: nine to eleven per hold.
    let batches = fixture.recorder.renew_batches();
    let renewed: usize = batches.iter().map(|(_, size)| size).sum();
    assert!((9 * HOLD_COUNT..11 * HOLD_COUNT).contains(&renewed), "{renewed}");
    let least = a.events_of("renewed").into_iter().map(|event| match event.what {
        EventKind::Renewed { left, .. } => left,
        _ => 1.0,
    });
    let least = least.fold(1.0, f64::min);
    assert!(least > 0.6, "a third of the lease used at the most: {least}");
    // Renewals are batched, yet not all of them are sent at one instant.
    let largest = batches.iter().map(|(_, size)| *size).max().unwrap();
    assert!(largest < HOLD_COUNT / 5, "{largest} of {HOLD_COUNT} at once");
    assert!(batches.len() < renewed / 100, "{} calls for {renewed} renewals", batches.len());
}

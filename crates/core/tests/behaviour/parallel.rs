//! Many at once: mutual exclusion between clients and inside them, and ten thousand holds kept by one keeper.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test fails by panicking"
)]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::bed::{Bed, ms, secs};
use leasehold_core::event::What;
use leasehold_core::policy::PolicyBook;
use leasehold_core::{Fence, Hold};

/// A counter that loses updates if two are inside, and says so if they are.
#[derive(Default)]
struct Fragile {
    inside: AtomicBool,
    value: AtomicU64,
    newest: AtomicU64,
}

impl Fragile {
    async fn add(&self, hold: &Hold) {
        assert!(!self.inside.swap(true, Ordering::SeqCst), "two inside");
        let fence: Fence = hold.fence().unwrap();
        let before = self.newest.swap(fence.get(), Ordering::SeqCst);
        assert!(before < fence.get(), "I2: {before} then {fence}");
        let read = self.value.load(Ordering::SeqCst);
        tokio::task::yield_now().await;
        self.value.store(read + 1, Ordering::SeqCst);
        self.inside.store(false, Ordering::SeqCst);
    }
}

async fn contend(bed: &Bed, clients: usize, tasks: usize, rounds: usize) -> u64 {
    let fragile = Arc::new(Fragile::default());
    let mut running = Vec::new();
    for client in 0..clients {
        let client = Arc::new(bed.client(&format!("c{client}")));
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
    let bed = Bed::new();
    assert_eq!(contend(&bed, 2, 20, 20).await, 2 * 20 * 20);
}

/// With half of everything failing on its way there or back.
#[tokio::test(start_paused = true)]
async fn two_clients_exclude_each_other_through_faults() {
    let odds = leasehold_core::adapter::Odds {
        refuse: 150,
        vanish: 100,
        lose_reply: 150,
        hang: 20,
    };
    let bed = Bed::new();
    bed.chaos.all().seeded(42, odds);
    let fragile = Arc::new(Fragile::default());
    let mut running = Vec::new();
    for client in 0..3 {
        let client = Arc::new(bed.client(&format!("c{client}")));
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
    assert_eq!(
        fragile.value.load(Ordering::SeqCst),
        done,
        "no update lost, none without a hold"
    );
}

/// The same on real threads and real time.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn two_clients_exclude_each_other_on_threads() {
    let bed = Bed::new();
    assert_eq!(contend(&bed, 2, 8, 10).await, 2 * 8 * 10);
}

#[tokio::test(start_paused = true)]
async fn trap_27_ten_thousand_holds_are_renewed_without_missing_a_cadence() {
    const HOLDS: usize = 10_000;
    let bed = Bed::new();
    let a = bed.build("a", PolicyBook::builtin(), Arc::clone(&bed.clock));
    // A store with a real round trip.
    bed.chaos.renew().delay(ms(5)).delay_reply(ms(5));
    let mut holds = Vec::with_capacity(HOLDS);
    for job in 0..HOLDS {
        holds.push(a.hold("workflow-critical", &format!("job:{job}")).await);
    }
    bed.pass(secs(95)).await;
    assert!(holds.iter().all(|hold| hold.check().is_ok()));
    assert_eq!((a.count("renew_failed"), a.count("abandoned")), (0, 0));
    // Nine to ten seconds apart: nine to eleven times each.
    let batches = bed.tap.batches();
    let renewed: usize = batches.iter().map(|(_, size)| size).sum();
    assert!((9 * HOLDS..11 * HOLDS).contains(&renewed), "{renewed}");
    let least = a.all("renewed").into_iter().map(|event| match event.what {
        What::Renewed { left, .. } => left,
        _ => 1.0,
    });
    let least = least.fold(1.0, f64::min);
    assert!(least > 0.6, "a third of the lease used at the most: {least}");
    // Together: many renewals a call, and yet not all of them at one instant.
    let largest = batches.iter().map(|(_, size)| *size).max().unwrap();
    assert!(largest < HOLDS / 5, "{largest} of {HOLDS} at once");
    assert!(
        batches.len() < renewed / 100,
        "{} calls for {renewed} renewals",
        batches.len()
    );
}

//! Gate, guard and keeper between threads that really run at once: tasks enter, give up, are aborted and drop what they hold.
//!
//! Simulation runs on one thread; here the interleavings are the machine's (see ADR 15). Nothing may be lost: one inside at
//! a time, every permit handed on, nothing left at the end.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test fails by panicking"
)]

use std::panic::Location;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use leasehold_core::clock::{BootClock, Clock, ClockExt, Moment};
use leasehold_core::gate::Gate;
use leasehold_core::memory::MemoryStore;
use leasehold_core::rng::{RandomExt, SeededRandom};
use leasehold_core::{Left, Locks, Name};

const TASKS: u64 = 64;
const ROUNDS: u64 = 300;

/// Says if two are inside.
#[derive(Default)]
struct Room {
    taken: AtomicBool,
    visits: AtomicU64,
}

/// A visit; it also ends where its task is aborted.
struct Visit<'a>(&'a Room);

impl Drop for Visit<'_> {
    fn drop(&mut self) {
        self.0.taken.store(false, Ordering::SeqCst);
    }
}

impl Room {
    async fn visit(&self) {
        assert!(!self.taken.swap(true, Ordering::SeqCst), "two inside");
        let _visit = Visit(self);
        self.visits.fetch_add(1, Ordering::SeqCst);
        tokio::task::yield_now().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn the_gate_loses_no_permit_however_its_callers_leave() {
    let (gate, room) = (Gate::default(), Arc::new(Room::default()));
    let mut tasks = Vec::new();
    for task in 0..TASKS {
        let (gate, room) = (gate.clone(), Arc::clone(&room));
        tasks.push(tokio::spawn(async move {
            let (random, name) = (SeededRandom::new(task), Name::new("n").unwrap());
            let here = Location::caller();
            for _ in 0..ROUNDS {
                // Some wait as long as it takes, some for a moment, and some are dropped while they wait.
                let patience = match random.below(3) {
                    0 => Moment::FAR,
                    _ => BootClock.now() + Duration::from_micros(random.below(200)),
                };
                let enter = gate.enter(&name, here, patience, &BootClock);
                if random.below(4) == 0 {
                    tokio::select! {
                        biased;
                        permit = enter => drop(permit),
                        () = tokio::task::yield_now() => {}
                    }
                } else if let Ok(_permit) = enter.await {
                    room.visit().await;
                }
            }
        }));
    }
    for task in tasks {
        task.await.unwrap();
    }
    assert!(room.visits.load(Ordering::SeqCst) > TASKS);
    assert!(gate.is_empty(), "a permit was lost");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn aborted_tasks_leave_nothing_with_keeper_gate_and_store() {
    let store = MemoryStore::new(BootClock::shared());
    let locks = Locks::builder(Arc::new(store.clone()))
        .without_log()
        .build()
        .unwrap();
    let room = Arc::new(Room::default());
    let mut tasks = Vec::new();
    for task in 0..TASKS {
        let (locks, room) = (locks.clone(), Arc::clone(&room));
        tasks.push(tokio::spawn(async move {
            let random = SeededRandom::new(task);
            for _ in 0..20 {
                let name = format!("n:{}", random.below(4));
                let patient = locks
                    .class("scheduler")
                    .wait(Duration::from_millis(random.below(20)));
                let Ok(acquired) = patient.acquire(name.as_str()).await else {
                    continue;
                };
                let Some(hold) = acquired.held() else { continue };
                hold.check().unwrap();
                if name == "n:0" {
                    room.visit().await;
                }
                match random.below(3) {
                    0 => drop(hold),
                    _ => {
                        hold.release().await;
                    }
                }
            }
        }));
    }
    // Half of them are aborted at whatever await point they are.
    for (at, task) in tasks.iter().enumerate() {
        if at % 2 == 0 {
            BootClock.sleep(Duration::from_millis(1)).await;
            task.abort();
        }
    }
    for task in tasks {
        if let Err(error) = task.await {
            assert!(error.is_cancelled(), "{error}");
        }
    }
    assert!(room.visits.load(Ordering::SeqCst) > 0);
    // Releases and undos that are on their way end; nothing else is left.
    let patience = BootClock.now() + Duration::from_secs(20);
    while locks.left().await != Left::default() && BootClock.now() < patience {
        BootClock.sleep(Duration::from_millis(5)).await;
    }
    assert_eq!(locks.left().await, Left::default());
    assert_eq!(locks.names_here(), 0);
    assert_eq!(store.listening(), 0);
    let (leases, waiters, _) = store.table().footprint();
    assert_eq!((leases, waiters), (0, 0));
}

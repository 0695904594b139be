//! Gate, guard and keeper under real threads: tasks enter, give up, are aborted and drop their holds.
//!
//! The simulation runs on one thread; here the machine chooses the interleavings (see ADR 15). At
//! most one task is inside, every permit is passed on, and nothing is left at the end.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

use std::panic::Location;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use leasehold_core::clock::{BootClock, Clock, ClockExt, Moment};
use leasehold_core::gate::Gate;
use leasehold_core::memory::MemoryStore;
use leasehold_core::rng::{RandomExt, SeededRandom};
use leasehold_core::{Locks, Name, PendingWork};

const TASK_COUNT: u64 = 64;
const ROUNDS_PER_TASK: u64 = 300;

/// Panics if two tasks are inside at once.
#[derive(Default)]
struct ExclusionCheck {
    occupied: AtomicBool,
    visits: AtomicU64,
}

/// One visit; it also ends if its task is aborted.
struct VisitGuard<'a>(&'a ExclusionCheck);

impl Drop for VisitGuard<'_> {
    fn drop(&mut self) {
        self.0.occupied.store(false, Ordering::SeqCst);
    }
}

impl ExclusionCheck {
    async fn visit(&self) {
        assert!(!self.occupied.swap(true, Ordering::SeqCst), "two inside");
        let _visit = VisitGuard(self);
        self.visits.fetch_add(1, Ordering::SeqCst);
        tokio::task::yield_now().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn the_gate_loses_no_permit_when_callers_give_up() {
    let (gate, room) = (Gate::default(), Arc::new(ExclusionCheck::default()));
    let mut tasks = Vec::new();
    for task in 0..TASK_COUNT {
        let (gate, room) = (gate.clone(), Arc::clone(&room));
        tasks.push(tokio::spawn(async move {
            let (random, name) = (SeededRandom::new(task), Name::new("n").unwrap());
            let here = Location::caller();
            for _ in 0..ROUNDS_PER_TASK {
                // Some tasks wait without limit, some briefly, and some are dropped while they wait.
                let timeout = match random.below(3) {
                    0 => Moment::FAR,
                    _ => BootClock.now() + Duration::from_micros(random.below(200)),
                };
                let enter = gate.enter(&name, here, timeout, &BootClock);
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
    assert!(room.visits.load(Ordering::SeqCst) > TASK_COUNT);
    assert!(gate.is_empty(), "a permit was lost");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn aborted_tasks_leave_nothing_in_keeper_gate_and_store() {
    let store = MemoryStore::new(BootClock::shared());
    let locks = Locks::builder(Arc::new(store.clone())).without_log().build().unwrap();
    let room = Arc::new(ExclusionCheck::default());
    let mut tasks = Vec::new();
    for task in 0..TASK_COUNT {
        let (locks, room) = (locks.clone(), Arc::clone(&room));
        tasks.push(tokio::spawn(async move {
            let random = SeededRandom::new(task);
            for _ in 0..20 {
                let name = format!("n:{}", random.below(4));
                let patient = locks.class("scheduler").wait(Duration::from_millis(random.below(20)));
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
    // Half of the tasks are aborted at an arbitrary await point.
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
    // Releases and undos in flight complete; nothing else is left.
    let timeout = BootClock.now() + Duration::from_secs(20);
    while locks.pending().await != PendingWork::default() && BootClock.now() < timeout {
        BootClock.sleep(Duration::from_millis(5)).await;
    }
    assert_eq!(locks.pending().await, PendingWork::default());
    assert_eq!(locks.local_name_count(), 0);
    assert_eq!(store.listener_count(), 0);
    let (leases, waiters, _) = store.table().footprint();
    assert_eq!((leases, waiters), (0, 0));
}

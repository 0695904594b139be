//! The bed under the behavioural tests: a plane on memory stores and virtual time, with handles on what can go wrong.
//!
//! [`Bed::sleep_after`] is a process that is stopped and wakes up too late: time jumps while one call is under way, and
//! nothing else of the process runs meanwhile.

// Every test file compiles this module for itself and uses a part of it.
#![allow(dead_code, unreachable_pub)]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod watched;

use std::sync::Arc;
use std::time::Duration;

use leasehold_core::adapter::Chaos;
use leasehold_core::clock::{ClockExt, RuntimeClock, SharedClock};
use leasehold_core::memory::MemoryStore;
use leasehold_core::rng::SeededRandom;
use leasehold_core::{Holder, Locks};
use leasehold_plane::note::Counters;
use leasehold_plane::scheduler::Scheduler;
use leasehold_plane::store::memory::MemoryPlane;
use leasehold_plane::store::{PlaneStore, Queue};
use leasehold_plane::work::Works;
use leasehold_plane::workflow::Engine;
use leasehold_plane::{Job, JobSpec, JobState, Plane, Replica, Settings, Timeouts, Work};
pub use watched::Watched;

/// Longer than every lease here.
pub const LONG: Duration = Duration::from_secs(120);

pub struct Bed {
    pub clock: SharedClock,
    /// The locks' store itself.
    pub locks: MemoryStore,
    /// What stands between it and everyone who was not given another way.
    pub chaos: Chaos,
    pub memory: Arc<MemoryPlane>,
}

/// One replica's parts, not running by themselves.
pub struct Hand {
    pub plane: Plane,
    pub scheduler: Scheduler,
    pub engine: Engine,
    pub store: Arc<Watched>,
    pub counters: Arc<Counters>,
    pub locks: Arc<leasehold_core::observe::Counters>,
}

impl Bed {
    pub fn new() -> Self {
        let clock = RuntimeClock::shared();
        let locks = MemoryStore::new(Arc::clone(&clock));
        Self {
            chaos: Chaos::new(Arc::new(locks.clone()), Arc::clone(&clock)),
            locks,
            memory: Arc::new(MemoryPlane::new(Arc::clone(&clock))),
            clock,
        }
    }

    pub fn settings() -> Settings {
        Settings {
            poll: Duration::from_secs(1),
            // Longer than a sleeper sleeps: what it left is to be done by another one, not given up.
            timeouts: Timeouts {
                scheduled: LONG * 5,
                ..Timeouts::default()
            },
            ..Settings::default()
        }
    }

    pub fn hand(&self, who: &str, works: Works) -> Hand {
        self.hand_with(who, works, Self::settings())
    }

    pub fn hand_with(&self, who: &str, works: Works, settings: Settings) -> Hand {
        self.hand_behind(&self.chaos, who, works, settings)
    }

    /// A way to the locks that can be broken for one replica alone.
    pub fn own_way(&self) -> Chaos {
        Chaos::new(Arc::new(self.locks.clone()), Arc::clone(&self.clock))
    }

    pub fn hand_behind(&self, way: &Chaos, who: &str, works: Works, settings: Settings) -> Hand {
        let seed = who.bytes().fold(7, |seed: u64, byte| {
            seed.wrapping_mul(131).wrapping_add(u64::from(byte))
        });
        let lock_counters = Arc::new(leasehold_core::observe::Counters::default());
        let locks = Locks::builder(way.store())
            .clock(Arc::clone(&self.clock))
            .random(SeededRandom::shared(seed))
            .holder(Holder::new(who).unwrap())
            .observer(Arc::clone(&lock_counters) as _)
            .without_log()
            .build()
            .unwrap();
        let store = Arc::new(Watched::new(Arc::clone(&self.memory) as _));
        let counters = Arc::new(Counters::default());
        let plane = Plane::with(
            locks,
            Arc::clone(&store) as _,
            settings,
            SeededRandom::shared(seed + 1),
            vec![Arc::clone(&counters) as _],
        )
        .unwrap();
        Hand {
            scheduler: Scheduler::new(plane.ledger().clone(), works),
            engine: Engine::new(plane.ledger().clone()),
            plane,
            store,
            counters,
            locks: lock_counters,
        }
    }

    pub async fn pass(&self, by: Duration) {
        self.clock.sleep(by).await;
    }

    /// Waits until a job is in this state, on virtual time, but not for ever.
    pub async fn until(&self, hand: &Hand, job: &str, state: JobState) -> Job {
        self.until_within(hand, job, state, Duration::from_secs(3600))
            .await
    }

    pub async fn until_within(&self, hand: &Hand, job: &str, state: JobState, within: Duration) -> Job {
        let end = self.clock.now() + within;
        loop {
            let found = hand.plane.job(job).await.unwrap();
            if found.state == state {
                return found;
            }
            assert!(self.clock.now() < end, "{job} is {} and not {state}", found.state);
            self.pass(Duration::from_millis(20)).await;
        }
    }
}

impl Hand {
    /// Delivers everything that is due now, one after the other.
    pub async fn deliver_due(&self) -> usize {
        let mut delivered = 0;
        for queue in [Queue::Jobs, Queue::Runs] {
            let visible = self.plane.settings().visible;
            for mail in self.store.take(queue, 100, visible).await.unwrap() {
                delivered += 1;
                match queue {
                    Queue::Jobs => self.scheduler.deliver(&mail).await,
                    Queue::Runs => self.engine.deliver(&mail).await,
                }
            }
        }
        delivered
    }

    pub fn replica(&self, works: Works) -> Replica {
        Replica::start(self.plane.clone(), works)
    }
}

/// A job whose work is done by a handler of the topic `work`.
pub fn handled(id: &str) -> JobSpec {
    JobSpec {
        id: Some(id.into()),
        topic: "work".into(),
        ..JobSpec::new(Work::Handler)
    }
}

pub fn pulled(id: &str) -> JobSpec {
    JobSpec {
        id: Some(id.into()),
        topic: "work".into(),
        ..JobSpec::new(Work::Pull)
    }
}

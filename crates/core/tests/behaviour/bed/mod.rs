//! The bed under the behavioural tests: clients on one memory store behind injected faults, on virtual time.
//!
//! Under `#[tokio::test(start_paused = true)]` the runtime's clock jumps to the next timer as soon as nothing else is
//! left to do, so a test states instants exactly and hours pass in milliseconds.

#![allow(unreachable_pub)]
// A bed that cannot be made is a failed test: its helpers say so by panicking.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

pub mod clocks;
pub mod tap;

use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use leasehold_core::adapter::{Chaos, Verb};
use leasehold_core::clock::{ClockExt, Moment, RuntimeClock, SharedClock, until};
use leasehold_core::event::{Event, What};
use leasehold_core::memory::MemoryStore;
use leasehold_core::observe::{Counters, History};
use leasehold_core::policy::PolicyBook;
use leasehold_core::rng::SeededRandom;
use leasehold_core::store::{Lease, SharedStore, Store};
use leasehold_core::{Acquired, Busy, Error, Hold, Holder, Left, Locks, Lost, Name};
use tap::Tap;

/// Longer than anything here may take.
const AGES: Duration = Duration::from_secs(3600);

/// One store, faults in front of it, and a record of what was asked.
pub struct Bed {
    pub clock: SharedClock,
    pub memory: MemoryStore,
    pub chaos: Chaos,
    pub tap: Tap,
}

impl Bed {
    pub fn new() -> Self {
        let clock = RuntimeClock::shared();
        Self::with_store_clock(Arc::clone(&clock), clock)
    }

    /// With another clock under the store than under the clients.
    pub fn with_store_clock(clock: SharedClock, stores: SharedClock) -> Self {
        let memory = MemoryStore::new(stores);
        let chaos = Chaos::new(Arc::new(memory.clone()), Arc::clone(&clock));
        let tap = Tap::new(chaos.store(), Arc::clone(&clock));
        Self {
            clock,
            memory,
            chaos,
            tap,
        }
    }

    /// A client with the built-in classes.
    pub fn client(&self, holder: &str) -> Client {
        self.build(holder, PolicyBook::builtin(), Arc::clone(&self.clock))
    }

    /// A client with the built-in classes as this text changes them.
    pub fn client_with(&self, holder: &str, policy: &str) -> Client {
        let book = PolicyBook::from_text(policy, "test.toml").expect("the test's policy");
        self.build(holder, book, Arc::clone(&self.clock))
    }

    /// A client that goes by its own clock.
    pub fn client_on(&self, holder: &str, clock: SharedClock) -> Client {
        self.build(holder, PolicyBook::builtin(), clock)
    }

    pub fn build(&self, holder: &str, book: PolicyBook, clock: SharedClock) -> Client {
        // The holder's name is its seed: runs repeat, and no two clients draw the same numbers.
        let seed = holder.bytes().fold(7, |seed: u64, byte| {
            seed.wrapping_mul(131).wrapping_add(u64::from(byte))
        });
        let (history, counters) = (Arc::new(History::new(200_000)), Arc::new(Counters::default()));
        let locks = Locks::builder(self.tap.store())
            .policies(book)
            .clock(clock)
            .random(SeededRandom::shared(seed))
            .holder(Holder::new(holder).unwrap())
            .observer(Arc::clone(&history) as _)
            .observer(Arc::clone(&counters) as _)
            .without_log()
            .build()
            .expect("the client");
        Client {
            locks,
            history,
            counters,
        }
    }

    pub fn now(&self) -> Moment {
        self.clock.now()
    }

    /// Lets virtual time pass.
    pub async fn pass(&self, by: Duration) {
        self.clock.sleep(by).await;
    }

    /// Waits for the hold's loss, but not for ever: a test that goes wrong should say where.
    pub async fn lost(&self, hold: &Hold) -> Lost {
        let lost = until(&*self.clock, self.now() + AGES, hold.lost()).await;
        lost.unwrap_or_else(|| panic!("{hold:?} is never lost"))
    }

    /// Waits for this many calls of a verb, but not for ever.
    pub async fn reached(&self, verb: Verb, count: u64) {
        let reached = until(&*self.clock, self.now() + AGES, self.chaos.reached(verb, count)).await;
        reached.unwrap_or_else(|| panic!("{} of {count} calls of {verb:?}", self.calls(verb)));
    }

    /// The live lease, asked behind the faults' back.
    pub async fn lease(&self, name: &str) -> Option<Lease> {
        self.memory
            .inspect(&self::name(name), Duration::from_secs(1))
            .await
            .unwrap()
    }

    /// The store itself, behind the faults and the record.
    pub fn memory_store(&self) -> SharedStore {
        Arc::new(self.memory.clone())
    }

    pub fn calls(&self, verb: Verb) -> u64 {
        self.chaos.calls(verb)
    }

    /// Rows, waiters and tombstones once what has run out is swept: the baseline of L3 is all zero.
    pub async fn footprint(&self) -> (usize, usize, usize) {
        // Tombstones outlive everything else; the table sweeps as it is used.
        self.pass(Duration::from_secs(61)).await;
        let sweeper = self.client("sweeper");
        for _ in 0..40 {
            let hold = sweeper.hold("scheduler", "sweep").await;
            hold.release().await;
        }
        self.memory.table().footprint()
    }
}

/// A client and what it has told.
pub struct Client {
    pub locks: Locks,
    pub history: Arc<History>,
    pub counters: Arc<Counters>,
}

impl Deref for Client {
    type Target = Locks;
    fn deref(&self) -> &Locks {
        &self.locks
    }
}

impl Client {
    /// Acquires, or fails the test.
    #[track_caller]
    pub fn hold(&self, class: &str, name: &str) -> impl Future<Output = Hold> + use<> {
        let asked = self.locks.class(class).acquire(name.to_owned());
        let told = format!("{class} {name}");
        async move {
            match asked.await {
                Ok(Acquired::Held(hold)) => hold,
                other => panic!("{told}: not held: {other:?}"),
            }
        }
    }

    /// Acquires and expects contention.
    pub async fn busy(&self, class: &str, name: &str) -> Busy {
        match self.locks.class(class).acquire(name).await {
            Ok(Acquired::Busy(busy)) => busy,
            other => panic!("{class} {name}: not busy: {other:?}"),
        }
    }

    /// Acquires and expects no answer.
    pub async fn refused(&self, class: &str, name: &str) -> Error {
        match self.locks.class(class).acquire(name).await {
            Err(error) => error,
            other => panic!("{class} {name}: answered: {other:?}"),
        }
    }

    /// How many events of this kind.
    pub fn count(&self, label: &str) -> usize {
        self.history.count(label)
    }

    pub fn total(&self, metric: &str, label: &str) -> f64 {
        self.counters.total(metric, label)
    }

    /// The only event of this kind.
    pub fn only(&self, label: &str) -> Event {
        let mut all = self.all(label);
        assert_eq!(all.len(), 1, "{label}: {all:?}");
        all.remove(0)
    }

    pub fn all(&self, label: &str) -> Vec<Event> {
        let events = self.history.events();
        events
            .into_iter()
            .filter(|event| event.what.label() == label)
            .collect()
    }

    /// The labels of everything that happened, in order.
    pub fn story(&self) -> Vec<&'static str> {
        self.history
            .events()
            .iter()
            .map(|event| event.what.label())
            .collect()
    }

    /// Nothing is left to do, now or after background work that is allowed to finish.
    pub async fn idle(&self) {
        for _ in 0..100_000 {
            if self.left().await == Left::default() {
                return;
            }
            self.clock().sleep(Duration::from_millis(10)).await;
        }
        panic!("never idle: {:?}", self.left().await);
    }
}

/// Lets every task that can run do so, without letting time pass.
pub async fn settle() {
    for _ in 0..64 {
        tokio::task::yield_now().await;
    }
}

pub fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

pub const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

pub const fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

/// `at` is `by` after `from`, to the runtime's timer resolution. Jitter, polls and drift are far coarser.
#[track_caller]
pub fn assert_at(at: Moment, from: Moment, by: Duration) {
    let took = at.since(from);
    assert!(
        took >= by && took <= by + ms(2),
        "after {took:?} instead of {by:?}"
    );
}

/// The overlap that an event measured.
pub fn overlap(event: &Event) -> Duration {
    match event.what {
        What::ProvenAgain { overlap, .. } | What::OverlapEnded { overlap } => overlap,
        ref other => panic!("{other:?} measures no overlap"),
    }
}

//! Property tests of the times that heartbeat responses promise.
//!
//! Through every history of heartbeats, silence and outages: while a client may rely on being
//! alone, its lease is in the store. In fencing classes that is all the time it may work;
//! continuing classes may work on without a lease.

use std::sync::Arc;
use std::time::Duration;

use leasehold::clock::{ClockExt, Moment, RuntimeClock, SharedClock};
use leasehold::policy::OnFailure;
use leasehold::{Fence, Locks, Name};
use leasehold_core::HeartbeatDeadline;
use leasehold_core::adapter::FaultyStore;
use leasehold_core::memory::MemoryStore;
use leasehold_core::rng::SeededRandom;
use leasehold_wire::HoldView;
use proptest::prelude::*;

use super::registry::HoldEntry;
use super::{HoldKey, Holds};
use crate::state::state_db::StateDb;

const ID: &str = "h1";
const OWNER: &str = "w1";
/// The interval at which the daemon checks for ended holds; any other must work too.
const CHECK_INTERVAL: Duration = Duration::from_millis(200);

fn key() -> HoldKey {
    HoldKey::new(OWNER, ID)
}

/// A step of a client's history.
#[derive(Debug, Clone, Copy)]
enum ClientStep {
    /// The client sends nothing for this long.
    Silence(Duration),
    /// The client sends a heartbeat.
    Beat,
    /// The store stops or starts answering renewals.
    Store { down: bool },
}

fn client_step() -> impl Strategy<Value = ClientStep> {
    prop_oneof![
        3 => (1..20_000_u64).prop_map(|ms| ClientStep::Silence(Duration::from_millis(ms))),
        3 => Just(ClientStep::Beat),
        1 => any::<bool>().prop_map(|down| ClientStep::Store { down }),
    ]
}

/// A registry with one hold, on virtual time.
struct Fixture {
    clock: SharedClock,
    store: FaultyStore,
    holds: Holds,
    name: Name,
    fence: Fence,
    on_failure: OnFailure,
    /// The client relies on being alone until this time.
    alone_until: Moment,
}

impl Fixture {
    async fn new(on_failure: OnFailure, ttl: Duration, heartbeat: Duration) -> Self {
        let class = match on_failure {
            OnFailure::Fence => "scheduler",
            OnFailure::Continue => "workflow",
        };
        let clock = RuntimeClock::shared();
        let memory = Arc::new(MemoryStore::new(Arc::clone(&clock)));
        let store = FaultyStore::new(memory, Arc::clone(&clock));
        let locks = Locks::builder(store.store())
            .clock(Arc::clone(&clock))
            .random(SeededRandom::shared(7))
            .without_log()
            .build()
            .unwrap();
        let name = Name::new("job:1").unwrap();
        let holds = Holds::new(Arc::new(StateDb::open(None).unwrap()));
        let held = HoldEntry {
            hold: None,
            name: name.clone(),
            holder: OWNER.into(),
            class: class.into(),
            client: HeartbeatDeadline::new(heartbeat, on_failure, ttl),
            release_request: None,
            retaken_row: None,
        };
        assert!(holds.reserve(&key(), held, 1, clock.now()).is_ok());
        let asked = locks.class(class).ttl(ttl).acquire(&name).await;
        let hold = asked.unwrap().held().unwrap();
        let fence = hold.fence().unwrap();
        let mut testbed = Self { alone_until: Moment::ZERO, clock, store, holds, name, fence, on_failure };
        let view = testbed.holds.activate(&key(), hold, testbed.clock.now()).unwrap().unwrap();
        testbed.receive_response(&view).await;
        testbed
    }

    /// The client receives a response: how long it may work, and how long it is alone.
    async fn receive_response(&mut self, view: &HoldView) {
        assert!(view.proven_ms <= view.valid_ms);
        if self.on_failure == OnFailure::Fence {
            assert_eq!(view.proven_ms, view.valid_ms);
        }
        self.alone_until = self.clock.now() + Duration::from_millis(view.proven_ms);
        self.assert_lease_covers_client().await;
    }

    /// The lease in the store lasts at least as long as the client relies on it.
    async fn assert_lease_covers_client(&self) {
        let lease = self.store.store().inspect(&self.name, CHECK_INTERVAL).await.unwrap().into_first();
        // A continuing class re-acquires a lost lease under a higher fence.
        let ours = |fence| match self.on_failure {
            OnFailure::Fence => fence == Some(self.fence),
            OnFailure::Continue => fence >= Some(self.fence),
        };
        let left =
            lease.filter(|lease| ours(lease.fence)).and_then(|lease| lease.remaining).unwrap_or_default();
        let goes_on = self.alone_until.since(self.clock.now());
        assert!(left >= goes_on, "the client is sure for {goes_on:?}, its lease lasts for {left:?}");
    }

    /// Runs the daemon's check for ended holds. Returns true if this hold was ended.
    async fn end_due_holds(&self) -> bool {
        let now = self.clock.now();
        let over = self.holds.holds_to_end(now);
        for (key, reason) in &over {
            let (hold, _) = self.holds.remove(key, reason, now).unwrap();
            hold.release().await;
        }
        self.assert_lease_covers_client().await;
        !over.is_empty()
    }

    /// Applies a step. Returns true if the daemon has ended the hold.
    async fn apply(&mut self, step: ClientStep) -> bool {
        match step {
            ClientStep::Silence(span) => {
                let end = self.clock.now() + span;
                while self.clock.now() < end {
                    if self.end_due_holds().await {
                        return true;
                    }
                    self.clock.sleep(CHECK_INTERVAL.min(end.since(self.clock.now()))).await;
                }
            }
            ClientStep::Beat => match self.holds.heartbeat(&key(), self.clock.now()) {
                Ok(view) => self.receive_response(&view).await,
                // The response says that the hold is over, so the client stops.
                Err(_) => self.alone_until = self.clock.now(),
            },
            ClientStep::Store { down } => {
                self.store.renew().down(down);
            }
        }
        self.end_due_holds().await
    }
}

/// Runs one history, then silence.
async fn run_history(on_failure: OnFailure, ttl: Duration, heartbeat: Duration, steps: &[ClientStep]) {
    let mut testbed = Fixture::new(on_failure, ttl, heartbeat).await;
    let mut over = false;
    for step in steps {
        over = testbed.apply(*step).await;
        if over {
            break;
        }
    }
    // A silent client's hold does end: the property above is not satisfied by never ending one.
    let left_to_it = match on_failure {
        OnFailure::Fence => Duration::ZERO,
        OnFailure::Continue => ttl,
    };
    let silent = heartbeat + heartbeat / 50 + CHECK_INTERVAL * 2 + left_to_it;
    over = over || testbed.apply(ClientStep::Silence(silent)).await;
    assert!(over, "kept for nobody");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_client_has_the_time_that_its_response_states(
        continues in any::<bool>(),
        ttl in 1_000..60_000_u64,
        // Heartbeats both shorter and longer than the lease.
        heartbeat in prop_oneof![500..10_000_u64, 10_000..120_000_u64],
        steps in prop::collection::vec(client_step(), 0..20),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        let millis = Duration::from_millis;
        let on_failure = if continues { OnFailure::Continue } else { OnFailure::Fence };
        runtime.block_on(run_history(on_failure, millis(ttl), millis(heartbeat), &steps));
    }
}

/// A local-only hold is promised its whole heartbeat interval; the lease it gets later may end
/// sooner. The client may not know that lease, so the first promise must be kept.
#[tokio::test(start_paused = true)]
async fn earlier_promises_to_a_client_are_kept() {
    let ttl = Duration::from_secs(2);
    let testbed = Fixture::new(OnFailure::Fence, ttl, Duration::from_secs(60)).await;
    let told = testbed.clock.now() + Duration::from_secs(60);
    testbed.holds.set_valid_until(&key(), told);
    testbed.holds.heartbeat(&key(), testbed.clock.now()).unwrap();
    let mut looks = 0;
    while testbed.clock.now() < told {
        assert!(!testbed.end_due_holds().await, "given up {:?} too early", told.since(testbed.clock.now()));
        testbed.clock.sleep(CHECK_INTERVAL).await;
        looks += 1;
    }
    assert!(looks > 100);
}

/// At a stop, only holds are ended that the running daemon would end at that moment too.
#[tokio::test(start_paused = true)]
async fn a_stop_does_not_shorten_promised_time() {
    for on_failure in [OnFailure::Fence, OnFailure::Continue] {
        let testbed = Fixture::new(on_failure, Duration::from_secs(30), Duration::from_secs(10)).await;
        let mut now = testbed.clock.now();
        while testbed.holds.holds_to_end(now).is_empty() {
            assert_eq!(testbed.holds.without_client(now), [], "{on_failure:?}");
            testbed.clock.sleep(Duration::from_millis(10)).await;
            now = testbed.clock.now();
        }
        assert_eq!(testbed.holds.without_client(now), [key()], "{on_failure:?}");
    }
}

//! Through every history of heartbeats, silence and outages: for as long as a client was told that it is alone, its lease is in
//! the store, whatever the daemon thinks of it. In classes that fence that is all the time that it may go on; the others go on
//! without a lease, by their own choice.

use std::sync::Arc;
use std::time::Duration;

use leasehold::clock::{ClockExt, Moment, RuntimeClock, SharedClock};
use leasehold::leasehold_core::adapter::Chaos;
use leasehold::leasehold_core::memory::MemoryStore;
use leasehold::leasehold_core::rng::SeededRandom;
use leasehold::policy::OnFailure;
use leasehold::{Fence, Locks, Name};
use proptest::prelude::*;

use super::book::Held;
use super::{HoldView, Holds};
use crate::ledger::Ledger;

const ID: &str = "h1";
const OWNER: &str = "w1";
/// How often the daemon looks for holds that are over, at most; any other rhythm must be as good.
const LOOK: Duration = Duration::from_millis(200);

/// What may happen next.
#[derive(Debug, Clone, Copy)]
enum Step {
    /// Nothing comes from the client for so long.
    Silence(Duration),
    /// The client is heard.
    Beat,
    /// The store answers no renewal from here on, or answers again.
    Store { down: bool },
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => (1..20_000_u64).prop_map(|ms| Step::Silence(Duration::from_millis(ms))),
        3 => Just(Step::Beat),
        1 => any::<bool>().prop_map(|down| Step::Store { down }),
    ]
}

/// A daemon's book with one hold in it, on virtual time.
struct Bed {
    clock: SharedClock,
    store: Chaos,
    holds: Holds,
    name: Name,
    fence: Fence,
    on_failure: OnFailure,
    /// The client counts on being alone until here and no longer.
    may: Moment,
}

impl Bed {
    async fn new(on_failure: OnFailure, ttl: Duration, heartbeat: Duration) -> Self {
        let class = match on_failure {
            OnFailure::Fence => "scheduler",
            OnFailure::Continue => "workflow",
        };
        let clock = RuntimeClock::shared();
        let memory = Arc::new(MemoryStore::new(Arc::clone(&clock)));
        let store = Chaos::new(memory, Arc::clone(&clock));
        let locks = Locks::builder(store.store())
            .clock(Arc::clone(&clock))
            .random(SeededRandom::shared(7))
            .without_log()
            .build()
            .unwrap();
        let name = Name::new("job:1").unwrap();
        let holds = Holds::new(Arc::new(Ledger::open(None).unwrap()));
        let held = Held {
            hold: None,
            name: name.clone(),
            owner: OWNER.into(),
            holder: OWNER.into(),
            class: class.into(),
            heartbeat,
            due: Moment::ZERO,
            on_failure,
            ttl,
            asked: None,
            retaken: None,
        };
        assert!(holds.begin(ID, held, clock.now()).is_ok());
        let asked = locks.class(class).ttl(ttl).acquire(&name).await;
        let hold = asked.unwrap().held().unwrap();
        let fence = hold.fence().unwrap();
        let mut bed = Self {
            may: Moment::ZERO,
            clock,
            store,
            holds,
            name,
            fence,
            on_failure,
        };
        let view = bed.holds.hold(ID, hold, bed.clock.now()).unwrap().unwrap();
        bed.told(&view).await;
        bed
    }

    /// The client hears how long it may go on, and how long it is alone.
    async fn told(&mut self, view: &HoldView) {
        assert!(view.proven_ms <= view.valid_ms);
        if self.on_failure == OnFailure::Fence {
            assert_eq!(view.proven_ms, view.valid_ms);
        }
        self.may = self.clock.now() + Duration::from_millis(view.proven_ms);
        self.alone().await;
    }

    /// Nobody else can be granted the name before the client stops to count on that.
    async fn alone(&self) {
        let lease = self.store.store().inspect(&self.name, LOOK).await.unwrap();
        // A class that continues takes a lease that it has lost anew.
        let ours = |fence| match self.on_failure {
            OnFailure::Fence => fence == Some(self.fence),
            OnFailure::Continue => fence >= Some(self.fence),
        };
        let left = lease
            .filter(|lease| ours(lease.fence))
            .and_then(|lease| lease.remaining)
            .unwrap_or_default();
        let goes_on = self.may.since(self.clock.now());
        assert!(
            left >= goes_on,
            "the client is sure for {goes_on:?}, its lease lasts for {left:?}"
        );
    }

    /// The daemon looks, and ends what is over. True: that was this hold.
    async fn look(&self) -> bool {
        let now = self.clock.now();
        let over = self.holds.due(now);
        for (id, reason) in &over {
            let (hold, _) = self.holds.take(id, reason, now).unwrap();
            hold.release().await;
        }
        self.alone().await;
        !over.is_empty()
    }

    /// True: the daemon has given the client up.
    async fn take(&mut self, step: Step) -> bool {
        match step {
            Step::Silence(span) => {
                let end = self.clock.now() + span;
                while self.clock.now() < end {
                    if self.look().await {
                        return true;
                    }
                    self.clock.sleep(LOOK.min(end.since(self.clock.now()))).await;
                }
            }
            Step::Beat => match self.holds.beat(ID, OWNER, self.clock.now()) {
                Ok(view) => self.told(&view).await,
                // Told to stop, and does.
                Err(_) => self.may = self.clock.now(),
            },
            Step::Store { down } => {
                self.store.renew().down(down);
            }
        }
        self.look().await
    }
}

/// One history, and then silence for good.
async fn history(on_failure: OnFailure, ttl: Duration, heartbeat: Duration, steps: &[Step]) {
    let mut bed = Bed::new(on_failure, ttl, heartbeat).await;
    let mut over = false;
    for step in steps {
        over = bed.take(*step).await;
        if over {
            break;
        }
    }
    // What is kept for nobody ends: nothing of the above is held by never giving anyone up.
    let left_to_it = match on_failure {
        OnFailure::Fence => Duration::ZERO,
        OnFailure::Continue => ttl,
    };
    let silent = heartbeat + heartbeat / 50 + LOOK * 2 + left_to_it;
    over = over || bed.take(Step::Silence(silent)).await;
    assert!(over, "kept for nobody");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_client_has_the_time_that_it_was_told(
        continues in any::<bool>(),
        ttl in 1_000..60_000_u64,
        // As often below the lease as above it.
        heartbeat in prop_oneof![500..10_000_u64, 10_000..120_000_u64],
        steps in prop::collection::vec(step(), 0..20),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        let millis = Duration::from_millis;
        let on_failure = if continues { OnFailure::Continue } else { OnFailure::Fence };
        runtime.block_on(history(on_failure, millis(ttl), millis(heartbeat), &steps));
    }
}

/// A hold without a lease is given its heartbeat's time; the lease that it gets after the fact may end sooner. Its client may
/// not have heard of that: it is not given up before the first time is over.
#[tokio::test(start_paused = true)]
async fn what_a_client_was_told_before_stays_true() {
    let ttl = Duration::from_secs(2);
    let bed = Bed::new(OnFailure::Fence, ttl, Duration::from_secs(60)).await;
    let told = bed.clock.now() + Duration::from_secs(60);
    bed.holds.promise(ID, told);
    bed.holds.beat(ID, OWNER, bed.clock.now()).unwrap();
    let mut looks = 0;
    while bed.clock.now() < told {
        assert!(
            !bed.look().await,
            "given up {:?} too early",
            told.since(bed.clock.now())
        );
        bed.clock.sleep(LOOK).await;
        looks += 1;
    }
    assert!(looks > 100);
}

/// A daemon that stops gives up nobody whom it would keep for a while yet if it went on.
#[tokio::test(start_paused = true)]
async fn a_stop_takes_no_time_from_a_client() {
    for on_failure in [OnFailure::Fence, OnFailure::Continue] {
        let bed = Bed::new(on_failure, Duration::from_secs(30), Duration::from_secs(10)).await;
        let mut now = bed.clock.now();
        while bed.holds.due(now).is_empty() {
            assert_eq!(bed.holds.unattended(now), [""; 0], "{on_failure:?}");
            bed.clock.sleep(Duration::from_millis(10)).await;
            now = bed.clock.now();
        }
        assert_eq!(bed.holds.unattended(now), [ID], "{on_failure:?}");
    }
}

//! Compares the model with the real client and store, and checks what the checker assumes.

use std::collections::HashSet;
use std::time::Duration;

use leasehold_core::clock::Moment;
use leasehold_core::memory::LeaseTable;
use leasehold_core::policy::PolicyBook;
use leasehold_core::store::{AcquireRequest, AcquireResponse, ReleaseRequest, RenewRequest, RenewResponse};
use leasehold_core::types::{Fence, Name, Token as RealToken, Ttl};
use leasehold_sim::model::catalogue::{MUST_BREAK, MUST_HOLD, WIDE_BOUNDS};
use leasehold_sim::model::config::{DataLoss, ModelConfig};
use leasehold_sim::model::coverage::CoverageSet;
use leasehold_sim::model::network::{MAX_IN_FLIGHT, Message};
use leasehold_sim::model::promise::ModelPromise;
use leasehold_sim::model::protocol::ProtocolModel;
use leasehold_sim::model::state::{ModelState, ModelToken};
use leasehold_sim::model::store::FENCES_PER_TICK;
use proptest::prelude::*;
use stateright::{Model, Representative};

const TICK: Duration = Duration::from_secs(1);

fn initial_state() -> (ProtocolModel, ModelState) {
    let protocol = ProtocolModel::new(*MUST_HOLD.first().expect("the catalogue is not empty"));
    let state = *protocol.init_states().first().expect("a world begins");
    (protocol, state)
}

/// Model and client compute the same deadline from the same numbers.
#[test]
fn the_model_deadline_equals_the_clients() {
    let mut class =
        (*PolicyBook::builtin().class("scheduler", Moment::ZERO).expect("a built-in class")).clone();
    for config in MUST_HOLD {
        class.drift = TICK * u32::from(2 * config.clock_error);
        class.stop_grace = Duration::ZERO;
        for sent_at in ModelConfig::FIRST_TICK..config.last_tick() {
            let real = leasehold_core::deadline::deadline(
                Moment::ZERO + TICK * u32::from(sent_at),
                TICK * u32::from(config.ttl),
                &class,
            );
            let modelled = Moment::ZERO + TICK * u32::from(config.deadline(sent_at));
            assert_eq!(modelled, real, "{}: sent at {sent_at}", config.name);
        }
    }
}

#[derive(Debug, Clone)]
enum StoreStep {
    Ask { client: u8, attempt: u8, floor: u8 },
    Renew { client: u8, attempt: u8, current: bool },
    Release { client: u8, attempt: u8, tombstone: bool },
    Tick,
    Flush,
}

fn store_step_strategy() -> impl Strategy<Value = StoreStep> {
    prop_oneof![
        4 => (0..3_u8, 0..3_u8, 0..60_u8)
            .prop_map(|(client, attempt, floor)| StoreStep::Ask { client, attempt, floor }),
        3 => (0..3_u8, 0..3_u8, any::<bool>())
            .prop_map(|(client, attempt, current)| StoreStep::Renew { client, attempt, current }),
        3 => (0..3_u8, 0..3_u8, any::<bool>())
            .prop_map(|(client, attempt, tombstone)| StoreStep::Release { client, attempt, tombstone }),
        3 => Just(StoreStep::Tick),
        1 => Just(StoreStep::Flush),
    ]
}

/// The model's store and the reference store, which receive the same requests.
struct StorePair {
    config: ModelConfig,
    model: ModelState,
    table: LeaseTable,
    name: Name,
}

impl StorePair {
    fn new() -> Self {
        let (protocol, model) = initial_state();
        Self {
            config: ModelConfig { data_loss: DataLoss::Flush, ..protocol.config },
            model,
            table: LeaseTable::default(),
            name: Name::new("job:42").expect("a name"),
        }
    }

    fn real_token(token: ModelToken) -> RealToken {
        RealToken::parse(&format!("h{}|scheduler|{:032x}", token.client, token.attempt)).expect("a token")
    }

    fn now(&self) -> Moment {
        Moment::ZERO + TICK * u32::from(self.model.store_clock())
    }

    fn micros(&self) -> u64 {
        u64::from(self.model.store_clock() * FENCES_PER_TICK)
    }

    fn ttl(&self) -> Ttl {
        Ttl::new(TICK * u32::from(self.config.ttl)).expect("a TTL")
    }

    fn acquire(&mut self, token: ModelToken, floor: u8) {
        let mut request = AcquireRequest::new(self.name.clone(), Self::real_token(token), self.ttl());
        request.floor = Fence::new(u64::from(floor));
        let (now, micros) = (self.now(), self.micros());
        let real = self.table.acquire(&request, now, micros).expect("an answer");
        let message = Message::Acquire { token, sent_at: 0, floor };
        let modelled = self.model.store_receives(message, &self.config, &CoverageSet::default());
        match (modelled, real) {
            (None, AcquireResponse::Void) | (Some(Message::Busy { .. }), AcquireResponse::Busy(_)) => {}
            (Some(Message::Granted { grant, .. }), AcquireResponse::Granted(real)) => {
                assert_eq!(u64::from(grant.fence), real.fence.get());
            }
            (modelled, real) => panic!("asked by {token:?}: model {modelled:?}, reference {real:?}"),
        }
    }

    fn renew(&mut self, token: ModelToken, fence: u8) {
        let fence_seen = Fence::new(u64::from(fence)).expect("a fence");
        let renewal = RenewRequest::new(&self.name, Self::real_token(token), fence_seen, self.ttl());
        let real = self.table.renew(&renewal, self.now());
        let message = Message::Renew { token, sent_at: 0, fence };
        let modelled = self.model.store_receives(message, &self.config, &CoverageSet::default());
        assert_eq!(
            matches!(modelled, Some(Message::Renewed { .. })),
            matches!(real, RenewResponse::Extended { .. }),
            "renewed by {token:?}"
        );
    }

    fn release(&mut self, token: ModelToken, tombstone: bool) {
        let giving = if tombstone { ReleaseRequest::undo } else { ReleaseRequest::by_owner };
        let giving = giving(self.name.clone(), Self::real_token(token));
        let (now, micros) = (self.now(), self.micros());
        self.table.release(&giving, now, micros, |_| true);
        let message = Message::Release { token, tombstone, undo: false };
        self.model.store_receives(message, &self.config, &CoverageSet::default());
    }

    fn apply_step(&mut self, step: &StoreStep) {
        match *step {
            StoreStep::Ask { client, attempt, floor } => self.acquire(ModelToken { client, attempt }, floor),
            StoreStep::Renew { client, attempt, current } => {
                let fence = self.model.store.lease.map_or(1, |lease| lease.grant.fence);
                self.renew(
                    ModelToken { client, attempt },
                    // Another fence than the current one, but never zero.
                    if current { fence } else { fence.max(2) - 1 },
                );
            }
            StoreStep::Release { client, attempt, tombstone } => {
                self.release(ModelToken { client, attempt }, tombstone)
            }
            // Fences are small integers with eight per tick; a later clock would overflow them.
            StoreStep::Tick if self.model.now < 30 => self.model.now += 1,
            StoreStep::Tick => {}
            StoreStep::Flush => {
                self.model.lose_data(&self.config, &CoverageSet::default());
                self.table.clear_all_data();
            }
        }
    }

    fn assert_same_lease(&self) {
        let real = self.table.inspect(&self.name, self.now());
        let modelled = self.model.live_lease();
        assert_eq!(
            modelled.map(|lease| (u64::from(lease.grant.fence), lease.expires - self.model.store_clock())),
            real.map(|lease| {
                let left = lease.remaining.expect("a lease that ends").as_secs();
                (lease.fence.expect("a fence").get(), u8::try_from(left).expect("few ticks"))
            })
        );
    }
}

proptest! {
    /// Same requests, same responses, same lease left: the model's store behaves as the reference store.
    #[test]
    fn the_store_is_the_reference_store(steps in prop::collection::vec(store_step_strategy(), 1..60)) {
        let mut pair = StorePair::new();
        for step in &steps {
            pair.apply_step(step);
            pair.assert_same_lease();
        }
    }

    /// A renamed state has the same representative, promises and number of successors, so symmetry
    /// reduction is sound.
    #[test]
    fn renaming_clients_changes_nothing(picks in prop::collection::vec(any::<u16>(), 0..24), at in 0..4_usize) {
        let config = [MUST_HOLD, WIDE_BOUNDS].concat().into_iter().filter(|config| config.clients == 3).collect::<Vec<_>>();
        let protocol = ProtocolModel::new(config[at % config.len()]);
        let mut state = protocol.init_states()[0];
        for pick in picks {
            let next = protocol.next_states(&state);
            if next.is_empty() {
                break;
            }
            state = next[usize::from(pick) % next.len()];
        }
        let renamed = state.renamed(&[1, 2, 0]);
        prop_assert_eq!(renamed.representative(), state.representative());
        let onward = |state: &ModelState| {
            protocol.next_states(state).iter().map(Representative::representative).collect::<HashSet<_>>()
        };
        prop_assert_eq!(onward(&renamed), onward(&state));
        prop_assert_eq!(protocol.next_states(&renamed).len(), protocol.next_states(&state).len());
        for property in protocol.properties() {
            prop_assert_eq!(
                (property.condition)(&protocol, &renamed),
                (property.condition)(&protocol, &state)
            );
        }
    }
}

/// `eventually` is checked only on paths that end. The state graph has no cycles, so all paths do.
#[test]
fn every_path_ends() {
    let config =
        MUST_HOLD.iter().find(|config| config.data_loss == DataLoss::LaggingReplica).expect("a fail-over");
    let protocol =
        ProtocolModel::new(ModelConfig { attempts: 1, fault_ticks: 2, repeats: 1, renewals: 0, ..*config });
    let mut done = HashSet::new();
    for init in protocol.init_states() {
        let mut path = HashSet::from([init]);
        let mut stack = vec![(init, protocol.next_states(&init))];
        while let Some((state, left)) = stack.last_mut() {
            let Some(next) = left.pop() else {
                path.remove(state);
                done.insert(*state);
                stack.pop();
                continue;
            };
            assert!(!path.contains(&next), "a circle through {next:?}");
            if !done.contains(&next) {
                path.insert(next);
                stack.push((next, protocol.next_states(&next)));
            }
        }
    }
    assert!(done.len() > 10_000, "only {} states", done.len());
}

/// The bounds of every configuration fit into the model's small integers.
#[test]
fn every_configuration_fits_the_small_integers() {
    for config in MUST_HOLD.iter().chain(MUST_BREAK).chain(WIDE_BOUNDS) {
        let grants = config.clients * config.attempts * (config.requests_per_acquire + config.repeats);
        assert!(grants < FENCES_PER_TICK || config.attempts == 1, "{}: grants of one tick", config.name);
        let clock = u16::from(config.last_tick()) + u16::from(config.clock_step.unsigned_abs());
        assert!(clock * u16::from(FENCES_PER_TICK) < 240, "{}: fences", config.name);
        assert!(
            usize::from(config.in_flight) < MAX_IN_FLIGHT,
            "{}: room for a repeated message's answer",
            config.name
        );
        assert!(
            config.clock_step >= -3 && config.clock_error < ModelConfig::FIRST_TICK,
            "{}: clock",
            config.name
        );
        let about_writes = [ModelPromise::I3, ModelPromise::I5Work];
        assert!(
            config.writes > 0 || !about_writes.iter().any(|one| config.promises().contains(one)),
            "{}: promises about writes that nobody sends",
            config.name
        );
        assert!(
            config.ttl > 2 * config.clock_error,
            "{}: nobody could hold, so nothing would be proved",
            config.name
        );
    }
}

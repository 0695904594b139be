//! Tests that hold the model against the real thing, and against what the checker takes for granted.

use std::collections::HashSet;
use std::time::Duration;

use leasehold_core::clock::Moment;
use leasehold_core::memory::Table;
use leasehold_core::policy::PolicyBook;
use leasehold_core::store::{Answer, Ask, Giving, Renewal, Renewed};
use leasehold_core::word::{Fence, Name, Token as RealToken, Ttl};
use proptest::prelude::*;
use stateright::{Model, Representative};

use super::catalogue::{BREAKS, HOLDS, WIDE};
use super::config::{Config, Forgets};
use super::network::{Message, ROOM};
use super::promise::Promise;
use super::protocol::Protocol;
use super::sight::Sights;
use super::state::{State, Token};
use super::store::FENCES_PER_TICK;

const TICK: Duration = Duration::from_secs(1);

fn start() -> (Protocol, State) {
    let protocol = Protocol::new(*HOLDS.first().expect("the catalogue is not empty"));
    let state = *protocol.init_states().first().expect("a world begins");
    (protocol, state)
}

/// The deadline rule of the model and of the client are one: the same numbers in, the same instant out.
#[test]
fn the_deadline_is_the_clients() {
    let mut class = (*PolicyBook::builtin()
        .class("scheduler", Moment::ZERO)
        .expect("a built-in class"))
    .clone();
    for config in HOLDS {
        class.drift = TICK * u32::from(2 * config.clock_error);
        class.stop_grace = Duration::ZERO;
        for sent_at in Config::START..config.end() {
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
enum Step {
    Ask {
        client: u8,
        attempt: u8,
        floor: u8,
    },
    Renew {
        client: u8,
        attempt: u8,
        current: bool,
    },
    Release {
        client: u8,
        attempt: u8,
        tombstone: bool,
    },
    Tick,
    Flush,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0..3_u8, 0..3_u8, 0..60_u8)
            .prop_map(|(client, attempt, floor)| Step::Ask { client, attempt, floor }),
        3 => (0..3_u8, 0..3_u8, any::<bool>())
            .prop_map(|(client, attempt, current)| Step::Renew { client, attempt, current }),
        3 => (0..3_u8, 0..3_u8, any::<bool>())
            .prop_map(|(client, attempt, tombstone)| Step::Release { client, attempt, tombstone }),
        3 => Just(Step::Tick),
        1 => Just(Step::Flush),
    ]
}

/// The model's store beside the reference store, asked the same questions.
struct Pair {
    config: Config,
    model: State,
    table: Table,
    name: Name,
}

impl Pair {
    fn new() -> Self {
        let (protocol, model) = start();
        Self {
            config: Config {
                forgets: Forgets::Flush,
                ..protocol.config
            },
            model,
            table: Table::default(),
            name: Name::new("job:42").expect("a name"),
        }
    }

    fn real(token: Token) -> RealToken {
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

    fn ask(&mut self, token: Token, floor: u8) {
        let mut ask = Ask::new(self.name.clone(), Self::real(token), self.ttl());
        ask.floor = Fence::new(u64::from(floor));
        let (now, micros) = (self.now(), self.micros());
        let real = self.table.acquire(&ask, now, micros).expect("an answer");
        let message = Message::Ask {
            token,
            sent_at: 0,
            floor,
        };
        let modelled = self.model.store_hears(message, &self.config, &Sights::default());
        match (modelled, real) {
            (None, Answer::Void) | (Some(Message::Busy { .. }), Answer::Busy(_)) => {}
            (Some(Message::Granted { grant, .. }), Answer::Granted(real)) => {
                assert_eq!(u64::from(grant.fence), real.fence.get());
            }
            (modelled, real) => panic!("asked by {token:?}: model {modelled:?}, reference {real:?}"),
        }
    }

    fn renew(&mut self, token: Token, fence: u8) {
        let renewal = Renewal {
            name: self.name.clone(),
            token: Self::real(token),
            fence: Fence::new(u64::from(fence)).expect("a fence"),
            ttl: self.ttl(),
            lock_delay: Duration::ZERO,
        };
        let real = self.table.renew(&renewal, self.now());
        let message = Message::Renew {
            token,
            sent_at: 0,
            fence,
        };
        let modelled = self.model.store_hears(message, &self.config, &Sights::default());
        assert_eq!(
            matches!(modelled, Some(Message::Renewed { .. })),
            matches!(real, Renewed::Extended { .. }),
            "renewed by {token:?}"
        );
    }

    fn release(&mut self, token: Token, tombstone: bool) {
        let giving = if tombstone { Giving::undo } else { Giving::owned };
        let giving = giving(self.name.clone(), Self::real(token));
        let (now, micros) = (self.now(), self.micros());
        self.table.release(&giving, now, micros, |_| true);
        let message = Message::Release {
            token,
            tombstone,
            undo: false,
        };
        self.model.store_hears(message, &self.config, &Sights::default());
    }

    fn take(&mut self, step: &Step) {
        match *step {
            Step::Ask {
                client,
                attempt,
                floor,
            } => self.ask(Token { client, attempt }, floor),
            Step::Renew {
                client,
                attempt,
                current,
            } => {
                let fence = self.model.store.lease.map_or(1, |lease| lease.grant.fence);
                self.renew(
                    Token { client, attempt },
                    if current { fence } else { fence.max(2) - 1 },
                );
            }
            Step::Release {
                client,
                attempt,
                tombstone,
            } => self.release(Token { client, attempt }, tombstone),
            Step::Tick if self.model.now < 30 => self.model.now += 1,
            Step::Tick => {}
            Step::Flush => {
                self.model.forget(&self.config, &Sights::default());
                self.table.lose_everything();
            }
        }
    }

    fn compare(&self) {
        let real = self.table.inspect(&self.name, self.now());
        let modelled = self.model.live_lease();
        assert_eq!(
            modelled.map(|lease| (
                u64::from(lease.grant.fence),
                lease.expires - self.model.store_clock()
            )),
            real.map(|lease| {
                let left = lease.remaining.expect("a lease that ends").as_secs();
                (
                    lease.fence.expect("a fence").get(),
                    u8::try_from(left).expect("few ticks"),
                )
            })
        );
    }
}

proptest! {
    /// Same questions, same answers, same lease left behind: the model's store is the reference store.
    #[test]
    fn the_store_is_the_reference_store(steps in prop::collection::vec(step(), 1..60)) {
        let mut pair = Pair::new();
        for step in &steps {
            pair.take(step);
            pair.compare();
        }
    }

    /// A renamed state has the same representative, the same promises and as many successors: symmetry is sound.
    #[test]
    fn renaming_clients_changes_nothing(picks in prop::collection::vec(any::<u16>(), 0..24), at in 0..4_usize) {
        let config = [HOLDS, WIDE].concat().into_iter().filter(|config| config.clients == 3).collect::<Vec<_>>();
        let protocol = Protocol::new(config[at % config.len()]);
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
        let onward = |state: &State| {
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

/// `eventually` is only checked on paths that end. Nothing here runs in a circle, so all do.
#[test]
fn every_path_ends() {
    let config = HOLDS
        .iter()
        .find(|config| config.forgets == Forgets::LaggingReplica)
        .expect("a fail-over");
    let protocol = Protocol::new(Config {
        attempts: 1,
        trouble: 2,
        repeats: 1,
        renewals: 0,
        ..*config
    });
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

/// The bounds of every configuration fit the model's small numbers.
#[test]
fn configurations_fit() {
    for config in HOLDS.iter().chain(BREAKS).chain(WIDE) {
        let grants = config.clients * config.attempts * (config.asks + config.repeats);
        assert!(
            grants < FENCES_PER_TICK || config.attempts == 1,
            "{}: grants of one tick",
            config.name
        );
        let clock = u16::from(config.end()) + u16::from(config.clock_step.unsigned_abs());
        assert!(
            clock * u16::from(FENCES_PER_TICK) < 240,
            "{}: fences",
            config.name
        );
        assert!(
            usize::from(config.in_flight) < ROOM,
            "{}: room for a repeated message's answer",
            config.name
        );
        assert!(
            config.clock_step >= -3 && config.clock_error < Config::START,
            "{}: clock",
            config.name
        );
        let about_writes = [Promise::I3, Promise::I5Work];
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

//! The reference table against a model that is too simple to be wrong: lists, searched from the front.

use std::time::Duration;

use leasehold_core::clock::Moment;
use leasehold_core::memory::Table;
use leasehold_core::rng::SeededRandom;
use leasehold_core::store::{Answer, Ask, CLAIM, Claim, Given, Giving, Renewal, Renewed};
use leasehold_core::word::{Fence, Holder, Name, Token, Ttl};
use proptest::prelude::*;

const TOKENS: usize = 6;

/// One thing that happens to the store. Tokens are of one name each: the even ones of the first, the odd of the second.
#[derive(Debug, Clone)]
enum Op {
    Ask {
        token: usize,
        ttl: u64,
        delay: u64,
        queue: Option<u64>,
        floor: u64,
    },
    Renew {
        token: usize,
        ttl: u64,
        right_fence: bool,
    },
    Release {
        token: usize,
        tombstone: Option<u64>,
    },
    Break {
        name: usize,
    },
    Pass {
        millis: u64,
    },
    Forget,
}

fn op() -> impl Strategy<Value = Op> {
    let token = || 0..TOKENS;
    let ttl = || 100_u64..2_000;
    prop_oneof![
        8 => (token(), ttl(), 0_u64..300, proptest::option::of(50_u64..2_000), 0_u64..50)
            .prop_map(|(token, ttl, delay, queue, floor)| Op::Ask { token, ttl, delay, queue, floor }),
        5 => (token(), ttl(), any::<bool>())
            .prop_map(|(token, ttl, right_fence)| Op::Renew { token, ttl, right_fence }),
        5 => (token(), proptest::option::of(100_u64..3_000))
            .prop_map(|(token, tombstone)| Op::Release { token, tombstone }),
        1 => (0_usize..2).prop_map(|name| Op::Break { name }),
        6 => (1_u64..900).prop_map(|millis| Op::Pass { millis }),
        1 => Just(Op::Forget),
    ]
}

#[derive(Debug, Clone, Copy, PartialEq)]
struct Leased {
    token: usize,
    fence: u64,
    expires: u64,
    claim: bool,
}

/// The naive model, in milliseconds.
#[derive(Debug, Default)]
struct Model {
    now: u64,
    leases: [Option<Leased>; 2],
    /// Token and expiry, in the order of arrival.
    queue: [Vec<(usize, u64)>; 2],
    /// Token and until when it is refused.
    voided: Vec<(usize, u64)>,
    /// The newest fence, which no loss takes back.
    newest: [u64; 2],
}

impl Model {
    fn live(&self, name: usize) -> Option<Leased> {
        self.leases[name].filter(|lease| lease.expires > self.now)
    }
}

struct Both {
    table: Table,
    model: Model,
    names: [Name; 2],
    tokens: Vec<Token>,
}

fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

impl Both {
    fn new() -> Self {
        let (holder, random) = (Holder::new("h").unwrap(), SeededRandom::new(1));
        Self {
            table: Table::default(),
            model: Model::default(),
            names: ["a", "b"].map(|name| Name::new(name).unwrap()),
            tokens: (0..TOKENS).map(|_| Token::fresh(&holder, "c", &random)).collect(),
        }
    }

    fn now(&self) -> Moment {
        Moment::from_nanos((1_000 + self.model.now) * 1_000_000)
    }

    /// The store's clock for fences: grows with time and never back.
    fn micros(&self) -> u64 {
        1_000_000 + self.model.now * 1_000
    }

    /// A fence was issued: it must be greater than every earlier one, than the floor, and no less than the time.
    fn issued(&mut self, name: usize, fence: u64, floor: u64) -> Result<(), TestCaseError> {
        let newest = self.model.newest[name];
        prop_assert!(
            fence > newest && fence > floor && fence >= self.micros(),
            "{fence} after {newest}"
        );
        self.model.newest[name] = fence;
        Ok(())
    }

    fn ask(
        &mut self,
        token: usize,
        ttl: u64,
        delay: u64,
        queue: Option<u64>,
        floor: u64,
    ) -> Result<(), TestCaseError> {
        let name = token % 2;
        // A floor around what has been seen.
        let floor = (self.model.newest[name] + floor).saturating_sub(25);
        let ask = Ask {
            lock_delay: millis(delay),
            queue: queue.map(millis),
            floor: Fence::new(floor),
            ..Ask::new(
                self.names[name].clone(),
                self.tokens[token].clone(),
                Ttl::new(millis(ttl)).unwrap(),
            )
        };
        let answer = self.table.acquire(&ask, self.now(), self.micros()).unwrap();
        let (now, live) = (self.model.now, self.model.live(name));
        let expires = now + ttl + delay;
        if self
            .model
            .voided
            .iter()
            .any(|(voided, until)| *voided == token && *until > now)
        {
            prop_assert_eq!(answer, Answer::Void);
            return Ok(());
        }
        match live {
            Some(lease) if lease.token == token => {
                let Answer::Granted(grant) = answer else {
                    return Err(TestCaseError::fail(format!("{answer:?} to the owner")));
                };
                prop_assert_eq!(
                    grant.fence.get(),
                    lease.fence,
                    "a repeated ask has the same fence"
                );
                let expires = if lease.claim {
                    expires
                } else {
                    expires.max(lease.expires)
                };
                self.model.leases[name] = Some(Leased {
                    expires,
                    claim: false,
                    ..lease
                });
                self.model.queue[name].retain(|(waiter, _)| *waiter != token);
            }
            Some(lease) => {
                let Answer::Busy(busy) = answer else {
                    return Err(TestCaseError::fail(format!("{answer:?} although {lease:?}")));
                };
                prop_assert_eq!(busy.remaining, Some(millis(lease.expires - now)));
                prop_assert_eq!(busy.fence.map(Fence::get), Some(lease.fence));
                if let Some(keep) = queue {
                    self.model.queue[name].retain(|(_, expires)| *expires > now);
                    match self.model.queue[name]
                        .iter_mut()
                        .find(|(waiter, _)| *waiter == token)
                    {
                        Some(waiter) => waiter.1 = now + keep,
                        None => self.model.queue[name].push((token, now + keep)),
                    }
                }
            }
            None => {
                let Answer::Granted(grant) = answer else {
                    return Err(TestCaseError::fail(format!(
                        "{answer:?} although the name is free"
                    )));
                };
                self.issued(name, grant.fence.get(), floor)?;
                let (fence, claim) = (grant.fence.get(), false);
                self.model.leases[name] = Some(Leased {
                    token,
                    fence,
                    expires,
                    claim,
                });
                self.model.queue[name].retain(|(waiter, _)| *waiter != token);
            }
        }
        Ok(())
    }

    fn renew(&mut self, token: usize, ttl: u64, right_fence: bool) -> Result<(), TestCaseError> {
        let name = token % 2;
        let live = self.model.live(name);
        // The record of a lease that has run out may still be there: its fence must not revive it.
        let fence = self.model.leases[name].map_or(1, |lease| lease.fence) + u64::from(!right_fence);
        let renewal = Renewal {
            name: self.names[name].clone(),
            token: self.tokens[token].clone(),
            fence: Fence::new(fence).unwrap(),
            ttl: Ttl::new(millis(ttl)).unwrap(),
            lock_delay: Duration::ZERO,
        };
        let renewed = self.table.renew(&renewal, self.now());
        match live.filter(|lease| lease.token == token && right_fence) {
            Some(lease) => {
                let was_left = Some(millis(lease.expires - self.model.now));
                prop_assert_eq!(renewed, Renewed::Extended { was_left });
                let expires = lease.expires.max(self.model.now + ttl);
                self.model.leases[name] = Some(Leased { expires, ..lease });
            }
            None => prop_assert_eq!(renewed, Renewed::NotOwned),
        }
        Ok(())
    }

    fn give(
        &mut self,
        name: usize,
        claim: Claim,
        ours: bool,
        tombstone: Option<u64>,
    ) -> Result<(), TestCaseError> {
        let giving = Giving {
            name: self.names[name].clone(),
            claim,
            tombstone: tombstone.map(millis),
        };
        let (given, woken) = self.table.release(&giving, self.now(), self.micros(), |_| true);
        if !ours {
            prop_assert_eq!((given, woken), (Given::NotOwned, None));
            return Ok(());
        }
        prop_assert_eq!(given, Given::Released);
        let now = self.model.now;
        self.model.leases[name] = None;
        let waiting = std::mem::take(&mut self.model.queue[name]);
        let mut alive = waiting.into_iter().skip_while(|(_, expires)| *expires <= now);
        let next = alive.next();
        self.model.queue[name] = alive.collect();
        prop_assert_eq!(
            woken.as_ref(),
            next.map(|(token, _)| &self.tokens[token]),
            "the first in line"
        );
        if let Some((token, _)) = next {
            let shown = self
                .table
                .inspect(&self.names[name], self.now())
                .and_then(|lease| lease.fence);
            let fence = shown.map_or(0, Fence::get);
            self.issued(name, fence, 0)?;
            let expires = now + u64::try_from(CLAIM.as_millis()).unwrap();
            self.model.leases[name] = Some(Leased {
                token,
                fence,
                expires,
                claim: true,
            });
        }
        Ok(())
    }

    fn apply(&mut self, op: &Op) -> Result<(), TestCaseError> {
        match *op {
            Op::Ask {
                token,
                ttl,
                delay,
                queue,
                floor,
            } => self.ask(token, ttl, delay, queue, floor)?,
            Op::Renew {
                token,
                ttl,
                right_fence,
            } => self.renew(token, ttl, right_fence)?,
            Op::Release { token, tombstone } => {
                let name = token % 2;
                if let Some(keep) = tombstone {
                    self.model.voided.retain(|(voided, _)| *voided != token);
                    self.model.voided.push((token, self.model.now + keep));
                }
                self.model.queue[name].retain(|(waiter, _)| *waiter != token);
                let ours = self.model.live(name).is_some_and(|lease| lease.token == token);
                self.give(name, Claim::Owner(self.tokens[token].clone()), ours, tombstone)?;
            }
            Op::Break { name } => {
                let live = self.model.live(name);
                let seen = live.map_or(1, |lease| lease.fence);
                self.give(name, Claim::Seen(Fence::new(seen).unwrap()), live.is_some(), None)?;
            }
            Op::Pass { millis } => self.model.now += millis,
            Op::Forget => {
                self.table.lose_everything();
                let (now, newest) = (self.model.now + 1, self.model.newest);
                self.model = Model {
                    now,
                    newest,
                    ..Model::default()
                };
            }
        }
        for name in 0..2 {
            let shown = self.table.inspect(&self.names[name], self.now());
            let live = self.model.live(name);
            prop_assert_eq!(shown.is_some(), live.is_some(), "after {:?}", op);
            if let (Some(shown), Some(live)) = (shown, live) {
                prop_assert_eq!(shown.fence.map(Fence::get), Some(live.fence));
                prop_assert_eq!(shown.remaining, Some(millis(live.expires - self.model.now)));
                let waiting = self.model.queue[name]
                    .iter()
                    .filter(|(_, expires)| *expires > self.model.now)
                    .count();
                prop_assert_eq!(shown.waiters, Some(waiting as u64), "after {:?}", op);
            }
        }
        Ok(())
    }
}

proptest! {
    #![proptest_config(crate::property::config(1_000))]

    #[test]
    fn the_table_answers_like_the_model(ops in proptest::collection::vec(op(), 1..80)) {
        let mut both = Both::new();
        for op in &ops {
            both.apply(op)?;
        }
    }
}

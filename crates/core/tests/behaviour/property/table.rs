//! The reference table against a model that is too simple to be wrong: lists, searched from the front.

use std::time::Duration;

use leasehold_core::clock::Moment;
use leasehold_core::memory::LeaseTable;
use leasehold_core::rng::SeededRandom;
use leasehold_core::store::{
    AcquireRequest, AcquireResponse, HANDOVER_CLAIM_TTL, ReleaseAuthority, ReleaseRequest, ReleaseResponse,
    RenewRequest, RenewResponse,
};
use leasehold_core::types::{Fence, Holder, Name, Token, Ttl};
use proptest::prelude::*;

const TOKEN_COUNT: usize = 6;

/// One operation on the store. Each token has one name: the even ones the first, the odd ones the second.
#[derive(Debug, Clone)]
enum TableOp {
    Acquire { token: usize, ttl: u64, delay: u64, queue: Option<u64>, floor: u64 },
    Renew { token: usize, ttl: u64, right_fence: bool },
    Release { token: usize, tombstone: Option<u64> },
    Break { name: usize },
    Pass { millis: u64 },
    LoseData,
}

fn op() -> impl Strategy<Value = TableOp> {
    let token = || 0..TOKEN_COUNT;
    let ttl = || 100_u64..2_000;
    prop_oneof![
        8 => (token(), ttl(), 0_u64..300, proptest::option::of(50_u64..2_000), 0_u64..50)
            .prop_map(|(token, ttl, delay, queue, floor)| TableOp::Acquire { token, ttl, delay, queue, floor }),
        5 => (token(), ttl(), any::<bool>())
            .prop_map(|(token, ttl, right_fence)| TableOp::Renew { token, ttl, right_fence }),
        5 => (token(), proptest::option::of(100_u64..3_000))
            .prop_map(|(token, tombstone)| TableOp::Release { token, tombstone }),
        1 => (0_usize..2).prop_map(|name| TableOp::Break { name }),
        6 => (1_u64..900).prop_map(|millis| TableOp::Pass { millis }),
        1 => Just(TableOp::LoseData),
    ]
}

#[derive(Debug, Clone, Copy, PartialEq)]
struct ModelLease {
    token: usize,
    fence: u64,
    expires: u64,
    claim: bool,
}

/// The naive model, in milliseconds.
#[derive(Debug, Default)]
struct Model {
    now: u64,
    leases: [Option<ModelLease>; 2],
    /// Token and expiry, in the order of arrival.
    queue: [Vec<(usize, u64)>; 2],
    /// Token and the time until which it is refused.
    voided: Vec<(usize, u64)>,
    /// The newest fence, which no data loss resets.
    newest: [u64; 2],
}

impl Model {
    fn live(&self, name: usize) -> Option<ModelLease> {
        self.leases[name].filter(|lease| lease.expires > self.now)
    }
}

struct TableAndModel {
    table: LeaseTable,
    model: Model,
    names: [Name; 2],
    tokens: Vec<Token>,
}

fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

impl TableAndModel {
    fn new() -> Self {
        let (holder, random) = (Holder::new("h").unwrap(), SeededRandom::new(1));
        Self {
            table: LeaseTable::default(),
            model: Model::default(),
            names: ["a", "b"].map(|name| Name::new(name).unwrap()),
            tokens: (0..TOKEN_COUNT).map(|_| Token::fresh(&holder, "c", &random)).collect(),
        }
    }

    fn now(&self) -> Moment {
        Moment::from_nanos((1_000 + self.model.now) * 1_000_000)
    }

    /// The store's clock for fences: it grows with time and never goes back.
    fn micros(&self) -> u64 {
        1_000_000 + self.model.now * 1_000
    }

    /// Checks an issued fence: greater than every earlier one and the floor, and no less than the time.
    fn check_fence(&mut self, name: usize, fence: u64, floor: u64) -> Result<(), TestCaseError> {
        let newest = self.model.newest[name];
        prop_assert!(fence > newest && fence > floor && fence >= self.micros(), "{fence} after {newest}");
        self.model.newest[name] = fence;
        Ok(())
    }

    fn acquire(
        &mut self,
        token: usize,
        ttl: u64,
        delay: u64,
        queue: Option<u64>,
        floor: u64,
    ) -> Result<(), TestCaseError> {
        let name = token % 2;
        // A floor around the newest fence.
        let floor = (self.model.newest[name] + floor).saturating_sub(25);
        let ttl_asked = Ttl::new(millis(ttl)).unwrap();
        let request = AcquireRequest::new(&self.names[name], self.tokens[token].clone(), ttl_asked)
            .with_lock_delay(millis(delay))
            .with_queue(queue.map(millis))
            .with_floor(Fence::new(floor));
        let answer = self.table.acquire(&request, self.now(), self.micros()).unwrap();
        let (now, live) = (self.model.now, self.model.live(name));
        let expires = now + ttl + delay;
        if self.model.voided.iter().any(|(voided, until)| *voided == token && *until > now) {
            prop_assert_eq!(answer, AcquireResponse::Void);
            return Ok(());
        }
        match live {
            Some(lease) if lease.token == token => {
                let AcquireResponse::Granted(grant) = answer else {
                    return Err(TestCaseError::fail(format!("{answer:?} to the owner")));
                };
                prop_assert_eq!(grant.fence.get(), lease.fence, "a repeated ask has the same fence");
                let expires = if lease.claim { expires } else { expires.max(lease.expires) };
                self.model.leases[name] = Some(ModelLease { expires, claim: false, ..lease });
                self.model.queue[name].retain(|(waiter, _)| *waiter != token);
            }
            Some(lease) => {
                let AcquireResponse::Busy(busy) = answer else {
                    return Err(TestCaseError::fail(format!("{answer:?} although {lease:?}")));
                };
                prop_assert_eq!(busy.remaining, Some(millis(lease.expires - now)));
                prop_assert_eq!(busy.fence.map(Fence::get), Some(lease.fence));
                if let Some(keep) = queue {
                    self.model.queue[name].retain(|(_, expires)| *expires > now);
                    match self.model.queue[name].iter_mut().find(|(waiter, _)| *waiter == token) {
                        Some(waiter) => waiter.1 = now + keep,
                        None => self.model.queue[name].push((token, now + keep)),
                    }
                }
            }
            None => {
                let AcquireResponse::Granted(grant) = answer else {
                    return Err(TestCaseError::fail(format!("{answer:?} although the name is free")));
                };
                self.check_fence(name, grant.fence.get(), floor)?;
                let (fence, claim) = (grant.fence.get(), false);
                self.model.leases[name] = Some(ModelLease { token, fence, expires, claim });
                self.model.queue[name].retain(|(waiter, _)| *waiter != token);
            }
        }
        Ok(())
    }

    fn renew(&mut self, token: usize, ttl: u64, right_fence: bool) -> Result<(), TestCaseError> {
        let name = token % 2;
        let live = self.model.live(name);
        // The record of an expired lease may still be there: its fence must not revive the lease.
        let fence = self.model.leases[name].map_or(1, |lease| lease.fence) + u64::from(!right_fence);
        let renewal = RenewRequest::new(
            &self.names[name],
            self.tokens[token].clone(),
            Fence::new(fence).unwrap(),
            Ttl::new(millis(ttl)).unwrap(),
        );
        let renewed = self.table.renew(&renewal, self.now());
        match live.filter(|lease| lease.token == token && right_fence) {
            Some(lease) => {
                let remaining_before = millis(lease.expires - self.model.now);
                prop_assert_eq!(renewed, RenewResponse::extended(remaining_before));
                let expires = lease.expires.max(self.model.now + ttl);
                self.model.leases[name] = Some(ModelLease { expires, ..lease });
            }
            None => prop_assert_eq!(renewed, RenewResponse::NotOwned),
        }
        Ok(())
    }

    fn release(
        &mut self,
        name: usize,
        claim: ReleaseAuthority,
        ours: bool,
        tombstone: Option<u64>,
    ) -> Result<(), TestCaseError> {
        let request = ReleaseRequest::new(&self.names[name], claim).with_tombstone(tombstone.map(millis));
        let (given, woken) = self.table.release(&request, self.now(), self.micros(), |_| true);
        if !ours {
            prop_assert_eq!((given, woken), (ReleaseResponse::NotOwned, None));
            return Ok(());
        }
        prop_assert_eq!(given, ReleaseResponse::Released);
        let now = self.model.now;
        self.model.leases[name] = None;
        let waiting = std::mem::take(&mut self.model.queue[name]);
        let mut alive = waiting.into_iter().skip_while(|(_, expires)| *expires <= now);
        let next = alive.next();
        self.model.queue[name] = alive.collect();
        prop_assert_eq!(woken.as_ref(), next.map(|(token, _)| &self.tokens[token]), "the first in line");
        if let Some((token, _)) = next {
            let shown = self.table.inspect(&self.names[name], self.now()).and_then(|lease| lease.fence);
            let fence = shown.map_or(0, Fence::get);
            self.check_fence(name, fence, 0)?;
            let expires = now + u64::try_from(HANDOVER_CLAIM_TTL.as_millis()).unwrap();
            self.model.leases[name] = Some(ModelLease { token, fence, expires, claim: true });
        }
        Ok(())
    }

    fn apply(&mut self, op: &TableOp) -> Result<(), TestCaseError> {
        match *op {
            TableOp::Acquire { token, ttl, delay, queue, floor } => {
                self.acquire(token, ttl, delay, queue, floor)?
            }
            TableOp::Renew { token, ttl, right_fence } => self.renew(token, ttl, right_fence)?,
            TableOp::Release { token, tombstone } => {
                let name = token % 2;
                if let Some(keep) = tombstone {
                    self.model.voided.retain(|(voided, _)| *voided != token);
                    self.model.voided.push((token, self.model.now + keep));
                }
                self.model.queue[name].retain(|(waiter, _)| *waiter != token);
                let ours = self.model.live(name).is_some_and(|lease| lease.token == token);
                self.release(name, ReleaseAuthority::Owner(self.tokens[token].clone()), ours, tombstone)?;
            }
            TableOp::Break { name } => {
                let live = self.model.live(name);
                let seen = live.map_or(1, |lease| lease.fence);
                self.release(
                    name,
                    ReleaseAuthority::Operator(Fence::new(seen).unwrap()),
                    live.is_some(),
                    None,
                )?;
            }
            TableOp::Pass { millis } => self.model.now += millis,
            TableOp::LoseData => {
                self.table.clear_all_data();
                let (now, newest) = (self.model.now + 1, self.model.newest);
                self.model = Model { now, newest, ..Model::default() };
            }
        }
        for name in 0..2 {
            let shown = self.table.inspect(&self.names[name], self.now());
            let live = self.model.live(name);
            prop_assert_eq!(shown.is_some(), live.is_some(), "after {:?}", op);
            if let (Some(shown), Some(live)) = (shown, live) {
                prop_assert_eq!(shown.fence.map(Fence::get), Some(live.fence));
                prop_assert_eq!(shown.remaining, Some(millis(live.expires - self.model.now)));
                let waiting =
                    self.model.queue[name].iter().filter(|(_, expires)| *expires > self.model.now).count();
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
        let mut both = TableAndModel::new();
        for op in &ops {
            both.apply(op)?;
        }
    }
}

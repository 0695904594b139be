//! The store: the real reference table on its own clock, inspected before and after each message.

use std::collections::HashMap;

use leasehold_core::memory::LeaseTable;
use leasehold_core::store::{
    AcquireRequest, AcquireResponse, BusyLease, ReleaseAuthority, ReleaseRequest, ReleaseResponse,
    RenewRequest, RenewResponse, StoreErrorKind,
};
use leasehold_core::types::{Fence, Name, Token};

use crate::clock::{DriftingClock, Nanos};
use crate::plan::Mistake;

/// A message to the store.
#[derive(Debug, Clone)]
pub(crate) enum StoreRequest {
    Acquire(AcquireRequest),
    Renew(RenewRequest),
    Release(ReleaseRequest),
}

impl StoreRequest {
    pub(crate) fn name(&self) -> &Name {
        match self {
            Self::Acquire(ask) => ask.names.first(),
            Self::Renew(renewal) => renewal.names.first(),
            Self::Release(giving) => giving.names.first(),
        }
    }

    /// The token of the sender. Operator releases are not simulated.
    pub(crate) fn token(&self) -> &Token {
        match self {
            Self::Acquire(ask) => &ask.token,
            Self::Renew(renewal) => &renewal.token,
            Self::Release(giving) => match &giving.authority {
                ReleaseAuthority::Owner(token) => token,
                other => unreachable!("only owners release here, not {other:?}"),
            },
        }
    }

    pub(crate) fn label(&self) -> &'static str {
        match self {
            Self::Acquire(_) => "ask",
            Self::Renew(_) => "renew",
            Self::Release(_) => "release",
        }
    }
}

/// The reply that a client receives.
#[derive(Debug, Clone)]
pub(crate) enum StoreReply {
    Acquire(AcquireResponse),
    Renew(RenewResponse),
    Release(ReleaseResponse),
    Failed { cause: StoreErrorKind, unknown: bool },
}

/// A live lease in true time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LeaseRecord {
    pub(crate) fence: Fence,
    pub(crate) owner: Token,
    pub(crate) expires: Nanos,
}

/// The effect of one executed message.
#[derive(Debug)]
pub(crate) struct Execution {
    pub(crate) before: Option<LeaseRecord>,
    pub(crate) after: Option<LeaseRecord>,
    pub(crate) reply: StoreReply,
    pub(crate) woken: Option<Token>,
}

#[derive(Debug)]
pub(crate) struct SimStore {
    table: LeaseTable,
    clock: DriftingClock,
    /// The token of the last grant, by name: the table itself does not show tokens.
    owners: HashMap<Name, (Fence, Token)>,
    /// The first fence of each token, for [`Mistake::FenceRepeated`].
    first: HashMap<Token, Fence>,
    mistake: Mistake,
    /// The store is unreachable until then.
    pub(crate) down_until: Nanos,
}

impl SimStore {
    pub(crate) fn new(clock: DriftingClock, mistake: Mistake) -> Self {
        Self {
            table: LeaseTable::default(),
            clock,
            owners: HashMap::new(),
            first: HashMap::new(),
            mistake,
            down_until: 0,
        }
    }

    /// The live lease of a name.
    pub(crate) fn record(&self, name: &Name, at: Nanos) -> Option<LeaseRecord> {
        let now = self.clock.read(at);
        let lease = self.table.inspect(name, now)?;
        let (fence, owner) = self.owners.get(name).cloned()?;
        Some(LeaseRecord { fence, owner, expires: self.clock.true_time_of(now + lease.remaining?) })
    }

    pub(crate) fn lose_data(&mut self) {
        self.table.clear_all_data();
    }

    pub(crate) fn apply(&mut self, verb: &StoreRequest, at: Nanos) -> Execution {
        let before = self.record(verb.name(), at);
        let (reply, woken) = match verb {
            StoreRequest::Acquire(ask) => (self.ask(ask, at), None),
            StoreRequest::Renew(renewal) => (self.renew(renewal, before.as_ref(), at), None),
            StoreRequest::Release(giving) => self.release(giving, before.as_ref(), at),
        };
        let shown = self.table.inspect(verb.name(), self.clock.read(at));
        if let Some(fence) = shown.and_then(|lease| lease.fence) {
            let known = self.owners.get(verb.name()).map(|(fence, _)| *fence);
            if known != Some(fence) {
                let owner = woken.as_ref().unwrap_or(verb.token()).clone();
                self.owners.insert(verb.name().clone(), (fence, owner));
            }
        }
        Execution { before, after: self.record(verb.name(), at), reply, woken }
    }

    fn micros(&self, at: Nanos) -> u64 {
        1_700_000_000_000_000 + self.clock.read(at).as_nanos() / 1_000
    }

    fn ask(&mut self, ask: &AcquireRequest, at: Nanos) -> StoreReply {
        let now = self.clock.read(at);
        let answer = if self.mistake == Mistake::PlainCounter {
            let blind = ask.clone().with_floor(None);
            self.table.acquire(&blind, now, 0)
        } else {
            self.table.acquire(ask, now, self.micros(at))
        };
        match answer {
            Ok(AcquireResponse::Granted(mut grant)) if self.mistake == Mistake::FenceRepeated => {
                grant.fence = *self.first.entry(ask.token.clone()).or_insert(grant.fence);
                StoreReply::Acquire(AcquireResponse::Granted(grant))
            }
            Ok(answer) => StoreReply::Acquire(answer),
            Err(failure) => StoreReply::Failed { cause: failure.kind, unknown: failure.unknown },
        }
    }

    fn renew(&mut self, renewal: &RenewRequest, live: Option<&LeaseRecord>, at: Nanos) -> StoreReply {
        let now = self.clock.read(at);
        match (self.mistake, live) {
            (Mistake::RenewWithoutComparing, Some(live)) => {
                let mut any = renewal.clone();
                (any.token, any.fence) = (live.owner.clone(), live.fence);
                StoreReply::Renew(self.table.renew(&any, now))
            }
            (Mistake::RenewRevives, None)
                if self
                    .owners
                    .get(renewal.names.first())
                    .is_some_and(|(_, owner)| *owner == renewal.token) =>
            {
                let again = AcquireRequest::new(renewal.names.clone(), renewal.token.clone(), renewal.ttl);
                match self.table.acquire(&again, now, self.micros(at)) {
                    Ok(AcquireResponse::Granted(_)) => StoreReply::Renew(RenewResponse::extended(None)),
                    _ => StoreReply::Renew(RenewResponse::NotOwned),
                }
            }
            _ => StoreReply::Renew(self.table.renew(renewal, now)),
        }
    }

    fn release(
        &mut self,
        giving: &ReleaseRequest,
        live: Option<&LeaseRecord>,
        at: Nanos,
    ) -> (StoreReply, Option<Token>) {
        let (now, micros) = (self.clock.read(at), self.micros(at));
        let micros = if self.mistake == Mistake::PlainCounter { 0 } else { micros };
        let mut giving = giving.clone();
        if let (Mistake::ReleaseWithoutComparing, Some(live)) = (self.mistake, live) {
            giving.authority = ReleaseAuthority::Operator(live.fence);
        }
        let (given, woken) = self.table.release(&giving, now, micros, |_| true);
        (StoreReply::Release(given), woken)
    }
}

/// A short text for a reply, for the history.
pub(crate) fn reply_text(reply: &StoreReply) -> String {
    match reply {
        StoreReply::Acquire(AcquireResponse::Granted(grant)) => format!("granted {}", grant.fence),
        StoreReply::Acquire(AcquireResponse::Busy(BusyLease { holder, remaining, .. })) => {
            format!("busy: {holder} for {remaining:?}")
        }
        StoreReply::Acquire(other) => format!("{other:?}"),
        StoreReply::Renew(renewed) => format!("{renewed:?}"),
        StoreReply::Release(given) => format!("{given:?}"),
        StoreReply::Failed { cause, unknown } => format!("failed ({cause}, unknown {unknown})"),
    }
}

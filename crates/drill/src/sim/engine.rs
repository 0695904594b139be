//! The store's side: the reference table with the habits of a real engine around it.
//!
//! *Redis*: leases expire by the server's wall clock, which can be stepped; a fail-over to a replica that lags, or a
//! flush, loses what was acknowledged; connections die with it; the fence's floor is the server's time, read where the real
//! scripts read it (first use of a connection, a counter that is gone, every hand-over). *SQLite*: all processes share
//! the host's boot clock; nothing that was answered is lost, but another boot voids all leases.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use leasehold_core::clock::Moment;
use leasehold_core::memory::Table;
use leasehold_core::store::{Answer, Ask, Cause, Claim, Failure, Given, Giving, Lease, Renewal, Renewed};
use leasehold_core::{Fence, Name, Token, Ttl};

use super::drift::{Drift, Nanos};
use super::mistake::Mistake;
use super::places::Places;

/// Whose semantics the store has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Wall-clock expiry, loses data.
    Redis,
    /// The host's boot clock, durable.
    Sqlite,
}

/// A message to the store.
#[derive(Debug, Clone)]
pub(super) enum Verb {
    Ask(Ask),
    Renew(Vec<Renewal>),
    Release(Giving),
}

/// What the store, or the way to it, answers.
#[derive(Debug, Clone)]
pub(super) enum Reply {
    Asked(Answer),
    Renewed(Vec<Renewed>),
    Given(Given),
    Failed { cause: Cause, unknown: bool },
}

impl Reply {
    fn of(failure: &Failure) -> Self {
        Self::Failed {
            cause: failure.cause,
            unknown: failure.unknown,
        }
    }
}

/// How the store behaves to those who reach it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Service {
    Serving,
    /// Nobody listens: definitely not done.
    Refusing,
    /// Nothing comes back.
    Silent,
    /// A replica: definitely not done.
    ReadOnly,
    /// Loading its data: definitely not done.
    Loading,
    /// Out of memory, or the disk is full: what takes room is refused, renewals and releases work.
    Full,
}

/// The store.
#[derive(Debug)]
pub(super) struct Engine {
    kind: Kind,
    table: Table,
    /// What a replica that stopped following has.
    replica: Option<Table>,
    drift: Drift,
    /// How far the wall clock was stepped.
    stepped: i64,
    pub(super) service: Service,
    /// Connections do not outlive it.
    pub(super) epoch: u32,
    /// Connections on which the clock has been read for a fence, by client and life, and name.
    checked: BTreeSet<(usize, u32, Name)>,
    /// Names granted since the counters were last lost.
    counted: BTreeSet<Name>,
    /// The highest fence ever: what a durable counter stands at.
    highest: u64,
    pub(super) places: Places,
    mistake: Mistake,
    /// For [`Mistake::FenceRepeated`].
    first: BTreeMap<(String, Name), Fence>,
    /// For [`Mistake::LastComeFirstServed`]: the last to queue.
    last_come: BTreeMap<Name, Token>,
}

impl Engine {
    pub(super) fn new(kind: Kind, drift: Drift, mistake: Mistake) -> Self {
        Self {
            kind,
            table: Table::default(),
            replica: None,
            drift,
            stepped: 0,
            service: Service::Serving,
            epoch: 0,
            checked: BTreeSet::new(),
            counted: BTreeSet::new(),
            highest: 0,
            places: Places::default(),
            mistake,
            first: BTreeMap::new(),
            last_come: BTreeMap::new(),
        }
    }

    /// What its clock shows.
    fn clock(&self, at: Nanos) -> Moment {
        let shown = self.drift.read(at);
        let by = Duration::from_nanos(self.stepped.unsigned_abs());
        if self.stepped < 0 { shown - by } else { shown + by }
    }

    fn micros(&self, at: Nanos) -> u64 {
        1_700_000_000_000_000 + self.clock(at).as_nanos() / 1_000
    }

    /// Why a message is turned away at the door, if it is.
    pub(super) fn turned_away(&self, verb: &Verb, at: Nanos) -> Option<Reply> {
        let cause = match self.service {
            Service::Serving | Service::Silent => return None,
            Service::Refusing => Cause::Unreachable,
            Service::ReadOnly => Cause::ReadOnly,
            Service::Loading => Cause::Overloaded,
            Service::Full if self.takes_room(verb, at) => Cause::Overloaded,
            Service::Full => return None,
        };
        Some(Reply::Failed {
            cause,
            unknown: false,
        })
    }

    /// A server that is out of memory refuses it. Redis refuses a tombstone too, unless the script has freed something before.
    fn takes_room(&self, verb: &Verb, at: Nanos) -> bool {
        match verb {
            Verb::Ask(_) => true,
            Verb::Renew(_) => false,
            Verb::Release(giving) => {
                let now = self.clock(at);
                let lease = self.table.inspect(&giving.name, now);
                // Where someone waits the script leaves the queue first.
                let waited = lease
                    .and_then(|lease| lease.waiters)
                    .is_some_and(|waiters| waiters > 0);
                let buries = giving.tombstone.is_some() && !waited;
                self.kind == Kind::Redis && buries && !self.ends(giving, now)
            }
        }
    }

    /// Carries out a message; answers with whom to wake.
    pub(super) fn apply(
        &mut self,
        verb: &Verb,
        from: (usize, u32),
        at: Nanos,
        alive: impl Fn(&Token) -> bool,
    ) -> (Reply, Option<Token>) {
        match verb {
            Verb::Ask(ask) => (self.ask(ask, from, at), None),
            Verb::Renew(batch) => {
                let renewed = batch.iter().map(|renewal| self.renew(renewal, at)).collect();
                (Reply::Renewed(renewed), None)
            }
            Verb::Release(giving) => self.release(giving, at, alive),
        }
    }

    fn ask(&mut self, ask: &Ask, from: (usize, u32), at: Nanos) -> Reply {
        let now = self.clock(at);
        let mut ask = ask.clone();
        if self.mistake == Mistake::ShortLease {
            ask.lock_delay = Duration::ZERO;
            ask.ttl = Ttl::new(ask.ttl.get() / 2).unwrap_or(ask.ttl);
        }
        let wire = (from.0, from.1, ask.name.clone());
        let micros = match (self.mistake, self.kind) {
            (Mistake::CounterWithoutFloor, _) => {
                ask.floor = None;
                0
            }
            (_, Kind::Sqlite) => self.micros(at).max(self.highest + 1),
            (_, Kind::Redis) if self.checked.contains(&wire) && self.counted.contains(&ask.name) => 0,
            (_, Kind::Redis) => self.micros(at),
        };
        self.places.asks(&ask, from);
        if self.mistake == Mistake::LastComeFirstServed && ask.queue.is_some() {
            self.last_come.insert(ask.name.clone(), ask.token.clone());
        }
        let answer = match self.table.acquire(&ask, now, micros) {
            Ok(answer) => answer,
            Err(failure) => return Reply::of(&failure),
        };
        let Answer::Granted(mut grant) = answer else {
            return Reply::Asked(answer);
        };
        self.places.over(&ask.token);
        self.checked.insert(wire);
        self.counted.insert(ask.name.clone());
        self.highest = self.highest.max(grant.fence.get());
        if self.mistake == Mistake::FenceRepeated {
            let owner = (ask.token.holder().to_owned(), ask.name);
            grant.fence = *self.first.entry(owner).or_insert(grant.fence);
        }
        Reply::Asked(Answer::Granted(grant))
    }

    fn renew(&mut self, renewal: &Renewal, at: Nanos) -> Renewed {
        let now = self.clock(at);
        match self.mistake {
            Mistake::RenewWithoutComparing => match self.table.inspect(&renewal.name, now) {
                Some(_) => Renewed::Extended { was_left: None },
                None => Renewed::NotOwned,
            },
            Mistake::ShortLease => {
                let mut short = renewal.clone();
                short.lock_delay = Duration::ZERO;
                short.ttl = Ttl::new(renewal.ttl.get() / 2).unwrap_or(renewal.ttl);
                self.table.renew(&short, now)
            }
            _ => self.table.renew(renewal, now),
        }
    }

    fn release(
        &mut self,
        giving: &Giving,
        at: Nanos,
        alive: impl Fn(&Token) -> bool,
    ) -> (Reply, Option<Token>) {
        let now = self.clock(at);
        let (mut giving, mistake) = (giving.clone(), self.mistake);
        self.places.gives(&giving);
        match mistake {
            Mistake::ReleaseWithoutComparing => {
                if let Some(fence) = self
                    .table
                    .inspect(&giving.name, now)
                    .and_then(|lease| lease.fence)
                {
                    giving.claim = Claim::Seen(fence);
                }
            }
            Mistake::NoTombstone => giving.tombstone = None,
            Mistake::UndoRenews if giving.tombstone.is_some() && self.renew_instead(&giving, now) => {
                return (Reply::Given(Given::Released), None);
            }
            Mistake::PlaceStays if giving.tombstone.is_some() && !self.ends(&giving, now) => {
                return (Reply::Given(Given::NotOwned), None);
            }
            _ => {}
        }
        let micros = match (self.mistake, self.kind) {
            (Mistake::CounterWithoutFloor, _) => 0,
            (_, Kind::Redis) => self.micros(at),
            (_, Kind::Sqlite) => self.micros(at).max(self.highest + 1),
        };
        // Redis publishes and counts who heard; SQLite finds the waiter's mailbox, or does not.
        let dead_too = self.mistake == Mistake::DeadWaiterKeepsLease;
        let served = self.last_come.get(&giving.name).cloned();
        let reached =
            |token: &Token| (dead_too || alive(token)) && served.as_ref().is_none_or(|last| last == token);
        let (given, woken) = self.table.release(&giving, now, micros, reached);
        if let Some(token) = &woken {
            let fence = self
                .table
                .inspect(&giving.name, now)
                .and_then(|lease| lease.fence);
            self.highest = self.highest.max(fence.map_or(0, Fence::get));
            self.counted.insert(giving.name.clone());
            if dead_too {
                let confirm = Ask::new(giving.name.clone(), token.clone(), Ttl::MAX);
                let _ = self.table.acquire(&confirm, now, micros);
            }
        }
        (Reply::Given(given), woken)
    }

    /// This ends a lease, and is not only a precaution.
    fn ends(&self, giving: &Giving, now: Moment) -> bool {
        let (given, _) = self.table.clone().release(giving, now, 0, |_| false);
        given == Given::Released
    }

    /// For [`Mistake::UndoRenews`].
    fn renew_instead(&mut self, giving: &Giving, now: Moment) -> bool {
        let lease = self.table.inspect(&giving.name, now);
        let (Claim::Owner(token), Some(fence)) = (&giving.claim, lease.and_then(|lease| lease.fence)) else {
            return false;
        };
        let Ok(ttl) = Ttl::new(Duration::from_secs(10)) else {
            return false;
        };
        let renewal = Renewal {
            name: giving.name.clone(),
            token: token.clone(),
            fence,
            ttl,
            lock_delay: Duration::ZERO,
        };
        matches!(self.table.renew(&renewal, now), Renewed::Extended { .. })
    }

    /// The live lease of a name.
    pub(super) fn lease(&self, name: &Name, at: Nanos) -> Option<Lease> {
        self.table.inspect(name, self.clock(at))
    }

    /// All live leases.
    pub(super) fn leases(&self, at: Nanos) -> Vec<Lease> {
        self.table.list("", usize::MAX, self.clock(at)).leases
    }

    /// Places of those who wait no more, now that nobody does.
    pub(super) fn waiters(&self, at: Nanos, lives: impl Fn((usize, u32)) -> bool) -> u64 {
        self.places.kept(&self.table, self.clock(at), lives)
    }

    /// A flush, or a restart without persistence.
    pub(super) fn flush(&mut self) {
        self.table.lose_everything();
        self.places.forget();
        self.counted.clear();
    }

    /// The replica stops following.
    pub(super) fn lag(&mut self) {
        self.replica = Some(self.table.clone());
    }

    /// The replica takes over; every connection is gone.
    pub(super) fn fail_over(&mut self) {
        self.table = self.replica.take().unwrap_or_default();
        self.places.forget();
        self.disconnect();
    }

    /// Every connection is gone.
    pub(super) fn disconnect(&mut self) {
        self.epoch += 1;
        self.checked.clear();
    }

    /// Another boot: all leases are void, the fences go on.
    pub(super) fn reboot(&mut self) {
        self.table.lose_everything();
        self.places.forget();
        self.disconnect();
    }

    /// The wall clock is stepped.
    pub(super) fn step(&mut self, by: i64) {
        self.stepped += by;
    }
}

#[cfg(test)]
mod tests {
    use leasehold_core::Holder;
    use leasehold_core::rng::SeededRandom;

    use super::*;

    /// As `release.lua` does: an undo that ends a lease frees memory before its tombstone takes some; one that ends
    /// nothing would only take some.
    #[test]
    fn out_of_memory_only_an_undo_that_ends_something_is_taken() {
        let name = Name::new("sim:0").unwrap();
        let token = |seed| Token::fresh(&Holder::new("c0.1").unwrap(), "c0", &SeededRandom::new(seed));
        let undo = |token: &Token| Verb::Release(Giving::undo(name.clone(), token.clone()));
        for kind in [Kind::Redis, Kind::Sqlite] {
            let mut engine = Engine::new(kind, Drift { offset: 0, rate: 0 }, Mistake::Nothing);
            let (owner, other) = (token(1), token(2));
            let ask = Ask::new(name.clone(), owner.clone(), Ttl::MAX);
            engine.apply(&Verb::Ask(ask), (0, 1), 0, |_| true);
            engine.service = Service::Full;
            assert!(engine.turned_away(&undo(&owner), 0).is_none(), "{kind:?}");
            let refused = engine.turned_away(&undo(&other), 0).is_some();
            assert_eq!(refused, kind == Kind::Redis, "{kind:?}");
        }
    }
}

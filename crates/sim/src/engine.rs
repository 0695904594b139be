//! The store's side: the reference table plus the behaviour of a real engine.
//!
//! How the engine behaves is the store's [`SimProfile`]: the clock that ends leases, what keeps fences
//! growing, and what a full store refuses. Which faults it meets is in `fault`.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use leasehold_core::clock::Moment;
use leasehold_core::memory::LeaseTable;
use leasehold_core::store::{
    AcquireRequest, AcquireResponse, Lease, ReleaseAuthority, ReleaseRequest, ReleaseResponse, RenewRequest,
    RenewResponse, StoreError, StoreErrorKind,
};
use leasehold_core::testbed::{FenceSource, SimProfile};
use leasehold_core::{Fence, Name, Token, Ttl};

use super::drift::{ClockDrift, Nanos};
use super::mistake::Mistake;
use super::queue_entries::QueueEntries;

/// A request to the store.
#[derive(Debug, Clone)]
pub(super) enum StoreRequest {
    Acquire(AcquireRequest),
    Renew(Vec<RenewRequest>),
    Release(ReleaseRequest),
}

/// The store's response, or the error of the connection to it.
#[derive(Debug, Clone)]
pub(super) enum StoreReply {
    Acquire(AcquireResponse),
    Renew(Vec<RenewResponse>),
    Release(ReleaseResponse),
    Failed { cause: StoreErrorKind, unknown: bool },
}

impl StoreReply {
    fn from_error(failure: &StoreError) -> Self {
        Self::Failed { cause: failure.kind, unknown: failure.unknown }
    }
}

/// How the store treats requests that reach it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum StoreHealth {
    Serving,
    /// Connections are refused: definitely not done.
    Refusing,
    /// No response is sent.
    Silent,
    /// A replica: definitely not done.
    ReadOnly,
    /// Loading its data: definitely not done.
    Loading,
    /// Out of memory or disk. Requests that need space are refused; renewals and releases work.
    Full,
}

/// The simulated store.
#[derive(Debug)]
pub(super) struct Engine {
    profile: SimProfile,
    table: LeaseTable,
    // The replica's data since it stopped following; it takes over at a fail-over.
    replica: Option<LeaseTable>,
    pub(super) drift: ClockDrift,
    // Sum of all steps of the wall clock, in nanoseconds.
    clock_step: i64,
    pub(super) health: StoreHealth,
    // Changes when all connections are lost: a request of an older epoch does not arrive.
    pub(super) epoch: u32,
    // Connections (client, life) on which the clock was already read for the fence of a name.
    clock_read_on: BTreeSet<(usize, u32, Name)>,
    // Names granted since the counters were last lost.
    counted_names: BTreeSet<Name>,
    // The highest fence ever issued: the value of a durable counter.
    highest_fence: u64,
    pub(super) queue_entries: QueueEntries,
    mistake: Mistake,
    // Used by `Mistake::FenceRepeated` only.
    first_fences: BTreeMap<(String, Name), Fence>,
    // Used by `Mistake::LastComeFirstServed` only: the latest token in each queue.
    last_waiter: BTreeMap<Name, Token>,
}

impl Engine {
    pub(super) fn new(profile: SimProfile, drift: ClockDrift, mistake: Mistake) -> Self {
        Self {
            profile,
            table: LeaseTable::default(),
            replica: None,
            drift,
            clock_step: 0,
            health: StoreHealth::Serving,
            epoch: 0,
            clock_read_on: BTreeSet::new(),
            counted_names: BTreeSet::new(),
            highest_fence: 0,
            queue_entries: QueueEntries::default(),
            mistake,
            first_fences: BTreeMap::new(),
            last_waiter: BTreeMap::new(),
        }
    }

    /// The store's clock at a true time.
    fn clock_at(&self, at: Nanos) -> Moment {
        let shown = self.drift.read(at);
        let by = Duration::from_nanos(self.clock_step.unsigned_abs());
        if self.clock_step < 0 { shown - by } else { shown + by }
    }

    fn clock_micros(&self, at: Nanos) -> u64 {
        // An arbitrary date in 2023: real fences are microseconds since 1970.
        1_700_000_000_000_000 + self.clock_at(at).as_nanos() / 1_000
    }

    /// The error for a request that the store rejects before it executes it.
    pub(super) fn rejection(&self, verb: &StoreRequest, at: Nanos) -> Option<StoreReply> {
        let cause = match self.health {
            StoreHealth::Serving | StoreHealth::Silent => return None,
            StoreHealth::Refusing => StoreErrorKind::Unreachable,
            StoreHealth::ReadOnly => StoreErrorKind::ReadOnly,
            StoreHealth::Loading => StoreErrorKind::Overloaded,
            StoreHealth::Full if self.needs_memory(verb, at) => StoreErrorKind::Overloaded,
            StoreHealth::Full => return None,
        };
        Some(StoreReply::Failed { cause, unknown: false })
    }

    /// Whether a store without free memory rejects the request.
    fn needs_memory(&self, verb: &StoreRequest, at: Nanos) -> bool {
        match verb {
            StoreRequest::Acquire(_) => true,
            // Some stores refuse a write that comes before one that frees memory. A tombstone is such a
            // write, unless the release has ended a lease before.
            StoreRequest::Renew(_) => false,
            StoreRequest::Release(request) => {
                let now = self.clock_at(at);
                let lease = self.table.inspect(request.names.first(), now);
                // With waiters, the release removes a queue entry first, which frees memory.
                let waited = lease.and_then(|lease| lease.waiters).is_some_and(|waiters| waiters > 0);
                let buries = request.tombstone.is_some() && !waited;
                self.profile.refuses_tombstones_when_full && buries && !self.ends_lease(request, now)
            }
        }
    }

    /// Executes a request. Also returns the token of the waiter to wake.
    pub(super) fn apply(
        &mut self,
        verb: &StoreRequest,
        from: (usize, u32),
        at: Nanos,
        alive: impl Fn(&Token) -> bool,
    ) -> (StoreReply, Option<Token>) {
        match verb {
            StoreRequest::Acquire(request) => (self.acquire(request, from, at), None),
            StoreRequest::Renew(batch) => {
                let renewed = batch.iter().map(|renewal| self.renew(renewal, at)).collect();
                (StoreReply::Renew(renewed), None)
            }
            StoreRequest::Release(release) => self.release(release, at, alive),
        }
    }

    fn acquire(&mut self, request: &AcquireRequest, from: (usize, u32), at: Nanos) -> StoreReply {
        let now = self.clock_at(at);
        let mut request = request.clone();
        if self.mistake == Mistake::ShortLease {
            request.lock_delay = Duration::ZERO;
            request.ttl = Ttl::new(request.ttl.get() / 2).unwrap_or(request.ttl);
        }
        let wire = (from.0, from.1, request.names.first().clone());
        let micros = match (self.mistake, self.profile.fence_source) {
            (Mistake::CounterWithoutFloor, _) => {
                request.floor = None;
                0
            }
            // A durable counter never goes back, whatever the clock says.
            (_, FenceSource::DurableCounter) => self.clock_micros(at).max(self.highest_fence + 1),
            // A known connection and counter: the store does not read the clock again.
            (_, FenceSource::ServerClock)
                if self.clock_read_on.contains(&wire)
                    && self.counted_names.contains(request.names.first()) =>
            {
                0
            }
            (_, FenceSource::ServerClock) => self.clock_micros(at),
        };
        self.queue_entries.add(&request, from);
        if self.mistake == Mistake::LastComeFirstServed && request.queue.is_some() {
            self.last_waiter.insert(request.names.first().clone(), request.token.clone());
        }
        let answer = match self.table.acquire(&request, now, micros) {
            Ok(answer) => answer,
            Err(failure) => return StoreReply::from_error(&failure),
        };
        let AcquireResponse::Granted(mut grant) = answer else {
            return StoreReply::Acquire(answer);
        };
        self.queue_entries.leave(&request.token);
        self.clock_read_on.insert(wire);
        self.counted_names.insert(request.names.first().clone());
        self.highest_fence = self.highest_fence.max(grant.fence.get());
        if self.mistake == Mistake::FenceRepeated {
            let owner = (request.token.holder().to_owned(), request.names.first().clone());
            grant.fence = *self.first_fences.entry(owner).or_insert(grant.fence);
        }
        StoreReply::Acquire(AcquireResponse::Granted(grant))
    }

    fn renew(&mut self, renewal: &RenewRequest, at: Nanos) -> RenewResponse {
        let now = self.clock_at(at);
        match self.mistake {
            Mistake::RenewWithoutComparing => match self.table.inspect(renewal.names.first(), now) {
                Some(_) => RenewResponse::extended(None),
                None => RenewResponse::NotOwned,
            },
            Mistake::RenewRevives if self.table.inspect(renewal.names.first(), now).is_none() => {
                let request = AcquireRequest::new(renewal.names.clone(), renewal.token.clone(), renewal.ttl);
                match self.table.acquire(&request, now, self.clock_micros(at)) {
                    Ok(AcquireResponse::Granted(_)) => RenewResponse::extended(None),
                    _ => RenewResponse::NotOwned,
                }
            }
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
        request: &ReleaseRequest,
        at: Nanos,
        alive: impl Fn(&Token) -> bool,
    ) -> (StoreReply, Option<Token>) {
        let now = self.clock_at(at);
        let (mut request, mistake) = (request.clone(), self.mistake);
        self.queue_entries.release(&request);
        match mistake {
            Mistake::ReleaseWithoutComparing => {
                if let Some(fence) =
                    self.table.inspect(request.names.first(), now).and_then(|lease| lease.fence)
                {
                    request.authority = ReleaseAuthority::Operator(fence);
                }
            }
            Mistake::NoTombstone => request.tombstone = None,
            Mistake::UndoRenews if request.tombstone.is_some() && self.renew_instead(&request, now) => {
                return (StoreReply::Release(ReleaseResponse::Released), None);
            }
            Mistake::PlaceStays if request.tombstone.is_some() && !self.ends_lease(&request, now) => {
                return (StoreReply::Release(ReleaseResponse::NotOwned), None);
            }
            _ => {}
        }
        let micros = match (self.mistake, self.profile.fence_source) {
            (Mistake::CounterWithoutFloor, _) => 0,
            (_, FenceSource::ServerClock) => self.clock_micros(at),
            (_, FenceSource::DurableCounter) => self.clock_micros(at).max(self.highest_fence + 1),
        };
        // Redis publishes and counts the receivers. SQLite looks for the waiter's wake-up socket.
        let dead_too = self.mistake == Mistake::DeadWaiterKeepsLease;
        let served = self.last_waiter.get(request.names.first()).cloned();
        let reached =
            |token: &Token| (dead_too || alive(token)) && served.as_ref().is_none_or(|last| last == token);
        let (given, woken) = self.table.release(&request, now, micros, reached);
        if let Some(token) = &woken {
            let fence = self.table.inspect(request.names.first(), now).and_then(|lease| lease.fence);
            self.highest_fence = self.highest_fence.max(fence.map_or(0, Fence::get));
            self.counted_names.insert(request.names.first().clone());
            if dead_too {
                // Confirm in the dead waiter's name, so that the lease is not passed on.
                let confirm = AcquireRequest::new(request.names.clone(), token.clone(), Ttl::MAX);
                let _ = self.table.acquire(&confirm, now, micros);
            }
        }
        let denied = self.mistake == Mistake::ReleaseDenied;
        (StoreReply::Release(if denied { ReleaseResponse::NotOwned } else { given }), woken)
    }

    /// Whether the release ends a live lease, rather than only leaving a tombstone.
    fn ends_lease(&self, request: &ReleaseRequest, now: Moment) -> bool {
        let (given, _) = self.table.clone().release(request, now, 0, |_| false);
        given == ReleaseResponse::Released
    }

    /// Extends the lease that an undo should end; for [`Mistake::UndoRenews`].
    fn renew_instead(&mut self, request: &ReleaseRequest, now: Moment) -> bool {
        let lease = self.table.inspect(request.names.first(), now);
        let (ReleaseAuthority::Owner(token), Some(fence)) =
            (&request.authority, lease.and_then(|lease| lease.fence))
        else {
            return false;
        };
        let Ok(ttl) = Ttl::new(Duration::from_secs(10)) else {
            return false;
        };
        let renewal = RenewRequest::new(request.names.clone(), token.clone(), fence, ttl);
        matches!(self.table.renew(&renewal, now), RenewResponse::Extended { .. })
    }

    pub(super) fn lease(&self, name: &Name, at: Nanos) -> Option<Lease> {
        self.table.inspect(name, self.clock_at(at))
    }

    pub(super) fn leases(&self, at: Nanos) -> Vec<Lease> {
        self.table.list("", usize::MAX, self.clock_at(at)).leases
    }

    /// Queue entries of waiters that have left; called when no client waits any more.
    pub(super) fn stale_waiters(&self, at: Nanos, lives: impl Fn((usize, u32)) -> bool) -> u64 {
        self.queue_entries.count_stale(&self.table, self.clock_at(at), lives)
    }

    /// Loses all data, as a flush or a restart without persistence does.
    pub(super) fn lose_everything(&mut self) {
        self.table.clear_all_data();
        self.queue_entries.store_lost_data();
        self.counted_names.clear();
    }

    /// The replica stops following.
    pub(super) fn freeze_replica(&mut self) {
        self.replica = Some(self.table.clone());
    }

    /// The replica takes over, and every connection is lost.
    pub(super) fn fail_over(&mut self) {
        self.table = self.replica.take().unwrap_or_default();
        self.queue_entries.store_lost_data();
        self.disconnect();
    }

    /// Every connection is lost.
    pub(super) fn disconnect(&mut self) {
        self.epoch += 1;
        self.clock_read_on.clear();
    }

    /// A reboot voids all leases; the fence counter survives.
    pub(super) fn reboot(&mut self) {
        self.table.clear_all_data();
        self.queue_entries.store_lost_data();
        self.disconnect();
    }

    /// Steps the wall clock.
    pub(super) fn step_clock(&mut self, by: i64) {
        self.clock_step += by;
    }
}

#[cfg(test)]
mod tests {
    use leasehold_core::Holder;
    use leasehold_core::rng::SeededRandom;

    use super::*;

    /// As in `release.lua`: an undo that ends a lease frees memory before its tombstone needs some. An
    /// undo that ends nothing only needs memory.
    #[test]
    fn a_full_redis_accepts_only_undos_that_end_a_lease() {
        let name = Name::new("sim:0").unwrap();
        let token = |seed| Token::fresh(&Holder::new("c0.1").unwrap(), "c0", &SeededRandom::new(seed));
        let undo = |token: &Token| StoreRequest::Release(ReleaseRequest::undo(name.clone(), token.clone()));
        for profile in leasehold::sim_profiles() {
            let kind = profile.name;
            let mut engine = Engine::new(profile, ClockDrift { offset: 0, rate_ppm: 0 }, Mistake::Nothing);
            let (owner, other) = (token(1), token(2));
            let request = AcquireRequest::new(name.clone(), owner.clone(), Ttl::MAX);
            engine.apply(&StoreRequest::Acquire(request), (0, 1), 0, |_| true);
            engine.health = StoreHealth::Full;
            assert!(engine.rejection(&undo(&owner), 0).is_none(), "{kind}");
            let refused = engine.rejection(&undo(&other), 0).is_some();
            assert_eq!(refused, kind == "redis", "{kind}");
        }
    }
}

//! Measures orphans: leases that stand in the store although their acquire ended without a hold.
//!
//! The client undoes an orphan as soon as it can reach the store. Otherwise the orphan expires.
//!
//! A task runs one acquire at a time under its own class. So a request under that class, sent while
//! the acquire runs, belongs to the acquire. A request sent between two acquires belongs to a hold
//! that re-acquires its lease.
//!
//! How long an orphan stands depends on faults of client and store. How soon it is undone once that
//! is possible depends on the client alone. For that, time counts only while the client runs and the
//! store serves it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use leasehold_core::store::{AcquireRequest, HANDOVER_CLAIM_TTL, Lease, ReleaseAuthority, ReleaseRequest};
use leasehold_core::{Fence, Name, Token};

use super::drift::{MS, Nanos, SEC};
use super::engine::StoreRequest;
use super::reachability::Reachability;
use super::world::WorldState;

/// How long orphans stood.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct OrphanStats {
    /// Number of orphans.
    pub count: u64,
    /// Orphans that were gone within a second.
    pub gone_within_second: u64,
    /// Orphans that were undone, or could have been undone for more than a second and were not.
    pub undoable: u64,
    /// Orphans that were undone within one second in which that was possible.
    pub undone_in_time: u64,
    /// Orphans older than TTL, lock delay and margin allow.
    pub overdue: u64,
    /// Age of the oldest orphan and its allowed age, in nanoseconds.
    pub oldest: (u64, u64),
}

impl OrphanStats {
    /// Adds the numbers of another history.
    pub fn add(&mut self, other: Self) {
        self.count += other.count;
        self.gone_within_second += other.gone_within_second;
        self.undoable += other.undoable;
        self.undone_in_time += other.undone_in_time;
        self.overdue += other.overdue;
        self.oldest = self.oldest.max(other.oldest);
    }

    /// Adds one orphan: its age, how long it could be undone, and whether it was.
    fn add_orphan(&mut self, age: Nanos, allowed: Nanos, (open, undone): (Nanos, bool)) {
        self.add(Self {
            count: 1,
            gone_within_second: u64::from(age <= SEC),
            undoable: u64::from(undone || open > SEC),
            undone_in_time: u64::from(undone && open <= SEC),
            overdue: u64::from(age > allowed),
            oldest: (age, allowed),
        });
    }
}

/// A process: its host, and its life number on that host.
pub type ProcessLife = (usize, u32);

/// Identifies an acquire: host, life, class.
pub type AcquireKey<'a> = (usize, u32, &'a str);

/// How the acquire that sent a request ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum AcquireEnd {
    // Still running.
    Running,
    // With a hold, which releases its lease itself.
    Held,
    // Without a hold, at this time.
    WithoutHold(Nanos),
}

/// The requests of one token.
#[derive(Debug)]
struct TokenRequests {
    slot: usize,
    life: u32,
    class: String,
    // The longest time that the store was asked to keep the lease.
    kept: Duration,
    end: AcquireEnd,
    // The store has executed an undo of it.
    undone: bool,
}

/// A live lease in the store.
#[derive(Debug)]
struct StandingLease {
    fence: Fence,
    // Time of the latest grant or repeated grant.
    granted_at: Nanos,
    // When it expires without a further request.
    expires_at: Nanos,
}

/// A lease that the store granted.
#[derive(Debug)]
struct LeaseGrant {
    // The random part of its token.
    token: String,
    // The process that sent the latest request for it.
    by: ProcessLife,
    // The client has no reason to undo it. Either a repeated message was granted the lease, or the
    // store has lost the record of the undo.
    excused: bool,
}

/// Tracks requests, grants and leases of one history.
#[derive(Debug, Default)]
pub struct OrphanTracker {
    // Acquires that have begun and not ended.
    running_acquires: BTreeSet<(usize, u32, String)>,
    // By the random part of the token.
    requests: BTreeMap<String, TokenRequests>,
    grants: BTreeMap<(Name, Fence), LeaseGrant>,
    standing: BTreeMap<Name, StandingLease>,
    // Sum of the store's steps back: every lease lasts that much longer.
    pub(super) clock_stepped_back: Nanos,
    /// When each client could reach the store.
    pub reachability: Reachability,
    // Lives of daemons that ended with pending work, killed ones included.
    pub(super) unfinished_daemons: BTreeSet<ProcessLife>,
    /// The orphans counted so far.
    pub stats: OrphanStats,
}

impl OrphanTracker {
    /// An acquire request is sent.
    pub fn request_sent(&mut self, slot: usize, life: u32, request: &AcquireRequest) {
        let token = &request.token;
        let class = token.class().to_owned();
        let client = (slot, life, class.clone());
        let under_way = self.running_acquires.contains(&client);
        let entry = self.requests.entry(token.random().to_owned());
        let entry = entry.or_insert_with(|| TokenRequests {
            slot,
            life,
            class,
            kept: HANDOVER_CLAIM_TTL,
            // Outside an acquire the request re-acquires the lease of a hold.
            end: if under_way { AcquireEnd::Running } else { AcquireEnd::Held },
            undone: false,
        });
        entry.kept = entry.kept.max(request.store_ttl());
    }

    fn end_requests(&mut self, of: impl Fn(&TokenRequests) -> bool, end: AcquireEnd) {
        let open = self.requests.values_mut().filter(|entry| entry.end == AcquireEnd::Running);
        open.filter(|entry| of(entry)).for_each(|entry| entry.end = end);
    }

    /// An acquire begins.
    pub fn acquire_begins(&mut self, (slot, life, class): AcquireKey<'_>) {
        self.running_acquires.insert((slot, life, class.to_owned()));
    }

    /// An acquire ended, with a response or by cancellation.
    pub fn acquire_ends(&mut self, (slot, life, class): AcquireKey<'_>, held: bool, now: Nanos) {
        self.running_acquires.remove(&(slot, life, class.to_owned()));
        let mine =
            |entry: &TokenRequests| (entry.slot, entry.life, entry.class.as_str()) == (slot, life, class);
        self.end_requests(mine, if held { AcquireEnd::Held } else { AcquireEnd::WithoutHold(now) });
    }

    /// A process died, and with it all of its running acquires.
    pub fn process_dies(&mut self, slot: usize, now: Nanos) {
        self.running_acquires.retain(|(host, ..)| *host != slot);
        self.end_requests(|entry| entry.slot == slot, AcquireEnd::WithoutHold(now));
    }

    /// The store granted or handed over a lease. `again`: to a message it had already executed.
    pub fn lease_granted(
        &mut self,
        lease: (Name, Fence),
        token: &Token,
        (by, again): (ProcessLife, bool),
        now: Nanos,
    ) {
        let (name, fence) = lease.clone();
        let token = token.random();
        // The client hears of one undo per token; a grant after it means the store lost the tombstone.
        let given = self.requests.get(token).is_some_and(|entry| entry.undone);
        let grant = || LeaseGrant { token: token.to_owned(), by, excused: again || given };
        self.grants.entry(lease).or_insert_with(grant).by = by;
        if let Some(standing) = self.standing.get_mut(&name).filter(|one| one.fence == fence) {
            standing.granted_at = now;
        }
    }

    /// Whether the store granted this lease to this token.
    pub(super) fn is_owner(&self, name: &Name, fence: Fence, token: &Token) -> bool {
        self.grants.get(&(name.clone(), fence)).is_some_and(|grant| grant.token == token.random())
    }

    /// The store executed a release of this token, and the client will learn of it.
    pub fn lease_released(&mut self, token: &Token) {
        if let Some(entry) = self.requests.get_mut(token.random()) {
            entry.undone = true;
        }
    }

    /// The store has this lease of a name now, or none. `given` is the token just released, if any.
    pub fn observe_lease(&mut self, name: &Name, lease: Option<&Lease>, given: Option<&Token>, now: Nanos) {
        let lease = lease.and_then(|lease| Some((lease.fence?, lease.remaining?)));
        let due = lease.map_or(now, |(_, left)| now + u64::try_from(left.as_nanos()).unwrap_or(u64::MAX));
        let fence = lease.map(|(fence, _)| fence);
        if let Some(standing) = self.standing.get_mut(name) {
            if Some(standing.fence) == fence {
                standing.expires_at = due;
                return;
            }
            let (before, span) = (standing.fence, (standing.granted_at, standing.expires_at.min(now)));
            // A release that arrives after the expiry has undone nothing.
            let undone = given.filter(|_| now < standing.expires_at);
            self.standing.remove(name);
            self.lease_gone((name.clone(), before), span, undone);
        }
        if let Some(fence) = fence {
            let since = now;
            self.standing.insert(name.clone(), StandingLease { fence, granted_at: since, expires_at: due });
        }
    }

    fn lease_gone(&mut self, lease: (Name, Fence), (since, at): (Nanos, Nanos), given: Option<&Token>) {
        let Some(LeaseGrant { token, excused: unknown, .. }) = self.grants.get(&lease) else {
            return;
        };
        let Some(entry) = self.requests.get(token) else {
            return;
        };
        if let AcquireEnd::WithoutHold(ended) = entry.end
            && at > ended.max(since)
        {
            let from = ended.max(since);
            let kept = u64::try_from(entry.kept.as_nanos()).unwrap_or(u64::MAX);
            // Two clocks diverge by 1 %; the 100 ms are for rounding.
            let margin = kept / 100 + 100 * MS + self.clock_stepped_back;
            let open = self.reachability.time_between((entry.slot, entry.life), from, at);
            let undone = given.is_some_and(|given| given.random() == token);
            let open = if *unknown && !undone { 0 } else { open };
            self.stats.add_orphan(at - from, kept + margin, (open, undone));
        }
    }

    /// Accounts for all leases that still stand; called at the end.
    pub fn finish(&mut self, now: Nanos) {
        for (name, standing) in std::mem::take(&mut self.standing) {
            let span = (standing.granted_at, standing.expires_at.min(now));
            self.lease_gone((name, standing.fence), span, None);
        }
    }
}

impl WorldState {
    /// Compares the store's leases with the last known ones, after a request or a fault.
    pub(super) fn observe_leases(&mut self, verb: Option<&StoreRequest>) {
        let given = match verb {
            Some(StoreRequest::Release(ReleaseRequest {
                authority: ReleaseAuthority::Owner(token), ..
            })) => Some(token),
            _ => None,
        };
        if let Some(token) = given {
            self.orphans.lease_released(token);
        }
        for name in &self.names {
            let lease = self.engine.lease(name, self.now);
            self.orphans.observe_lease(name, lease.as_ref(), given, self.now);
        }
    }

    /// Whether a repeated message requested this lease, so that its client cannot know of it.
    pub(super) fn was_repeated(&self, lease: &Lease) -> bool {
        let token = lease.fence.and_then(|fence| self.orphans.grants.get(&(lease.name.clone(), fence)));
        // A repeated HTTP request cannot be matched to the daemon's own requests, so it excuses all.
        !self.daemon_network.repeated.is_empty()
            || token.is_some_and(|grant| self.store_network.repeated.contains(&grant.token))
    }

    /// Whether a daemon that ended with pending work requested this lease. No other process can undo it.
    pub(super) fn is_left_by_daemon(&self, lease: &Lease) -> bool {
        let granted = lease.fence.and_then(|fence| self.orphans.grants.get(&(lease.name.clone(), fence)));
        granted.is_some_and(|granted| self.orphans.unfinished_daemons.contains(&granted.by))
    }

    /// Records the current owner of a name, and the process that requested the lease.
    pub(super) fn record_owner(&mut self, name: &Name, token: &Token, requester: (ProcessLife, bool)) {
        let lease = self.engine.lease(name, self.now);
        if let Some(fence) = lease.and_then(|lease| lease.fence) {
            self.orphans.lease_granted((name.clone(), fence), token, requester, self.now);
        }
    }

    /// The orphans of this history.
    pub(super) fn orphan_stats(&mut self) -> OrphanStats {
        self.observe_leases(None);
        self.orphans.finish(self.now);
        self.orphans.stats
    }
}

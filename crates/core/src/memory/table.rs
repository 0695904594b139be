//! The reference semantics as a pure table: no lock, no clock, no task. Every store must behave
//! like this one. It serves exclusive leases of one name; its caller refuses other requests.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use crate::clock::Moment;
use crate::store::{
    AcquireRequest, AcquireResponse, BusyLease, Grant, HANDOVER_CLAIM_TTL, Lease, LeaseList,
    ReleaseAuthority, ReleaseRequest, ReleaseResponse, RenewRequest, RenewResponse, StoreError,
    StoreErrorKind,
};
use crate::types::{Fence, Name, Token};

// Names share fence counters, so that memory does not grow with the names. A shared counter only
// makes fences grow faster.
const FENCE_COUNTERS: usize = 256;

// The lease and the queue of one name.
#[derive(Debug, Default, Clone)]
struct NameRow {
    lease: Option<StoredLease>,
    // In order of arrival.
    queue: Vec<Waiter>,
}

#[derive(Debug, Clone)]
struct StoredLease {
    token: Token,
    fence: Fence,
    since: Moment,
    expires: Moment,
    // Granted to a waiter that has not confirmed it: it lives for the claim time, not for the TTL.
    unclaimed: bool,
}

#[derive(Debug, Clone)]
struct Waiter {
    token: Token,
    expires: Moment,
    // From the waiter's last request: a handover is a new grant, so its fence must be above the
    // floor too.
    floor: Option<Fence>,
}

/// The waiter that a release granted the lease to and that must be notified.
pub type WokenWaiter = Option<Token>;

/// All leases, waiters, tombstones and fence counters.
#[derive(Debug, Clone)]
pub struct LeaseTable {
    rows: BTreeMap<Name, NameRow>,
    // Undone tokens, with the end of their refusal.
    tombstones: HashMap<Token, Moment>,
    counters: Vec<u64>,
    claim_ttl: Duration,
}

impl Default for LeaseTable {
    fn default() -> Self {
        Self {
            rows: BTreeMap::new(),
            tombstones: HashMap::new(),
            counters: vec![0; FENCE_COUNTERS],
            claim_ttl: HANDOVER_CLAIM_TTL,
        }
    }
}

impl LeaseTable {
    /// See [`Store::acquire`](crate::store::Store::acquire). `micros` is the store's wall clock, a
    /// lower bound for new fences.
    ///
    /// # Errors
    /// The fence counter is exhausted.
    pub fn acquire(
        &mut self,
        request: &AcquireRequest,
        now: Moment,
        micros: u64,
    ) -> Result<AcquireResponse, StoreError> {
        let name = request.names.first();
        self.sweep(now);
        if self.tombstones.get(&request.token).is_some_and(|until| *until > now) {
            return Ok(AcquireResponse::Void);
        }
        let row = self.rows.entry(name.clone()).or_default();
        if let Some(held) = row.lease.as_mut().filter(|held| held.expires > now) {
            if held.token == request.token {
                let expires = now + request.store_ttl();
                // Never shorten the lease: a late retry may have been sent before the policy
                // lengthened the TTL. An unconfirmed handover takes the full TTL instead of its
                // claim time.
                held.expires = if held.unclaimed { expires } else { held.expires.max(expires) };
                held.unclaimed = false;
                row.queue.retain(|waiter| waiter.token != request.token);
                return Ok(AcquireResponse::Granted(Grant::new(held.fence)));
            }
            if let Some(keep) = request.queue {
                let expires = now + keep;
                // An expired registration has lost its position, even if no sweep has removed it
                // yet.
                row.queue.retain(|waiter| waiter.expires > now);
                match row.queue.iter_mut().find(|waiter| waiter.token == request.token) {
                    Some(waiter) => {
                        waiter.expires = expires;
                        waiter.floor = request.floor;
                    }
                    None => {
                        row.queue.push(Waiter { token: request.token.clone(), expires, floor: request.floor })
                    }
                }
            }
            let busy = BusyLease::new(held.token.holder())
                .with_class(held.token.class().to_owned())
                .with_fence(held.fence)
                .with_remaining(held.expires.since(now))
                .with_queued(request.queue.is_some());
            return Ok(AcquireResponse::Busy(busy));
        }
        // A free name goes to any requester, also past live waiters: the queue only orders
        // handovers.
        let fence = next_fence(&mut self.counters, name, micros, request.floor)?;
        row.queue.retain(|waiter| waiter.token != request.token);
        row.lease = Some(StoredLease {
            token: request.token.clone(),
            fence,
            since: now,
            expires: now + request.store_ttl(),
            unclaimed: false,
        });
        Ok(AcquireResponse::Granted(Grant::new(fence)))
    }

    /// See [`Store::renew`](crate::store::Store::renew).
    pub fn renew(&mut self, request: &RenewRequest, now: Moment) -> RenewResponse {
        let held = self.rows.get_mut(request.names.first()).and_then(|row| row.lease.as_mut());
        match held {
            Some(held)
                if held.token == request.token && held.fence == request.fence && held.expires > now =>
            {
                let was_left = held.expires.since(now);
                // Never shorten the lease, as in `acquire`.
                held.expires = held.expires.max(now + request.store_ttl());
                RenewResponse::extended(was_left)
            }
            _ => RenewResponse::NotOwned,
        }
    }

    /// See [`Store::release`](crate::store::Store::release). `alive` returns whether a waiter can
    /// still be notified.
    pub fn release(
        &mut self,
        request: &ReleaseRequest,
        now: Moment,
        micros: u64,
        mut alive: impl FnMut(&Token) -> bool,
    ) -> (ReleaseResponse, WokenWaiter) {
        // Before the lease is looked up: a tombstone is wanted most when there is no lease yet.
        if let (ReleaseAuthority::Owner(token), Some(keep)) = (&request.authority, request.tombstone) {
            self.tombstones.insert(token.clone(), now + keep);
        }
        let name = request.names.first();
        let Some(row) = self.rows.get_mut(name) else {
            return (ReleaseResponse::NotOwned, None);
        };
        if let ReleaseAuthority::Owner(token) | ReleaseAuthority::Waiter(token) = &request.authority {
            row.queue.retain(|waiter| waiter.token != *token);
        }
        let live = row.lease.as_ref().filter(|held| held.expires > now);
        let ours = live.is_some_and(|held| match &request.authority {
            ReleaseAuthority::Owner(token) => held.token == *token,
            ReleaseAuthority::Operator(fence) => held.fence == *fence,
            ReleaseAuthority::Waiter(_) => false,
        });
        if !ours {
            return (ReleaseResponse::NotOwned, None);
        }
        row.lease = None;
        let mut woken = None;
        while woken.is_none() && !row.queue.is_empty() {
            let waiter = row.queue.remove(0);
            if waiter.expires <= now || !alive(&waiter.token) {
                continue;
            }
            // An exhausted counter leaves the name free; the waiter gets the error from its next
            // request.
            let Ok(fence) = next_fence(&mut self.counters, name, micros, waiter.floor) else {
                break;
            };
            row.lease = Some(StoredLease {
                token: waiter.token.clone(),
                fence,
                since: now,
                expires: now + self.claim_ttl,
                unclaimed: true,
            });
            woken = Some(waiter.token);
        }
        if row.lease.is_none() && row.queue.is_empty() {
            self.rows.remove(name);
        }
        (ReleaseResponse::Released, woken)
    }

    /// Sets the time in which a waiter must confirm a handover.
    pub fn set_claim_ttl(&mut self, claim_ttl: Duration) {
        self.claim_ttl = claim_ttl;
    }

    /// The live lease of a name. See [`Store::inspect`](crate::store::Store::inspect).
    #[must_use]
    pub fn inspect(&self, name: &Name, now: Moment) -> Option<Lease> {
        self.rows.get(name).and_then(|row| visible_lease(name, row, now))
    }

    /// See [`Store::list`](crate::store::Store::list).
    #[must_use]
    pub fn list(&self, prefix: &str, limit: usize, now: Moment) -> LeaseList {
        let mut found = self
            .rows
            .iter()
            .filter(|(name, _)| name.as_str().starts_with(prefix))
            .filter_map(|(name, row)| visible_lease(name, row, now));
        let leases: Vec<_> = found.by_ref().take(limit).collect();
        LeaseList::new(leases).with_truncated(found.next().is_some())
    }

    /// Drops all data, like a flush or a fail-over to an empty replica.
    pub fn clear_all_data(&mut self) {
        *self = Self { claim_ttl: self.claim_ttl, ..Self::default() };
    }

    /// The numbers of rows, waiters and tombstones. They must return to the baseline after the work
    /// (L3).
    #[must_use]
    pub fn footprint(&self) -> (usize, usize, usize) {
        (self.rows.len(), self.rows.values().map(|row| row.queue.len()).sum(), self.tombstones.len())
    }

    // Removes a bounded number of expired entries per acquire, so that memory stays bounded without
    // a background task.
    fn sweep(&mut self, now: Moment) {
        // The eight entries that iteration yields first may all be live, so a full pass bounds the
        // map.
        if self.tombstones.len() >= 1024 {
            self.tombstones.retain(|_, until| *until > now);
        } else {
            let gone: Vec<_> = self
                .tombstones
                .iter()
                .take(8)
                .filter(|(_, until)| **until <= now)
                .map(|(token, _)| token.clone())
                .collect();
            gone.iter().for_each(|token| {
                self.tombstones.remove(token);
            });
        }
        let gone: Vec<_> = self
            .rows
            .iter()
            .take(8)
            .filter(|(_, row)| is_stale(row, now))
            .map(|(name, _)| name.clone())
            .collect();
        gone.iter().for_each(|name| {
            self.rows.remove(name);
        });
    }
}

fn is_stale(row: &NameRow, now: Moment) -> bool {
    row.lease.as_ref().is_none_or(|held| held.expires <= now)
        && row.queue.iter().all(|waiter| waiter.expires <= now)
}

fn visible_lease(name: &Name, row: &NameRow, now: Moment) -> Option<Lease> {
    let held = row.lease.as_ref().filter(|held| held.expires > now)?;
    let waiters = row.queue.iter().filter(|waiter| waiter.expires > now).count();
    Some(
        Lease::new(name.clone(), held.token.holder())
            .with_class(held.token.class().to_owned())
            .with_fence(held.fence)
            .with_remaining(held.expires.since(now))
            .with_age(now.since(held.since))
            .with_waiters(u64::try_from(waiters).ok()),
    )
}

// `max(last + 1, wall clock in microseconds, floor + 1)`: a store that lost its counter does not go
// back as long as its clock did not.
fn next_fence(
    counters: &mut [u64],
    name: &Name,
    micros: u64,
    floor: Option<Fence>,
) -> Result<Fence, StoreError> {
    let slot = counter_index(name, counters.len());
    let last = counters.get(slot).copied().unwrap_or(0);
    let next = (last + 1).max(micros).max(floor.map_or(0, |floor| floor.get().saturating_add(1)));
    let fence = Fence::new(next).ok_or_else(|| {
        StoreError::not_done(
            StoreErrorKind::Corrupt,
            format!("the fence counter stands at {last} and cannot grow"),
        )
    })?;
    if let Some(counter) = counters.get_mut(slot) {
        *counter = next;
    }
    Ok(fence)
}

// FNV-1a: stable between runs, and good enough to spread names.
fn counter_index(name: &Name, slots: usize) -> usize {
    let hash = name.as_str().bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    usize::try_from(hash % u64::try_from(slots.max(1)).unwrap_or(1)).unwrap_or(0)
}

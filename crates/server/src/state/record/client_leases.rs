//! Follows leases that clients renew themselves, so that feed, metrics and history include them.
//!
//! This table decides nothing; only the store knows who owns a lease. A lease that was granted
//! elsewhere, or before the daemon's restart, is noticed at its first renewal.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use leasehold::clock::Moment;
use leasehold::event::{EventKind, LeaseOp, Loss};
use leasehold::store::{
    AcquireRequest, AcquireResponse, ReleaseResponse, RenewRequest, RenewResponse, StoreError,
};
use leasehold::{Fence, HoldStatus, Holder, Name};
use leasehold_core::deadline::latest_expiry;
use leasehold_core::{Deadline, Token};
use leasehold_wire::ErrorCode;

use super::{EventSubject, Recorder};
use crate::problem::Refusal;
use crate::state::token_on_name::TokenOnName;

// Bounds memory. Beyond it, an administrator's leases and renewed ones are served all the same, but
// are not followed; new leases of others are refused.
const MAX_FOLLOWED_LEASES: usize = 200_000;

/// The followed leases, by token and name.
pub(crate) struct ClientLeases {
    recorder: Arc<Recorder>,
    table: Mutex<LeaseTable>,
    max_leases: usize,
}

#[derive(Default)]
struct LeaseTable {
    by_key: HashMap<TokenOnName, FollowedLease>,
    /// The number of leases of each identity. Entries at zero are removed.
    by_owner: HashMap<Arc<str>, usize>,
}

impl LeaseTable {
    fn insert(&mut self, key: TokenOnName, lease: FollowedLease, max_leases: usize) {
        if self.by_key.len() >= max_leases {
            return;
        }
        *self.by_owner.entry(Arc::clone(&lease.owner)).or_default() += 1;
        if let Some(before) = self.by_key.insert(key, lease) {
            self.count_out(&before.owner);
        }
    }

    fn remove(&mut self, key: &TokenOnName) -> Option<FollowedLease> {
        let lease = self.by_key.remove(key)?;
        self.count_out(&lease.owner);
        Some(lease)
    }

    fn retain(&mut self, keep: impl Fn(&FollowedLease) -> bool) {
        let mut owners = Vec::new();
        self.by_key.retain(|_, lease| {
            let stays = keep(lease);
            if !stays {
                owners.push(Arc::clone(&lease.owner));
            }
            stays
        });
        owners.iter().for_each(|owner| self.count_out(owner));
    }

    fn count_out(&mut self, owner: &str) {
        if let Some(leases) = self.by_owner.get_mut(owner) {
            *leases -= 1;
            if *leases == 0 {
                self.by_owner.remove(owner);
            }
        }
    }
}

struct FollowedLease {
    id: u64,
    /// The identity that acquired it, or renewed it first through this daemon.
    owner: Arc<str>,
    name: Name,
    class: String,
    holder: Holder,
    fence: Fence,
    since: Moment,
    /// When the lease ends in the store, as this daemon saw it.
    deadline: Deadline,
    /// The reason, if an operator has asked the holder to release.
    release_request: Option<String>,
}

impl FollowedLease {
    fn subject(&self) -> EventSubject<'_> {
        EventSubject {
            name: &self.name,
            class: &self.class,
            holder: &self.holder,
            fence: Some(self.fence),
            hold: self.id,
        }
    }

    /// A store never shortens a lease.
    fn extend(&mut self, to: Deadline) {
        self.deadline.proven_until = self.deadline.proven_until.max(to.proven_until);
    }
}

fn stored_until(now: Moment, kept: Duration) -> Deadline {
    Deadline::of_lease(latest_expiry(now, kept, Duration::ZERO))
}

impl ClientLeases {
    pub(crate) fn new(recorder: Arc<Recorder>) -> Self {
        Self { recorder, table: Mutex::default(), max_leases: MAX_FOLLOWED_LEASES }
    }

    /// Refuses a new lease of an identity that has as many as it may have. An identity without a
    /// limit (`usize::MAX`) is not refused either when no more leases can be followed.
    pub(crate) fn check_quota(&self, who: &str, key: &TokenOnName, quota: usize) -> Result<(), Refusal> {
        if quota == usize::MAX {
            return Ok(());
        }
        let table = self.table();
        // Only followed leases are counted, so more of them could not be limited at all.
        let all_full = table.by_key.len() >= self.max_leases;
        let full = table.by_owner.get(who).is_some_and(|leases| *leases >= quota);
        if !(full || all_full) || table.by_key.contains_key(key) {
            return Ok(());
        }
        Err(if full {
            Refusal::quota_reached("locks", quota)
        } else {
            let max = self.max_leases;
            let detail =
                format!("all clients of this daemon have {max} locks, as many as it counts; retry later");
            Refusal::new(ErrorCode::QuotaReached, detail).retry_after(Duration::from_secs(1))
        })
    }

    /// Whether this token holds a lease on this name that was granted or renewed here.
    pub(crate) fn knows(&self, key: &TokenOnName) -> bool {
        self.table().by_key.contains_key(key)
    }

    fn table(&self) -> MutexGuard<'_, LeaseTable> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records the outcome of an acquire.
    pub(crate) fn acquired(
        &self,
        who: &str,
        request: &AcquireRequest,
        answer: &Result<AcquireResponse, StoreError>,
        took: Duration,
        waited: bool,
        now: Moment,
    ) {
        let Some(holder) = holder(&request.token) else { return };
        let fence = match answer {
            Ok(AcquireResponse::Granted(grant)) => Some(grant.fence),
            _ => None,
        };
        // Id 0: without a grant there is no hold that later events could belong to.
        let about = |fence| EventSubject {
            name: request.names.first(),
            class: request.token.class(),
            holder: &holder,
            fence,
            hold: 0,
        };
        let what = match answer {
            Ok(AcquireResponse::Granted(grant)) => {
                let mut lease = FollowedLease {
                    id: 0,
                    owner: who.into(),
                    name: request.names.first().clone(),
                    class: request.token.class().to_owned(),
                    holder: holder.clone(),
                    fence: grant.fence,
                    since: now,
                    deadline: stored_until(now, grant.ttl.unwrap_or_else(|| request.store_ttl())),
                    release_request: None,
                };
                let key = TokenOnName::new(request.names.first(), &request.token);
                let mut table = self.table();
                if let Some(known) = table.by_key.get_mut(&key)
                    && known.fence == grant.fence
                {
                    // A repeated acquire returned the same grant: no new event.
                    known.extend(lease.deadline);
                    return;
                }
                lease.id = self.recorder.next_client_hold_id();
                let what = EventKind::Acquired { took, waited, takeover: None, behind_debt: None };
                self.recorder.record(&lease.subject(), what);
                table.insert(key, lease, self.max_leases);
                return;
            }
            // A queued waiter will ask again or withdraw; only the final outcome is an event.
            Ok(AcquireResponse::Busy(busy)) if busy.queued => return,
            Ok(AcquireResponse::Busy(busy)) => {
                EventKind::Busy { took, holder: busy.holder.clone(), held_here: false }
            }
            Ok(_) => return,
            Err(failure) => EventKind::Unavailable { took, cause: failure.kind },
        };
        self.recorder.record(&about(fence), what);
    }

    /// Records the result of a renewal. Returns the reason if an operator has asked the holder to
    /// release.
    pub(crate) fn renewed(
        &self,
        who: &str,
        renewal: &RenewRequest,
        result: &Result<RenewResponse, StoreError>,
        took: Duration,
        now: Moment,
    ) -> Option<String> {
        let mut table = self.table();
        let key = TokenOnName::new(renewal.names.first(), &renewal.token);
        let known = table.by_key.get(&key).is_some_and(|lease| lease.fence == renewal.fence);
        if !known {
            // Granted elsewhere or before a restart. Follow it from now on, if the store confirms
            // that it is owned.
            let mut lease = lease_from_renewal(who, renewal, now)?;
            if !matches!(result, Ok(RenewResponse::Extended { .. })) {
                lease.id = 0;
                self.record_renew_failure(&lease.subject(), result);
                return None;
            }
            lease.id = self.recorder.next_client_hold_id();
            self.recorder.record(&lease.subject(), EventKind::Resumed { age: Duration::ZERO });
            table.insert(key.clone(), lease, self.max_leases);
        }
        let lease = table.by_key.get_mut(&key)?;
        match result {
            Ok(RenewResponse::Extended { .. }) => {
                let left = lease.deadline.remaining(now).as_secs_f64() / renewal.store_ttl().as_secs_f64();
                lease.extend(stored_until(now, renewal.store_ttl()));
                let what = EventKind::Renewed { left: left.clamp(0.0, 1.0), took };
                self.recorder.record(&lease.subject(), what);
                lease.release_request.clone()
            }
            Ok(RenewResponse::NotOwned) => {
                self.record_renew_failure(&lease.subject(), result);
                let what = EventKind::Abandoned { reason: Loss::NotOwned, held: now.since(lease.since) };
                self.recorder.record(&lease.subject(), what);
                table.remove(&key);
                None
            }
            Err(_) => {
                self.record_renew_failure(&lease.subject(), result);
                None
            }
        }
    }

    fn record_renew_failure(&self, about: &EventSubject<'_>, result: &Result<RenewResponse, StoreError>) {
        let what = match result {
            Err(failure) => EventKind::RenewFailed { failures: 1, unknown: failure.unknown },
            Ok(_) => EventKind::NotOwned { op: LeaseOp::Renew },
        };
        self.recorder.record(about, what);
    }

    /// Records the result of a release. With `undo` the lease may never have been granted, so *not
    /// owned* is no event.
    pub(crate) fn released(
        &self,
        name: &Name,
        token: &Token,
        given: ReleaseResponse,
        undo: bool,
        now: Moment,
    ) {
        let lease = self.table().remove(&TokenOnName::new(name, token));
        match (lease, given) {
            (Some(lease), ReleaseResponse::Released) => {
                let held = now.since(lease.since);
                self.recorder.record(&lease.subject(), EventKind::Released { held, attempts: 1 });
            }
            (Some(lease), ReleaseResponse::NotOwned) => {
                let held = now.since(lease.since);
                let about = lease.subject();
                self.recorder.record(&about, EventKind::NotOwned { op: LeaseOp::Release });
                self.recorder.record(&about, EventKind::AlreadyLost { held });
            }
            (None, ReleaseResponse::NotOwned) if !undo => {
                if let Some(holder) = holder(token) {
                    let about =
                        EventSubject { name, class: token.class(), holder: &holder, fence: None, hold: 0 };
                    self.recorder.record(&about, EventKind::NotOwned { op: LeaseOp::Release });
                }
            }
            (None, _) => {}
        }
    }

    /// Records the leases that were not renewed in time as abandoned.
    pub(crate) fn expire(&self, now: Moment) {
        self.table().retain(|lease| {
            let HoldStatus::Lost(reason) = lease.deadline.judge(now) else { return true };
            let what = EventKind::Abandoned { reason, held: now.since(lease.since) };
            self.recorder.record(&lease.subject(), what);
            false
        });
    }

    /// Asks the holder of this grant to release; it learns so at its next renewal.
    pub(crate) fn ask_to_release(&self, name: &Name, fence: Fence, why: &str) {
        for lease in self.table().by_key.values_mut() {
            if lease.fence == fence && lease.name == *name {
                lease.release_request = Some(why.to_owned());
            }
        }
    }

    /// Stops following a grant that an operator broke. The break is already an event.
    pub(crate) fn broken(&self, name: &Name, fence: Fence) {
        self.table().retain(|lease| lease.fence != fence || lease.name != *name);
    }
}

fn lease_from_renewal(who: &str, renewal: &RenewRequest, now: Moment) -> Option<FollowedLease> {
    Some(FollowedLease {
        id: 0,
        owner: who.into(),
        name: renewal.names.first().clone(),
        class: renewal.token.class().to_owned(),
        holder: holder(&renewal.token)?,
        fence: renewal.fence,
        since: now,
        deadline: stored_until(now, renewal.store_ttl()),
        release_request: None,
    })
}

fn holder(token: &Token) -> Option<Holder> {
    Holder::new(token.holder()).ok()
}

impl fmt::Debug for ClientLeases {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientLeases").field("leases", &self.table().by_key.len()).finish()
    }
}

#[cfg(test)]
mod tests;

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

use super::{EventSubject, Recorder};
use crate::problem::Refusal;

// Bounds memory. Leases beyond it are served all the same, but cause no events.
const MAX_FOLLOWED_LEASES: usize = 200_000;

/// The followed leases, by token.
pub(crate) struct ClientLeases {
    recorder: Arc<Recorder>,
    table: Mutex<LeaseTable>,
}

#[derive(Default)]
struct LeaseTable {
    by_token: HashMap<String, FollowedLease>,
    /// The number of leases of each identity. Entries at zero are removed.
    by_owner: HashMap<Arc<str>, usize>,
}

impl LeaseTable {
    fn insert(&mut self, token: &str, lease: FollowedLease) {
        if self.by_token.len() >= MAX_FOLLOWED_LEASES {
            return;
        }
        *self.by_owner.entry(Arc::clone(&lease.owner)).or_default() += 1;
        if let Some(before) = self.by_token.insert(token.to_owned(), lease) {
            self.count_out(&before.owner);
        }
    }

    fn remove(&mut self, token: &str) -> Option<FollowedLease> {
        let lease = self.by_token.remove(token)?;
        self.count_out(&lease.owner);
        Some(lease)
    }

    fn retain(&mut self, keep: impl Fn(&FollowedLease) -> bool) {
        let mut owners = Vec::new();
        self.by_token.retain(|_, lease| {
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
        Self { recorder, table: Mutex::default() }
    }

    /// Refuses a new lease of an identity that has as many as it may have.
    pub(crate) fn check_quota(&self, who: &str, token: &Token, quota: usize) -> Result<(), Refusal> {
        let table = self.table();
        let full = table.by_owner.get(who).is_some_and(|leases| *leases >= quota);
        if full && !table.by_token.contains_key(token.expose()) {
            return Err(Refusal::quota_reached("locks", quota));
        }
        Ok(())
    }

    /// Whether this token holds a lease that was granted or renewed here.
    pub(crate) fn knows(&self, token: &Token) -> bool {
        self.table().by_token.contains_key(token.expose())
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
                let mut table = self.table();
                if let Some(known) = table.by_token.get_mut(request.token.expose())
                    && known.fence == grant.fence
                {
                    // A repeated acquire returned the same grant: no new event.
                    known.extend(lease.deadline);
                    return;
                }
                lease.id = self.recorder.next_client_hold_id();
                let what = EventKind::Acquired { took, waited, takeover: None, behind_debt: None };
                self.recorder.record(&lease.subject(), what);
                table.insert(request.token.expose(), lease);
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
        let key = renewal.token.expose();
        let known = table.by_token.get(key).is_some_and(|lease| lease.fence == renewal.fence);
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
            table.insert(key, lease);
        }
        let lease = table.by_token.get_mut(key)?;
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
                table.remove(key);
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
        let lease = self.table().remove(token.expose());
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
        for lease in self.table().by_token.values_mut() {
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
        // The keys are tokens, so they must not be printed.
        f.debug_struct("Kept").field("leases", &self.table().by_token.len()).finish()
    }
}

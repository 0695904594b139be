//! The registry of daemon-kept holds, with a memory of how recent ones ended.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use leasehold::clock::Moment;
use leasehold::{Fence, Hold, HoldStatus, Name};
use leasehold_core::HeartbeatDeadline;
use leasehold_wire::{ErrorCode, HoldView, millis};

use super::refusal::{hold_over, id_taken, no_such_hold, outcome_pending};
use super::saved_holds::SavedHold;
use crate::problem::Refusal;
use crate::state::state_db::StateDb;

// A client that was away this long can still learn why its hold ended.
const ENDED_HOLD_RETENTION: Duration = Duration::from_secs(600);
// Bounds memory, for current holds and for remembered ones.
const MAX_HOLDS: usize = 100_000;

/// All holds that the daemon keeps for its clients.
#[derive(Debug)]
pub(crate) struct Holds {
    pub(super) state_db: Arc<StateDb>,
    table: Mutex<HoldTable>,
}

#[derive(Debug, Default)]
struct HoldTable {
    current: HashMap<String, HoldEntry>,
    ended: HashMap<String, EndedHold>,
}

/// One hold and the state of its client.
#[derive(Debug)]
pub(crate) struct HoldEntry {
    /// `None` while the hold is being acquired or resumed.
    pub(crate) hold: Option<Hold>,
    pub(crate) name: Name,
    pub(crate) owner: String,
    pub(crate) holder: String,
    pub(crate) class: String,
    /// The time that the client has, by its heartbeats.
    pub(crate) client: HeartbeatDeadline,
    pub(crate) release_request: Option<String>,
    /// The row of the current lease, if the hold has re-acquired its name.
    pub(crate) retaken_row: Option<SavedHold>,
}

/// A hold that has ended.
#[derive(Debug, Clone)]
struct EndedHold {
    name: Name,
    owner: String,
    reason: String,
    until: Moment,
}

/// The outcome of reserving an id.
pub(crate) enum ReserveOutcome {
    /// The id was free and is now reserved for this request.
    New,
    /// The id stands for this existing hold of the same client.
    Existing(HoldView),
}

impl Holds {
    pub(crate) fn new(ledger: Arc<StateDb>) -> Self {
        Self { state_db: ledger, table: Mutex::default() }
    }

    fn table(&self) -> MutexGuard<'_, HoldTable> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reserves an id, or returns the existing hold of that id.
    pub(crate) fn reserve(&self, id: &str, held: HoldEntry, now: Moment) -> Result<ReserveOutcome, Refusal> {
        let mut table = self.table();
        if let Some(there) = table.current.get_mut(id) {
            if there.owner != held.owner || there.name != held.name {
                return Err(id_taken());
            }
            // A repeated request shows that the client is alive, so it counts as a heartbeat.
            return match there.beat(id, now) {
                Some(view) => view.map(ReserveOutcome::Existing),
                None => Err(Refusal::new(
                    ErrorCode::InProgress,
                    "a request with this id waits already; retry later, or end that one",
                )
                .retry_after(Duration::from_secs(1))),
            };
        }
        if let Some(over) = table.ended.get(id) {
            // A late or repeated request must not re-acquire what the client has released.
            return Err(if over.owner == held.owner { over.refusal() } else { id_taken() });
        }
        if table.current.len() >= MAX_HOLDS {
            return Err(Refusal::new(ErrorCode::TooManyHolds, "this daemon keeps as many holds as it can")
                .retry_after(Duration::from_secs(10)));
        }
        table.current.insert(id.to_owned(), held);
        Ok(ReserveOutcome::New)
    }

    /// Frees a reserved id: the request failed, or its client disconnected.
    pub(crate) fn forget(&self, id: &str) {
        self.table().current.remove(id);
    }

    /// Puts a granted hold under its reserved id and starts the client's time.
    pub(crate) fn activate(&self, id: &str, hold: Hold, now: Moment) -> Option<Result<HoldView, Refusal>> {
        let mut table = self.table();
        let held = table.current.get_mut(id)?;
        held.hold = Some(hold);
        held.beat(id, now)
    }

    /// Pretends that a response promised the client this time.
    #[cfg(test)]
    pub(crate) fn set_valid_until(&self, id: &str, until: Moment) {
        if let Some(held) = self.table().current.get_mut(id) {
            held.client = held.client.promised(until);
        }
    }

    /// Reserves the id of a hold of the previous run.
    pub(crate) fn restore(&self, id: &str, held: HoldEntry) {
        self.table().current.insert(id.to_owned(), held);
    }

    /// The name that an id stands for; the gate checks the caller's right on it.
    pub(crate) fn name_of(&self, id: &str) -> Option<Name> {
        let table = self.table();
        let held = table.current.get(id).map(|held| held.name.clone());
        held.or_else(|| table.ended.get(id).map(|over| over.name.clone()))
    }

    /// Shows a hold without extending its time.
    pub(crate) fn show(&self, id: &str, now: Moment) -> Result<HoldView, Refusal> {
        let table = self.table();
        match table.current.get(id) {
            Some(held) => held.view(id, now).unwrap_or_else(|| Err(outcome_pending())),
            None => Err(table.ended.get(id).map_or_else(no_such_hold, EndedHold::refusal)),
        }
    }

    /// Extends the client's time. Only the owner may do so.
    pub(crate) fn heartbeat(&self, id: &str, owner: &str, now: Moment) -> Result<HoldView, Refusal> {
        let mut table = self.table();
        if let Some(held) = table.current.get_mut(id).filter(|held| held.owner == owner) {
            return held.beat(id, now).unwrap_or_else(|| Err(outcome_pending()));
        }
        Err(table
            .ended
            .get(id)
            .filter(|over| over.owner == owner)
            .map_or_else(no_such_hold, EndedHold::refusal))
    }

    /// Stores a grant; the future completes when it is durable. The keeper owns the hold already
    /// and may have re-acquired its name in the meantime. The newer lease is stored then.
    pub(crate) fn save_grant(
        &self,
        row: SavedHold,
    ) -> impl Future<Output = Result<(), String>> + Send + use<> {
        let table = self.table();
        let newer = table.current.get(&row.id).and_then(|held| held.retaken_row.clone());
        // Queue the write while the table is locked. Otherwise a re-acquired lease could be stored
        // in between, and this older row would overwrite it.
        let saving = self.save(newer.unwrap_or(row));
        drop(table);
        saving
    }

    /// Stores the new lease of a hold that has re-acquired its name.
    pub(crate) fn save_retaken(&self, row: SavedHold) {
        let mut table = self.table();
        // A hold that ended meanwhile has no row, and must not get one again.
        if let Some(held) = table.current.get_mut(&row.id) {
            held.retaken_row = Some(row.clone());
            // Queued under the table's lock as well, for the same order.
            self.save_later(row);
        }
        drop(table);
    }

    /// Removes a hold to end it, and remembers the reason.
    pub(crate) fn remove(&self, id: &str, reason: &str, now: Moment) -> Option<(Hold, Name)> {
        let mut table = self.table();
        let held = table.current.get_mut(id)?;
        // Without a hold the id is only reserved, and its request frees it.
        let hold = held.hold.take()?;
        let held = table.current.remove(id)?;
        let name = held.name.clone();
        table.remember(id, held, reason, now);
        self.delete_saved(id);
        Some((hold, name))
    }

    /// Marks a hold of the previous run as lost.
    pub(crate) fn mark_lost(&self, id: &str, name: Name, owner: String, reason: &str, now: Moment) {
        let over = EndedHold { name, owner, reason: reason.to_owned(), until: now + ENDED_HOLD_RETENTION };
        let mut table = self.table();
        table.current.remove(id);
        table.ended.insert(id.to_owned(), over);
        drop(table);
        self.delete_saved(id);
    }

    /// The holds to end, lost or without a client, as `(id, reason)`.
    pub(crate) fn holds_to_end(&self, now: Moment) -> Vec<(String, String)> {
        let mut table = self.table();
        table.ended.retain(|_, over| now < over.until);
        let mut found: Vec<_> = table
            .current
            .iter()
            .filter_map(|(id, held)| {
                let hold = held.hold.as_ref()?;
                let reason = match hold.deadline().judge(now) {
                    HoldStatus::Lost(loss) => loss.label(),
                    _ if held.client.is_over(now) => "client_gone",
                    _ => return None,
                };
                Some((id.clone(), reason.to_owned()))
            })
            .collect();
        // Sorted, so that a simulated run can be repeated exactly.
        found.sort_unstable();
        found
    }

    /// Asks the client of this name to release; it learns so at its next heartbeat.
    pub(crate) fn ask_to_release(&self, name: &Name, why: &str) {
        for held in self.table().current.values_mut() {
            if held.name == *name {
                held.release_request = Some(why.to_owned());
            }
        }
    }

    /// Removes a hold whose lease an operator broke; its client learns so at once.
    pub(crate) fn remove_broken(&self, name: &Name, fence: Fence, now: Moment) {
        let is_it = |held: &HoldEntry| {
            let hold = held.hold.as_ref();
            held.name == *name && hold.is_some_and(|hold| hold.fence_if_any().ok().flatten() == Some(fence))
        };
        // The statement drops the table's lock, which the removal below takes again.
        let found = self.table().current.iter().find(|(_, held)| is_it(held)).map(|(id, _)| id.clone());
        if let Some(id) = found {
            // The lease is gone. Dropping the hold ends it in the background.
            drop(self.remove(&id, "broken", now));
        }
    }

    /// Leaves all leases in the store, for the next run to resume.
    pub(crate) fn leave_to_next_run(&self) {
        for (_, mut held) in self.table().current.drain() {
            // Dropping a hold would release its lease.
            std::mem::forget(held.hold.take());
        }
    }

    /// The number of holds, including those being acquired.
    pub(crate) fn len(&self) -> usize {
        self.table().current.len()
    }

    /// The holds whose clients are gone, at the end of the drain.
    pub(crate) fn without_client(&self, now: Moment) -> Vec<String> {
        let table = self.table();
        let over = |held: &HoldEntry| held.hold.is_some() && held.client.is_over(now);
        let found = table.current.iter().filter(|(_, held)| over(held));
        let mut found: Vec<_> = found.map(|(id, _)| id.clone()).collect();
        found.sort_unstable();
        found
    }
}

impl HoldTable {
    fn remember(&mut self, id: &str, held: HoldEntry, reason: &str, now: Moment) {
        if self.ended.len() < MAX_HOLDS {
            let over = EndedHold {
                name: held.name,
                owner: held.owner,
                reason: reason.to_owned(),
                until: now + ENDED_HOLD_RETENTION,
            };
            self.ended.insert(id.to_owned(), over);
        }
    }
}

impl HoldEntry {
    /// The response to a client that has just shown that it is alive: its time starts anew.
    fn beat(&mut self, id: &str, now: Moment) -> Option<Result<HoldView, Refusal>> {
        let (hold, view) = (self.hold.as_ref()?, self.view(id, now)?);
        let (deadline, client) = (hold.deadline(), &mut self.client);
        Some(view.map(|view| view.with_times(client.extend(&deadline, now), deadline.proven_for(now))))
    }

    /// The response for this hold; `None` while it is being acquired.
    fn view(&self, id: &str, now: Moment) -> Option<Result<HoldView, Refusal>> {
        let hold = self.hold.as_ref()?;
        let deadline = hold.deadline();
        let standing = match deadline.judge(now) {
            HoldStatus::Lost(loss) => return Some(Err(hold_over(&self.name, loss.label()))),
            HoldStatus::Unproven => "unproven",
            HoldStatus::LocalOnly => "local_only",
            _ => "proven",
        };
        let view = HoldView {
            id: id.to_owned(),
            name: self.name.to_string(),
            class: self.class.clone(),
            holder: self.holder.clone(),
            fence: hold.fence_if_any().ok().flatten(),
            standing: standing.to_owned(),
            valid_ms: 0,
            proven_ms: 0,
            heartbeat_ms: millis(self.client.heartbeat()),
            asked_to_release: self.release_request.clone(),
        };
        Some(Ok(view.with_times(self.client.remaining(&deadline, now), deadline.proven_for(now))))
    }
}

impl EndedHold {
    fn refusal(&self) -> Refusal {
        hold_over(&self.name, &self.reason)
    }
}

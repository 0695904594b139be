//! The registry of daemon-kept holds, with a memory of how recent ones ended.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use leasehold::clock::Moment;
use leasehold::{Fence, Hold, HoldStatus, Name};
use leasehold_core::HeartbeatDeadline;
use leasehold_wire::{ErrorCode, HoldView, millis};

use super::ended_holds::EndedHolds;
use super::refusal::{hold_over, id_taken, no_such_hold, outcome_pending};
use super::saved_holds::SavedHold;
use crate::problem::Refusal;
use crate::state::state_db::StateDb;

// Bounds memory.
const MAX_HOLDS: usize = 100_000;

/// All holds that the daemon keeps for its clients.
#[derive(Debug)]
pub(crate) struct Holds {
    pub(super) state_db: Arc<StateDb>,
    table: Mutex<HoldTable>,
}

#[derive(Debug, Default)]
struct HoldTable {
    current: HashMap<HoldKey, HoldEntry>,
    /// The number of current holds of each owner. Entries at zero are removed.
    by_owner: HashMap<String, usize>,
    ended: EndedHolds,
}

/// Identifies a hold. Clients choose ids, so each owner has ids of its own.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct HoldKey {
    /// The principal's id.
    pub(crate) owner: String,
    pub(crate) id: String,
}

impl HoldKey {
    pub(crate) fn new(owner: &str, id: &str) -> Self {
        Self { owner: owner.to_owned(), id: id.to_owned() }
    }
}

/// One hold and the state of its client.
#[derive(Debug)]
pub(crate) struct HoldEntry {
    /// `None` while the hold is being acquired or resumed.
    pub(crate) hold: Option<Hold>,
    pub(crate) name: Name,
    pub(crate) holder: String,
    pub(crate) class: String,
    /// The time that the client has, by its heartbeats.
    pub(crate) client: HeartbeatDeadline,
    pub(crate) release_request: Option<String>,
    /// The row of the current lease, if the hold has re-acquired its name.
    pub(crate) retaken_row: Option<SavedHold>,
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

    /// Reserves an id, or returns the existing hold of that id. `quota` is the number of holds that
    /// its owner may have.
    pub(crate) fn reserve(
        &self,
        key: &HoldKey,
        held: HoldEntry,
        quota: usize,
        now: Moment,
    ) -> Result<ReserveOutcome, Refusal> {
        let mut table = self.table();
        if let Some(there) = table.current.get_mut(key) {
            if there.name != held.name {
                return Err(id_taken());
            }
            // A repeated request shows that the client is alive, so it counts as a heartbeat.
            return match there.beat(&key.id, now) {
                Some(view) => view.map(ReserveOutcome::Existing),
                None => Err(Refusal::new(
                    ErrorCode::InProgress,
                    "a request with this id waits already; retry later, or end that one",
                )
                .retry_after(Duration::from_secs(1))),
            };
        }
        if let Some(over) = table.ended.get(key) {
            // A late or repeated request must not re-acquire what the client has released.
            return Err(over.refusal());
        }
        if table.by_owner.get(&key.owner).is_some_and(|holds| *holds >= quota) {
            return Err(Refusal::quota_reached("kept holds", quota));
        }
        if table.current.len() >= MAX_HOLDS {
            return Err(Refusal::new(ErrorCode::TooManyHolds, "this daemon keeps as many holds as it can")
                .retry_after(Duration::from_secs(10)));
        }
        table.insert(key, held);
        Ok(ReserveOutcome::New)
    }

    /// Frees a reserved id: the request failed, or its client disconnected.
    pub(crate) fn forget(&self, key: &HoldKey) {
        self.table().remove(key);
    }

    /// Puts a granted hold under its reserved id and starts the client's time.
    pub(crate) fn activate(
        &self,
        key: &HoldKey,
        hold: Hold,
        now: Moment,
    ) -> Option<Result<HoldView, Refusal>> {
        let mut table = self.table();
        let held = table.current.get_mut(key)?;
        held.hold = Some(hold);
        held.beat(&key.id, now)
    }

    /// Pretends that a response promised the client this time.
    #[cfg(test)]
    pub(crate) fn set_valid_until(&self, key: &HoldKey, until: Moment) {
        if let Some(held) = self.table().current.get_mut(key) {
            held.client = held.client.promised(until);
        }
    }

    /// Reserves the id of a hold of the previous run.
    pub(crate) fn restore(&self, key: &HoldKey, held: HoldEntry) {
        self.table().insert(key, held);
    }

    /// The name that an id stands for; the gate checks the caller's right on it.
    pub(crate) fn name_of(&self, key: &HoldKey) -> Option<Name> {
        let table = self.table();
        let held = table.current.get(key).map(|held| held.name.clone());
        held.or_else(|| table.ended.get(key).map(|over| over.name.clone()))
    }

    /// Shows a hold without extending its time.
    pub(crate) fn show(&self, key: &HoldKey, now: Moment) -> Result<HoldView, Refusal> {
        let table = self.table();
        match table.current.get(key) {
            Some(held) => held.view(&key.id, now).unwrap_or_else(|| Err(outcome_pending())),
            None => Err(table.end_of(key)),
        }
    }

    /// Extends the client's time.
    pub(crate) fn heartbeat(&self, key: &HoldKey, now: Moment) -> Result<HoldView, Refusal> {
        let mut table = self.table();
        match table.current.get_mut(key) {
            Some(held) => held.beat(&key.id, now).unwrap_or_else(|| Err(outcome_pending())),
            None => Err(table.end_of(key)),
        }
    }

    /// Stores a grant; the future completes when it is durable. The keeper owns the hold already
    /// and may have re-acquired its name in the meantime. The newer lease is stored then.
    pub(crate) fn save_grant(
        &self,
        row: SavedHold,
    ) -> impl Future<Output = Result<(), String>> + Send + use<> {
        let table = self.table();
        let newer = table.current.get(&row.key()).and_then(|held| held.retaken_row.clone());
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
        if let Some(held) = table.current.get_mut(&row.key()) {
            held.retaken_row = Some(row.clone());
            // Queued under the table's lock as well, for the same order.
            self.save_later(row);
        }
        drop(table);
    }

    /// Removes a hold to end it, and remembers the reason.
    pub(crate) fn remove(&self, key: &HoldKey, reason: &str, now: Moment) -> Option<(Hold, Name)> {
        let mut table = self.table();
        let held = table.current.get_mut(key)?;
        // Without a hold the id is only reserved, and its request frees it.
        let hold = held.hold.take()?;
        let name = table.remove(key)?.name;
        table.ended.remember(key, name.clone(), reason, now);
        self.delete_saved(key);
        Some((hold, name))
    }

    /// Marks a hold of the previous run as lost.
    pub(crate) fn mark_lost(&self, key: &HoldKey, name: Name, reason: &str, now: Moment) {
        let mut table = self.table();
        table.remove(key);
        table.ended.remember(key, name, reason, now);
        drop(table);
        self.delete_saved(key);
    }

    /// The holds to end, lost or without a client, with the reason.
    pub(crate) fn holds_to_end(&self, now: Moment) -> Vec<(HoldKey, String)> {
        let mut table = self.table();
        table.ended.forget_old(now);
        let mut found: Vec<_> = table
            .current
            .iter()
            .filter_map(|(key, held)| {
                let hold = held.hold.as_ref()?;
                let reason = match hold.deadline().judge(now) {
                    HoldStatus::Lost(loss) => loss.label(),
                    _ if held.client.is_over(now) => "client_gone",
                    _ => return None,
                };
                Some((key.clone(), reason.to_owned()))
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
        let found = self.table().current.iter().find(|(_, held)| is_it(held)).map(|(key, _)| key.clone());
        if let Some(key) = found {
            // The lease is gone. Dropping the hold ends it in the background.
            drop(self.remove(&key, "broken", now));
        }
    }

    /// Leaves all leases in the store, for the next run to resume.
    pub(crate) fn leave_to_next_run(&self) {
        let mut table = self.table();
        table.by_owner.clear();
        for (_, mut held) in table.current.drain() {
            // Dropping a hold would release its lease.
            std::mem::forget(held.hold.take());
        }
    }

    /// The number of holds, including those being acquired.
    pub(crate) fn len(&self) -> usize {
        self.table().current.len()
    }

    /// The holds whose clients are gone, at the end of the drain.
    pub(crate) fn without_client(&self, now: Moment) -> Vec<HoldKey> {
        let table = self.table();
        let over = |held: &HoldEntry| held.hold.is_some() && held.client.is_over(now);
        let found = table.current.iter().filter(|(_, held)| over(held));
        let mut found: Vec<_> = found.map(|(key, _)| key.clone()).collect();
        found.sort_unstable();
        found
    }
}

impl HoldTable {
    fn insert(&mut self, key: &HoldKey, held: HoldEntry) {
        if self.current.insert(key.clone(), held).is_none() {
            *self.by_owner.entry(key.owner.clone()).or_default() += 1;
        }
    }

    fn remove(&mut self, key: &HoldKey) -> Option<HoldEntry> {
        let held = self.current.remove(key)?;
        if let Some(holds) = self.by_owner.get_mut(&key.owner) {
            *holds -= 1;
            if *holds == 0 {
                self.by_owner.remove(&key.owner);
            }
        }
        Some(held)
    }

    /// The response for an id without a current hold.
    fn end_of(&self, key: &HoldKey) -> Refusal {
        self.ended.get(key).map_or_else(no_such_hold, |over| over.refusal())
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

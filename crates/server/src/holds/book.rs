//! The map of holds, and what is remembered of those that are over.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use leasehold::clock::Moment;
use leasehold::policy::OnFailure;
use leasehold::{Fence, Hold, Name, Standing};
use leasehold_http::wire::millis;

use super::HoldView;
use super::refusal::{not_yet, nothing, over, taken};
use super::saved::Row;
use crate::ledger::Ledger;
use crate::problem::Refusal;

/// How long it is known how a hold ended.
const REMEMBERED: Duration = Duration::from_secs(600);
/// The most holds at once, and the most that are remembered.
const LIMIT: usize = 100_000;

/// All holds the daemon keeps.
#[derive(Debug)]
pub(crate) struct Holds {
    pub(super) ledger: Arc<Ledger>,
    table: Mutex<Table>,
}

#[derive(Debug, Default)]
struct Table {
    held: HashMap<String, Held>,
    over: HashMap<String, Over>,
}

/// One hold and what belongs to its client.
#[derive(Debug)]
pub(crate) struct Held {
    /// None while it is being acquired.
    pub(crate) hold: Option<Hold>,
    pub(crate) name: Name,
    pub(crate) owner: String,
    pub(crate) holder: String,
    pub(crate) class: String,
    pub(crate) heartbeat: Duration,
    /// The client may go on until here at the latest.
    pub(crate) due: Moment,
    /// What its class says about work that goes on without a proof.
    pub(crate) on_failure: OnFailure,
    pub(crate) ttl: Duration,
    pub(crate) asked: Option<String>,
    /// What the file says of it, or is about to say, since it has taken its name anew.
    pub(crate) retaken: Option<Row>,
}

/// How a hold ended.
#[derive(Debug, Clone)]
struct Over {
    name: Name,
    owner: String,
    reason: String,
    until: Moment,
}

/// What an id stands for.
pub(crate) enum Found {
    /// Nothing yet: the place is taken for this request.
    New,
    /// The hold that was asked for before.
    Same(HoldView),
}

impl Holds {
    pub(crate) fn new(ledger: Arc<Ledger>) -> Self {
        Self {
            ledger,
            table: Mutex::default(),
        }
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the place of an id, or finds what is there.
    pub(crate) fn begin(&self, id: &str, held: Held, now: Moment) -> Result<Found, Refusal> {
        let mut table = self.table();
        if let Some(there) = table.held.get_mut(id) {
            if there.owner != held.owner || there.name != held.name {
                return Err(taken());
            }
            return match there.view(id, now) {
                Some(Ok(mut view)) => {
                    there.beat(now);
                    there.time(&mut view);
                    Ok(Found::Same(view))
                }
                Some(Err(lost)) => Err(lost),
                None => Err(Refusal::new(
                    http::StatusCode::CONFLICT,
                    "in_progress",
                    "a request with this id waits already; come again, or end that one",
                )
                .retry_after(Duration::from_secs(1))),
            };
        }
        if let Some(over) = table.over.get(id) {
            // The same request late, or again: it must not take what was given back.
            return Err(if over.owner == held.owner {
                over.refusal()
            } else {
                taken()
            });
        }
        if table.held.len() >= LIMIT {
            return Err(Refusal::new(
                http::StatusCode::TOO_MANY_REQUESTS,
                "too_many_holds",
                "this daemon keeps as many holds as it can",
            )
            .retry_after(Duration::from_secs(10)));
        }
        table.held.insert(id.to_owned(), held);
        Ok(Found::New)
    }

    /// The request was not granted, or its client has gone.
    pub(crate) fn forget(&self, id: &str) {
        self.table().held.remove(id);
    }

    /// It is held from now on.
    pub(crate) fn hold(&self, id: &str, hold: Hold, now: Moment) -> Option<Result<HoldView, Refusal>> {
        let mut table = self.table();
        let held = table.held.get_mut(id)?;
        held.hold = Some(hold);
        held.beat(now);
        held.view(id, now)
    }

    /// As if its client had been told so.
    #[cfg(test)]
    pub(crate) fn promise(&self, id: &str, until: Moment) {
        if let Some(held) = self.table().held.get_mut(id) {
            held.due = until;
        }
    }

    /// Puts a hold of the last life back.
    pub(crate) fn restore(&self, id: &str, held: Held) {
        self.table().held.insert(id.to_owned(), held);
    }

    /// The name behind an id, for whoever asks about it.
    pub(crate) fn name_of(&self, id: &str) -> Option<Name> {
        let table = self.table();
        let held = table.held.get(id).map(|held| held.name.clone());
        held.or_else(|| table.over.get(id).map(|over| over.name.clone()))
    }

    /// Looks at a hold.
    pub(crate) fn show(&self, id: &str, now: Moment) -> Result<HoldView, Refusal> {
        let table = self.table();
        match table.held.get(id) {
            Some(held) => held.view(id, now).unwrap_or_else(|| Err(not_yet())),
            None => Err(table.over.get(id).map_or_else(nothing, Over::refusal)),
        }
    }

    /// Its client is there. Only its owner says so.
    pub(crate) fn beat(&self, id: &str, owner: &str, now: Moment) -> Result<HoldView, Refusal> {
        let mut table = self.table();
        if let Some(held) = table.held.get_mut(id).filter(|held| held.owner == owner) {
            return match held.view(id, now) {
                Some(Ok(mut view)) => {
                    held.beat(now);
                    held.time(&mut view);
                    Ok(view)
                }
                Some(lost) => lost,
                None => Err(not_yet()),
            };
        }
        Err(table
            .over
            .get(id)
            .filter(|over| over.owner == owner)
            .map_or_else(nothing, Over::refusal))
    }

    /// It was granted: in the file when this is answered. The keeper has it already, and whoever says so here may have been held
    /// up on the way: what has been taken anew meanwhile stays.
    pub(crate) fn granted(&self, row: Row) -> impl Future<Output = Result<(), String>> + Send + use<> {
        let table = self.table();
        let newer = table.held.get(&row.id).and_then(|held| held.retaken.clone());
        let saving = self.save(newer.unwrap_or(row));
        drop(table);
        saving
    }

    /// It is held with another lease from now on.
    pub(crate) fn retaken(&self, row: Row) {
        let mut table = self.table();
        // One that has ended meanwhile is not in the file any more, and stays out of it.
        if let Some(held) = table.held.get_mut(&row.id) {
            held.retaken = Some(row.clone());
            self.renote(row);
        }
        drop(table);
    }

    /// Takes a hold out to end it; what is remembered of it is why.
    pub(crate) fn take(&self, id: &str, reason: &str, now: Moment) -> Option<(Hold, Name)> {
        let mut table = self.table();
        let held = table.held.get_mut(id)?;
        let hold = held.hold.take()?;
        let held = table.held.remove(id)?;
        let name = held.name.clone();
        table.remember(id, held, reason, now);
        self.unsave(id);
        Some((hold, name))
    }

    /// A hold of the last life that could not be taken up.
    pub(crate) fn lost(&self, id: &str, name: Name, owner: String, reason: &str, now: Moment) {
        let over = Over {
            name,
            owner,
            reason: reason.to_owned(),
            until: now + REMEMBERED,
        };
        let mut table = self.table();
        table.held.remove(id);
        table.over.insert(id.to_owned(), over);
        drop(table);
        self.unsave(id);
    }

    /// Those that are over: lost, or their clients gone. `(id, reason)`.
    pub(crate) fn due(&self, now: Moment) -> Vec<(String, String)> {
        let mut table = self.table();
        table.over.retain(|_, over| now < over.until);
        let mut found: Vec<_> = table
            .held
            .iter()
            .filter_map(|(id, held)| {
                let hold = held.hold.as_ref()?;
                let reason = match hold.standing() {
                    Standing::Lost(loss) => loss.label(),
                    _ if now >= held.ends() => "client_gone",
                    _ => return None,
                };
                Some((id.clone(), reason.to_owned()))
            })
            .collect();
        // Always in the same order: a run can be repeated.
        found.sort_unstable();
        found
    }

    /// Asks the client of this grant to let go: it hears of it at its next heartbeat.
    pub(crate) fn ask_to_release(&self, name: &Name, why: &str) {
        for held in self.table().held.values_mut() {
            if held.name == *name {
                held.asked = Some(why.to_owned());
            }
        }
    }

    /// An operator has broken this grant: its client hears so at once.
    pub(crate) fn broken(&self, name: &Name, fence: Fence, now: Moment) {
        let is_it = |held: &Held| {
            let hold = held.hold.as_ref();
            held.name == *name && hold.is_some_and(|hold| hold.unfenced().ok().flatten() == Some(fence))
        };
        let found = self
            .table()
            .held
            .iter()
            .find(|(_, held)| is_it(held))
            .map(|(id, _)| id.clone());
        if let Some(id) = found {
            // The lease is gone: what is left of the hold ends in the background.
            drop(self.take(&id, "broken", now));
        }
    }

    /// Leaves all leases as they are, for the next life to take up.
    pub(crate) fn leave(&self) {
        for (_, mut held) in self.table().held.drain() {
            // Dropping a hold would give its lease back.
            std::mem::forget(held.hold.take());
        }
    }

    /// How many are held or being acquired.
    pub(crate) fn len(&self) -> usize {
        self.table().held.len()
    }

    /// Those whose clients have gone, at the end of a drain.
    pub(crate) fn unattended(&self, now: Moment) -> Vec<String> {
        let table = self.table();
        let over = |held: &Held| held.hold.is_some() && now >= held.ends();
        let found = table.held.iter().filter(|(_, held)| over(held));
        let mut found: Vec<_> = found.map(|(id, _)| id.clone()).collect();
        found.sort_unstable();
        found
    }
}

impl Table {
    fn remember(&mut self, id: &str, held: Held, reason: &str, now: Moment) {
        if self.over.len() < LIMIT {
            let over = Over {
                name: held.name,
                owner: held.owner,
                reason: reason.to_owned(),
                until: now + REMEMBERED,
            };
            self.over.insert(id.to_owned(), over);
        }
    }
}

impl Held {
    /// Heard of just now. What it was told before stays true: it may not hear this answer. (A lease that was taken after the
    /// fact ends sooner than the time that its client was given without one.)
    pub(crate) fn beat(&mut self, now: Moment) {
        self.due = self.due.max(now + Duration::from_millis(self.valid()));
    }

    /// What a client is told that is heard of just now.
    fn time(&self, view: &mut HoldView) {
        view.valid_ms = self.valid();
        view.proven_ms = self.proven(view.valid_ms);
    }

    /// How long of that nobody else can be granted the name: the lease is kept that long, and may be given back after.
    fn proven(&self, valid: u64) -> u64 {
        let left = self.hold.as_ref().map_or(Duration::ZERO, Hold::proven_for);
        millis(left).min(valid)
    }

    /// How long the client may go on from now.
    fn valid(&self) -> u64 {
        let left = self.hold.as_ref().map_or(Duration::ZERO, Hold::remaining);
        millis(left.min(self.heartbeat))
    }

    /// When a client that is not heard of has gone. Work of a `continue` class may go on without us: its lease is left to
    /// it for one more time to live.
    fn ends(&self) -> Moment {
        let margin = Duration::from_millis(20) + self.heartbeat / 100;
        match self.on_failure {
            OnFailure::Fence => self.due + margin,
            OnFailure::Continue => self.due + margin + self.ttl,
        }
    }

    /// None while it is being acquired.
    fn view(&self, id: &str, now: Moment) -> Option<Result<HoldView, Refusal>> {
        let hold = self.hold.as_ref()?;
        let standing = match hold.standing() {
            Standing::Lost(loss) => return Some(Err(over(&self.name, loss.label()))),
            Standing::Unproven => "unproven",
            Standing::LocalOnly => "local_only",
            _ => "proven",
        };
        // It may have been told more under another policy, or by another life: that is kept, and not told again.
        let valid_ms = millis(self.due.since(now).min(hold.remaining()));
        Some(Ok(HoldView {
            id: id.to_owned(),
            name: self.name.to_string(),
            class: self.class.clone(),
            holder: self.holder.clone(),
            fence: hold.unfenced().ok().flatten(),
            standing: standing.to_owned(),
            valid_ms,
            proven_ms: self.proven(valid_ms),
            heartbeat_ms: millis(self.heartbeat),
            asked_to_release: self.asked.clone(),
        }))
    }
}

impl Over {
    fn refusal(&self) -> Refusal {
        over(&self.name, &self.reason)
    }
}

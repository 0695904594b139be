//! Orphans: leases that stand in the store although their acquire has ended without a hold. The client undoes them as soon as it can
//! reach the store; where it cannot, they run out.
//!
//! A task has one acquire at a time and a class of its own, so what is asked for under that class meanwhile belongs to that acquire.
//! What is asked for between two acquires is for a hold, which gets its lease after the fact.
//!
//! How soon they are gone depends on what happens to the client and to the store. How soon they are undone once that is possible
//! depends on the client alone: for that, time counts only while the client runs and the store serves it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use leasehold_core::store::{Ask, CLAIM, Claim, Giving, Lease};
use leasehold_core::{Fence, Name, Token};

use super::drift::{MS, Nanos, SEC};
use super::engine::Verb;
use super::ways::Ways;
use super::world::State;

/// How long orphans stood.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Orphans {
    /// How many there were.
    pub count: u64,
    /// Gone within a second.
    pub soon: u64,
    /// Undone; or could have been, for more than a second, and were not.
    pub possible: u64,
    /// Undone within a second in which that was possible.
    pub undone: u64,
    /// Older than TTL, lock delay and margin allow.
    pub overdue: u64,
    /// How long the oldest stood, and how long it was allowed to, in nanoseconds.
    pub oldest: (u64, u64),
}

impl Orphans {
    /// Those of another history too.
    pub fn add(&mut self, other: Self) {
        self.count += other.count;
        self.soon += other.soon;
        self.possible += other.possible;
        self.undone += other.undone;
        self.overdue += other.overdue;
        self.oldest = self.oldest.max(other.oldest);
    }

    /// One stood for so long; for how much of that it could be undone, and whether it was.
    fn stood(&mut self, age: Nanos, allowed: Nanos, (open, undone): (Nanos, bool)) {
        self.add(Self {
            count: 1,
            soon: u64::from(age <= SEC),
            possible: u64::from(undone || open > SEC),
            undone: u64::from(undone && open <= SEC),
            overdue: u64::from(age > allowed),
            oldest: (age, allowed),
        });
    }
}

/// A process: its host, and which of the lives there.
pub(super) type Life = (usize, u32);

/// Who asks: host, life, class.
pub(super) type Asker<'a> = (usize, u32, &'a str);

/// What became of the acquire that asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    /// It is under way.
    Open,
    /// In a hold, which gives back what it has by itself.
    Held,
    /// In nothing, at this time.
    Nothing(Nanos),
}

/// What one token has asked for.
#[derive(Debug)]
struct Asked {
    slot: usize,
    life: u32,
    class: String,
    /// The longest that the store was asked to keep it.
    kept: Duration,
    end: End,
    /// The store has carried out an undo of it.
    given: bool,
}

/// A lease in the store.
#[derive(Debug)]
struct Standing {
    fence: Fence,
    /// Since it was last asked for.
    since: Nanos,
    /// When it runs out unless something happens to it.
    due: Nanos,
}

/// A lease that was granted.
#[derive(Debug)]
struct Granted {
    /// To which token, by its random part.
    token: String,
    /// Host and life of the process that asked for it last.
    by: Life,
    /// Its client has no reason to undo it: a message that the store had seen before has asked for it, or the store has forgotten
    /// that it was undone.
    unknown: bool,
}

/// The books of one history.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    /// Acquires that have begun and not ended: host, life, class.
    under_way: BTreeSet<(usize, u32, String)>,
    /// By the token's random part.
    asked: BTreeMap<String, Asked>,
    /// By name and fence.
    granted: BTreeMap<(Name, Fence), Granted>,
    standing: BTreeMap<Name, Standing>,
    /// How far the store's clock was stepped back: everything in it lasts that much longer.
    pub(super) back: Nanos,
    pub(super) ways: Ways,
    /// Daemons that have ended with something left to do.
    pub(super) deserters: BTreeSet<Life>,
    pub(super) found: Orphans,
}

impl Ledger {
    /// A message is sent that may be granted.
    pub(super) fn asks(&mut self, slot: usize, life: u32, ask: &Ask) {
        let token = &ask.token;
        let class = token.class().to_owned();
        let asker = (slot, life, class.clone());
        let under_way = self.under_way.contains(&asker);
        let asked = self.asked.entry(token.random().to_owned());
        let asked = asked.or_insert_with(|| Asked {
            slot,
            life,
            class,
            kept: CLAIM,
            end: if under_way { End::Open } else { End::Held },
            given: false,
        });
        asked.kept = asked.kept.max(ask.kept());
    }

    fn settle(&mut self, of: impl Fn(&Asked) -> bool, end: End) {
        let open = self.asked.values_mut().filter(|asked| asked.end == End::Open);
        open.filter(|asked| of(asked)).for_each(|asked| asked.end = end);
    }

    /// An acquire begins.
    pub(super) fn begins(&mut self, (slot, life, class): Asker<'_>) {
        self.under_way.insert((slot, life, class.to_owned()));
    }

    /// An acquire has ended, answered or given up.
    pub(super) fn ends(&mut self, (slot, life, class): Asker<'_>, held: bool, now: Nanos) {
        self.under_way.remove(&(slot, life, class.to_owned()));
        let mine = |asked: &Asked| (asked.slot, asked.life, asked.class.as_str()) == (slot, life, class);
        self.settle(mine, if held { End::Held } else { End::Nothing(now) });
    }

    /// A process is gone, and with it every acquire that it had under way.
    pub(super) fn dies(&mut self, slot: usize, now: Nanos) {
        self.under_way.retain(|(host, ..)| *host != slot);
        self.settle(|asked| asked.slot == slot, End::Nothing(now));
    }

    /// The store has granted a lease, or hands it over; perhaps to a message that it had seen before.
    fn grants(&mut self, lease: (Name, Fence), token: &Token, (by, again): (Life, bool), now: Nanos) {
        let (name, fence) = lease.clone();
        let token = token.random();
        let given = self.asked.get(token).is_some_and(|asked| asked.given);
        let grant = || Granted {
            token: token.to_owned(),
            by,
            unknown: again || given,
        };
        self.granted.entry(lease).or_insert_with(grant).by = by;
        if let Some(standing) = self.standing.get_mut(&name).filter(|one| one.fence == fence) {
            standing.since = now;
        }
    }

    /// The store has taken back what this token had, if anything, and its client will hear of it.
    fn gives(&mut self, token: &Token) {
        if let Some(asked) = self.asked.get_mut(token.random()) {
            asked.given = true;
        }
    }

    /// The store has this lease of a name now, or none, after this token has given back what it had.
    fn sees(&mut self, name: &Name, lease: Option<&Lease>, given: Option<&Token>, now: Nanos) {
        let lease = lease.and_then(|lease| Some((lease.fence?, lease.remaining?)));
        let due = lease.map_or(now, |(_, left)| {
            now + u64::try_from(left.as_nanos()).unwrap_or(u64::MAX)
        });
        let fence = lease.map(|(fence, _)| fence);
        if let Some(standing) = self.standing.get_mut(name) {
            if Some(standing.fence) == fence {
                standing.due = due;
                return;
            }
            let (before, span) = (standing.fence, (standing.since, standing.due.min(now)));
            let undone = given.filter(|_| now < standing.due);
            self.standing.remove(name);
            self.gone((name.clone(), before), span, undone);
        }
        if let Some(fence) = fence {
            let since = now;
            self.standing.insert(name.clone(), Standing { fence, since, due });
        }
    }

    fn gone(&mut self, lease: (Name, Fence), (since, at): (Nanos, Nanos), given: Option<&Token>) {
        let Some(Granted { token, unknown, .. }) = self.granted.get(&lease) else {
            return;
        };
        let Some(asked) = self.asked.get(token) else {
            return;
        };
        if let End::Nothing(ended) = asked.end
            && at > ended.max(since)
        {
            let from = ended.max(since);
            let kept = u64::try_from(asked.kept.as_nanos()).unwrap_or(u64::MAX);
            // Clocks part by one part in a hundred; the rest is for what is rounded.
            let margin = kept / 100 + 100 * MS + self.back;
            let open = self.ways.between((asked.slot, asked.life), from, at);
            let undone = given.is_some_and(|given| given.random() == token);
            let open = if *unknown && !undone { 0 } else { open };
            self.found.stood(at - from, kept + margin, (open, undone));
        }
    }

    /// Nothing more happens.
    fn close(&mut self, now: Nanos) {
        for (name, standing) in std::mem::take(&mut self.standing) {
            let span = (standing.since, standing.due.min(now));
            self.gone((name, standing.fence), span, None);
        }
    }
}

impl State {
    /// Looks at what is in the store, after something has happened to it: a message, or a fault.
    pub(super) fn watch_leases(&mut self, verb: Option<&Verb>) {
        let given = match verb {
            Some(Verb::Release(Giving {
                claim: Claim::Owner(token),
                ..
            })) => Some(token),
            _ => None,
        };
        if let Some(token) = given {
            self.orphans.gives(token);
        }
        for name in &self.names {
            let lease = self.engine.lease(name, self.now);
            self.orphans.sees(name, lease.as_ref(), given, self.now);
        }
    }

    /// A message that arrived twice has asked for this lease: it may be nobody's, through no fault of its client.
    pub(super) fn repeated(&self, lease: &Lease) -> bool {
        let token = lease
            .fence
            .and_then(|fence| self.orphans.granted.get(&(lease.name.clone(), fence)));
        self.wire.repeated || token.is_some_and(|grant| self.network.repeated.contains(&grant.token))
    }

    /// A daemon has asked for this lease that has ended with something left to do: nobody else can do it.
    pub(super) fn deserted(&self, lease: &Lease) -> bool {
        let granted = lease
            .fence
            .and_then(|fence| self.orphans.granted.get(&(lease.name.clone(), fence)));
        granted.is_some_and(|granted| self.orphans.deserters.contains(&granted.by))
    }

    /// This token has the lease of a name now, asked for by this process, perhaps by a message that the store had seen before.
    pub(super) fn owns(&mut self, name: &Name, token: &Token, asked: (Life, bool)) {
        let lease = self.engine.lease(name, self.now);
        if let Some(fence) = lease.and_then(|lease| lease.fence) {
            self.orphans.grants((name.clone(), fence), token, asked, self.now);
        }
    }

    /// How long all orphans of this history stood.
    pub(super) fn orphaned(&mut self) -> Orphans {
        self.watch_leases(None);
        self.orphans.close(self.now);
        self.orphans.found
    }
}

#[cfg(test)]
mod tests;

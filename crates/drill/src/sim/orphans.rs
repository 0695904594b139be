//! Orphans: leases that stand in the store although their acquire has ended without a hold. The client undoes them as soon as it can
//! reach the store; where it cannot, they run out.
//!
//! A task has one acquire at a time and a class of its own, so what is asked for under that class meanwhile belongs to that acquire.

use std::collections::BTreeMap;
use std::time::Duration;

use leasehold_core::store::{Ask, CLAIM, Lease};
use leasehold_core::{Fence, Name, Token};

use super::drift::{MS, Nanos, SEC};
use super::world::State;

/// How long orphans stood.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Orphans {
    /// How many there were.
    pub count: u64,
    /// Gone within a second.
    pub soon: u64,
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
        self.overdue += other.overdue;
        self.oldest = self.oldest.max(other.oldest);
    }

    fn stood(&mut self, age: Nanos, allowed: Nanos) {
        self.add(Self {
            count: 1,
            soon: u64::from(age <= SEC),
            overdue: u64::from(age > allowed),
            oldest: (age, allowed),
        });
    }
}

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

/// The books of one history.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    /// By the token's random part.
    asked: BTreeMap<String, Asked>,
    /// Which token was granted which fence.
    granted: BTreeMap<Fence, String>,
    standing: BTreeMap<Name, Standing>,
    /// How far the store's clock was stepped back: everything in it lasts that much longer.
    pub(super) back: Nanos,
    pub(super) found: Orphans,
}

impl Ledger {
    /// A message is sent that may be granted.
    pub(super) fn asks(&mut self, slot: usize, life: u32, ask: &Ask) {
        let token = &ask.token;
        let asked = self.asked.entry(token.random().to_owned());
        let asked = asked.or_insert_with(|| Asked {
            slot,
            life,
            class: token.class().to_owned(),
            kept: CLAIM,
            end: End::Open,
        });
        asked.kept = asked.kept.max(ask.kept());
    }

    fn settle(&mut self, of: impl Fn(&Asked) -> bool, end: End) {
        let open = self.asked.values_mut().filter(|asked| asked.end == End::Open);
        open.filter(|asked| of(asked)).for_each(|asked| asked.end = end);
    }

    /// An acquire begins: what was asked for before was for a hold, to get its lease after the fact.
    pub(super) fn begins(&mut self, (slot, life, class): Asker<'_>) {
        let mine = |asked: &Asked| (asked.slot, asked.life, asked.class.as_str()) == (slot, life, class);
        self.settle(mine, End::Held);
    }

    /// An acquire has ended, answered or given up.
    pub(super) fn ends(&mut self, (slot, life, class): Asker<'_>, held: bool, now: Nanos) {
        let mine = |asked: &Asked| (asked.slot, asked.life, asked.class.as_str()) == (slot, life, class);
        self.settle(mine, if held { End::Held } else { End::Nothing(now) });
    }

    /// A process is gone, and with it every acquire that it had under way.
    pub(super) fn dies(&mut self, slot: usize, now: Nanos) {
        self.settle(|asked| asked.slot == slot, End::Nothing(now));
    }

    /// The store has granted a lease, or hands it over.
    fn grants(&mut self, name: &Name, token: &Token, fence: Fence, now: Nanos) {
        self.granted.insert(fence, token.random().to_owned());
        if let Some(standing) = self.standing.get_mut(name).filter(|one| one.fence == fence) {
            standing.since = now;
        }
    }

    /// The store has this lease of a name now, or none.
    fn sees(&mut self, name: &Name, lease: Option<&Lease>, now: Nanos) {
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
            let (before, since, gone) = (standing.fence, standing.since, standing.due.min(now));
            self.standing.remove(name);
            self.gone(before, since, gone);
        }
        if let Some(fence) = fence {
            let since = now;
            self.standing.insert(name.clone(), Standing { fence, since, due });
        }
    }

    fn gone(&mut self, fence: Fence, since: Nanos, at: Nanos) {
        let token = self.granted.get(&fence);
        let Some(asked) = token.and_then(|token| self.asked.get(token)) else {
            return;
        };
        if let End::Nothing(ended) = asked.end
            && at > ended.max(since)
        {
            let kept = u64::try_from(asked.kept.as_nanos()).unwrap_or(u64::MAX);
            // Clocks part by one part in a hundred; the rest is for what is rounded.
            let margin = kept / 100 + 100 * MS + self.back;
            self.found.stood(at - ended.max(since), kept + margin);
        }
    }

    /// Nothing more happens.
    fn close(&mut self, now: Nanos) {
        for (_, standing) in std::mem::take(&mut self.standing) {
            self.gone(standing.fence, standing.since, standing.due.min(now));
        }
    }
}

impl State {
    /// Looks at what is in the store, after something has happened to it.
    pub(super) fn watch_leases(&mut self) {
        for name in &self.names {
            let lease = self.engine.lease(name, self.now);
            self.orphans.sees(name, lease.as_ref(), self.now);
        }
    }

    /// This token has the lease of a name now.
    pub(super) fn owns(&mut self, name: &Name, token: &Token) {
        let lease = self.engine.lease(name, self.now);
        if let Some(fence) = lease.and_then(|lease| lease.fence) {
            self.orphans.grants(name, token, fence, self.now);
        }
    }

    /// How long all orphans of this history stood.
    pub(super) fn orphaned(&mut self) -> Orphans {
        self.watch_leases();
        self.orphans.close(self.now);
        self.orphans.found
    }
}

#[cfg(test)]
mod tests {
    use leasehold_core::rng::SeededRandom;
    use leasehold_core::{Holder, Ttl};

    use super::*;

    const WHO: Asker<'_> = (0, 1, "c0");

    fn fence() -> Fence {
        Fence::new(7).unwrap()
    }

    fn name() -> Name {
        Name::new("sim:0").unwrap()
    }

    fn lease(left: u64) -> Lease {
        Lease {
            name: name(),
            holder: "c0.1".to_owned(),
            class: None,
            fence: Some(fence()),
            remaining: Some(Duration::from_millis(left)),
            age: None,
            waiters: None,
        }
    }

    /// One acquire, granted after a second for two seconds.
    fn granted() -> Ledger {
        let token = Token::fresh(&Holder::new("c0.1").unwrap(), "c0", &SeededRandom::new(1));
        let mut books = Ledger::default();
        let ttl = Ttl::new(Duration::from_secs(2)).unwrap();
        books.begins(WHO);
        books.asks(0, 1, &Ask::new(name(), token.clone(), ttl));
        books.grants(&name(), &token, fence(), SEC);
        books.sees(&name(), Some(&lease(2_000)), SEC);
        books
    }

    /// How many, how many of them soon, how many too late, and the age of the oldest in milliseconds.
    fn found(mut books: Ledger) -> (u64, u64, u64, u64) {
        books.close(60 * SEC);
        let found = books.found;
        (found.count, found.soon, found.overdue, found.oldest.0 / MS)
    }

    #[test]
    fn what_is_held_is_no_orphan_and_what_is_undone_is_one_until_then() {
        let mut books = granted();
        books.ends(WHO, true, 1_500 * MS);
        books.sees(&name(), None, 1_700 * MS);
        assert_eq!(found(books), (0, 0, 0, 0));
        let mut books = granted();
        books.ends(WHO, false, 1_500 * MS);
        books.sees(&name(), None, 1_700 * MS);
        assert_eq!(found(books), (1, 1, 0, 200));
        let mut books = granted();
        books.dies(0, 1_500 * MS);
        books.sees(&name(), None, 1_700 * MS);
        assert_eq!(found(books), (1, 1, 0, 200));
    }

    #[test]
    fn it_counts_from_its_grant_if_that_was_later() {
        let mut books = granted();
        books.ends(WHO, false, 500 * MS);
        books.sees(&name(), None, 1_700 * MS);
        assert_eq!(found(books), (1, 1, 0, 700));
    }

    #[test]
    fn one_that_runs_out_was_gone_then_and_not_when_it_was_next_looked_for() {
        let mut books = granted();
        books.ends(WHO, false, 1_500 * MS);
        assert_eq!(found(books), (1, 0, 0, 1_500));
    }

    #[test]
    fn one_that_something_keeps_alive_is_overdue() {
        let mut books = granted();
        books.ends(WHO, false, 1_500 * MS);
        books.sees(&name(), Some(&lease(10_000)), 2 * SEC);
        assert_eq!(found(books), (1, 0, 1, 10_500));
    }
}

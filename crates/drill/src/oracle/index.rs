//! Indexes a history: assigns records to acquires and collects the grants.

use std::cell::Cell;
use std::collections::{BTreeMap, HashMap};

use leasehold_core::Fence;

use super::attempt::{AppliedWrite, Attempt, ClassTerms, GrantedLease, HoldClaim, TargetWrite, WorkReport};
use crate::history::{ClientEvent, HistoryEntry, HistoryRecord, StoreExecution};

// Real processes are scheduled late, and write their records later still.
const DEFAULT_SLACK_NANOS: u64 = 1_000_000_000;

/// A history, indexed by client, acquire and time.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct HistoryIndex<'a> {
    /// The terms of each class and client from each moment on, because a policy may change while in use.
    /// The empty client name holds the terms recorded by any client.
    pub classes: BTreeMap<(&'a str, &'a str), Vec<(u64, ClassTerms)>>,
    /// Every acquire, by client and in order.
    pub attempts: BTreeMap<&'a str, Vec<Attempt<'a>>>,
    /// Every grant, of all clients.
    pub grants: Vec<GrantedLease<'a>>,
    /// Every event by client, ordered by sequence number.
    pub events: BTreeMap<&'a str, Vec<(u64, &'a ClientEvent)>>,
    /// Each client's counters, and when they were recorded.
    pub tallies: BTreeMap<&'a str, (u64, &'a BTreeMap<String, i64>)>,
    /// The target's applied writes, in commit order.
    pub applied: Vec<AppliedWrite<'a>>,
    /// Leases found in the store: time, lock name, holder, fence.
    pub leases: Vec<(u64, &'a str, &'a str, Option<Fence>)>,
    /// Every request that the store executed, in order.
    pub executions: Vec<(u64, &'a StoreExecution)>,
    /// The owner's requests for a lease, and what began or ended it, by name and fence, in order.
    pub lease_executions: HashMap<(&'a str, Fence), Vec<(u64, &'a StoreExecution)>>,
    /// When a client was told that the lease with this name and fence is not its own.
    pub not_owned_at: HashMap<(&'a str, &'a str, Fence), u64>,
    /// When the store lost data, in order.
    pub store_losses: Vec<u64>,
    /// When an operator first broke the lease with this name and fence.
    pub broken_leases: HashMap<(&'a str, Fence), u64>,
    /// When each fault began, in order.
    pub faults: Vec<u64>,
    /// When all faults were over.
    pub calm: Option<u64>,
    /// What was left when everything had been released: time, client, kind, count.
    pub leftovers: Vec<(u64, &'a str, &'a str, u64)>,
    /// When every client had ended.
    pub quiet: Option<u64>,
    /// When each killed client was killed.
    pub killed_at: BTreeMap<&'a str, u64>,
    /// Pauses of each client: start and end.
    pub pauses: BTreeMap<&'a str, Vec<(u64, u64)>>,
    /// Time of each client's last record.
    pub last_record_at: BTreeMap<&'a str, u64>,
    /// Time of the last record.
    pub end: u64,
    /// How much later than it happens something may be recorded.
    pub slack: u64,
    /// The first record about an acquire that was never asked for: client and number.
    pub unmatched_record: Option<(&'a str, u64)>,
    // Position of each client's attempts, by number.
    attempt_positions: HashMap<(&'a str, u64), usize>,
    // Interior mutability, because the checks count their work through a shared reference.
    work_count: Cell<u64>,
}

impl<'a> HistoryIndex<'a> {
    /// Indexes the records.
    #[must_use]
    pub fn new(records: &'a [HistoryRecord]) -> Self {
        let mut lines: Vec<&HistoryRecord> = records.iter().collect();
        // A stable sort keeps the file's order among records of the same time.
        lines.sort_by_key(|record| record.at);
        let mut case = Self { slack: DEFAULT_SLACK_NANOS, ..Self::default() };
        for record in &lines {
            case.count_work(1);
            case.add_record(record);
            case.last_record_at.insert(&record.who, record.at);
            case.end = record.at;
        }
        case.applied.sort_by_key(|row| row.place);
        for events in case.events.values_mut() {
            events.sort_by_key(|(_, event)| event.seq);
        }
        case.link_events();
        case
    }

    /// Whether an attempt's class was fail-open at some time between request and answer, and whether it
    /// was so all that time.
    #[must_use]
    pub fn was_fail_open(&self, attempt: &Attempt<'_>) -> Option<(bool, bool)> {
        let known = self.terms_of(attempt)?;
        let before = known.partition_point(|(at, _)| *at <= attempt.sent);
        let end = attempt.answered.map_or(attempt.sent, |(at, ..)| at);
        let mut changes = known.get(before.saturating_sub(1)..)?.iter();
        let (_, first) = changes.next()?;
        self.count_work(1);
        let (mut once, mut always) = (first.fail_open, first.fail_open);
        for (_, terms) in changes.take_while(|(at, _)| *at <= end) {
            self.count_work(1);
            once |= terms.fail_open;
            always &= terms.fail_open;
        }
        Some((once, always))
    }

    /// The terms of an attempt's class. If the class changed meanwhile: the widest of them.
    #[must_use]
    pub fn widest_terms(&self, attempt: &Attempt<'_>) -> Option<ClassTerms> {
        let known = self.terms_of(attempt)?;
        let before = known.partition_point(|(at, _)| *at <= attempt.sent);
        let end = attempt.ended_at().unwrap_or(u64::MAX);
        let mut changes = known.get(before.saturating_sub(1)..)?.iter();
        let (_, first) = changes.next()?;
        let mut widest = *first;
        self.count_work(1);
        for (_, terms) in changes.take_while(|(at, _)| *at <= end) {
            self.count_work(1);
            widest.ttl = widest.ttl.max(terms.ttl);
            widest.usable = widest.usable.max(terms.usable);
            widest.fail_open |= terms.fail_open;
            widest.continues |= terms.continues;
        }
        Some(widest)
    }

    /// The class as this client recorded it, or else as any client did.
    fn terms_of<'s>(&'s self, attempt: &'s Attempt<'_>) -> Option<&'s Vec<(u64, ClassTerms)>> {
        // Workers of one fleet share their policies, so another client's record is as good.
        let own = self.classes.get(&(attempt.class, attempt.who));
        own.or_else(|| self.classes.get(&(attempt.class, "")))
    }

    /// Until when the client was paused, if it was paused at `at`.
    #[must_use]
    pub fn paused_at(&self, who: &str, at: u64) -> Option<u64> {
        let pauses = self.pauses.get(who)?;
        // Pauses do not overlap and are in order.
        let before = pauses.partition_point(|(from, _)| *from <= at);
        let (_, to) = pauses.get(before.checked_sub(1)?)?;
        (at <= *to).then_some(*to)
    }

    /// Number of items examined so far, over all passes.
    ///
    /// Tests use it to show that the work is bounded by a constant per record and per finding.
    #[must_use]
    pub fn work_count(&self) -> u64 {
        self.work_count.get()
    }

    /// A check examined this many items in one of its loops.
    pub(crate) fn count_work(&self, things: usize) {
        let things = u64::try_from(things).unwrap_or(u64::MAX);
        self.work_count.set(self.work_count.get().saturating_add(things));
    }

    /// When the store first lost data at or after `from`.
    #[must_use]
    pub fn store_loss_after(&self, from: u64) -> Option<u64> {
        let first = self.store_losses.partition_point(|at| *at < from);
        self.store_losses.get(first).copied()
    }

    /// When the lease with this fence ends, as the store had it at `at`; `Some(None)` if the store had
    /// ended it. `None` if the history does not show it, or an operator or a loss may have ended it.
    #[must_use]
    pub fn lease_end(&self, name: &str, fence: Fence, at: u64) -> Option<Option<u64>> {
        let of_lease = self.lease_executions.get(&(name, fence))?;
        let before = of_lease.partition_point(|(executed, _)| *executed <= at);
        let (seen, last) = of_lease.get(before.checked_sub(1)?)?;
        let lost = self.store_loss_after(*seen).is_some_and(|lost| lost <= at);
        let broken = self.broken_leases.get(&(name, fence)).is_some_and(|broken| *broken <= at);
        let there = last.after.filter(|lease| lease.fence == fence);
        (!lost && !broken).then(|| there.map(|lease| lease.expires))
    }

    /// The first thing that is missing: an acquire that records refer to, or the terms of a class.
    #[must_use]
    pub fn missing(&self) -> Option<String> {
        if let Some((who, attempt)) = self.unmatched_record {
            return Some(format!("acquire {attempt} of {who} was never asked for"));
        }
        let unknown = self.all_attempts().find(|attempt| self.terms_of(attempt).is_none())?;
        let Attempt { who, class, .. } = unknown;
        Some(format!("the history does not define class {class} of {who}"))
    }

    /// Every acquire of every client.
    pub fn all_attempts(&self) -> impl Iterator<Item = &Attempt<'a>> {
        self.attempts.values().flatten()
    }

    fn add_record(&mut self, record: &'a HistoryRecord) {
        let (at, who) = (record.at, record.who.as_str());
        match &record.what {
            HistoryEntry::Class { class, ttl, usable, fail_open, continues } => {
                let terms =
                    ClassTerms { ttl: *ttl, usable: *usable, fail_open: *fail_open, continues: *continues };
                for of in [who, ""] {
                    let known = self.classes.entry((class, of)).or_default();
                    // Workers record the class before each acquire; only changes are kept, to bound the work.
                    if known.last().is_none_or(|(_, last)| *last != terms) {
                        known.push((at, terms));
                    }
                }
            }
            HistoryEntry::Asked { attempt, name, class } => {
                let mine = self.attempts.entry(who).or_default();
                self.attempt_positions.insert((who, *attempt), mine.len());
                mine.push(Attempt {
                    who,
                    number: *attempt,
                    name,
                    class,
                    sent: at,
                    answered: None,
                    claims: Vec::new(),
                    writes: Vec::new(),
                    releasing: None,
                    release_answered: None,
                    returned: None,
                    reported: None,
                    events: Vec::new(),
                    granted: Vec::new(),
                });
            }
            HistoryEntry::Answered { attempt, answer, fence, .. } => {
                if let Some(mine) = self.find_attempt(who, *attempt) {
                    mine.answered = Some((at, *answer, *fence));
                }
            }
            HistoryEntry::Claimed { attempt, until, proven_until, fence } => {
                let claim = HoldClaim { at, until: *until, proven_until: *proven_until, fence: *fence };
                if let Some(mine) = self.find_attempt(who, *attempt) {
                    mine.claims.push(claim);
                }
            }
            HistoryEntry::Written { attempt, write, fence, answer, .. } => {
                let write = TargetWrite { number: *write, at, fence: *fence, answer: *answer };
                if let Some(mine) = self.find_attempt(who, *attempt) {
                    mine.writes.push(write);
                }
            }
            HistoryEntry::Returned { attempt, value } => {
                if let Some(mine) = self.find_attempt(who, *attempt) {
                    mine.returned = Some(*value);
                }
            }
            HistoryEntry::Reported { attempt, value, lost } => {
                if let Some(mine) = self.find_attempt(who, *attempt) {
                    mine.reported = Some(WorkReport { at, value: *value, lost: *lost });
                }
            }
            HistoryEntry::Releasing { attempt } => {
                if let Some(mine) = self.find_attempt(who, *attempt) {
                    mine.releasing = Some(at);
                }
            }
            HistoryEntry::ReleaseAnswered { attempt, outcome, until } => {
                if let Some(mine) = self.find_attempt(who, *attempt) {
                    mine.release_answered = Some((at, *outcome, *until));
                }
            }
            HistoryEntry::NotOwned { name, fence } => {
                self.not_owned_at.entry((who, name, *fence)).or_insert(at);
            }
            HistoryEntry::Executed(executed) => {
                self.executions.push((at, executed));
                let [before, after] =
                    [executed.before, executed.after].map(|lease| lease.map(|lease| lease.fence));
                // A foreign request that changes nothing says nothing about the lease, and there are many.
                if !executed.own && before == after {
                    return;
                }
                for fence in before.into_iter().chain(after.filter(|fence| before != Some(*fence))) {
                    let of_lease = self.lease_executions.entry((&executed.name, fence)).or_default();
                    of_lease.push((at, executed));
                }
            }
            HistoryEntry::Event(event) => self.events.entry(who).or_default().push((at, event)),
            HistoryEntry::Tally { counters } => {
                self.tallies.insert(who, (at, counters));
            }
            HistoryEntry::Applied { place, name, writer, write, task, fence } => {
                self.applied.push(AppliedWrite {
                    at,
                    place: *place,
                    name,
                    writer,
                    write: *write,
                    task: *task,
                    fence: *fence,
                })
            }
            HistoryEntry::Lease { name, holder, fence } => self.leases.push((at, name, holder, *fence)),
            HistoryEntry::Quiet => self.quiet = Some(at),
            HistoryEntry::Forgot => self.store_losses.push(at),
            HistoryEntry::Broke { name, fence } => {
                self.broken_leases.entry((name, *fence)).or_insert(at);
            }
            HistoryEntry::Slack { late } => self.slack = *late,
            HistoryEntry::Calm => self.calm = Some(at),
            HistoryEntry::Remains { kind, count } => self.leftovers.push((at, who, kind, *count)),
            HistoryEntry::Signal { client, signal } => match signal.as_str() {
                "kill" => {
                    self.killed_at.entry(client).or_insert(at);
                }
                "stop" => self.pauses.entry(client).or_default().push((at, u64::MAX)),
                "continue" => {
                    let last = self.pauses.get_mut(client.as_str()).and_then(|all| all.last_mut());
                    if let Some((_, to)) = last {
                        *to = at;
                    }
                }
                _ => {}
            },
            HistoryEntry::Fault { mends: false, .. } => self.faults.push(at),
            HistoryEntry::Fault { .. } | HistoryEntry::Gap { .. } | HistoryEntry::Effort { .. } => {}
        }
    }

    // Through a map: a late record may belong to any earlier attempt, and a search would be quadratic.
    fn find_attempt(&mut self, who: &'a str, number: u64) -> Option<&mut Attempt<'a>> {
        let Some(place) = self.attempt_positions.get(&(who, number)) else {
            self.unmatched_record = self.unmatched_record.or(Some((who, number)));
            return None;
        };
        self.attempts.get_mut(who)?.get_mut(*place)
    }

    // A client has one acquire per name and class at a time. So a hold belongs to the latest such
    // acquire that was sent before the hold's first event.
    fn link_events(&mut self) {
        for (who, events) in &self.events {
            let Some(attempts) = self.attempts.get_mut(who) else {
                continue;
            };
            let mut asked: HashMap<(&str, &str), Vec<usize>> = HashMap::new();
            for (index, attempt) in attempts.iter().enumerate() {
                // The empty class is the fallback for events under another class: they match by name.
                for class in [attempt.class, ""] {
                    asked.entry((attempt.name, class)).or_default().push(index);
                }
            }
            let mut owner: HashMap<u64, usize> = HashMap::new();
            let mut unproven: HashMap<u64, u64> = HashMap::new();
            self.work_count.set(self.work_count.get() + u64::try_from(events.len()).unwrap_or(0));
            for (at, event) in events {
                let index = match owner.get(&event.hold) {
                    Some(index) => *index,
                    None if super::event::begins_hold(&event.event) => {
                        let name = event.name.as_deref().unwrap_or("");
                        let mine = asked.get(&(name, event.class.as_str()));
                        let Some(mine) = mine.or_else(|| asked.get(&(name, ""))) else {
                            continue;
                        };
                        let sent = |index: &usize| attempts.get(*index).is_some_and(|one| one.sent <= *at);
                        let after = mine.partition_point(sent);
                        let Some(index) = after.checked_sub(1).and_then(|last| mine.get(last)) else {
                            continue;
                        };
                        owner.insert(event.hold, *index);
                        *index
                    }
                    None => continue,
                };
                let Some(attempt) = attempts.get_mut(index) else {
                    continue;
                };
                attempt.events.push((*at, event));
                if event.event == "unproven" {
                    unproven.insert(event.hold, *at);
                }
                if let Some(fence) = super::event::granted_fence(event) {
                    // A lease is taken again only after the last one was in doubt. A healed hold may
                    // have the lease that the acquire itself was granted.
                    let again = unproven.get(&event.hold).filter(|_| event.event == "proven_again");
                    let sent = again.copied().unwrap_or(attempt.sent);
                    attempt.granted.push((fence, sent));
                    self.grants.push(GrantedLease {
                        name: attempt.name,
                        who,
                        attempt: attempt.number,
                        fence,
                        sent,
                        at: *at,
                    });
                }
            }
        }
    }
}

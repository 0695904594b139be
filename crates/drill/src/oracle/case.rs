//! A history in order: which lines belong to which acquire, and which grants there were.

use std::cell::Cell;
use std::collections::{BTreeMap, HashMap};

use leasehold_core::Fence;

use super::attempt::{Applied, Attempt, Claim, Ending, Grant, Terms, Write};
use crate::history::{Entry, Record, Transition};

/// What real machines need: processes are scheduled late, and write their lines later still.
const SLACK: u64 = 1_000_000_000;

/// A history, put in order.
#[derive(Debug, Default)]
pub struct Case<'a> {
    /// The terms of each class and client from each moment on: a policy may change while it is in use. Under no client, those
    /// of everyone.
    pub classes: BTreeMap<(&'a str, &'a str), Vec<(u64, Terms)>>,
    /// Every acquire, by client and in their order.
    pub attempts: BTreeMap<&'a str, Vec<Attempt<'a>>>,
    /// Every grant.
    pub grants: Vec<Grant<'a>>,
    /// Every event by client, in the order of their numbers.
    pub events: BTreeMap<&'a str, Vec<(u64, &'a Transition)>>,
    /// Each client's own counters.
    pub tallies: BTreeMap<&'a str, (u64, &'a BTreeMap<String, i64>)>,
    /// The target's ledger, in its order.
    pub applied: Vec<Applied<'a>>,
    /// Leases that were seen: when, of what, whose, with which fence.
    pub leases: Vec<(u64, &'a str, &'a str, Option<Fence>)>,
    /// When the store forgot, in order.
    pub forgot: Vec<u64>,
    /// When an operator took the lease of this name with this fence away, at the first time.
    pub broke: HashMap<(&'a str, Fence), u64>,
    /// When a fault struck, in order.
    pub faults: Vec<u64>,
    /// Every fault is over.
    pub calm: Option<u64>,
    /// What was found when everything had been given back: when, of whom, what, how many.
    pub remains: Vec<(u64, &'a str, &'a str, u64)>,
    /// Everything has ended.
    pub quiet: Option<u64>,
    /// Clients that were killed, and when.
    pub killed: BTreeMap<&'a str, u64>,
    /// When each client stood still: from, to.
    pub pauses: BTreeMap<&'a str, Vec<(u64, u64)>>,
    /// Everyone's last line.
    pub heard: BTreeMap<&'a str, u64>,
    /// The last line.
    pub end: u64,
    /// By how much later than it happens something may be noticed and written down.
    pub slack: u64,
    /// The first line of an acquire that nobody asked for: whose, which.
    pub unplaced: Option<(&'a str, u64)>,
    /// Where each client's attempts are, by number.
    places: HashMap<(&'a str, u64), usize>,
    /// How many things were looked at, over all passes: see [`Case::looks`].
    looks: Cell<u64>,
}

impl<'a> Case<'a> {
    /// Puts these lines in order.
    #[must_use]
    pub fn new(records: &'a [Record]) -> Self {
        let mut lines: Vec<&Record> = records.iter().collect();
        lines.sort_by_key(|record| record.at);
        let mut case = Self {
            slack: SLACK,
            ..Self::default()
        };
        for record in &lines {
            case.looked(1);
            case.place(record);
            case.heard.insert(&record.who, record.at);
            case.end = record.at;
        }
        case.applied.sort_by_key(|row| row.place);
        for events in case.events.values_mut() {
            events.sort_by_key(|(_, event)| event.seq);
        }
        case.link();
        case
    }

    /// Whether an attempt's class was fail-open at some time between its asking and its answer, and whether it was so all the time.
    #[must_use]
    pub fn fail_open(&self, attempt: &Attempt<'_>) -> Option<(bool, bool)> {
        let known = self.classes_of(attempt)?;
        let before = known.partition_point(|(at, _)| *at <= attempt.sent);
        let end = attempt.answered.map_or(attempt.sent, |(at, ..)| at);
        let mut changes = known.get(before.saturating_sub(1)..)?.iter();
        let (_, first) = changes.next()?;
        self.looked(1);
        let (mut once, mut always) = (first.fail_open, first.fail_open);
        for (_, terms) in changes.take_while(|(at, _)| *at <= end) {
            self.looked(1);
            once |= terms.fail_open;
            always &= terms.fail_open;
        }
        Some((once, always))
    }

    /// The terms of an attempt's class: where the class changed while it was held, the widest of them.
    #[must_use]
    pub fn terms(&self, attempt: &Attempt<'_>) -> Option<Terms> {
        let known = self.classes_of(attempt)?;
        let before = known.partition_point(|(at, _)| *at <= attempt.sent);
        let end = attempt.ended().unwrap_or(u64::MAX);
        let mut changes = known.get(before.saturating_sub(1)..)?.iter();
        let (_, first) = changes.next()?;
        let mut widest = *first;
        self.looked(1);
        for (_, terms) in changes.take_while(|(at, _)| *at <= end) {
            self.looked(1);
            widest.ttl = widest.ttl.max(terms.ttl);
            widest.usable = widest.usable.max(terms.usable);
            widest.fail_open |= terms.fail_open;
            widest.continues |= terms.continues;
        }
        Some(widest)
    }

    /// A client's own word for the class, or anyone's: workers of one fleet share their policies.
    fn classes_of<'s>(&'s self, attempt: &'s Attempt<'_>) -> Option<&'s Vec<(u64, Terms)>> {
        let own = self.classes.get(&(attempt.class, attempt.who));
        own.or_else(|| self.classes.get(&(attempt.class, "")))
    }

    /// The client stood still at this moment, until then.
    #[must_use]
    pub fn paused_at(&self, who: &str, at: u64) -> Option<u64> {
        let pauses = self.pauses.get(who)?;
        // They do not overlap and are in order.
        let before = pauses.partition_point(|(from, _)| *from <= at);
        let (_, to) = pauses.get(before.checked_sub(1)?)?;
        (at <= *to).then_some(*to)
    }

    /// How many things have been looked at while this history was put in order and judged. It bounds the work: a constant
    /// for each line and each finding, whatever the lines say.
    #[must_use]
    pub fn looks(&self) -> u64 {
        self.looks.get()
    }

    /// A check has looked at so many things in one of its loops.
    pub(crate) fn looked(&self, things: usize) {
        let things = u64::try_from(things).unwrap_or(u64::MAX);
        self.looks.set(self.looks.get().saturating_add(things));
    }

    /// When the store forgot for the first time from then on.
    #[must_use]
    pub fn forgot_after(&self, from: u64) -> Option<u64> {
        let first = self.forgot.partition_point(|at| *at < from);
        self.forgot.get(first).copied()
    }

    /// What is missing at first: an acquire that lines speak of, or the terms of a class that was asked under.
    #[must_use]
    pub fn lacks(&self) -> Option<String> {
        if let Some((who, attempt)) = self.unplaced {
            return Some(format!("acquire {attempt} of {who} was never asked for"));
        }
        let unknown = self.all().find(|attempt| self.classes_of(attempt).is_none())?;
        let Attempt { who, class, .. } = unknown;
        Some(format!("nobody says what class {class} of {who} means"))
    }

    /// Every acquire of everyone.
    pub fn all(&self) -> impl Iterator<Item = &Attempt<'a>> {
        self.attempts.values().flatten()
    }

    fn place(&mut self, record: &'a Record) {
        let (at, who) = (record.at, record.who.as_str());
        match &record.what {
            Entry::Class {
                class,
                ttl,
                usable,
                fail_open,
                continues,
            } => {
                let terms = Terms {
                    ttl: *ttl,
                    usable: *usable,
                    fail_open: *fail_open,
                    continues: *continues,
                };
                for of in [who, ""] {
                    let known = self.classes.entry((class, of)).or_default();
                    // Who says the same before each acquire has changed nothing.
                    if known.last().is_none_or(|(_, last)| *last != terms) {
                        known.push((at, terms));
                    }
                }
            }
            Entry::Asked { attempt, name, class } => {
                let mine = self.attempts.entry(who).or_default();
                self.places.insert((who, *attempt), mine.len());
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
                    returned: None,
                    reported: None,
                    events: Vec::new(),
                    granted: Vec::new(),
                });
            }
            Entry::Answered {
                attempt,
                answer,
                fence,
                ..
            } => {
                if let Some(mine) = self.find(who, *attempt) {
                    mine.answered = Some((at, *answer, *fence));
                }
            }
            Entry::Claimed {
                attempt,
                until,
                proven_until,
                fence,
            } => {
                let claim = Claim {
                    at,
                    until: *until,
                    proven_until: *proven_until,
                    fence: *fence,
                };
                if let Some(mine) = self.find(who, *attempt) {
                    mine.claims.push(claim);
                }
            }
            Entry::Written {
                attempt,
                write,
                fence,
                answer,
                ..
            } => {
                let write = Write {
                    number: *write,
                    at,
                    fence: *fence,
                    answer: *answer,
                };
                if let Some(mine) = self.find(who, *attempt) {
                    mine.writes.push(write);
                }
            }
            Entry::Returned { attempt, value } => {
                if let Some(mine) = self.find(who, *attempt) {
                    mine.returned = Some(*value);
                }
            }
            Entry::Reported { attempt, value, lost } => {
                if let Some(mine) = self.find(who, *attempt) {
                    mine.reported = Some(Ending {
                        at,
                        value: *value,
                        lost: *lost,
                    });
                }
            }
            Entry::Releasing { attempt } => {
                if let Some(mine) = self.find(who, *attempt) {
                    mine.releasing = Some(at);
                }
            }
            Entry::Event(event) => self.events.entry(who).or_default().push((at, event)),
            Entry::Tally { counters } => {
                self.tallies.insert(who, (at, counters));
            }
            Entry::Applied {
                place,
                name,
                writer,
                write,
                task,
                fence,
            } => self.applied.push(Applied {
                at,
                place: *place,
                name,
                writer,
                write: *write,
                task: *task,
                fence: *fence,
            }),
            Entry::Lease { name, holder, fence } => self.leases.push((at, name, holder, *fence)),
            Entry::Quiet => self.quiet = Some(at),
            Entry::Forgot => self.forgot.push(at),
            Entry::Broke { name, fence } => {
                self.broke.entry((name, *fence)).or_insert(at);
            }
            Entry::Slack { late } => self.slack = *late,
            Entry::Calm => self.calm = Some(at),
            Entry::Remains { kind, count } => self.remains.push((at, who, kind, *count)),
            Entry::Signal { client, signal } => match signal.as_str() {
                "kill" => {
                    self.killed.entry(client).or_insert(at);
                }
                "stop" => self.pauses.entry(client).or_default().push((at, u64::MAX)),
                "continue" => {
                    let last = self
                        .pauses
                        .get_mut(client.as_str())
                        .and_then(|all| all.last_mut());
                    if let Some((_, to)) = last {
                        *to = at;
                    }
                }
                _ => {}
            },
            Entry::Fault { mends: false, .. } => self.faults.push(at),
            Entry::Fault { .. } | Entry::Gap { .. } | Entry::Effort { .. } => {}
        }
    }

    /// A late line may belong to any of a client's attempts, so it is not searched for.
    fn find(&mut self, who: &'a str, number: u64) -> Option<&mut Attempt<'a>> {
        let Some(place) = self.places.get(&(who, number)) else {
            self.unplaced = self.unplaced.or(Some((who, number)));
            return None;
        };
        self.attempts.get_mut(who)?.get_mut(*place)
    }

    /// A client has one acquire of a name under a class at a time, so a hold belongs to the last such one that was sent
    /// before its first event.
    fn link(&mut self) {
        for (who, events) in &self.events {
            let Some(attempts) = self.attempts.get_mut(who) else {
                continue;
            };
            let mut asked: HashMap<(&str, &str), Vec<usize>> = HashMap::new();
            for (index, attempt) in attempts.iter().enumerate() {
                for class in [attempt.class, ""] {
                    asked.entry((attempt.name, class)).or_default().push(index);
                }
            }
            let mut owner: HashMap<u64, usize> = HashMap::new();
            let mut unproven: HashMap<u64, u64> = HashMap::new();
            self.looks
                .set(self.looks.get() + u64::try_from(events.len()).unwrap_or(0));
            for (at, event) in events {
                let index = match owner.get(&event.hold) {
                    Some(index) => *index,
                    None if super::event::begins(&event.event) => {
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
                if let Some(fence) = super::event::granted(event) {
                    // A lease is taken again only after the last one was in doubt; what heals may have been granted to the
                    // acquire itself.
                    let again = unproven
                        .get(&event.hold)
                        .filter(|_| event.event == "proven_again");
                    let sent = again.copied().unwrap_or(attempt.sent);
                    attempt.granted.push((fence, sent));
                    self.grants.push(Grant {
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

//! I6: an acquire that did not end in a hold leaves no lease behind once its undo was possible, and none past its TTL.
//!
//! Leases are what the director saw in the store. When everything has ended and every TTL is over, there must be none.
//! Before that, a lease with a fence that nobody was told must belong to an acquire that is under way, unanswered, or
//! was answered less than a TTL ago. After the calm every undo has been possible, so only the unanswered count.

use std::collections::{HashMap, HashSet};

use crate::history::Answer;
use crate::invariant::ms;
use crate::oracle::{Case, Finding};

/// Clocks and the store's own rounding.
const MARGIN: u64 = 100_000_000;

pub(super) fn check(case: &Case<'_>) -> Vec<Finding> {
    let known: HashSet<_> = case
        .grants
        .iter()
        .map(|grant| (grant.name, grant.fence))
        .collect();
    let excuses = excuses(case);
    let mut found = Vec::new();
    for (at, name, holder, fence) in &case.leases {
        case.looked(1);
        // Leases of others are none of ours.
        if !case.attempts.contains_key(holder) {
            continue;
        }
        let mut broken = |why| {
            found.push(Finding {
                invariant: "I6",
                at: *at,
                name: (*name).to_owned(),
                why,
            });
        };
        if case.quiet.is_some_and(|quiet| quiet <= *at) {
            broken(format!(
                "a lease of {holder} outlives everyone and every time to live"
            ));
            continue;
        }
        if fence.is_some_and(|fence| known.contains(&(*name, fence))) {
            continue;
        }
        let mine = excuses.get(&(*holder, *name)).map_or(&[][..], Vec::as_slice);
        let before = mine.partition_point(|excuse| excuse.sent <= *at);
        let last = before.checked_sub(1).and_then(|last| mine.get(last));
        let calm = case.calm.is_some_and(|calm| calm <= *at);
        if last.is_none_or(|last| !last.covers(*at, calm)) {
            let answered = last.map_or(0, |last| last.answered);
            broken(format!(
                "a lease of {holder} belongs to an acquire that ended without a hold, {} ago or longer",
                ms(at.saturating_sub(answered))
            ));
        }
    }
    found
}

/// What the acquires of one client for one name excuse, up to one of them.
struct Excuse {
    /// When that one was sent.
    sent: u64,
    /// One of them excuses every lease: it may have been granted at any time, or nobody is there to undo it.
    always: bool,
    /// The store forgot then at the first time, and with it that an acquire was undone: what comes after is excused.
    forgot: u64,
    /// Until when one of them excuses a lease that nobody has undone yet.
    until: u64,
    /// The latest answer so far.
    answered: u64,
}

impl Excuse {
    /// Whether a lease that was seen then is excused. In the calm, every undo has been possible.
    fn covers(&self, at: u64, calm: bool) -> bool {
        self.always || at >= self.forgot || (!calm && at <= self.until)
    }
}

/// By client and name, in the order in which they were sent.
fn excuses<'a>(case: &Case<'a>) -> HashMap<(&'a str, &'a str), Vec<Excuse>> {
    let mut all: HashMap<_, Vec<Excuse>> = HashMap::new();
    for attempt in case.all() {
        case.looked(1);
        let forgot = case.forgot.partition_point(|at| *at < attempt.sent);
        let forgot = case.forgot.get(forgot).copied().unwrap_or(u64::MAX);
        let (answered, always, until) = match attempt.answered {
            // Its own event may be on its way; an acquire without an answer may have been granted at any time.
            None => (0, true, 0),
            Some((at, Answer::Held | Answer::LocalOnly, _)) => (at, true, 0),
            // Only its time to live bounds what nobody can undo.
            Some((at, Answer::Unknown, _)) => (at, true, 0),
            Some((at, ..)) => {
                let ttl = case.terms(attempt).map_or(u64::MAX, |terms| terms.ttl);
                let until = at.saturating_add(ttl).saturating_add(MARGIN);
                (at, forgot <= at, until)
            }
        };
        // Nobody can undo for a client that was killed.
        let always = always || case.killed.contains(attempt.who);
        let mine = all.entry((attempt.who, attempt.name)).or_default();
        let so_far = mine.last();
        let excuse = Excuse {
            sent: attempt.sent,
            always: always || so_far.is_some_and(|last| last.always),
            forgot: forgot.min(so_far.map_or(u64::MAX, |last| last.forgot)),
            until: until.max(so_far.map_or(0, |last| last.until)),
            answered: answered.max(so_far.map_or(0, |last| last.answered)),
        };
        mine.push(excuse);
    }
    all
}

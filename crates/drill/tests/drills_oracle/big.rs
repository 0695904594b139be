//! Long histories. The work is counted, not timed: a constant number of looks for each line, whatever the lines say.

use leasehold_drill::history::{Answer, Entry};

use crate::script::Script;

/// Hand-overs of one name between fifty clients, about ten lines each.
fn long(holds: u64) -> Script {
    let mut script = Script::new();
    for number in 0..holds {
        let (at, who, fence) = (number * 100, format!("w{}", number % 50), 1000 + number);
        let attempt = number / 50 + 1;
        script.hold(at, &who, attempt, fence);
        script.claim(at + 10, &who, attempt, at + 900, fence);
        script.event_of(at + 30, &who, attempt, "renewed", fence, Some(5), None);
        script.claim(at + 40, &who, attempt, at + 920, fence);
        script.returned(at + 50, &who, attempt, number);
        script.reported(at + 51, &who, attempt, Some(number), false);
        script.release(at + 60, &who, attempt);
    }
    script
}

/// The most things that the checker may look at, over all its passes, for each line of a history.
const LOOKS_PER_LINE: u64 = 6;

fn bounded(script: &Script) {
    let judged = script.judged();
    let lines = u64::try_from(script.records.len()).unwrap_or(u64::MAX);
    assert!(
        judged.looks <= LOOKS_PER_LINE * lines,
        "{} looks at {lines} lines",
        judged.looks
    );
    assert!(judged.looks >= lines, "every line is looked at: {}", judged.looks);
}

#[test]
fn a_million_records() {
    let mut script = long(100_000);
    assert!(script.records.len() > 1_000_000, "{}", script.records.len());
    let judged = script.breaks(&[]);
    assert_eq!(judged.grants, 100_000);
    bounded(&script);
    // One holder in the middle looks while someone else is at work.
    script.hold(500_010, "late", 1, 999);
    script.claim(500_020, "late", 1, 500_030, 999);
    script.breaks(&["I1", "I2"]);
    bounded(&script);
}

/// What would be quadratic if it were searched for: late lines of early attempts, leases that were seen again and again,
/// and holds that all overlap.
#[test]
fn awkward_histories_cost_no_more() {
    const MANY: u64 = 20_000;
    let mut late = Script::new();
    for attempt in 1..=MANY {
        late.hold(attempt * 10, "w", attempt, 1000 + attempt);
        late.release(attempt * 10 + 5, "w", attempt);
    }
    // Every write is answered when all acquires are over, the first attempt's first.
    for attempt in 1..=MANY {
        late.returned(MANY * 10 + attempt, "w", attempt, attempt);
    }
    bounded(&late);

    let mut leases = Script::new();
    for attempt in 1..=MANY {
        leases.ask(attempt * 10, "w", attempt, "strict");
        leases.answer(attempt * 10 + 3, "w", attempt, Answer::Busy, 0);
        leases.lease(attempt * 10 + 5, "w", 7);
    }
    bounded(&leases);

    let mut overlaps = Script::new();
    for number in 0..MANY {
        let who = format!("w{number}");
        overlaps.hold(number, &who, 1, 1000 + number);
        overlaps.claim(number + 1, &who, 1, number + 900, 1000 + number);
    }
    bounded(&overlaps);
}

/// A class that is written down before each acquire, the same or another each time.
#[test]
fn classes_told_again_and_again_cost_no_more() {
    const MANY: u64 = 20_000;
    let mut same = Script::new();
    let mut changing = Script::new();
    for attempt in 1..=MANY {
        same.class(attempt * 10, "w", "own", 1000);
        same.ask(attempt * 10, "w", attempt, "own");
        changing.class(attempt * 10, "w", "own", 1000 + attempt % 2);
        changing.ask(attempt * 10, "w", attempt, "own");
        changing.answer(attempt * 10 + 3, "w", attempt, Answer::Busy, 0);
    }
    bounded(&same);
    bounded(&changing);
}

/// Everyone waits in line and the last comes first.
#[test]
fn a_line_served_backwards_costs_no_more() {
    const MANY: u64 = 20_000;
    let mut script = Script::new();
    script.line(1, "director", Entry::Calm);
    for number in 0..MANY {
        script.ask(10 + number, &format!("w{number}"), 1, "strict");
    }
    for number in (0..MANY).rev() {
        let (at, who) = (10 + 2 * MANY - number, format!("w{number}"));
        script.event(at, &who, 1, "acquired", 1000 + MANY - number);
        script.answer(at, &who, 1, Answer::Held, 1000 + MANY - number);
    }
    bounded(&script);
    assert!(script.judged().breaks("L6"));
}

//! A hundred thousand lines, good and with one fault in the middle: what is quadratic does not end.

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

#[test]
fn a_hundred_thousand_records() {
    let mut script = long(10_000);
    assert!(script.records.len() > 100_000, "{}", script.records.len());
    let judged = script.breaks(&[]);
    assert_eq!(judged.grants, 10_000);
    // One holder in the middle looks while someone else is at work.
    script.hold(500_010, "late", 1, 9_999);
    script.claim(500_020, "late", 1, 500_030, 9_999);
    script.breaks(&["I1", "I2"]);
}

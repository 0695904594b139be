//! The measures of a drill, taken from histories built by hand.

use leasehold_drill::history::{ClientEvent, History, HistoryEntry, HistoryRecord};
use leasehold_drill::scenario::measure;

const SECOND_NANOS: u64 = 1_000_000_000;

/// A record at this second.
fn record_at(at: u64, who: &str, what: HistoryEntry) -> HistoryRecord {
    HistoryRecord { at: at * SECOND_NANOS, who: who.into(), what }
}

fn event(at: u64, who: &str, event: &str, span: u64) -> HistoryRecord {
    let what = HistoryEntry::Event(ClientEvent {
        seq: 0,
        hold: 1,
        event: event.into(),
        name: Some("job:1".into()),
        class: "scheduler".into(),
        fence: None,
        span: Some(span * SECOND_NANOS),
        detail: Some("deadline".into()),
    });
    record_at(at, who, what)
}

fn asked(at: u64, who: &str) -> HistoryRecord {
    let what = HistoryEntry::Asked { attempt: 1, name: "job:1".into(), class: "scheduler".into() };
    record_at(at, who, what)
}

fn fault(at: u64, mends: bool) -> HistoryRecord {
    let fault = "x".to_owned();
    record_at(at, "director", HistoryEntry::Fault { fault, mends })
}

fn killed(at: u64, client: &str) -> HistoryRecord {
    let (client, signal) = (client.to_owned(), "kill".to_owned());
    record_at(at, "director", HistoryEntry::Signal { client, signal })
}

#[test]
fn a_takeover_is_measured_from_the_holders_kill() {
    let records = vec![
        asked(0, "a"),
        asked(0, "b"),
        event(1, "a", "acquired", 0),
        // Not the holder, so its kill causes no takeover.
        killed(2, "b"),
        killed(3, "a"),
        event(7, "c", "acquired", 0),
    ];
    let sums = measure(&History { records, damage: Vec::new() });
    assert_eq!(sums.takeover_s, Some(4.0));
    assert!((sums.longest_gap_s - 6.0).abs() < 1e-9, "{sums:?}");
}

#[test]
fn duplicates_are_accepted_only_in_classes_that_continue() {
    let class = |class: &str, continues| {
        let what =
            HistoryEntry::Class { class: class.into(), ttl: 1, usable: 1, fail_open: false, continues };
        record_at(0, "x", what)
    };
    let ask = |who: &str, class: &str| {
        let what = HistoryEntry::Asked { attempt: 1, name: "job:1".into(), class: class.into() };
        record_at(1, who, what)
    };
    let end = |place, writer: &str| {
        let what = HistoryEntry::Applied {
            place,
            name: "job:1".into(),
            writer: writer.into(),
            write: place,
            task: Some(1),
            fence: None,
        };
        record_at(2, "director", what)
    };
    let all = |last: &str| {
        let records = vec![
            class("strict", false),
            class("loose", true),
            ask("s", "strict"),
            ask("l", "loose"),
            end(1, "s"),
            end(2, last),
        ];
        let sums = measure(&History { records, damage: Vec::new() });
        (sums.duplicates, sums.duplicates_fenced)
    };
    assert_eq!(all("l"), (1, 0));
    assert_eq!(all("s"), (1, 1));
}

#[test]
fn time_to_fence_is_measured_from_the_fault_not_its_end() {
    let records = vec![
        fault(1, false),
        fault(3, true),
        event(4, "a", "abandoned", 4),
        event(5, "b", "overlap_ended", 2),
        event(6, "b", "debt", 0),
        event(8, "b", "debt_cleared", 2),
        // Began after the fault, so it does not count.
        event(9, "c", "abandoned", 4),
    ];
    let sums = measure(&History { records, damage: Vec::new() });
    assert_eq!(sums.time_to_fence_s, Some(3.0));
    assert_eq!(sums.abandoned.get("deadline"), Some(&2));
    assert!((sums.overlap_s - 2.0).abs() < 1e-9 && (sums.debt_s - 2.0).abs() < 1e-9, "{sums:?}");
}

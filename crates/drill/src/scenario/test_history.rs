//! Builds histories by hand, for tests of the promise checks.

use crate::history::{ClientEvent, History, HistoryEntry, HistoryRecord};

pub(crate) const SECOND_NANOS: u64 = 1_000_000_000;

/// A record at this second.
pub(crate) fn record_at(at: u64, who: &str, what: HistoryEntry) -> HistoryRecord {
    HistoryRecord { at: at * SECOND_NANOS, who: who.into(), what }
}

/// A client event at this second, with its detail.
pub(crate) fn event_at(at: u64, who: &str, event: &str, detail: Option<&str>) -> HistoryRecord {
    record_at(at, who, HistoryEntry::Event(client_event(event, detail)))
}

/// An event of the client's first hold, without a fence.
pub(crate) fn client_event(event: &str, detail: Option<&str>) -> ClientEvent {
    ClientEvent {
        seq: 0,
        hold: 1,
        event: event.into(),
        name: Some("job:1".into()),
        class: "scheduler".into(),
        fence: None,
        span: None,
        detail: detail.map(Into::into),
    }
}

/// A history of these records, without damage.
pub(crate) fn history_of(records: Vec<HistoryRecord>) -> History {
    History { records, damage: Vec::new() }
}

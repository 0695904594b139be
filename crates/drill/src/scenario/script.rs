//! Histories by hand, for the tests of what drills say about them.

use crate::history::{Entry, History, Record, Transition};

/// A second, in nanoseconds.
pub(crate) const SECOND: u64 = 1_000_000_000;

/// A line in this second.
pub(crate) fn line(at: u64, who: &str, what: Entry) -> Record {
    Record {
        at: at * SECOND,
        who: who.into(),
        what,
    }
}

/// An event of a client's stream in this second, with its own word.
pub(crate) fn event(at: u64, who: &str, event: &str, detail: Option<&str>) -> Record {
    let what = Entry::Event(Transition {
        seq: 0,
        hold: 1,
        event: event.into(),
        name: Some("job:1".into()),
        class: "scheduler".into(),
        fence: None,
        span: None,
        detail: detail.map(Into::into),
    });
    line(at, who, what)
}

/// These lines and no damage.
pub(crate) fn history(records: Vec<Record>) -> History {
    History {
        records,
        damage: Vec::new(),
    }
}

//! Collects the promises that a scenario has checked.

use std::time::Duration;

use super::context::{between, format_secs, transition};
use super::verdict::PromiseCheck;
use crate::history::HistoryRecord;

/// The promises checked so far, from which the verdict is built.
#[derive(Debug, Default)]
pub(super) struct VerdictBuilder {
    pub(super) promises: Vec<PromiseCheck>,
}

impl VerdictBuilder {
    /// Adds a promise with a time limit, which a slow host can break.
    pub(super) fn promise(&mut self, what: &str, kept: bool, seen: impl Into<String>) {
        self.push(what, kept, seen.into(), true);
    }

    /// Adds a promise that must hold on any host, however slow.
    pub(super) fn promise_untimed(&mut self, what: &str, kept: bool, seen: impl Into<String>) {
        self.push(what, kept, seen.into(), false);
    }

    /// Adds the promise that a record appears within `most` after `from`. `seen` is none if it
    /// never appeared.
    pub(super) fn promise_within(
        &mut self,
        what: &str,
        from: u64,
        seen: Option<&HistoryRecord>,
        most: Duration,
    ) {
        let took = seen.map(|record| between(from, record.at));
        let word = seen.and_then(transition).and_then(|seen| seen.detail.as_deref());
        let word = word.map_or_else(String::new, |word| format!(" ({word})"));
        self.promise(
            what,
            took.is_some_and(|took| took <= most),
            took.map_or_else(
                || "it never happened".to_owned(),
                |took| format!("after {}{word}", format_secs(took)),
            ),
        );
    }

    fn push(&mut self, what: &str, kept: bool, seen: String, about_time: bool) {
        self.promises.push(PromiseCheck { what: what.to_owned(), kept, seen, about_time });
    }
}

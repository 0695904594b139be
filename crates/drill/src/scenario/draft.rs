//! What a scenario has found so far.

use std::time::Duration;

use super::scene::{between, secs, transition};
use super::verdict::Promise;
use crate::history::Record;

/// What a scenario has found so far.
#[derive(Debug, Default)]
pub(super) struct Draft {
    pub(super) promises: Vec<Promise>,
}

impl Draft {
    /// Something that is to be seen in time.
    pub(super) fn promise(&mut self, what: &str, kept: bool, seen: impl Into<String>) {
        self.add(what, kept, seen.into(), true);
    }

    /// Something that holds on any machine, however busy.
    pub(super) fn always(&mut self, what: &str, kept: bool, seen: impl Into<String>) {
        self.add(what, kept, seen.into(), false);
    }

    /// Something that is to be seen within so long of this moment; nothing if it was not seen at all.
    pub(super) fn within(&mut self, what: &str, from: u64, seen: Option<&Record>, most: Duration) {
        let took = seen.map(|record| between(from, record.at));
        let word = seen.and_then(transition).and_then(|seen| seen.detail.as_deref());
        let word = word.map_or_else(String::new, |word| format!(" ({word})"));
        self.promise(
            what,
            took.is_some_and(|took| took <= most),
            took.map_or_else(
                || "it never happened".to_owned(),
                |took| format!("after {}{word}", secs(took)),
            ),
        );
    }

    fn add(&mut self, what: &str, kept: bool, seen: String, about_time: bool) {
        self.promises.push(Promise {
            what: what.to_owned(),
            kept,
            seen,
            about_time,
        });
    }
}

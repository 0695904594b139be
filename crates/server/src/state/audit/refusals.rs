//! Bounds how many refusals of one caller are recorded: refused requests cost the caller nothing.

use std::collections::HashMap;
use std::time::Duration;

use leasehold::clock::Moment;

/// Recorded refusals of one actor in one window; the others are counted.
const MAX_REFUSALS_PER_WINDOW: u32 = 10;
const REFUSAL_WINDOW: Duration = Duration::from_secs(60);
/// Client certificates can have any number of names. Actors beyond this one share a window.
const MAX_TRACKED_ACTORS: usize = 1024;
const OTHER_ACTORS: &str = "(others)";

/// The refusals of each actor in its current window.
#[derive(Debug, Default)]
pub(super) struct RefusalBudget {
    windows: HashMap<String, RefusalWindow>,
}

#[derive(Debug)]
struct RefusalWindow {
    began: Moment,
    recorded: u32,
    omitted: u64,
}

impl RefusalBudget {
    /// Counts a refusal. False if it must not be recorded.
    pub(super) fn admit(&mut self, actor: &str, now: Moment) -> bool {
        let is_tracked = self.windows.contains_key(actor) || self.windows.len() < MAX_TRACKED_ACTORS;
        let actor = if is_tracked { actor } else { OTHER_ACTORS };
        let window = self.windows.entry(actor.to_owned()).or_insert(RefusalWindow {
            began: now,
            recorded: 0,
            omitted: 0,
        });
        if window.recorded < MAX_REFUSALS_PER_WINDOW {
            window.recorded += 1;
            return true;
        }
        window.omitted += 1;
        false
    }

    /// Ends the windows that are over, or all of them, and returns the actors whose refusals were
    /// not all recorded.
    pub(super) fn end_windows(&mut self, now: Moment, all: bool) -> Vec<(String, u64)> {
        let ended = self.windows.extract_if(|_, window| all || now.since(window.began) >= REFUSAL_WINDOW);
        ended.map(|(actor, window)| (actor, window.omitted)).filter(|(_, omitted)| *omitted > 0).collect()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.windows.is_empty()
    }
}

//! The state of the screen, and the effect of keys on it.
//!
//! It has no terminal and no clock, so tests need neither.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use leasehold::Fence;
use leasehold::clock::Moment;
use leasehold::store::Lease;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use super::poll::PollResult;
use crate::changes::{Change, LeaseTracker};
use crate::events::DaemonEvent;
use crate::timestamp;

// The longest list of events kept; more than any screen shows.
const MAX_KEPT_EVENTS: usize = 200;

/// One line of the event list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct EventLine {
    pub(super) time: String,
    /// The kind of event; selects the colour.
    pub(super) kind: String,
    /// Lock, holder and details.
    pub(super) text: String,
}

impl EventLine {
    fn from_change(time: &str, change: &Change) -> Self {
        let lease = &change.lease;
        let fence = lease.fence.map_or_else(String::new, |fence| format!(" fence {fence}"));
        Self {
            time: time.to_owned(),
            kind: change.kind.as_str().to_owned(),
            text: format!("{} {}{fence}", lease.name, lease.holder),
        }
    }

    fn from_daemon_event(told: &DaemonEvent) -> Self {
        Self {
            // The time of day in RFC 3339. `get` does not panic if the daemon sends something else.
            time: told.at.get(11..19).unwrap_or_default().to_owned(),
            kind: told.event.clone(),
            text: format!("{} {}", told.name.as_deref().unwrap_or("-"), told.summary()),
        }
    }
}

/// A column to sort by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Column {
    Name,
    Holder,
    Remaining,
    Age,
    Waiters,
}

impl Column {
    const ALL: [Self; 5] = [Self::Name, Self::Holder, Self::Remaining, Self::Age, Self::Waiters];

    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::Name => "NAME",
            Self::Holder => "HOLDER",
            Self::Remaining => "REMAINING",
            Self::Age => "AGE",
            Self::Waiters => "WAITERS",
        }
    }

    fn next(self) -> Self {
        let at = Self::ALL.iter().position(|column| *column == self).unwrap_or(0);
        Self::ALL[(at + 1) % Self::ALL.len()]
    }
}

/// The effect of a key on the main loop.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum KeyOutcome {
    Continue,
    Quit,
}

#[derive(Debug)]
pub(super) struct Model {
    pub(super) store: String,
    leases: Vec<Lease>,
    /// When `leases` was received.
    pub(super) updated_at: Option<Moment>,
    /// The store has more leases than were listed.
    pub(super) truncated: bool,
    /// The error of the last poll, if it failed.
    pub(super) error: Option<String>,
    /// Events, newest first.
    pub(super) events: VecDeque<EventLine>,
    /// A daemon sends events, so none are derived from listings.
    has_daemon_events: bool,
    /// The longest remaining time seen per grant: the full length of its bar.
    longest_remaining: HashMap<(String, Option<Fence>), Duration>,
    tracker: LeaseTracker,
    /// Only rows that contain this text are shown.
    pub(super) filter: String,
    /// The user is typing the filter.
    pub(super) typing: bool,
    pub(super) sort: Column,
    pub(super) reversed: bool,
    pub(super) paused: bool,
    pub(super) first_row: usize,
}

impl Model {
    pub(super) fn new(store: String, told: bool) -> Self {
        Self {
            store,
            has_daemon_events: told,
            leases: Vec::new(),
            updated_at: None,
            truncated: false,
            error: None,
            events: VecDeque::new(),
            longest_remaining: HashMap::new(),
            tracker: LeaseTracker::default(),
            filter: String::new(),
            typing: false,
            sort: Column::Name,
            reversed: false,
            paused: false,
            first_row: 0,
        }
    }

    /// Applies the result of a poll.
    pub(super) fn apply_poll(&mut self, look: PollResult) {
        // The tracker is not updated either, so changes during the pause are reported after it.
        if self.paused {
            return;
        }
        let (leases, truncated) = match look.listing {
            Ok(seen) => seen,
            Err(error) => {
                self.error = Some(error);
                return;
            }
        };
        let time = timestamp::now().get(11..19).unwrap_or_default().to_owned();
        for change in self.tracker.update(&leases, look.sent, look.answered, false) {
            if !self.has_daemon_events {
                self.push_event(EventLine::from_change(&time, &change));
            }
        }
        // Rebuilt from the current leases, so that entries of ended grants do not pile up.
        let before = std::mem::take(&mut self.longest_remaining);
        for lease in &leases {
            let key = (lease.name.to_string(), lease.fence);
            let left = lease.remaining.unwrap_or_default();
            let most = before.get(&key).copied().unwrap_or_default().max(left);
            self.longest_remaining.insert(key, most);
        }
        (self.leases, self.truncated, self.error) = (leases, truncated, None);
        self.updated_at = Some(look.answered);
    }

    /// Adds an event of the daemon.
    pub(super) fn add_daemon_event(&mut self, told: &DaemonEvent) {
        if !self.paused {
            self.push_event(EventLine::from_daemon_event(told));
        }
    }

    fn push_event(&mut self, news: EventLine) {
        self.events.push_front(news);
        self.events.truncate(MAX_KEPT_EVENTS);
    }

    /// The rows in display order: lease, time left now, and its share of the longest time seen.
    pub(super) fn rows(&self, now: Moment) -> Vec<(&Lease, Option<Duration>, f64)> {
        // Count down between two polls, so that the bars move steadily.
        let passed = self.updated_at.map_or(Duration::ZERO, |at| now.since(at));
        let fits = |lease: &&Lease| {
            lease.name.as_str().contains(&self.filter) || lease.holder.contains(&self.filter)
        };
        let mut rows: Vec<_> = self
            .leases
            .iter()
            .filter(fits)
            .map(|lease| {
                let left = lease.remaining.map(|left| left.saturating_sub(passed));
                let key = (lease.name.to_string(), lease.fence);
                let whole = self.longest_remaining.get(&key).copied().unwrap_or_default().as_secs_f64();
                let share =
                    left.map_or(1.0, |left| if whole > 0.0 { left.as_secs_f64() / whole } else { 0.0 });
                (lease, left, share.clamp(0.0, 1.0))
            })
            .collect();
        // The store lists by name, and stable sorting keeps that order among equals.
        match self.sort {
            Column::Name => {}
            Column::Holder => rows.sort_by(|a, b| a.0.holder.cmp(&b.0.holder)),
            Column::Remaining => rows.sort_by_key(|row| row.1.unwrap_or(Duration::MAX)),
            Column::Age => rows.sort_by_key(|row| row.0.age),
            Column::Waiters => rows.sort_by_key(|row| row.0.waiters),
        }
        if self.reversed {
            rows.reverse();
        }
        rows
    }

    /// The number of held locks and of waiters, without the filter.
    pub(super) fn totals(&self) -> (usize, u64) {
        let waiting = self.leases.iter().filter_map(|lease| lease.waiters).sum();
        (self.leases.len(), waiting)
    }

    /// Handles a key.
    pub(super) fn handle_key(&mut self, key: KeyEvent) -> KeyOutcome {
        if key.modifiers.contains(KeyModifiers::CONTROL) && key.code == KeyCode::Char('c') {
            return KeyOutcome::Quit;
        }
        if self.typing {
            match key.code {
                KeyCode::Enter => self.typing = false,
                KeyCode::Esc => {
                    self.filter.clear();
                    self.typing = false;
                }
                KeyCode::Backspace => {
                    self.filter.pop();
                }
                KeyCode::Char(letter) => self.filter.push(letter),
                _ => {}
            }
            self.first_row = 0;
            return KeyOutcome::Continue;
        }
        match key.code {
            KeyCode::Char('q') => return KeyOutcome::Quit,
            KeyCode::Esc if self.filter.is_empty() => return KeyOutcome::Quit,
            KeyCode::Esc => self.filter.clear(),
            KeyCode::Char('/') => self.typing = true,
            KeyCode::Char('s') => self.sort = self.sort.next(),
            KeyCode::Char('r') => self.reversed = !self.reversed,
            KeyCode::Char('p') => self.paused = !self.paused,
            KeyCode::Char('j') | KeyCode::Down => {
                self.first_row = (self.first_row + 1).min(self.leases.len().saturating_sub(1));
            }
            KeyCode::Char('k') | KeyCode::Up => self.first_row = self.first_row.saturating_sub(1),
            KeyCode::PageDown => {
                self.first_row = (self.first_row + 10).min(self.leases.len().saturating_sub(1))
            }
            KeyCode::PageUp => self.first_row = self.first_row.saturating_sub(10),
            _ => {}
        }
        KeyOutcome::Continue
    }
}

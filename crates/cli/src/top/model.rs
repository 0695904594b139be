//! What is known, and what keys do to it. No terminal and no clock in here, so it can be tried without either.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use leasehold::Fence;
use leasehold::clock::Moment;
use leasehold::store::Lease;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use super::poll::Look;
use crate::changes::{Change, Looks};
use crate::events::Told;
use crate::stamp;

/// How many changes are kept to look at.
const KEPT: usize = 200;

/// One line about something that happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct News {
    /// The time of day.
    pub(super) time: String,
    /// What happened.
    pub(super) word: String,
    /// To whom and by whom.
    pub(super) text: String,
}

impl News {
    fn of_change(time: &str, change: &Change) -> Self {
        let lease = &change.lease;
        let fence = lease
            .fence
            .map_or_else(String::new, |fence| format!(" fence {fence}"));
        Self {
            time: time.to_owned(),
            word: change.kind.as_str().to_owned(),
            text: format!("{} {}{fence}", lease.name, lease.holder),
        }
    }

    fn of_told(told: &Told) -> Self {
        Self {
            time: told.at.get(11..19).unwrap_or_default().to_owned(),
            word: told.event.clone(),
            text: format!("{} {}", told.name.as_deref().unwrap_or("-"), told.summary()),
        }
    }
}

/// What to sort by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Column {
    Name,
    Holder,
    Remaining,
    Age,
    Waiters,
}

impl Column {
    const ALL: [Self; 5] = [
        Self::Name,
        Self::Holder,
        Self::Remaining,
        Self::Age,
        Self::Waiters,
    ];

    /// Its heading.
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

/// What the person at the keyboard wants.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Wish {
    Stay,
    Quit,
}

/// Everything on the screen.
#[derive(Debug)]
pub(super) struct Model {
    /// Which store.
    pub(super) store: String,
    /// What was last seen.
    leases: Vec<Lease>,
    /// When that was.
    pub(super) at: Option<Moment>,
    /// There are more.
    pub(super) truncated: bool,
    /// Why the last look saw nothing.
    pub(super) error: Option<String>,
    /// What happened, the newest first.
    pub(super) events: VecDeque<News>,
    /// A daemon tells what happens, so it need not be guessed.
    told: bool,
    /// The most that was ever left of each grant: what its bar is measured by.
    whole: HashMap<(String, Option<Fence>), Duration>,
    looks: Looks,
    /// Only rows that contain this.
    pub(super) filter: String,
    /// Keys go into the filter.
    pub(super) typing: bool,
    pub(super) sort: Column,
    pub(super) backwards: bool,
    pub(super) paused: bool,
    /// The first row shown.
    pub(super) top: usize,
}

impl Model {
    pub(super) fn new(store: String, told: bool) -> Self {
        Self {
            store,
            told,
            leases: Vec::new(),
            at: None,
            truncated: false,
            error: None,
            events: VecDeque::new(),
            whole: HashMap::new(),
            looks: Looks::default(),
            filter: String::new(),
            typing: false,
            sort: Column::Name,
            backwards: false,
            paused: false,
            top: 0,
        }
    }

    /// Takes in a look at the store.
    pub(super) fn take(&mut self, look: Look) {
        if self.paused {
            return;
        }
        let (leases, truncated) = match look.seen {
            Ok(seen) => seen,
            Err(error) => {
                self.error = Some(error);
                return;
            }
        };
        let time = stamp::now().get(11..19).unwrap_or_default().to_owned();
        for change in self.looks.look(&leases, look.sent, look.at, false) {
            if !self.told {
                self.news(News::of_change(&time, &change));
            }
        }
        let before = std::mem::take(&mut self.whole);
        for lease in &leases {
            let key = (lease.name.to_string(), lease.fence);
            let left = lease.remaining.unwrap_or_default();
            let most = before.get(&key).copied().unwrap_or_default().max(left);
            self.whole.insert(key, most);
        }
        (self.leases, self.truncated, self.error) = (leases, truncated, None);
        self.at = Some(look.at);
    }

    /// Takes in what a daemon told.
    pub(super) fn hear(&mut self, told: &Told) {
        if !self.paused {
            self.news(News::of_told(told));
        }
    }

    fn news(&mut self, news: News) {
        self.events.push_front(news);
        self.events.truncate(KEPT);
    }

    /// The rows to show, in order: each lease, what is left of it now, and which share of the most there was.
    pub(super) fn rows(&self, now: Moment) -> Vec<(&Lease, Option<Duration>, f64)> {
        let passed = self.at.map_or(Duration::ZERO, |at| now.since(at));
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
                let whole = self.whole.get(&key).copied().unwrap_or_default().as_secs_f64();
                let share = left.map_or(1.0, |left| {
                    if whole > 0.0 {
                        left.as_secs_f64() / whole
                    } else {
                        0.0
                    }
                });
                (lease, left, share.clamp(0.0, 1.0))
            })
            .collect();
        // The store lists by name, and the sort keeps that order among equals.
        match self.sort {
            Column::Name => {}
            Column::Holder => rows.sort_by(|a, b| a.0.holder.cmp(&b.0.holder)),
            Column::Remaining => rows.sort_by_key(|row| row.1.unwrap_or(Duration::MAX)),
            Column::Age => rows.sort_by_key(|row| row.0.age),
            Column::Waiters => rows.sort_by_key(|row| row.0.waiters),
        }
        if self.backwards {
            rows.reverse();
        }
        rows
    }

    /// How many are held and how many wait, over all rows.
    pub(super) fn totals(&self) -> (usize, u64) {
        let waiting = self.leases.iter().filter_map(|lease| lease.waiters).sum();
        (self.leases.len(), waiting)
    }

    /// A key was pressed.
    pub(super) fn key(&mut self, key: KeyEvent) -> Wish {
        if key.modifiers.contains(KeyModifiers::CONTROL) && key.code == KeyCode::Char('c') {
            return Wish::Quit;
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
            self.top = 0;
            return Wish::Stay;
        }
        match key.code {
            KeyCode::Char('q') => return Wish::Quit,
            KeyCode::Esc if self.filter.is_empty() => return Wish::Quit,
            KeyCode::Esc => self.filter.clear(),
            KeyCode::Char('/') => self.typing = true,
            KeyCode::Char('s') => self.sort = self.sort.next(),
            KeyCode::Char('r') => self.backwards = !self.backwards,
            KeyCode::Char('p') => self.paused = !self.paused,
            KeyCode::Char('j') | KeyCode::Down => {
                self.top = (self.top + 1).min(self.leases.len().saturating_sub(1));
            }
            KeyCode::Char('k') | KeyCode::Up => self.top = self.top.saturating_sub(1),
            KeyCode::PageDown => self.top = (self.top + 10).min(self.leases.len().saturating_sub(1)),
            KeyCode::PageUp => self.top = self.top.saturating_sub(10),
            _ => {}
        }
        Wish::Stay
    }
}

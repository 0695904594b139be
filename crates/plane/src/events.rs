//! The plane's event stream, from which logs, counters and metrics are made.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use crate::state::JobState;

/// One event. Ids of jobs and runs are for the log; counters never use them as labels.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum PlaneEvent {
    /// A job changed its state.
    StateChanged {
        /// The job's id.
        job: String,
        /// The class of the job's lock.
        class: String,
        /// The new state.
        to: JobState,
    },
    /// A job was handed over to its executor for the first time.
    HandedOver {
        /// The class of the job's lock.
        class: String,
        /// Time since the job became ready: submitted or approved.
        waited: Duration,
    },
    /// The store refused a second end of the same job.
    DuplicateTerminal {
        /// The job's id.
        job: String,
    },
    /// The store refused a second hand-over of the same attempt.
    RepeatedHandOver {
        /// The job's id.
        job: String,
    },
    /// A result for a step that had already ended was ignored.
    RepeatedStep {
        /// The run's id.
        run: String,
        /// The step's id within the run.
        step: String,
    },
    /// The store refused a write with a stale fence.
    StaleWrite {
        /// The lock whose fence was stale.
        name: String,
    },
    /// A write went out without a fence, under a local-only hold.
    UnfencedWrite {
        /// The lock that is held locally only.
        name: String,
    },
    /// A message goes back to its queue.
    Redelivered {
        /// `busy`, `error`, `resource` or `conflict`.
        why: &'static str,
    },
    /// An owner stopped because its hold was lost; it wrote, published and acknowledged nothing afterwards.
    WorkAbandoned {
        /// The lost lock, or the document of the message if only the store noticed.
        name: String,
    },
    /// A hand-over failed and was rolled back.
    RolledBack {
        /// The job's id.
        job: String,
    },
    /// A loop ticked.
    LoopTicked {
        /// The loop's name.
        name: &'static str,
        /// How many jobs, runs or documents the tick repaired or purged.
        repaired: usize,
    },
    /// A loop did not tick here.
    LoopSkipped {
        /// The loop's name.
        name: &'static str,
        /// `busy`, `error` or `lost`.
        why: &'static str,
    },
    /// A loop or a job was taken over from an owner that is gone.
    Takeover {
        /// `loop` or `job`.
        what: &'static str,
        /// The loop's name or the job's id.
        name: String,
        /// Time since the old lease ran out; `None` if this replica had not observed that lease.
        took: Option<Duration>,
    },
}

impl PlaneEvent {
    /// The counter that this event increments, and the value of its label.
    #[must_use]
    pub fn metric(&self) -> (&'static str, &'static str) {
        match self {
            Self::StateChanged { to, .. } => ("job_transitions_total", to.as_str()),
            Self::HandedOver { .. } => ("handed_over_total", ""),
            Self::DuplicateTerminal { .. } => ("duplicate_terminal_total", ""),
            Self::RepeatedHandOver { .. } => ("repeated_hand_over_total", ""),
            Self::RepeatedStep { .. } => ("repeated_step_total", ""),
            Self::StaleWrite { .. } => ("stale_write_total", ""),
            Self::UnfencedWrite { .. } => ("unfenced_write_total", ""),
            Self::Redelivered { why } => ("redelivered_total", why),
            Self::WorkAbandoned { .. } => ("abandoned_work_total", ""),
            Self::RolledBack { .. } => ("rolled_back_total", ""),
            Self::LoopTicked { name, .. } => ("loop_ticks_total", name),
            Self::LoopSkipped { why, .. } => ("loop_skips_total", why),
            Self::Takeover { what, .. } => ("takeover_total", what),
        }
    }
}

/// Receives the events. Must not block: it is called on the task that caused the event.
pub trait PlaneObserver: Send + Sync + fmt::Debug + 'static {
    /// Called once for each event.
    fn on_plane_event(&self, event: &PlaneEvent);
}

/// Totals in memory, by metric and label.
#[derive(Debug, Default)]
pub struct EventCounters {
    totals: Mutex<BTreeMap<(&'static str, &'static str), f64>>,
}

impl EventCounters {
    /// The total of one counter and label value; zero if it never moved.
    #[must_use]
    pub fn total(&self, metric: &str, label: &str) -> f64 {
        self.snapshot()
            .into_iter()
            .filter(|((name, of), _)| *name == metric && *of == label)
            .fold(0.0, |sum, (_, value)| sum + value)
    }

    /// All totals, ordered by metric and label.
    #[must_use]
    pub fn snapshot(&self) -> Vec<((&'static str, &'static str), f64)> {
        let totals = self.totals.lock().unwrap_or_else(PoisonError::into_inner);
        totals.iter().map(|(key, value)| (*key, *value)).collect()
    }
}

impl PlaneObserver for EventCounters {
    fn on_plane_event(&self, event: &PlaneEvent) {
        let mut totals = self.totals.lock().unwrap_or_else(PoisonError::into_inner);
        *totals.entry(event.metric()).or_default() += 1.0;
        if let PlaneEvent::Takeover { what, took: Some(took), .. } = event {
            // A sum without its own count: `takeover_total` is the count.
            *totals.entry(("takeover_seconds", what)).or_default() += took.as_secs_f64();
        }
    }
}

/// Writes events as log lines: warnings for what an operator must know, debug for the rest.
#[derive(Debug, Clone, Copy, Default)]
pub struct LogObserver;

impl PlaneObserver for LogObserver {
    fn on_plane_event(&self, event: &PlaneEvent) {
        match event {
            PlaneEvent::DuplicateTerminal { .. }
            | PlaneEvent::RepeatedHandOver { .. }
            | PlaneEvent::RepeatedStep { .. }
            | PlaneEvent::StaleWrite { .. }
            | PlaneEvent::WorkAbandoned { .. }
            | PlaneEvent::RolledBack { .. } => tracing::warn!(?event, "plane"),
            PlaneEvent::Takeover { .. } => tracing::info!(?event, "plane"),
            _ => tracing::debug!(?event, "plane"),
        }
    }
}

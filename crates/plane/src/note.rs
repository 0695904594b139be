//! What the plane has to tell: one stream of notes, from which logs and counters are made.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use crate::state::JobState;

/// Something worth counting. Jobs and runs are named for the log; counters never show the names.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Note {
    /// A job changed its state.
    Moved {
        /// Which.
        job: String,
        /// The class its lock is taken under.
        class: String,
        /// To what.
        to: JobState,
    },
    /// A job was handed over for the first time.
    HandedOver {
        /// The class its lock is taken under.
        class: String,
        /// Since it could be taken up.
        waited: Duration,
    },
    /// A second end of the same job was refused.
    DuplicateTerminal {
        /// Which.
        job: String,
    },
    /// A second hand-over of the same attempt was refused.
    RepeatedHandOver {
        /// Which.
        job: String,
    },
    /// A result for a step that had ended already was dropped.
    RepeatedStep {
        /// Of which run.
        run: String,
        /// Which step.
        step: String,
    },
    /// A stale owner's write was refused.
    StaleWrite {
        /// Of what.
        name: String,
    },
    /// A write went out without a fence, under a local-only hold.
    Unfenced {
        /// Of what.
        name: String,
    },
    /// Mail is delivered again.
    Redelivered {
        /// Why: `busy`, `error`, `resource`, `conflict`.
        why: &'static str,
    },
    /// An owner stopped because its hold was lost: it wrote, published and acknowledged nothing after that.
    Abandoned {
        /// Of what.
        name: String,
    },
    /// A hand-over failed and was rolled back.
    RolledBack {
        /// Which.
        job: String,
    },
    /// A loop ticked.
    Ticked {
        /// Which.
        name: &'static str,
        /// What it mended.
        mended: usize,
    },
    /// A loop did not tick here.
    Skipped {
        /// Which.
        name: &'static str,
        /// Why: `busy`, `error`, `lost`.
        why: &'static str,
    },
    /// A loop's or a job's lock was taken over from an owner that is gone.
    Takeover {
        /// `loop` or `job`.
        what: &'static str,
        /// Which.
        name: String,
        /// Since its lease ran out; none if nobody here had looked at it before.
        took: Option<Duration>,
    },
}

impl Note {
    /// The counter that it moves, and the counter's own label.
    #[must_use]
    pub fn metric(&self) -> (&'static str, &'static str) {
        match self {
            Self::Moved { to, .. } => ("job_transitions_total", to.word()),
            Self::HandedOver { .. } => ("handed_over_total", ""),
            Self::DuplicateTerminal { .. } => ("duplicate_terminal_total", ""),
            Self::RepeatedHandOver { .. } => ("repeated_hand_over_total", ""),
            Self::RepeatedStep { .. } => ("repeated_step_total", ""),
            Self::StaleWrite { .. } => ("stale_write_total", ""),
            Self::Unfenced { .. } => ("unfenced_write_total", ""),
            Self::Redelivered { why } => ("redelivered_total", why),
            Self::Abandoned { .. } => ("abandoned_work_total", ""),
            Self::RolledBack { .. } => ("rolled_back_total", ""),
            Self::Ticked { name, .. } => ("loop_ticks_total", name),
            Self::Skipped { why, .. } => ("loop_skips_total", why),
            Self::Takeover { what, .. } => ("takeover_total", what),
        }
    }
}

/// Reads the notes. Must not block.
pub trait Observer: Send + Sync + fmt::Debug + 'static {
    /// Something happened.
    fn on(&self, note: &Note);
}

/// Totals in memory, by metric and label.
#[derive(Debug, Default)]
pub struct Counters {
    totals: Mutex<BTreeMap<(&'static str, &'static str), f64>>,
}

impl Counters {
    /// One total.
    #[must_use]
    pub fn total(&self, metric: &str, label: &str) -> f64 {
        self.snapshot()
            .into_iter()
            .filter(|((name, of), _)| *name == metric && *of == label)
            .fold(0.0, |sum, (_, value)| sum + value)
    }

    /// Everything, in order.
    #[must_use]
    pub fn snapshot(&self) -> Vec<((&'static str, &'static str), f64)> {
        let totals = self.totals.lock().unwrap_or_else(PoisonError::into_inner);
        totals.iter().map(|(key, value)| (*key, *value)).collect()
    }
}

impl Observer for Counters {
    fn on(&self, note: &Note) {
        let mut totals = self.totals.lock().unwrap_or_else(PoisonError::into_inner);
        *totals.entry(note.metric()).or_default() += 1.0;
        if let Note::Takeover {
            what,
            took: Some(took),
            ..
        } = note
        {
            *totals.entry(("takeover_seconds", what)).or_default() += took.as_secs_f64();
        }
    }
}

/// Notes as log lines: what an operator must know is a warning, the rest is for a closer look.
#[derive(Debug, Clone, Copy, Default)]
pub struct Log;

impl Observer for Log {
    fn on(&self, note: &Note) {
        match note {
            Note::DuplicateTerminal { .. }
            | Note::RepeatedHandOver { .. }
            | Note::RepeatedStep { .. }
            | Note::StaleWrite { .. }
            | Note::Abandoned { .. }
            | Note::RolledBack { .. } => tracing::warn!(?note, "plane"),
            Note::Takeover { .. } => tracing::info!(?note, "plane"),
            _ => tracing::debug!(?note, "plane"),
        }
    }
}

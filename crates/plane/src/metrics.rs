//! The plane's numbers: what each is, and which of them a note moves.
//!
//! Exporters, alerting rules and the documentation are made from [`METRICS`], as those of the locks are from
//! [`leasehold_core::observe::METRICS`]; a test holds the list against what notes really move.

use leasehold_core::observe::Kind;

use crate::loops::Which;
use crate::note::Note;
use crate::state::JobState;

/// One number as it is exported: `leasehold_` and its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct PlaneMetric {
    /// Without the `leasehold_` prefix.
    pub name: &'static str,
    /// How it moves.
    pub kind: Kind,
    /// Its labels, besides the locks' store.
    pub labels: &'static [&'static str],
    /// What it says, in one sentence.
    pub help: &'static str,
}

const fn counter(name: &'static str, labels: &'static [&'static str], help: &'static str) -> PlaneMetric {
    PlaneMetric {
        name,
        kind: Kind::Counter,
        labels,
        help,
    }
}

/// How many jobs are in each state now: read from the store when it is asked for, not moved by notes.
pub const JOBS: &str = "plane_jobs";

/// Every number of the plane.
pub const METRICS: &[PlaneMetric] = &[
    counter(
        "plane_abandoned_work_total",
        &[],
        "Turns that stopped because their hold was lost: nothing was written, published or acknowledged after that",
    ),
    PlaneMetric {
        name: "plane_dispatch_seconds",
        kind: Kind::Histogram,
        labels: &["class"],
        help: "From when a job could be taken up, submitted or approved, to its first hand-over",
    },
    counter(
        "plane_duplicate_terminal_total",
        &[],
        "Second ends of the same job, refused by the store",
    ),
    counter(
        "plane_job_transitions_total",
        &["class", "state"],
        "Changes of jobs' states, by the new one: DISPATCHED counts attempts, FAILED and QUARANTINED dead letters",
    ),
    PlaneMetric {
        name: JOBS,
        kind: Kind::Gauge,
        labels: &["state"],
        help: "Jobs in each state now; APPROVAL_REQUIRED wait for a person",
    },
    counter(
        "plane_loop_mended_total",
        &["loop"],
        "What the repair loops mended: jobs ended, taken over or submitted again, runs looked at, letters cleared",
    ),
    counter(
        "plane_loop_skips_total",
        &["loop", "why"],
        "Ticks of a repair loop that were not made here: `busy` is another replica's turn",
    ),
    counter("plane_loop_ticks_total", &["loop"], "Ticks of the repair loops"),
    counter(
        "plane_redelivered_total",
        &["why"],
        "Mail that comes again, because its job was busy or something did not answer",
    ),
    counter(
        "plane_repeated_hand_over_total",
        &[],
        "Second hand-overs of the same attempt, refused by the store",
    ),
    counter(
        "plane_repeated_step_total",
        &[],
        "Results for steps of runs that had ended already, dropped",
    ),
    counter(
        "plane_rolled_back_total",
        &[],
        "Hand-overs that failed and were rolled back",
    ),
    counter(
        "plane_stale_write_total",
        &[],
        "Writes of stale owners, refused by the store",
    ),
    PlaneMetric {
        name: "plane_takeover_seconds",
        kind: Kind::Histogram,
        labels: &["what"],
        help: "From the end of a gone owner's lease, where somebody had seen it, to the next owner's first step",
    },
    counter(
        "plane_takeover_total",
        &["what"],
        "Jobs and loops that were taken over from owners that are gone",
    ),
    counter(
        "plane_unfenced_write_total",
        &[],
        "Writes under local-only holds, protected by version and idempotency alone",
    ),
];

/// Every series that is known before anything has happened, for these classes: exporters let them begin at zero, because a rate
/// over a series that begins with its first event does not show that event.
pub fn known(classes: &[&str], mut begin: impl FnMut(&'static str, &[&str])) {
    for metric in METRICS.iter().filter(|metric| metric.kind != Kind::Gauge) {
        let mut rows: Vec<Vec<&str>> = vec![Vec::new()];
        for label in metric.labels {
            let values: Vec<&str> = match *label {
                "class" => classes.to_vec(),
                "state" => JobState::all().map(JobState::word).collect(),
                "loop" => Which::ALL.iter().map(|which| which.name()).collect(),
                "what" => vec!["job", "loop"],
                "why" if metric.name == "plane_loop_skips_total" => vec!["busy", "error", "lost"],
                "why" => vec!["busy", "conflict", "error", "resource"],
                _ => Vec::new(),
            };
            rows = rows
                .iter()
                .flat_map(|row| values.iter().map(|value| [row.as_slice(), &[*value]].concat()))
                .collect();
        }
        for row in rows {
            begin(metric.name, &row);
        }
    }
}

/// The namespaces of the locks that the plane takes under a class.
#[must_use]
pub fn namespaces(class: &str) -> &'static [&'static str] {
    match class {
        "reconciler" | "replayer" => &["loop"],
        "admission" => &["admission"],
        "approval" => &["job"],
        // A job says under which class its lock is taken, and a workflow too.
        _ => &["job", "run", "res"],
    }
}

/// Which numbers a note moves: name, values of its labels in their order, and by how much.
pub fn moves(note: &Note, mut add: impl FnMut(&'static str, &[&str], f64)) {
    match note {
        Note::Moved { class, to, .. } => add("plane_job_transitions_total", &[class, to.word()], 1.0),
        Note::HandedOver { class, waited } => {
            add("plane_dispatch_seconds", &[class], waited.as_secs_f64());
        }
        Note::DuplicateTerminal { .. } => add("plane_duplicate_terminal_total", &[], 1.0),
        Note::RepeatedHandOver { .. } => add("plane_repeated_hand_over_total", &[], 1.0),
        Note::RepeatedStep { .. } => add("plane_repeated_step_total", &[], 1.0),
        Note::StaleWrite { .. } => add("plane_stale_write_total", &[], 1.0),
        Note::Unfenced { .. } => add("plane_unfenced_write_total", &[], 1.0),
        Note::Redelivered { why } => add("plane_redelivered_total", &[why], 1.0),
        Note::Abandoned { .. } => add("plane_abandoned_work_total", &[], 1.0),
        Note::RolledBack { .. } => add("plane_rolled_back_total", &[], 1.0),
        Note::Ticked { name, mended } => {
            add("plane_loop_ticks_total", &[name], 1.0);
            // A tick mends some hundreds of things at most.
            let mended = u32::try_from(*mended).unwrap_or(u32::MAX);
            add("plane_loop_mended_total", &[name], f64::from(mended));
        }
        Note::Skipped { name, why } => add("plane_loop_skips_total", &[name, why], 1.0),
        Note::Takeover { what, took, .. } => {
            add("plane_takeover_total", &[what], 1.0);
            if let Some(took) = took {
                add("plane_takeover_seconds", &[what], took.as_secs_f64());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::time::Duration;

    use super::*;

    /// One note of each kind; a new kind does not compile before it is here and in `moves`.
    fn every() -> Vec<Note> {
        let text = || "x".to_owned();
        vec![
            Note::Moved {
                job: text(),
                class: "scheduler".into(),
                to: JobState::Running,
            },
            Note::HandedOver {
                class: "scheduler".into(),
                waited: Duration::from_millis(3),
            },
            Note::DuplicateTerminal { job: text() },
            Note::RepeatedHandOver { job: text() },
            Note::RepeatedStep {
                run: text(),
                step: text(),
            },
            Note::StaleWrite { name: text() },
            Note::Unfenced { name: text() },
            Note::Redelivered { why: "busy" },
            Note::Abandoned { name: text() },
            Note::RolledBack { job: text() },
            Note::Ticked {
                name: "replayer",
                mended: 2,
            },
            Note::Skipped {
                name: "replayer",
                why: "busy",
            },
            Note::Takeover {
                what: "job",
                name: text(),
                took: Some(Duration::from_secs(1)),
            },
        ]
    }

    #[test]
    fn what_notes_move_was_known_before() {
        let mut begun = BTreeSet::new();
        let row = |values: &[&str]| values.iter().map(|value| (*value).to_owned()).collect::<Vec<_>>();
        known(&["scheduler"], |name, values| {
            assert!(begun.insert((name, row(values))), "{name} {values:?} twice");
        });
        for note in every() {
            moves(&note, |name, values, _| {
                assert!(begun.contains(&(name, row(values))), "{name} {values:?}");
            });
        }
        for state in JobState::all() {
            let values = row(&["scheduler", state.word()]);
            assert!(begun.contains(&("plane_job_transitions_total", values)));
        }
    }

    #[test]
    fn the_list_is_what_notes_move_with_the_labels_it_says() {
        let mut moved = BTreeSet::from([JOBS]);
        for note in every() {
            moves(&note, |name, labels, _| {
                let metric = METRICS.iter().find(|metric| metric.name == name);
                assert_eq!(
                    metric.map(|metric| metric.labels.len()),
                    Some(labels.len()),
                    "{name}"
                );
                moved.insert(name);
            });
        }
        let listed: BTreeSet<_> = METRICS.iter().map(|metric| metric.name).collect();
        assert_eq!(moved, listed);
        assert!(
            METRICS.windows(2).all(|pair| pair[0].name < pair[1].name),
            "in order"
        );
    }
}

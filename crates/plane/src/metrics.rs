//! The plane's metrics: their definitions, and which of them an event changes.
//!
//! Exporters, alerting rules and the documentation are made from [`METRICS`], like those of the locks
//! from [`leasehold_core::observe::METRICS`]. A test compares the list with what events really change.

use leasehold_core::observe::MetricKind;

use crate::events::PlaneEvent;
use crate::loops::LoopKind;
use crate::state::JobState;

/// One metric, exported under `leasehold_` and its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct PlaneMetric {
    /// Without the `leasehold_` prefix.
    pub name: &'static str,
    /// Counter, gauge or histogram.
    pub kind: MetricKind,
    /// Its labels; exporters add the lock store as another one.
    pub labels: &'static [&'static str],
    /// The help text, one sentence.
    pub help: &'static str,
}

const fn counter(name: &'static str, labels: &'static [&'static str], help: &'static str) -> PlaneMetric {
    PlaneMetric { name, kind: MetricKind::Counter, labels, help }
}

/// The gauge of jobs per state. It is read from the store on each scrape, not changed by events.
pub const JOBS_METRIC: &str = "plane_jobs";

/// All metrics of the plane, ordered by name.
pub const METRICS: &[PlaneMetric] = &[
    counter(
        "plane_abandoned_work_total",
        &[],
        "Runs of a job or loop that stopped because their hold was lost; nothing was written, published or acknowledged after that",
    ),
    PlaneMetric {
        name: "plane_dispatch_seconds",
        kind: MetricKind::Histogram,
        labels: &["class"],
        help: "Time from when a job is ready (submitted or approved) to its first dispatch",
    },
    counter(
        "plane_duplicate_terminal_total",
        &[],
        "Second terminal states of the same job, refused by the store",
    ),
    counter(
        "plane_job_transitions_total",
        &["class", "state"],
        "Job state transitions by new state: DISPATCHED counts attempts, FAILED and QUARANTINED count dead letters",
    ),
    PlaneMetric {
        name: JOBS_METRIC,
        kind: MetricKind::Gauge,
        labels: &["state"],
        help: "Jobs in each state at present; those in APPROVAL_REQUIRED wait for a decision",
    },
    counter(
        "plane_loop_mended_total",
        &["loop"],
        "What the repair loops repaired: jobs ended, taken over or submitted again, runs checked, dead letters removed",
    ),
    counter(
        "plane_loop_skips_total",
        &["loop", "why"],
        "Ticks of a repair loop that this process skipped; `busy` means that another replica runs the loop",
    ),
    counter("plane_loop_ticks_total", &["loop"], "Ticks of the repair loops"),
    counter(
        "plane_redelivered_total",
        &["why"],
        "Messages that were delivered again, because their job was busy or a store did not respond",
    ),
    counter(
        "plane_repeated_hand_over_total",
        &[],
        "Second dispatches of the same attempt, refused by the store",
    ),
    counter("plane_repeated_step_total", &[], "Results dropped because their step had already ended"),
    counter("plane_rolled_back_total", &[], "Dispatches that failed and were rolled back"),
    counter("plane_stale_write_total", &[], "Writes of stale owners, refused by the store"),
    PlaneMetric {
        name: "plane_takeover_seconds",
        kind: MetricKind::Histogram,
        labels: &["what"],
        help: "Time from the expiry of a lost owner's lease, where it was seen, to the next owner's first action",
    },
    counter("plane_takeover_total", &["what"], "Jobs and loops taken over from owners that were lost"),
    counter(
        "plane_unfenced_write_total",
        &[],
        "Writes under local-only holds, protected by version and idempotency alone",
    ),
];

/// Calls `begin` for every series that is known in advance, for these classes. Exporters start them at
/// zero: a rate over a series that appears with its first event does not show that event.
pub fn for_each_known_series(classes: &[&str], mut begin: impl FnMut(&'static str, &[&str])) {
    for metric in METRICS.iter().filter(|metric| metric.kind != MetricKind::Gauge) {
        // The cross product of the label values; a metric without labels has one empty row.
        let mut rows: Vec<Vec<&str>> = vec![Vec::new()];
        for label in metric.labels {
            let values: Vec<&str> = match *label {
                "class" => classes.to_vec(),
                "state" => JobState::all().map(JobState::as_str).collect(),
                "loop" => LoopKind::ALL.iter().map(|which| which.name()).collect(),
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

/// The namespaces of the locks that the plane acquires under a class.
#[must_use]
pub fn namespaces(class: &str) -> &'static [&'static str] {
    match class {
        "reconciler" | "replayer" => &["loop"],
        "admission" => &["admission"],
        "approval" => &["job"],
        // Jobs and workflows choose their own class, so any other class may lock all three.
        _ => &["job", "run", "res"],
    }
}

/// Calls `add` for each metric that an event changes, with its name, label values and amount.
pub fn for_each_metric_change(event: &PlaneEvent, mut add: impl FnMut(&'static str, &[&str], f64)) {
    match event {
        PlaneEvent::StateChanged { class, to, .. } => {
            add("plane_job_transitions_total", &[class, to.as_str()], 1.0)
        }
        PlaneEvent::HandedOver { class, waited } => {
            add("plane_dispatch_seconds", &[class], waited.as_secs_f64());
        }
        PlaneEvent::DuplicateTerminal { .. } => add("plane_duplicate_terminal_total", &[], 1.0),
        PlaneEvent::RepeatedHandOver { .. } => add("plane_repeated_hand_over_total", &[], 1.0),
        PlaneEvent::RepeatedStep { .. } => add("plane_repeated_step_total", &[], 1.0),
        PlaneEvent::StaleWrite { .. } => add("plane_stale_write_total", &[], 1.0),
        PlaneEvent::UnfencedWrite { .. } => add("plane_unfenced_write_total", &[], 1.0),
        PlaneEvent::Redelivered { why } => add("plane_redelivered_total", &[why], 1.0),
        PlaneEvent::WorkAbandoned { .. } => add("plane_abandoned_work_total", &[], 1.0),
        PlaneEvent::RolledBack { .. } => add("plane_rolled_back_total", &[], 1.0),
        PlaneEvent::LoopTicked { name, repaired: mended } => {
            add("plane_loop_ticks_total", &[name], 1.0);
            // f64 has no lossless conversion from usize; a tick repairs some hundreds of items at most.
            let mended = u32::try_from(*mended).unwrap_or(u32::MAX);
            add("plane_loop_mended_total", &[name], f64::from(mended));
        }
        PlaneEvent::LoopSkipped { name, why } => add("plane_loop_skips_total", &[name, why], 1.0),
        PlaneEvent::Takeover { what, took, .. } => {
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

    /// One event of each kind; the match in `for_each_metric_change` makes a new kind fail to compile.
    fn one_event_of_each_kind() -> Vec<PlaneEvent> {
        let text = || "x".to_owned();
        vec![
            PlaneEvent::StateChanged { job: text(), class: "scheduler".into(), to: JobState::Running },
            PlaneEvent::HandedOver { class: "scheduler".into(), waited: Duration::from_millis(3) },
            PlaneEvent::DuplicateTerminal { job: text() },
            PlaneEvent::RepeatedHandOver { job: text() },
            PlaneEvent::RepeatedStep { run: text(), step: text() },
            PlaneEvent::StaleWrite { name: text() },
            PlaneEvent::UnfencedWrite { name: text() },
            PlaneEvent::Redelivered { why: "busy" },
            PlaneEvent::WorkAbandoned { name: text() },
            PlaneEvent::RolledBack { job: text() },
            PlaneEvent::LoopTicked { name: "replayer", repaired: 2 },
            PlaneEvent::LoopSkipped { name: "replayer", why: "busy" },
            PlaneEvent::Takeover { what: "job", name: text(), took: Some(Duration::from_secs(1)) },
        ]
    }

    #[test]
    fn every_changed_series_was_known_before() {
        let mut begun = BTreeSet::new();
        let row = |values: &[&str]| values.iter().map(|value| (*value).to_owned()).collect::<Vec<_>>();
        for_each_known_series(&["scheduler"], |name, values| {
            assert!(begun.insert((name, row(values))), "{name} {values:?} twice");
        });
        for event in one_event_of_each_kind() {
            for_each_metric_change(&event, |name, values, _| {
                assert!(begun.contains(&(name, row(values))), "{name} {values:?}");
            });
        }
        for state in JobState::all() {
            let values = row(&["scheduler", state.as_str()]);
            assert!(begun.contains(&("plane_job_transitions_total", values)));
        }
    }

    #[test]
    fn the_metric_list_matches_what_events_change() {
        let mut moved = BTreeSet::from([JOBS_METRIC]);
        for event in one_event_of_each_kind() {
            for_each_metric_change(&event, |name, labels, _| {
                let metric = METRICS.iter().find(|metric| metric.name == name);
                assert_eq!(metric.map(|metric| metric.labels.len()), Some(labels.len()), "{name}");
                moved.insert(name);
            });
        }
        let listed: BTreeSet<_> = METRICS.iter().map(|metric| metric.name).collect();
        assert_eq!(moved, listed);
        assert!(METRICS.windows(2).all(|pair| pair[0].name < pair[1].name), "in order");
    }
}

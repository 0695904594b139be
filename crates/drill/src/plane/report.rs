//! Judges the observations of the drill and formats the report.

use std::io::Write;
use std::time::Duration;

use super::file_lock::LockWatch;
use super::replicas::ReplicaFault;
use super::testbed::Outage;
use super::verdict::{Observations, Takeover};
use super::workload::Workload;
use super::{PlaneDrillOptions, PlaneFault};

/// Takeovers that took longer than the bound, slowest first.
pub(super) fn late_takeovers(takeovers: &[&Takeover], most: Duration) -> Vec<String> {
    let mut late: Vec<_> = takeovers.iter().filter(|takeover| takeover.after_unlock() > most).collect();
    late.sort_by_key(|takeover| std::cmp::Reverse(takeover.after_unlock()));
    late.into_iter()
        .map(|takeover| format!("{:.2} s: {}", takeover.after_unlock().as_secs_f64(), takeover.what))
        .collect()
}

/// A summary: count, how many are within the bound, p50, p99 and maximum.
fn latency_summary(mut times: Vec<Duration>, bound: Duration) -> String {
    times.sort();
    let at = |share: f64| {
        // `max` covers the empty list.
        let index = ((times.len() as f64 - 1.0) * share).max(0.0) as usize;
        times.get(index).copied().unwrap_or_default().as_secs_f64()
    };
    format!(
        "{} of {} within {:.2} s; p50 {:.2} s, p99 {:.2} s, most {:.2} s",
        times.iter().filter(|took| **took <= bound).count(),
        times.len(),
        bound.as_secs_f64(),
        at(0.5),
        at(0.99),
        at(1.0),
    )
}

/// Returns whether every promise was kept, and the report.
pub(super) fn judge_and_format(
    options: &PlaneDrillOptions,
    seen: &Observations,
    load: &Workload<'_>,
    faults: &[ReplicaFault],
    watch: &LockWatch,
    outage: Option<Outage>,
    took: Duration,
) -> std::io::Result<(bool, Vec<u8>)> {
    let (expected, steps) = seen.expected;
    let bound = options.takeover_bound();
    let (extended, plain): (Vec<_>, Vec<_>) =
        seen.takeovers.iter().partition(|takeover| takeover.file_locked_for.is_some());
    let mut out = Vec::new();
    let kinds = |kind| faults.iter().filter(|done| done.fault == kind).count();
    writeln!(out, "{:<34} {:.1} s", "took", took.as_secs_f64())?;
    writeln!(
        out,
        "{:<34} {} killed, {} stopped and continued, {} restarted",
        "faults",
        kinds(PlaneFault::Kill),
        kinds(PlaneFault::Stop),
        kinds(PlaneFault::Term)
    )?;
    writeln!(out, "{:<34} {} of {expected} succeeded", "jobs", seen.succeeded)?;
    writeln!(out, "{:<34} {} of {} succeeded", "runs", seen.runs_succeeded, load.runs)?;
    writeln!(out, "{:<34} {} of {}", "steps done once", seen.steps - seen.steps_twice.len(), steps)?;
    writeln!(out, "{:<34} {}", "attempts lost with their replica", seen.attempts_lost)?;
    writeln!(
        out,
        "{:<34} {} (TTL + poll)",
        "takeovers after kill or stop",
        latency_summary(plain.iter().map(|takeover| takeover.took).collect(), bound)
    )?;
    for done in faults {
        if let Some(kept) = &done.locked_file {
            writeln!(
                out,
                "{:<34} for {:.2} s: stopped inside a transaction, none of {} tries to write succeeded",
                format!("{} kept the {}' file locked", done.holder, kept.file),
                done.stopped_for.as_secs_f64(),
                kept.tries
            )?;
        }
    }
    if !extended.is_empty() {
        let from_stop = latency_summary(extended.iter().map(|takeover| takeover.took).collect(), bound);
        let from_free =
            latency_summary(extended.iter().map(|takeover| takeover.after_unlock()).collect(), bound);
        writeln!(out, "{:<34} {from_stop}", "takeovers extended by that")?;
        writeln!(out, "{:<34} {from_free}", "  counted from when it went on")?;
    }
    for (file, tries) in watch.baseline() {
        let share = 100.0 * f64::from(tries.locked) / f64::from(tries.all.max(1));
        writeln!(
            out,
            "{:<34} {share:.1} % of the time ({} tries)",
            format!("{file}' file locked by a write"),
            tries.all
        )?;
    }
    if seen.without_fault > 0 {
        writeln!(
            out,
            "{:<34} {} (their leases were not renewed in time)",
            "takeovers without a fault", seen.without_fault
        )?;
    }
    let mut clean = true;
    let mut promise = |what: &str, broken: &[String]| -> std::io::Result<()> {
        clean &= broken.is_empty();
        let word = if broken.is_empty() { "kept" } else { "BROKEN" };
        let some = broken.iter().take(5).cloned().collect::<Vec<_>>().join(", ");
        writeln!(out, "{word:<8} {what} {some}")
    };
    let missing = expected.saturating_sub(seen.jobs);
    let mut lost = seen.not_ended.clone();
    if missing > 0 {
        lost.push(format!("{missing} jobs are not there"));
    }
    promise("no job is lost", &lost)?;
    promise("every job ended well", &seen.other_ends)?;
    promise("no job ended twice", &seen.ended_twice)?;
    promise("no step ended twice", &seen.steps_twice)?;
    promise("every run ended well", &seen.runs_other)?;
    promise("no fenced work outlived its lease", &seen.outlived)?;
    let most = bound + options.slack;
    // Without a takeover there is nothing to judge, and "kept" would claim too much.
    if !seen.takeovers.is_empty() {
        promise("takeovers within TTL + poll", &late_takeovers(&plain, most))?;
    }
    if !extended.is_empty() {
        let what = "takeovers within TTL + poll of when a stopped writer's file was free again";
        promise(what, &late_takeovers(&extended, most))?;
    }
    if outage.is_some() {
        let of = |class: &str| seen.during_outage.get(class).copied().unwrap_or(0);
        let mut paused = Vec::new();
        // These two classes are fail-closed; `workflow` continues without a proven lease.
        for class in ["scheduler", "workflow-critical"] {
            if of(class) > 0 {
                paused.push(format!("{class}: {}", of(class)));
            }
        }
        promise("fail-closed work paused while the lock store was down", &paused)?;
        let stood: Vec<_> = (of("workflow") == 0).then(|| "nothing ended".to_owned()).into_iter().collect();
        promise("workflow work went on, local-only", &stood)?;
        writeln!(out, "{:<34} {} (jobs' writes)", "writes under local-only holds", seen.local_only)?;
        writeln!(out, "{:<34} {:?}", "ended while the lock store was down", seen.during_outage)?;
    }
    if seen.takeovers.is_empty() {
        writeln!(out, "{:<8} takeovers within TTL + poll: there was none", "not seen")?;
    }
    Ok((clean, out))
}

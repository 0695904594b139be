//! What the drill prints, and whether every promise was kept.

use std::io::Write;
use std::time::Duration;

use super::crew::Done;
use super::load::Load;
use super::lock::Watch;
use super::stage::Outage;
use super::verdict::{Seen, Takeover};
use super::{Fault, ProofArgs};

/// Those that took longer than they may, the latest first.
pub(super) fn late(takeovers: &[&Takeover], most: Duration) -> Vec<String> {
    let mut late: Vec<_> = takeovers
        .iter()
        .filter(|takeover| takeover.counted() > most)
        .collect();
    late.sort_by_key(|takeover| std::cmp::Reverse(takeover.counted()));
    late.into_iter()
        .map(|takeover| format!("{:.2} s: {}", takeover.counted().as_secs_f64(), takeover.what))
        .collect()
}

/// Their number, how many are within the bound, the middle and the greatest.
fn measured(mut times: Vec<Duration>, bound: Duration) -> String {
    times.sort();
    let at = |share: f64| {
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

/// Whether every promise was kept, and what there is to print.
pub(super) fn report(
    args: &ProofArgs,
    seen: &Seen,
    load: &Load<'_>,
    faults: &[Done],
    watch: &Watch,
    outage: Option<Outage>,
    took: Duration,
) -> std::io::Result<(bool, Vec<u8>)> {
    let (expected, steps) = seen.expected;
    let bound = args.bound();
    let (extended, plain): (Vec<_>, Vec<_>) = seen
        .takeovers
        .iter()
        .partition(|takeover| takeover.locked.is_some());
    let mut out = Vec::new();
    let kinds = |kind| faults.iter().filter(|done| done.fault == kind).count();
    writeln!(out, "{:<34} {:.1} s", "took", took.as_secs_f64())?;
    writeln!(
        out,
        "{:<34} {} killed, {} stopped and continued, {} restarted",
        "faults",
        kinds(Fault::Kill),
        kinds(Fault::Stop),
        kinds(Fault::Term)
    )?;
    writeln!(out, "{:<34} {} of {expected} succeeded", "jobs", seen.succeeded)?;
    writeln!(
        out,
        "{:<34} {} of {} succeeded",
        "runs", seen.runs_succeeded, load.runs
    )?;
    writeln!(
        out,
        "{:<34} {} of {}",
        "steps done once",
        seen.steps - seen.steps_twice.len(),
        steps
    )?;
    writeln!(
        out,
        "{:<34} {}",
        "attempts lost with their replica", seen.attempts_lost
    )?;
    writeln!(
        out,
        "{:<34} {} (TTL + poll)",
        "takeovers after kill or stop",
        measured(plain.iter().map(|takeover| takeover.took).collect(), bound)
    )?;
    for done in faults {
        if let Some(kept) = &done.kept {
            writeln!(
                out,
                "{:<34} for {:.2} s: stopped inside a transaction, none of {} tries to write succeeded",
                format!("{} kept the {}' file locked", done.who, kept.file),
                done.lasted.as_secs_f64(),
                kept.tries
            )?;
        }
    }
    if !extended.is_empty() {
        let from_stop = measured(extended.iter().map(|takeover| takeover.took).collect(), bound);
        let from_free = measured(
            extended.iter().map(|takeover| takeover.counted()).collect(),
            bound,
        );
        writeln!(out, "{:<34} {from_stop}", "takeovers extended by that")?;
        writeln!(out, "{:<34} {from_free}", "  counted from when it went on")?;
    }
    for (file, tries) in watch.usual() {
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
    let most = bound + args.slack;
    // Where nobody was hit while it had work, there is nothing that could be called in time.
    if !seen.takeovers.is_empty() {
        promise("takeovers within TTL + poll", &late(&plain, most))?;
    }
    if !extended.is_empty() {
        let what = "takeovers within TTL + poll of when a stopped writer's file was free again";
        promise(what, &late(&extended, most))?;
    }
    if outage.is_some() {
        let of = |class: &str| seen.during_outage.get(class).copied().unwrap_or(0);
        let mut paused = Vec::new();
        for class in ["scheduler", "workflow-critical"] {
            if of(class) > 0 {
                paused.push(format!("{class}: {}", of(class)));
            }
        }
        promise("fail-closed work paused while the lock store was down", &paused)?;
        let stood: Vec<_> = (of("workflow") == 0)
            .then(|| "nothing ended".to_owned())
            .into_iter()
            .collect();
        promise("workflow work went on, local-only", &stood)?;
        writeln!(
            out,
            "{:<34} {} (jobs' writes)",
            "writes under local-only holds", seen.local_only
        )?;
        writeln!(
            out,
            "{:<34} {:?}",
            "ended while the lock store was down", seen.during_outage
        )?;
    }
    if seen.takeovers.is_empty() {
        writeln!(
            out,
            "{:<8} takeovers within TTL + poll: there was none",
            "not seen"
        )?;
    }
    Ok((clean, out))
}

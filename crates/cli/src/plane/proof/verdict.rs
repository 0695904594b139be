//! What the stores say afterwards: each job and step ended once, none is lost, takeovers in time.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::time::Duration;

use leasehold_plane::workflow::RunState;
use leasehold_plane::{JobState, Plane, view};
use serde_json::Value;

use super::crew::Done;
use super::load::Load;
use super::stage::Outage;
use super::{Fault, Kind, ProofArgs};

#[derive(Debug, Default)]
struct Seen {
    /// Jobs and steps.
    expected: (usize, usize),
    jobs: usize,
    succeeded: usize,
    /// Ends of one job beyond its first.
    ended_twice: Vec<String>,
    not_ended: Vec<String>,
    other_ends: Vec<String>,
    steps: usize,
    steps_twice: Vec<String>,
    runs_succeeded: usize,
    runs_other: Vec<String>,
    attempts_lost: usize,
    local_only: usize,
    /// From a fault to the write that takes a victim's job over.
    takeovers: Vec<Takeover>,
    /// Jobs taken over from an owner that nothing was done to: it was only too slow.
    without_fault: usize,
    /// Work that went on after the next attempt had begun.
    outlived: Vec<String>,
    /// Ends by class while the lock store was down.
    during_outage: BTreeMap<String, usize>,
}

/// One job taken over from a victim.
#[derive(Debug, Clone)]
struct Takeover {
    /// From the fault to the write.
    took: Duration,
    /// What the victim's own pause may have added: a process that is stopped in the middle of a transaction keeps a
    /// SQLite file locked for everyone until it goes on.
    paused: Duration,
    what: String,
}

/// Reads everything, prints what was seen, and answers whether every promise was kept.
pub(super) async fn judge(
    args: &ProofArgs,
    plane: &Plane,
    load: &Load<'_>,
    faults: &[Done],
    outage: Option<Outage>,
    took: Duration,
) -> anyhow::Result<bool> {
    let mut seen = Seen::default();
    // A class that continues without proof may overlap: that is its price, and not counted here.
    let mut fenced = BTreeSet::new();
    let (steps_per_run, jobs_per_run) = load.per_run();
    let everything = load.jobs + load.runs * jobs_per_run * 2;
    seen.expected = (load.jobs + load.runs * jobs_per_run, load.runs * steps_per_run);
    for job in plane.jobs(&[], None, everything).await? {
        seen.jobs += 1;
        match job.state {
            JobState::Succeeded => seen.succeeded += 1,
            state if state.ended() => seen.other_ends.push(format!("{} {state}", job.id)),
            state => seen.not_ended.push(format!("{} {state}", job.id)),
        }
        if job.spec.class != "workflow" {
            fenced.insert(job.id.clone());
        }
        let mut ends = 0;
        // When the attempt under way was taken up.
        let mut taken = None;
        for event in plane.job_history(&job.id).await? {
            let event = view::event(&event);
            let to: Option<JobState> = event["to"].as_str().and_then(|state| state.parse().ok());
            seen.local_only += usize::from(event["local_only"] == true);
            if to.is_some_and(JobState::ended) {
                ends += 1;
                let at = event["at_ms"].as_u64().unwrap_or(0);
                // The first moments belong to holds that were good until then, and not to those that never had one:
                // a quick machine may have done all of their work by then.
                let good = match event["local_only"] == true {
                    true => 0,
                    false => 2 * args.ttl.as_millis() as u64,
                };
                let down = outage.is_some_and(|out| at > out.from + good && at < out.to);
                if down {
                    *seen.during_outage.entry(job.spec.class.clone()).or_default() += 1;
                }
            }
            match to {
                Some(JobState::Scheduled | JobState::Dispatched | JobState::Running) => {
                    taken = taken.or(event["at_ms"].as_u64());
                }
                Some(JobState::Retrying) => takeover(&mut seen, &job.id, &event, taken.take(), faults),
                _ => {}
            }
        }
        if ends > 1 {
            seen.ended_twice.push(job.id.clone());
        }
    }
    for run in plane.runs(&[], load.runs + 1).await? {
        match run.state {
            RunState::Succeeded => seen.runs_succeeded += 1,
            state => seen.runs_other.push(format!("{} {state}", run.id)),
        }
        let mut done = BTreeSet::new();
        for event in plane.timeline(&run.id).await? {
            let event = view::event(&event);
            for (step, to) in event["steps"].as_object().into_iter().flatten() {
                if to["to"] == "done" {
                    seen.steps += 1;
                    if !done.insert((step.clone(), to["attempt"].as_u64())) {
                        seen.steps_twice.push(format!("{} {step}", run.id));
                    }
                }
            }
        }
    }
    seen.outlived = outlived(
        &std::fs::read_to_string(load.effects()).unwrap_or_default(),
        &fenced,
    );
    report(args, &seen, load, faults, outage, took)
}

/// Attempts whose work was seen to go on after the next attempt at the same job had begun. Each line of the effects is
/// `begin|end job attempt fence`, in the order in which they happened.
fn outlived(effects: &str, fenced: &BTreeSet<String>) -> Vec<String> {
    let mut newest: BTreeMap<&str, u64> = BTreeMap::new();
    let mut found = Vec::new();
    for line in effects.lines() {
        let words: Vec<_> = line.split(' ').collect();
        let [verb, job, attempt, _fence] = words.as_slice() else {
            continue;
        };
        let attempt: u64 = attempt.parse().unwrap_or(0);
        let latest = newest.entry(job).or_insert(attempt);
        if attempt < *latest && fenced.contains(*job) {
            found.push(format!("{job} attempt {attempt}: {verb}"));
        }
        *latest = attempt.max(*latest);
    }
    found
}

/// How long after a fault one of its victim's jobs was taken over. What it took up after the fault was over is not the fault's
/// victim: its owner was lost to something else.
fn takeover(seen: &mut Seen, job: &str, event: &Value, taken: Option<u64>, faults: &[Done]) {
    let why = event["why"].as_str().unwrap_or_default();
    let Some(gone) = why
        .strip_prefix("its owner ")
        .and_then(|rest| rest.strip_suffix(" is gone"))
    else {
        return;
    };
    seen.attempts_lost += 1;
    let at = event["at_ms"].as_u64().unwrap_or(0);
    let over = |done: &Done| {
        done.at
            .saturating_add(u64::try_from(done.lasted.as_millis()).unwrap_or(u64::MAX))
    };
    let before =
        |done: &&Done| done.who == gone && done.at <= at && taken.is_none_or(|taken| taken <= over(done));
    match faults.iter().rev().find(before) {
        Some(done) => {
            let what = format!("{job} after {:?} of {gone}", done.fault);
            seen.takeovers.push(Takeover {
                took: Duration::from_millis(at - done.at),
                paused: done.lasted,
                what,
            });
        }
        None => seen.without_fault += 1,
    }
}

fn report(
    args: &ProofArgs,
    seen: &Seen,
    load: &Load<'_>,
    faults: &[Done],
    outage: Option<Outage>,
    took: Duration,
) -> anyhow::Result<bool> {
    let (expected, steps) = seen.expected;
    let bound = args.bound();
    let mut takeovers = seen.takeovers.clone();
    takeovers.sort_by_key(|takeover| takeover.took);
    let at = |share: f64| {
        let index = ((takeovers.len() as f64 - 1.0) * share).max(0.0) as usize;
        takeovers
            .get(index)
            .map_or(Duration::ZERO, |takeover| takeover.took)
    };
    let allowed = |takeover: &Takeover| match args.on {
        Kind::Sqlite => bound + takeover.paused,
        Kind::Redis => bound,
    };
    let late: Vec<_> = takeovers
        .iter()
        .rev()
        .filter(|takeover| takeover.took > allowed(takeover) + args.slack)
        .map(|takeover| format!("{:.2} s: {}", takeover.took.as_secs_f64(), takeover.what))
        .collect();
    let kinds = |kind| faults.iter().filter(|done| done.fault == kind).count();
    let mut out = std::io::stdout().lock();
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
        "{:<34} {} measured: p50 {:.2} s, p99 {:.2} s, most {:.2} s; bound {:.2} s (TTL + poll)",
        "takeovers after kill or stop",
        takeovers.len(),
        at(0.5).as_secs_f64(),
        at(0.99).as_secs_f64(),
        at(1.0).as_secs_f64(),
        bound.as_secs_f64()
    )?;
    if seen.without_fault > 0 {
        writeln!(
            out,
            "{:<34} {} (the machine was too slow to renew)",
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
    promise("takeovers within TTL + poll", &late)?;
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
    Ok(clean)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use serde_json::json;

    use super::*;

    /// Stopped from 1 s to 3 s; its job is taken over at 4 s, having been taken up at this time.
    fn blamed(taken: u64) -> Seen {
        let mut seen = Seen::default();
        let stop = Done {
            fault: Fault::Stop,
            who: "replica-1".into(),
            at: 1000,
            lasted: Duration::from_secs(2),
        };
        let event = json!({"why": "its owner replica-1 is gone", "at_ms": 4000});
        takeover(&mut seen, "job-1", &event, Some(taken), &[stop]);
        seen
    }

    #[test]
    fn a_fault_is_blamed_for_what_its_victim_had() {
        let seen = blamed(500);
        assert_eq!(seen.takeovers[0].took, Duration::from_secs(3));
        assert_eq!(seen.without_fault, 0);
    }

    #[test]
    fn a_fault_is_not_blamed_for_what_its_victim_took_up_afterwards() {
        let seen = blamed(3500);
        assert!(seen.takeovers.is_empty());
        assert_eq!(seen.without_fault, 1);
    }
}

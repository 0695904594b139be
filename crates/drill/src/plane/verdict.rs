//! Reads the stores after the drill: ends of jobs and steps, losses, and takeover times.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use leasehold_plane::workflow::RunState;
use leasehold_plane::{JobState, Plane, view};
use serde_json::Value;

use super::file_lock::LockWatch;
use super::replicas::ReplicaFault;
use super::report::judge_and_format;
use super::testbed::Outage;
use super::workload::Workload;
use super::{PlaneDrillOptions, PlaneVerdict};

#[derive(Debug, Default)]
pub(super) struct Observations {
    /// The expected number of jobs and of steps.
    pub(super) expected: (usize, usize),
    pub(super) jobs: usize,
    pub(super) succeeded: usize,
    /// Jobs with more than one end.
    pub(super) ended_twice: Vec<String>,
    pub(super) not_ended: Vec<String>,
    pub(super) other_ends: Vec<String>,
    pub(super) steps: usize,
    pub(super) steps_twice: Vec<String>,
    pub(super) runs_succeeded: usize,
    pub(super) runs_other: Vec<String>,
    pub(super) attempts_lost: usize,
    pub(super) local_only: usize,
    pub(super) takeovers: Vec<Takeover>,
    /// Jobs taken over from an owner without a fault: it was only too slow.
    pub(super) without_fault: usize,
    /// Attempts that continued after the next attempt had begun.
    pub(super) outlived: Vec<String>,
    /// Ended jobs per class while the lock store was down.
    pub(super) during_outage: BTreeMap<String, usize>,
}

/// The takeover of a job from a replica that had a fault.
#[derive(Debug, Clone)]
pub(super) struct Takeover {
    /// The time from the fault to the write that took the job over.
    pub(super) took: Duration,
    /// How long no process could write, because the stopped replica kept a SQLite file locked.
    pub(super) file_locked_for: Option<Duration>,
    pub(super) what: String,
}

impl Takeover {
    /// The time from when the file could be written again.
    pub(super) fn after_unlock(&self) -> Duration {
        self.took.saturating_sub(self.file_locked_for.unwrap_or_default())
    }
}

/// Reads the stores, and judges what they hold.
pub(super) async fn read_and_judge(
    options: &PlaneDrillOptions,
    plane: &Plane,
    load: &Workload<'_>,
    faults: &[ReplicaFault],
    watch: &LockWatch,
    outage: Option<Outage>,
    took: Duration,
) -> anyhow::Result<PlaneVerdict> {
    let mut seen = Observations::default();
    // A class that continues without a proven lease may overlap by design, so it is not counted here.
    let mut fenced = BTreeSet::new();
    let (steps_per_run, jobs_per_run) = load.steps_and_jobs_per_run();
    let everything = load.jobs + load.runs * jobs_per_run * 2;
    seen.expected = (load.jobs + load.runs * jobs_per_run, load.runs * steps_per_run);
    for job in plane.jobs(&[], None, everything).await? {
        seen.jobs += 1;
        match job.state {
            JobState::Succeeded => seen.succeeded += 1,
            state if state.is_terminal() => seen.other_ends.push(format!("{} {state}", job.id)),
            state => seen.not_ended.push(format!("{} {state}", job.id)),
        }
        if job.spec.class != "workflow" {
            fenced.insert(job.id.clone());
        }
        let mut ends = 0;
        // The start time of the current attempt.
        let mut taken = None;
        for event in plane.job_history(&job.id).await? {
            let event = view::event_json(&event);
            let to: Option<JobState> = event["to"].as_str().and_then(|state| state.parse().ok());
            seen.local_only += usize::from(event["local_only"] == true);
            if to.is_some_and(JobState::is_terminal) {
                ends += 1;
                let at = event["at_ms"].as_u64().unwrap_or(0);
                // Holds from before the outage are still valid at first; two TTLs are allowed for that.
                // A local-only hold began in the outage, and a fast machine may end it at once.
                let good = match event["local_only"] == true {
                    true => 0,
                    false => 2 * options.ttl.as_millis() as u64,
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
                Some(JobState::Retrying) => record_takeover(&mut seen, &job.id, &event, taken.take(), faults),
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
        for event in plane.run_history(&run.id).await? {
            let event = view::event_json(&event);
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
    seen.outlived = outlived_attempts(&std::fs::read_to_string(load.effects()).unwrap_or_default(), &fenced);
    let (kept, report) = judge_and_format(options, &seen, load, faults, watch, outage, took)?;
    Ok(PlaneVerdict { kept, report })
}

/// Attempts that continued after the next attempt at the same job had begun.
fn outlived_attempts(effects: &str, fenced: &BTreeSet<String>) -> Vec<String> {
    // Each line is `begin|end job attempt fence`, in the order in which it happened.
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

/// Records the takeover of a job, and which fault caused it.
fn record_takeover(
    seen: &mut Observations,
    job: &str,
    event: &Value,
    taken: Option<u64>,
    faults: &[ReplicaFault],
) {
    let why = event["why"].as_str().unwrap_or_default();
    let Some(gone) = why.strip_prefix("its owner ").and_then(|rest| rest.strip_suffix(" is gone")) else {
        return;
    };
    seen.attempts_lost += 1;
    let at = event["at_ms"].as_u64().unwrap_or(0);
    let over = |done: &ReplicaFault| {
        done.at.saturating_add(u64::try_from(done.stopped_for.as_millis()).unwrap_or(u64::MAX))
    };
    // A job that the replica started after the fault was over was lost for another reason.
    let before = |done: &&ReplicaFault| {
        done.holder == gone && done.at <= at && taken.is_none_or(|taken| taken <= over(done))
    };
    match faults.iter().rev().find(before) {
        Some(done) => {
            let what = format!("{job} after {:?} of {gone}", done.fault);
            seen.takeovers.push(Takeover {
                took: Duration::from_millis(at - done.at),
                file_locked_for: done.locked_file.as_ref().map(|_| done.stopped_for),
                what,
            });
        }
        None => seen.without_fault += 1,
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::plane::PlaneFault;
    use crate::plane::file_lock::LockedFile;
    use crate::plane::report::late_takeovers;

    /// A replica stopped from 1 s to 3 s; its job, started at `taken`, is taken over at 4 s.
    fn observed_takeover(taken: u64, kept: Option<LockedFile>) -> Observations {
        let mut seen = Observations::default();
        let stop = ReplicaFault {
            fault: PlaneFault::Stop,
            holder: "replica-1".into(),
            at: 1000,
            stopped_for: Duration::from_secs(2),
            locked_file: kept,
        };
        let event = json!({"why": "its owner replica-1 is gone", "at_ms": 4000});
        record_takeover(&mut seen, "job-1", &event, Some(taken), &[stop]);
        seen
    }

    #[test]
    fn a_fault_counts_for_jobs_its_replica_had_started() {
        let seen = observed_takeover(500, None);
        assert_eq!(seen.takeovers[0].took, Duration::from_secs(3));
        assert_eq!(seen.without_fault, 0);
    }

    #[test]
    fn a_fault_does_not_count_for_jobs_started_after_it() {
        let seen = observed_takeover(3500, None);
        assert!(seen.takeovers.is_empty());
        assert_eq!(seen.without_fault, 1);
    }

    #[test]
    fn a_stop_excuses_a_late_takeover_only_if_it_locked_a_file() {
        let kept = LockedFile { file: "jobs", tries: 200 };
        let most = Duration::from_millis(2500);
        let is_late = |kept, most| {
            !late_takeovers(&observed_takeover(500, kept).takeovers.iter().collect::<Vec<_>>(), most)
                .is_empty()
        };
        // The takeover took 3 s, of which 2 s were the stop.
        assert!(is_late(None, most));
        assert!(!is_late(Some(kept.clone()), most));
        // From the end of the stop, the usual bound applies.
        assert!(is_late(Some(kept), Duration::from_millis(999)));
        assert!(!is_late(None, Duration::from_secs(3)));
    }
}

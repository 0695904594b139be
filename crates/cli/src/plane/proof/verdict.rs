//! What the stores say afterwards: each job's and step's ends, what is lost, and how long takeovers took.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::time::Duration;

use leasehold_plane::workflow::RunState;
use leasehold_plane::{JobState, Plane, view};
use serde_json::Value;

use super::ProofArgs;
use super::crew::Done;
use super::load::Load;
use super::lock::Watch;
use super::report::report;
use super::stage::Outage;
use crate::drill::ends;

#[derive(Debug, Default)]
pub(super) struct Seen {
    /// Jobs and steps.
    pub(super) expected: (usize, usize),
    pub(super) jobs: usize,
    pub(super) succeeded: usize,
    /// Ends of one job beyond its first.
    pub(super) ended_twice: Vec<String>,
    pub(super) not_ended: Vec<String>,
    pub(super) other_ends: Vec<String>,
    pub(super) steps: usize,
    pub(super) steps_twice: Vec<String>,
    pub(super) runs_succeeded: usize,
    pub(super) runs_other: Vec<String>,
    pub(super) attempts_lost: usize,
    pub(super) local_only: usize,
    /// From a fault to the write that takes a victim's job over.
    pub(super) takeovers: Vec<Takeover>,
    /// Jobs taken over from an owner that nothing was done to: it was only too slow.
    pub(super) without_fault: usize,
    /// Work that went on after the next attempt had begun.
    pub(super) outlived: Vec<String>,
    /// Ends by class while the lock store was down.
    pub(super) during_outage: BTreeMap<String, usize>,
}

/// One job taken over from a victim.
#[derive(Debug, Clone)]
pub(super) struct Takeover {
    /// From the fault to the write.
    pub(super) took: Duration,
    /// For how long nobody could write: the victim was stopped inside a transaction, and was seen to keep a SQLite file
    /// locked until it went on.
    pub(super) locked: Option<Duration>,
    pub(super) what: String,
}

impl Takeover {
    /// How long it took from when somebody could write.
    pub(super) fn counted(&self) -> Duration {
        self.took.saturating_sub(self.locked.unwrap_or_default())
    }
}

/// Reads everything, prints what was seen, and answers whether every promise was kept.
pub(super) async fn judge(
    args: &ProofArgs,
    plane: &Plane,
    load: &Load<'_>,
    faults: &[Done],
    watch: &Watch,
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
    // Judged to its end before any of it is printed: whoever reads no further hides no broken promise.
    let (kept, told) = report(args, &seen, load, faults, watch, outage, took)?;
    ends(kept, std::io::stdout().write_all(&told).map_err(Into::into))
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
                locked: done.kept.as_ref().map(|_| done.lasted),
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
    use crate::plane::proof::Fault;
    use crate::plane::proof::lock::Kept;
    use crate::plane::proof::report::late;

    /// Stopped from 1 s to 3 s; its job is taken over at 4 s, having been taken up at this time.
    fn blamed(taken: u64, kept: Option<Kept>) -> Seen {
        let mut seen = Seen::default();
        let stop = Done {
            fault: Fault::Stop,
            who: "replica-1".into(),
            at: 1000,
            lasted: Duration::from_secs(2),
            kept,
        };
        let event = json!({"why": "its owner replica-1 is gone", "at_ms": 4000});
        takeover(&mut seen, "job-1", &event, Some(taken), &[stop]);
        seen
    }

    #[test]
    fn a_fault_is_blamed_for_what_its_victim_had() {
        let seen = blamed(500, None);
        assert_eq!(seen.takeovers[0].took, Duration::from_secs(3));
        assert_eq!(seen.without_fault, 0);
    }

    #[test]
    fn a_fault_is_not_blamed_for_what_its_victim_took_up_afterwards() {
        let seen = blamed(3500, None);
        assert!(seen.takeovers.is_empty());
        assert_eq!(seen.without_fault, 1);
    }

    #[test]
    fn a_stop_excuses_a_late_takeover_only_if_it_was_seen_to_keep_a_file_locked() {
        let kept = Kept {
            file: "jobs",
            tries: 200,
        };
        let most = Duration::from_millis(2500);
        let is_late =
            |kept, most| !late(&blamed(500, kept).takeovers.iter().collect::<Vec<_>>(), most).is_empty();
        // It took 3 s, of which 2 s were the stop.
        assert!(is_late(None, most));
        assert!(!is_late(Some(kept.clone()), most));
        // From then on the bound is the same.
        assert!(is_late(Some(kept), Duration::from_millis(999)));
        assert!(!is_late(None, Duration::from_secs(3)));
    }
}

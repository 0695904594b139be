//! What holds for every history: of a job's states, and of a run's inputs in any order, repeated and late ones included.

// A stage that cannot be set is a failed test.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;

use leasehold_core::rng::SeededRandom;
use leasehold_plane::job::{Change, Owner};
use leasehold_plane::workflow::{Input, Progress, Run, RunState, Step, StepStatus, StepWork, Workflow};
use leasehold_plane::{Job, JobSpec, JobState, Work};
use proptest::prelude::*;
use serde_json::{Value, json};

/// A graph without circles: each step needs only earlier ones.
fn workflow() -> impl Strategy<Value = Workflow> {
    prop::collection::vec(prop::collection::vec(any::<bool>(), 7), 1..7).prop_map(|rows| {
        let steps = rows.iter().enumerate().map(|(at, needs)| Step {
            id: format!("s{at}"),
            needs: (0..at)
                .filter(|need| needs[*need])
                .map(|need| format!("s{need}"))
                .collect(),
            work: StepWork::Handler("work".into()),
            payload: Value::Null,
            resources: Vec::new(),
            requires_approval: false,
            attempts: None,
            backoff: None,
            timeout: None,
        });
        Workflow {
            name: "w".into(),
            class: "workflow".into(),
            steps: steps.collect(),
        }
    })
}

fn input() -> impl Strategy<Value = Input> {
    let result = (0..7_usize, 1..3_u32, any::<bool>()).prop_map(|(step, attempt, well)| Input::Result {
        step: format!("s{step}"),
        attempt,
        failed: (!well).then(|| "no".to_owned()),
    });
    prop_oneof![
        8 => result,
        1 => Just(Input::Tick),
        1 => Just(Input::Cancel { why: "enough".into() }),
        1 => (0..7_usize).prop_map(|step| Input::Rerun { from: format!("s{step}") }),
    ]
}

/// Feeds one input, and checks what must hold whatever it was.
fn fed(run: Run, input: &Input, made: &mut BTreeSet<String>) -> Run {
    let before = run.clone();
    let mut progress = Progress::new(run);
    let taken = progress.feed(input);
    let advance = progress.settle();
    let after = advance.run;
    if taken.is_err() && before.state != RunState::Running {
        assert_eq!(after, before, "{input:?} was dropped and changed something");
    }
    for job in &advance.jobs {
        assert!(made.insert(job.id.clone()), "{} was made twice", job.id);
    }
    for (id, step) in &after.steps {
        let was = &before.steps[id];
        let needs = &after.workflow.step(id).unwrap().needs;
        if matches!(step.status, StepStatus::Running | StepStatus::Done) && was.status != step.status {
            assert!(
                needs
                    .iter()
                    .all(|need| after.steps[need].status == StepStatus::Done),
                "{id} began too early"
            );
        }
        // What has ended stays as it ended, unless somebody wants it again.
        if was.status.ended() && !matches!(input, Input::Rerun { .. }) {
            assert_eq!(was, step, "{input:?} changed an ended step");
        }
        assert!(step.attempt >= was.attempt);
    }
    if before.state.ended() && !matches!(input, Input::Rerun { .. }) {
        assert_eq!(after.state, before.state);
    }
    let all_ended = after.steps.values().all(|step| step.status.ended());
    assert_eq!(
        after.state.ended(),
        all_ended || after.state == RunState::Cancelled,
        "{after:?}"
    );
    after
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_run_ends_once_whatever_comes_in_whatever_order(workflow in workflow(), inputs in prop::collection::vec(input(), 0..60)) {
        let run = Run::new("r".into(), workflow, "org".into(), json!(null));
        let mut made = BTreeSet::new();
        let mut run = fed(run, &Input::Start, &mut made);
        for input in &inputs {
            run = fed(run, input, &mut made);
        }
        // Whatever happened, once every job under way has ended the run has too.
        for _ in 0..8 {
            let under_way: Vec<_> = run.steps.iter().filter(|(_, step)| step.status == StepStatus::Running).map(|(id, step)| (id.clone(), step.attempt)).collect();
            for (step, attempt) in under_way {
                run = fed(run, &Input::Result { step, attempt, failed: None }, &mut made);
            }
        }
        prop_assert!(run.state.ended(), "{run:?}");
    }

    #[test]
    fn no_history_of_a_job_leaves_the_table(steps in prop::collection::vec(0..10_u8, 0..40), seed in any::<u64>()) {
        let random = SeededRandom::new(seed);
        let mut job = Job::new("j".into(), JobSpec { attempts: 3, ..JobSpec::new(Work::Handler) }, None);
        let mut ends = 0;
        for step in steps {
            let owner = || Owner { who: "a".into(), fence: None };
            let change: Change = match step {
                0 => job.schedule(),
                1 => job.dispatch(owner()),
                2 => job.roll_back("no"),
                3 => job.start(owner(), None),
                4 => job.succeed(json!(1)),
                5 => job.fail("no", &random),
                6 => job.lose("gone"),
                7 => job.time_out("late"),
                8 => job.cancel("enough"),
                _ => job.approve("ann", "fine"),
            };
            // What a store does with it.
            if !change.job.state.before().contains(&job.state.word()) {
                continue;
            }
            prop_assert!(job.state.can_become(change.job.state));
            ends += usize::from(change.job.state.ended());
            prop_assert!(change.job.failures <= change.job.spec.attempts);
            // A job that waits for another attempt has mail that brings it.
            prop_assert_eq!(change.job.state == JobState::Retrying, change.due_in.is_some() && !change.send.is_empty());
            job = change.job;
        }
        // SUCCEEDED may still be quarantined by hand, but no step of its life does so.
        prop_assert!(ends <= 1, "{ends} ends");
    }
}

//! Properties of all histories: of a job's states, and of a run's inputs in any order, also repeated and late.

// A failed set-up is a failed test.
use std::collections::BTreeSet;

use leasehold_core::rng::SeededRandom;
use leasehold_plane::job::{JobChange, Owner};
use leasehold_plane::workflow::{Progress, Run, RunInput, RunState, Step, StepStatus, StepWork, Workflow};
use leasehold_plane::{Job, JobSpec, JobState, Work};
use proptest::prelude::*;
use serde_json::{Value, json};

/// A graph without cycles: each step needs only earlier ones.
fn workflow() -> impl Strategy<Value = Workflow> {
    prop::collection::vec(prop::collection::vec(any::<bool>(), 7), 1..7).prop_map(|rows| {
        let steps = rows.iter().enumerate().map(|(at, needs)| Step {
            id: format!("s{at}"),
            needs: (0..at).filter(|need| needs[*need]).map(|need| format!("s{need}")).collect(),
            work: StepWork::Handler("work".into()),
            payload: Value::Null,
            resources: Vec::new(),
            requires_approval: false,
            attempts: None,
            backoff: None,
            timeout: None,
        });
        Workflow { name: "w".into(), class: "workflow".into(), steps: steps.collect() }
    })
}

fn input() -> impl Strategy<Value = RunInput> {
    let result = (0..7_usize, 1..3_u32, any::<bool>()).prop_map(|(step, attempt, well)| RunInput::Result {
        step: format!("s{step}"),
        attempt,
        failed: (!well).then(|| "no".to_owned()),
    });
    prop_oneof![
        8 => result,
        1 => Just(RunInput::Tick),
        1 => Just(RunInput::Cancel { why: "enough".into() }),
        1 => (0..7_usize).prop_map(|step| RunInput::Rerun { from: format!("s{step}") }),
    ]
}

/// Applies one input and checks the invariants.
fn apply_checked(run: Run, input: &RunInput, made: &mut BTreeSet<String>) -> Run {
    let before = run.clone();
    let mut progress = Progress::new(run);
    let taken = progress.apply_input(input);
    let advance = progress.finish();
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
                needs.iter().all(|need| after.steps[need].status == StepStatus::Done),
                "{id} began too early"
            );
        }
        // An ended step does not change, except by a rerun.
        if was.status.is_terminal() && !matches!(input, RunInput::Rerun { .. }) {
            assert_eq!(was, step, "{input:?} changed an ended step");
        }
        assert!(step.attempt >= was.attempt);
    }
    if before.state.is_terminal() && !matches!(input, RunInput::Rerun { .. }) {
        assert_eq!(after.state, before.state);
    }
    let all_ended = after.steps.values().all(|step| step.status.is_terminal());
    assert_eq!(after.state.is_terminal(), all_ended || after.state == RunState::Cancelled, "{after:?}");
    after
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_run_ends_once_whatever_comes_in_whatever_order(workflow in workflow(), inputs in prop::collection::vec(input(), 0..60)) {
        let run = Run::new("r".into(), workflow, "org".into(), json!(null));
        let mut made = BTreeSet::new();
        let mut run = apply_checked(run, &RunInput::Start, &mut made);
        for input in &inputs {
            run = apply_checked(run, input, &mut made);
        }
        // Once all running jobs have ended, the run has ended too.
        for _ in 0..8 {
            let under_way: Vec<_> = run.steps.iter().filter(|(_, step)| step.status == StepStatus::Running).map(|(id, step)| (id.clone(), step.attempt)).collect();
            for (step, attempt) in under_way {
                run = apply_checked(run, &RunInput::Result { step, attempt, failed: None }, &mut made);
            }
        }
        prop_assert!(run.state.is_terminal(), "{run:?}");
    }

    #[test]
    fn no_history_of_a_job_leaves_the_table(steps in prop::collection::vec(0..10_u8, 0..40), seed in any::<u64>()) {
        let random = SeededRandom::new(seed);
        let mut job = Job::new("j".into(), JobSpec { attempts: 3, ..JobSpec::new(Work::Handler) }, None);
        let mut ends = 0;
        for step in steps {
            let owner = || Owner { who: "a".into(), fence: None };
            let change: JobChange = match step {
                0 => job.schedule(),
                1 => job.dispatch(owner()),
                2 => job.roll_back("no"),
                3 => job.start(owner(), None),
                4 => job.succeed(json!(1)),
                5 => job.fail("no", &random),
                6 => job.owner_lost("gone"),
                7 => job.time_out("late"),
                8 => job.cancel("enough"),
                _ => job.approve("ann", "fine"),
            };
            // A store refuses forbidden transitions in the same way.
            if !change.job.state.predecessors().contains(&job.state.as_str()) {
                continue;
            }
            prop_assert!(job.state.can_become(change.job.state));
            ends += usize::from(change.job.state.is_terminal());
            prop_assert!(change.job.failures <= change.job.spec.attempts);
            // A job that waits for its next attempt always has a message for it.
            prop_assert_eq!(change.job.state == JobState::Retrying, change.due_in.is_some() && !change.messages.is_empty());
            job = change.job;
        }
        // An operator may quarantine a SUCCEEDED job, but no change in this crate does so.
        prop_assert!(ends <= 1, "{ends} ends");
    }
}

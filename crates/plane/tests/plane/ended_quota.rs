//! Finding 21 of the security review: what one identity leaves behind is bounded, not only what it has open.

use leasehold_plane::work::Executors;
use leasehold_plane::workflow::{RunState, StartRunRequest, parse};
use leasehold_plane::{JobState, PlaneQuotas};

use crate::fixture::{Fixture, pull_job};

#[tokio::test(start_paused = true)]
async fn finding_21_ended_jobs_and_runs_of_one_identity_are_bounded() {
    let fixture = Fixture::new();
    let parts = fixture.replica_parts("a", Executors::default());
    let as_ = |who: &str| parts.plane.acting_for(who).with_quotas(PlaneQuotas::new(2, 2, 1));
    let (ann, bob) = (as_("ann"), as_("bob"));
    let text = "name = \"w\"\n[[step]]\nid = \"ask\"\napproval = \"go?\"\n";
    ann.apply_workflow(&parse("w", text).unwrap()).await.unwrap();
    let end_one = async |number: usize| {
        let plane = if number == 0 { &bob } else { &ann };
        let id = format!("{number:02}");
        plane.submit(pull_job(&id)).await.unwrap();
        plane.cancel(&id, "enough").await.unwrap();
        let start =
            StartRunRequest { workflow: "w".into(), id: Some(id.clone()), ..StartRunRequest::default() };
        plane.start_run(start).await.unwrap();
        while parts.deliver_due().await > 0 {}
        plane.cancel_run(&id, "enough").await.unwrap();
        while parts.deliver_due().await > 0 {}
        plane.cancel(&format!("{id}.ask.1"), "enough").await.unwrap();
        fixture.pass(std::time::Duration::from_millis(10)).await;
    };
    for number in 0..12 {
        end_one(number).await;
    }
    // Twice as many as may be open, and the one that was added last. Those of others stay.
    let jobs = parts.plane.jobs(&[JobState::Cancelled], None, 100).await.unwrap();
    let mut ids: Vec<_> = jobs.iter().map(|job| job.id.as_str()).collect();
    ids.sort_unstable();
    let steps = ["00.ask.1", "07.ask.1", "08.ask.1", "09.ask.1", "10.ask.1", "11.ask.1"];
    let own = ["00", "07", "08", "09", "10", "11"];
    let mut expected: Vec<_> = own.into_iter().chain(steps).collect();
    expected.sort_unstable();
    assert_eq!(ids, expected);
    let runs = parts.plane.runs(&[RunState::Cancelled], 100).await.unwrap();
    let mut ids: Vec<_> = runs.iter().map(|run| run.id.as_str()).collect();
    ids.sort_unstable();
    assert_eq!(ids, own);
    // The store itself and administrators have no limit.
    for number in 0..10 {
        let id = format!("root:{number}");
        parts.plane.submit(pull_job(&id)).await.unwrap();
        parts.plane.cancel(&id, "enough").await.unwrap();
    }
    assert_eq!(parts.plane.jobs(&[JobState::Cancelled], None, 100).await.unwrap().len(), 22);
}

/// Each attempt of a step leaves a job, so the number of attempts is bounded too.
#[tokio::test(start_paused = true)]
async fn finding_21_a_step_is_begun_a_bounded_number_of_times() {
    let fixture = Fixture::new();
    let parts = fixture.replica_parts("a", Executors::default());
    let text = "name = \"w\"\n[[step]]\nid = \"wait\"\ndelay = \"0s\"\n[[step]]\nid = \"ask\"\nneeds = [\"wait\"]\napproval = \"go?\"\n";
    parts.plane.apply_workflow(&parse("w", text).unwrap()).await.unwrap();
    let start = StartRunRequest { workflow: "w".into(), id: Some("r".into()), ..StartRunRequest::default() };
    parts.plane.start_run(start).await.unwrap();
    for attempt in 1..=100 {
        while parts.deliver_due().await > 0 {}
        parts.plane.cancel(&format!("r.ask.{attempt}"), "again").await.unwrap();
        while parts.deliver_due().await > 0 {}
        if attempt < 100 {
            parts.plane.rerun("r", "ask").await.unwrap();
        }
    }
    for from in ["ask", "wait"] {
        let refused = parts.plane.rerun("r", from).await.unwrap_err();
        assert_eq!(refused.code().as_str(), "invalid", "{refused}");
        assert!(refused.to_string().contains("100 times"), "{refused}");
    }
}

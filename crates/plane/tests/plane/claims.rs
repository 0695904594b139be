//! Findings 5 and 11 of the security review: who may use a claim, decide about a job, and hold up a topic.

use leasehold_core::Fence;
use leasehold_plane::approval::DecisionRequest;
use leasehold_plane::job::Owner;
use leasehold_plane::scheduler::{Claim, ClaimRequest, ClaimedJob};
use leasehold_plane::store::{
    DocumentKind, DocumentQuery, DocumentScope, PlaneStore, Revision, WriteRequest,
};
use leasehold_plane::view::{EventView, JobView};
use leasehold_plane::work::Executors;
use leasehold_plane::workflow::{StartRunRequest, parse};
use leasehold_plane::{Job, JobSpec, JobState, Plane, Settings};
use leasehold_wire::Secret;
use serde_json::{Value, json};

use crate::fixture::{Fixture, ReplicaParts, pull_job};

async fn dispatched(fixture: &Fixture, ids: &[&str]) -> ReplicaParts {
    let parts = fixture.replica_parts("a", Executors::default());
    for id in ids {
        parts.plane.submit(pull_job(id)).await.unwrap();
    }
    parts.deliver_due().await;
    parts
}

async fn claim(parts: &ReplicaParts, principal: &str) -> ClaimedJob {
    let request = ClaimRequest::new("work", "worker").principal(principal);
    parts.scheduler.claim(&request).await.unwrap().unwrap()
}

async fn refused_as_stale(parts: &ReplicaParts, claim: &Claim) -> String {
    let beat = parts.scheduler.heartbeat(claim).await.map(drop).unwrap_err();
    let report = parts.scheduler.report(claim, Ok(json!("forged"))).await.map(drop).unwrap_err();
    for error in [&beat, &report] {
        assert_eq!((error.code().as_str(), error.code().status()), ("stale_claim", 409), "{claim:?}");
    }
    assert_eq!(beat.to_string(), report.to_string());
    beat.to_string()
}

#[tokio::test(start_paused = true)]
async fn finding_05_a_claim_works_only_with_its_secret_and_principal() {
    let fixture = Fixture::new();
    let parts = dispatched(&fixture, &["j"]).await;
    let claimed = claim(&parts, "w1").await;
    let (own, job) = (&claimed.claim, &claimed.job);
    let secret = own.secret.clone().unwrap();
    assert!(secret.expose().len() >= 32, "128 bits in hexadecimal");
    // All that the job's view shows is not enough.
    let shown = Claim::new(job.id.clone(), job.attempt, job.owner.as_ref().unwrap().fence);
    let wrong = Some(Secret::new("0".repeat(32)));
    let texts = [
        refused_as_stale(&parts, &shown.clone().with_principal("w1")).await,
        refused_as_stale(&parts, &shown.clone().with_secret(wrong).with_principal("w1")).await,
        refused_as_stale(&parts, &own.clone().with_principal("w2")).await,
        refused_as_stale(&parts, &shown.with_secret(Some(secret.clone()))).await,
    ];
    assert!(texts.iter().all(|text| *text == texts[0]), "{texts:?}");
    parts.scheduler.heartbeat(own).await.unwrap();
    let reported = parts.scheduler.report(own, Ok(json!("true"))).await.unwrap();
    assert_eq!(reported.job.state, JobState::Succeeded);
    // A repeated result needs it too.
    refused_as_stale(&parts, &own.clone().with_secret(None)).await;
    refused_as_stale(&parts, &own.clone().with_principal("w2")).await;
    assert!(parts.scheduler.report(own, Ok(json!("true"))).await.unwrap().repeated);
    // Neither the secret nor its hash is shown, and the events name the worker's principal.
    let hash = parts.plane.job("j").await.unwrap().claim.unwrap().secret_sha256;
    let view = serde_json::to_string(&JobView::from(parts.plane.job("j").await.unwrap())).unwrap();
    let history = parts.plane.job_history("j").await.unwrap();
    for text in history.iter().map(|event| &event.body).chain([&view]) {
        assert!(!text.contains(secret.expose()) && !text.contains(&hash), "{text}");
    }
    let by = |event| EventView::from(event).body.get("principal").cloned();
    let principals: Vec<_> = history.iter().filter_map(by).collect();
    let unauthenticated = json!("unauthenticated");
    assert_eq!(principals, [unauthenticated, json!("w1"), json!("w1")]);
}

#[tokio::test(start_paused = true)]
async fn finding_05_a_claim_of_an_earlier_version_works_until_it_ends() {
    let fixture = Fixture::new();
    let parts = dispatched(&fixture, &["j"]).await;
    let hold = parts.plane.locks().class("scheduler").acquire("job:j").await.unwrap().held().unwrap();
    let fence: Fence = hold.fence().unwrap();
    let job = parts.plane.job("j").await.unwrap();
    // As earlier versions claimed it: without a seal.
    let started = job.start(Owner { who: "w".into(), fence: Some(fence) }, None);
    let job: Job = parts.plane.writer().apply(&hold, &job, started).await.unwrap();
    hold.release().await;
    let claim = Claim::new("j".into(), job.attempt, Some(fence)).with_principal("w1");
    parts.scheduler.heartbeat(&claim).await.unwrap();
    assert!(!parts.scheduler.report(&claim, Ok(json!(1))).await.unwrap().repeated);
    assert!(parts.scheduler.report(&claim, Ok(json!(1))).await.unwrap().repeated);
}

async fn decide(plane: &Plane, id: &str, snapshot: &str, verb: &str) -> Result<Job, String> {
    let request = DecisionRequest { by: "ann".into(), reason: "seen".into(), snapshot: snapshot.into() };
    let decided = match verb {
        "approve" => plane.approve(id, &request).await,
        "reject" => plane.reject(id, &request).await,
        _ => plane.repair(id, json!({}), &request).await,
    };
    decided.map_err(|error| error.code().as_str().to_owned())
}

fn asking(id: &str) -> JobSpec {
    JobSpec { requires_approval: true, ..pull_job(id) }
}

#[tokio::test(start_paused = true)]
async fn finding_05_a_decision_names_the_snapshot_that_was_seen() {
    let fixture = Fixture::new();
    let plane = fixture.replica_parts("a", Executors::default()).plane;
    plane.submit(asking("j")).await.unwrap();
    for verb in ["approve", "reject", "repair"] {
        for snapshot in ["", "0000000000000000"] {
            assert_eq!(decide(&plane, "j", snapshot, verb).await.unwrap_err(), "stale_snapshot", "{verb}");
        }
    }
    let seen = plane.job("j").await.unwrap().snapshot();
    let repaired = decide(&plane, "j", &seen, "repair").await.unwrap();
    assert_eq!(decide(&plane, "j", &seen, "approve").await.unwrap_err(), "stale_snapshot");
    let stale = DecisionRequest { by: "ann".into(), reason: "seen".into(), snapshot: seen };
    let told = plane.approve("j", &stale).await.unwrap_err().to_string();
    assert!(!told.contains(&repaired.snapshot()), "the refusal hands out the snapshot: {told}");
    decide(&plane, "j", &repaired.snapshot(), "approve").await.unwrap();
}

async fn last_event(plane: &Plane, id: &str) -> Value {
    serde_json::from_str(&plane.job_history(id).await.unwrap().last().unwrap().body).unwrap()
}

#[tokio::test(start_paused = true)]
async fn finding_05_a_submitter_cannot_decide_about_its_own_job() {
    let fixture = Fixture::new();
    let plane = fixture.replica_parts("a", Executors::default()).plane;
    let (ann, bob) = (plane.acting_for("ann"), plane.acting_for("bob"));
    let seen = ann.submit(asking("j")).await.unwrap().job.snapshot();
    for verb in ["approve", "reject", "repair"] {
        assert_eq!(decide(&ann, "j", &seen, verb).await.unwrap_err(), "self_approval", "{verb}");
    }
    assert_eq!(plane.job("j").await.unwrap().state, JobState::ApprovalRequired);
    decide(&bob, "j", &seen, "approve").await.unwrap();
    let event = last_event(&plane, "j").await;
    assert_eq!((&event["principal"], &event["self_approval"]), (&json!("bob"), &Value::Null));
    // Allowed by the daemon's configuration, and the event says so.
    let settings = Settings { allow_self_approval: true, ..Fixture::settings() };
    let lenient = fixture.replica_parts_with("b", Executors::default(), settings).plane.acting_for("ann");
    let seen = lenient.submit(asking("k")).await.unwrap().job.snapshot();
    decide(&lenient, "k", &seen, "approve").await.unwrap();
    let event = last_event(&plane, "k").await;
    assert_eq!((&event["principal"], &event["self_approval"]), (&json!("ann"), &json!(true)));
    // On the store itself there are no principals.
    let seen = plane.submit(asking("l")).await.unwrap().job.snapshot();
    decide(&plane, "l", &seen, "approve").await.unwrap();
    let event = last_event(&plane, "l").await;
    assert_eq!((&event["principal"], &event["self_approval"]), (&json!("unauthenticated"), &Value::Null));
}

/// A retry by another caller must not make that one, or the submitter, a person who may decide.
#[tokio::test(start_paused = true)]
async fn finding_05_a_retry_by_another_does_not_allow_the_submitter_to_decide() {
    let fixture = Fixture::new();
    let parts = fixture.replica_parts("a", Executors::default());
    let as_ = |who: &str| parts.plane.acting_for(who);
    let dying = JobSpec { attempts: 1, ..asking("team:j") };
    let mut snapshot = as_("ann").submit(dying).await.unwrap().job.snapshot();
    let mut id = "team:j".to_owned();
    // Two retries: all that requested it are kept.
    for (decides, retries) in [("dan", "bob"), ("dan", "carl")] {
        decide(&as_(decides), &id, &snapshot, "approve").await.unwrap();
        parts.deliver_due().await;
        let claimed = claim(&parts, "w").await;
        parts.scheduler.report(&claimed.claim, Err("broken".into())).await.unwrap();
        let again = as_(retries).replay(&id).await.unwrap().job;
        assert_eq!(again.submitted_by.as_deref(), Some("ann"));
        (id, snapshot) = (again.id.clone(), again.snapshot());
        for who in ["ann", retries] {
            let refused = decide(&as_(who), &id, &snapshot, "approve").await.unwrap_err();
            assert_eq!(refused, "self_approval", "{who}");
        }
    }
    assert_eq!(decide(&as_("bob"), &id, &snapshot, "approve").await.unwrap_err(), "self_approval");
    decide(&as_("dan"), &id, &snapshot, "approve").await.unwrap();
}

/// An approver that changes what a job does may not approve that itself: two principals see each payload.
#[tokio::test(start_paused = true)]
async fn finding_05_a_repair_does_not_allow_the_repairer_to_decide() {
    let fixture = Fixture::new();
    let parts = fixture.replica_parts("a", Executors::default());
    let as_ = |who: &str| parts.plane.acting_for(who);
    let dying = JobSpec { attempts: 1, ..asking("team:j") };
    let seen = as_("ann").submit(dying).await.unwrap().job.snapshot();
    let repaired = decide(&as_("bob"), "team:j", &seen, "repair").await.unwrap();
    let (mut id, snapshot) = (repaired.id.clone(), repaired.snapshot());
    for (who, verb) in [("bob", "approve"), ("bob", "reject"), ("bob", "repair"), ("ann", "approve")] {
        let refused = decide(&as_(who), &id, &snapshot, verb).await.unwrap_err();
        assert_eq!(refused, "self_approval", "{who} {verb}");
    }
    // It goes on counting against the quota of its submitter.
    let counted = async |who: &str| {
        let states = [JobState::ApprovalRequired.as_str()];
        let mut query = DocumentQuery::new(DocumentKind::Job, states, 0);
        query.owner = Some(who.to_owned());
        fixture.memory.count(&query).await.unwrap()
    };
    assert_eq!((counted("ann").await, counted("bob").await), (1, 0));
    decide(&as_("dan"), &id, &snapshot, "approve").await.unwrap();
    // A retry does the changed payload again.
    parts.deliver_due().await;
    let claimed = claim(&parts, "w").await;
    parts.scheduler.report(&claimed.claim, Err("broken".into())).await.unwrap();
    id = as_("carl").replay(&id).await.unwrap().job.id;
    let snapshot = parts.plane.job(&id).await.unwrap().snapshot();
    for who in ["ann", "bob", "carl"] {
        assert_eq!(decide(&as_(who), &id, &snapshot, "approve").await.unwrap_err(), "self_approval", "{who}");
    }
    decide(&as_("dan"), &id, &snapshot, "approve").await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn finding_05_a_rerun_by_another_does_not_allow_the_starter_to_decide() {
    let fixture = Fixture::new();
    let parts = fixture.replica_parts("a", Executors::default());
    let as_ = |who: &str| parts.plane.acting_for(who);
    let text = "name = \"w\"\n[[step]]\nid = \"ask\"\napproval = \"go?\"\n";
    parts.plane.apply_workflow(&parse("w", text).unwrap()).await.unwrap();
    let start = StartRunRequest { workflow: "w".into(), id: Some("r".into()), ..StartRunRequest::default() };
    as_("ann").start_run(start).await.unwrap();
    while parts.deliver_due().await > 0 {}
    let seen = parts.plane.job("r.ask.1").await.unwrap().snapshot();
    decide(&as_("dan"), "r.ask.1", &seen, "reject").await.unwrap();
    while parts.deliver_due().await > 0 {}
    as_("bob").rerun("r", "ask").await.unwrap();
    while parts.deliver_due().await > 0 {}
    let asked = parts.plane.job("r.ask.2").await.unwrap();
    for who in ["ann", "bob"] {
        let refused = decide(&as_(who), "r.ask.2", &asked.snapshot(), "approve").await.unwrap_err();
        assert_eq!(refused, "self_approval", "{who}");
    }
    decide(&as_("dan"), "r.ask.2", &asked.snapshot(), "approve").await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn finding_11_locks_of_a_stranger_do_not_starve_a_topic() {
    let fixture = Fixture::new();
    let parts = fixture.replica_parts("a", Executors::default());
    let mut held = Vec::new();
    for number in 0..40 {
        parts.plane.submit(pull_job(&format!("evil:{number}"))).await.unwrap();
    }
    parts.deliver_due().await;
    let stranger = fixture.replica_parts("stranger", Executors::default());
    for number in 0..40 {
        let locks = stranger.plane.locks().class("scheduler");
        held.push(locks.acquire(format!("job:evil:{number}")).await.unwrap().held().unwrap());
    }
    parts.plane.submit(pull_job("real")).await.unwrap();
    parts.deliver_due().await;
    assert_eq!(claim(&parts, "w").await.job.id, "real");
    assert!(parts.scheduler.claim(&ClaimRequest::new("work", "w")).await.unwrap().is_none());
    drop(held);
}

#[tokio::test(start_paused = true)]
async fn finding_11_filtered_jobs_do_not_hide_the_others() {
    let fixture = Fixture::new();
    let ids: Vec<String> = (0..40).map(|number| format!("evil:{number:02}")).collect();
    let mut ids: Vec<&str> = ids.iter().map(String::as_str).collect();
    ids.push("ours:1");
    let parts = dispatched(&fixture, &ids).await;
    let ours = |job: &Job| job.id.starts_with("ours:");
    let request = ClaimRequest::new("work", "w").filter(&ours);
    assert_eq!(parts.scheduler.claim(&request).await.unwrap().unwrap().job.id, "ours:1");
    assert!(parts.scheduler.claim(&request).await.unwrap().is_none());
}

/// More jobs than a claim looks at are of no use to the worker; the one that is comes after all of them.
#[tokio::test(start_paused = true)]
async fn finding_11_every_candidate_is_reached_across_claims() {
    let fixture = Fixture::new();
    let settings = Settings { claim_candidates: 8, ..Fixture::settings() };
    let parts = fixture.replica_parts_with("a", Executors::default(), settings);
    for number in 0..40 {
        parts.plane.submit(pull_job(&format!("evil:{number:02}"))).await.unwrap();
    }
    parts.plane.submit(pull_job("ours:1")).await.unwrap();
    parts.plane.submit(pull_job("ours:2")).await.unwrap();
    while parts.deliver_due().await > 0 {}
    let scope = DocumentScope { ids: vec!["ours".into()], index_keys: Vec::new() };
    let limited = ClaimRequest::new("work", "w").scope(&scope);
    let first = parts.scheduler.claim(&limited).await.unwrap().unwrap();
    assert!(first.job.id.starts_with("ours:"), "the store leaves the others out: {}", first.job.id);
    // With a filter that only the claim knows, as for locks that a stranger holds.
    let ours = |job: &Job| job.id.starts_with("ours:");
    let filtered = ClaimRequest::new("work", "w").filter(&ours);
    let mut claims = 0;
    let second = loop {
        claims += 1;
        assert!(claims < 20, "the job is never reached");
        if let Some(claimed) = parts.scheduler.claim(&filtered).await.unwrap() {
            break claimed;
        }
    };
    assert!(claims > 1 && second.job.id.starts_with("ours:"), "{claims} {}", second.job.id);
}

#[tokio::test(start_paused = true)]
async fn finding_11_a_run_follows_the_definition_that_was_checked() {
    let fixture = Fixture::new();
    let plane = fixture.replica_parts("a", Executors::default()).plane;
    let text = |topic: &str| format!("name = \"w\"\n[[step]]\nid = \"a\"\npull = \"{topic}\"\n");
    let checked = parse("w", &text("ours")).unwrap();
    plane.apply_workflow(&checked).await.unwrap();
    // Another version is stored between the check and the start.
    plane.apply_workflow(&parse("w", &text("theirs")).unwrap()).await.unwrap();
    let start = StartRunRequest { workflow: "w".into(), ..StartRunRequest::default() };
    let run = plane.start_run_of(checked.clone(), start).await.unwrap().run;
    assert_eq!(run.workflow, checked);
}

#[tokio::test(start_paused = true)]
async fn finding_11_a_job_that_cannot_be_used_is_skipped() {
    let fixture = Fixture::new();
    let parts = fixture.replica_parts("a", Executors::default());
    let gone = Job::new("gone".into(), JobSpec { class: "no-such-class".into(), ..pull_job("gone") }, None);
    for (id, body) in [("gone", serde_json::to_string(&gone).unwrap()), ("garbage", "{".to_owned())] {
        let revision = Revision {
            kind: DocumentKind::Job,
            id: id.into(),
            state: "DISPATCHED",
            due_in: Some(std::time::Duration::ZERO),
            index_key: "work".into(),
            owner: String::new(),
            key: None,
            body,
            event: "{}".into(),
        };
        fixture.memory.write(&WriteRequest::new(format!("planted-{id}"), revision)).await.unwrap();
    }
    parts.plane.submit(pull_job("real")).await.unwrap();
    parts.deliver_due().await;
    assert_eq!(claim(&parts, "w").await.job.id, "real");
}

//! Finding 3 of the security review: idempotency keys and ids of one tenant never reach another's work.

use std::sync::Arc;

use leasehold_core::Locks;
use leasehold_core::clock::BootClock;
use leasehold_core::memory::MemoryStore;
use leasehold_plane::scheduler::ClaimRequest;
use leasehold_plane::store::memory::MemoryPlane;
use leasehold_plane::store::redis::RedisPlane;
use leasehold_plane::store::sqlite::SqlitePlane;
use leasehold_plane::store::{
    DocumentKey, DocumentKind, PlaneStore, Revision, SharedPlaneStore, WriteRequest, WriteResponse,
};
use leasehold_plane::work::Executors;
use leasehold_plane::workflow::{StartRunRequest, Workflow, parse};
use leasehold_plane::{Job, JobSpec, JobState, Plane, PlaneError, Settings};
use leasehold_redis::RedisOptions;
use leasehold_redis::testkit::RedisServer;
use serde_json::json;

use crate::fixture::{Fixture, pull_job};

fn keyed(id: &str, key: &str) -> JobSpec {
    JobSpec { key: Some(key.into()), ..pull_job(id) }
}

fn of_tenant(tenant: &str, spec: JobSpec) -> JobSpec {
    JobSpec { tenant: tenant.into(), ..spec }
}

fn workflow() -> Workflow {
    parse("w", "name = \"w\"\n[[step]]\nid = \"a\"\npull = \"work\"\n").unwrap()
}

fn start(id: Option<&str>, org: &str, key: Option<&str>) -> StartRunRequest {
    StartRunRequest {
        workflow: "w".into(),
        id: id.map(str::to_owned),
        org: org.into(),
        key: key.map(str::to_owned),
        ..StartRunRequest::default()
    }
}

fn plane_on(store: SharedPlaneStore) -> Plane {
    let locks = Locks::builder(Arc::new(MemoryStore::new(BootClock::shared()))).without_log();
    Plane::new(locks.build().unwrap(), store, Settings::default()).unwrap()
}

/// Writes a document as earlier versions did: its key has no scope.
async fn write_as_before(store: &dyn PlaneStore, kind: DocumentKind, id: &str, key: &str, body: String) {
    let revision = Revision {
        kind,
        id: id.to_owned(),
        state: "PENDING",
        due_in: None,
        index_key: "work".into(),
        owner: String::new(),
        key: Some(DocumentKey::unscoped(key)),
        body,
        event: "{}".into(),
    };
    let written = store.write(&WriteRequest::new(format!("old-{id}"), revision)).await.unwrap();
    assert!(matches!(written, WriteResponse::Applied { repeated: false, .. }));
}

fn field_of(error: PlaneError) -> String {
    match error {
        PlaneError::Invalid(invalid) => invalid.field,
        other => other.to_string(),
    }
}

#[tokio::test(start_paused = true)]
async fn finding_03_a_key_of_another_tenant_is_free() {
    let fixture = Fixture::new();
    let plane = fixture.replica_parts("a", Executors::default()).plane;
    let secret = JobSpec { payload: json!({"iban": "DE00 SECRET"}), ..keyed("victim:pay", "pay-2026-11") };
    plane.submit(secret.clone()).await.unwrap();
    let evil = plane.submit(keyed("evil:x", "pay-2026-11")).await.unwrap();
    assert_eq!((evil.job.id.as_str(), evil.repeated), ("evil:x", false));
    assert!(evil.job.spec.payload.is_null());
    let other_topic = JobSpec { topic: "other".into(), ..keyed("evil2:y", "pay-2026-11") };
    assert!(!plane.submit(other_topic).await.unwrap().repeated);
    // A key that was taken first by another tenant does not make the victim's submit vanish.
    plane.submit(keyed("evil:sq", "pay-2026-12")).await.unwrap();
    let victim = plane.submit(keyed("victim:december", "pay-2026-12")).await.unwrap();
    assert_eq!((victim.job.id.as_str(), victim.repeated), ("victim:december", false));
    // By tenant likewise, with generated ids.
    for tenant in ["acme", "globex"] {
        let spec = of_tenant(tenant, JobSpec { id: None, ..keyed("", "k") });
        let first = plane.submit(spec.clone()).await.unwrap();
        assert!(!first.repeated && first.job.id.starts_with(&format!("{tenant}:")), "{}", first.job.id);
        let again = plane.submit(spec).await.unwrap();
        assert_eq!((again.job.id, again.repeated), (first.job.id, true));
    }
    assert!(plane.submit(secret).await.unwrap().repeated);
}

#[tokio::test(start_paused = true)]
async fn finding_03_a_run_key_of_another_organisation_is_free() {
    let fixture = Fixture::new();
    for limit in [None, Some(1)] {
        let settings = Settings { max_runs_per_org: limit, ..Fixture::settings() };
        let plane = fixture.replica_parts_with("a", Executors::default(), settings).plane;
        plane.apply_workflow(&workflow()).await.unwrap();
        let key = format!("k-{limit:?}");
        let name = |org: &str| format!("{org}{}", limit.unwrap_or(0));
        let (acme, globex) = (name("acme"), name("globex"));
        let first = plane.start_run(start(None, &acme, Some(&key))).await.unwrap();
        assert!(first.run.id.starts_with(&format!("{acme}:")));
        let other = plane.start_run(start(None, &globex, Some(&key))).await.unwrap();
        assert!(!other.repeated && other.run.id != first.run.id);
        // Also at the limit, where the key is looked up before the write.
        let again = plane.start_run(start(None, &acme, Some(&key))).await.unwrap();
        assert_eq!((again.run.id, again.repeated), (first.run.id, true));
    }
}

#[tokio::test(start_paused = true)]
async fn finding_03_the_key_of_a_replay_cannot_be_taken() {
    let fixture = Fixture::new();
    let parts = fixture.replica_parts("a", Executors::default());
    let plane = &parts.plane;
    // In the scope of the replay itself: only the space of the key tells the two apart.
    plane.submit(keyed("victim:r", "replay:victim:pay")).await.unwrap();
    plane.cancel("victim:r", "not now").await.unwrap();
    plane.submit(JobSpec { attempts: 1, ..pull_job("victim:pay") }).await.unwrap();
    parts.deliver_due().await;
    let claimed = parts.scheduler.claim(&ClaimRequest::new("work", "w")).await.unwrap().unwrap();
    parts.scheduler.report(&claimed.claim, Err("broken".into())).await.unwrap();
    let replayed = plane.replay("victim:pay").await.unwrap();
    assert!(!replayed.repeated && replayed.job.id.starts_with("victim:"), "{}", replayed.job.id);
    let again = plane.replay("victim:pay").await.unwrap();
    assert_eq!((again.job.id, again.repeated), (replayed.job.id, true));
}

#[tokio::test(start_paused = true)]
async fn finding_03_an_id_begins_with_its_tenant() {
    let fixture = Fixture::new();
    let plane = fixture.replica_parts("a", Executors::default()).plane;
    plane.apply_workflow(&workflow()).await.unwrap();
    for id in ["x", "acme", "acme:", "acmex:1", "globex:1"] {
        let refused = plane.submit(of_tenant("acme", pull_job(id))).await.unwrap_err();
        assert!(refused.to_string().contains("`acme:`"), "{refused}");
        assert_eq!(field_of(refused), "id", "{id}");
        assert_eq!(field_of(plane.start_run(start(Some(id), "acme", None)).await.unwrap_err()), "id");
    }
    plane.submit(of_tenant("acme", pull_job("acme:1"))).await.unwrap();
    plane.start_run(start(Some("acme:1"), "acme", None)).await.unwrap();
    for key in [String::new(), "k".repeat(513), "a\nb".into()] {
        assert_eq!(field_of(plane.submit(keyed("y", &key)).await.unwrap_err()), "key");
        assert_eq!(field_of(plane.start_run(start(None, "", Some(&key))).await.unwrap_err()), "key");
    }
}

#[tokio::test(start_paused = true)]
async fn finding_03_an_id_of_another_scope_is_a_conflict_without_details() {
    let fixture = Fixture::new();
    let plane = fixture.replica_parts("a", Executors::default()).plane;
    plane.apply_workflow(&workflow()).await.unwrap();
    // Earlier versions let a tenant's job have any id.
    let old = Job::new("nightly".into(), of_tenant("acme", pull_job("nightly")), None);
    let body = serde_json::to_string(&old).unwrap();
    write_as_before(&*fixture.memory, DocumentKind::Job, "nightly", "k", body).await;
    // A repeated submit of that job finds it, although a new one could not have its id.
    let again = plane.submit(of_tenant("acme", pull_job("nightly"))).await.unwrap();
    assert!(again.repeated && again.job.id == "nightly");
    let other = JobSpec { topic: "other".into(), ..of_tenant("acme", pull_job("nightly")) };
    assert_eq!(plane.submit(other).await.unwrap_err().code().as_str(), "different_job");
    let refused = plane.submit(pull_job("nightly")).await.unwrap_err();
    assert_eq!(refused.code().as_str(), "different_job");
    let text = refused.to_string();
    assert!(text.contains("nightly") && !text.contains("acme") && !text.contains("work"), "{text}");
}

/// A submit that is repeated after the upgrade finds the job of before, in every store.
async fn upgraded_store_submits_nothing_twice(store: SharedPlaneStore) {
    let spec = |id: &str| keyed(id, "nightly");
    let body = |id: &str| serde_json::to_string(&Job::new(id.into(), spec(id), None)).unwrap();
    write_as_before(&*store, DocumentKind::Job, "acme:old", "nightly", body("acme:old")).await;
    let run = leasehold_plane::workflow::Run::new("r".into(), workflow(), "acme".into(), json!(null));
    let run = serde_json::to_string(&run).unwrap();
    write_as_before(&*store, DocumentKind::Run, "r", "weekly", run).await;
    let plane = plane_on(Arc::clone(&store));
    plane.apply_workflow(&workflow()).await.unwrap();
    let found = plane.submit(spec("acme:new")).await.unwrap();
    assert_eq!((found.job.id.as_str(), found.repeated), ("acme:old", true));
    assert!(matches!(plane.job("acme:new").await, Err(PlaneError::NotFound { .. })));
    let foreign = plane.submit(spec("evil:new")).await.unwrap();
    assert_eq!((foreign.job.id.as_str(), foreign.repeated), ("evil:new", false));
    let found = plane.start_run(start(None, "acme", Some("weekly"))).await.unwrap();
    assert_eq!((found.run.id.as_str(), found.repeated), ("r", true));
    assert!(!plane.start_run(start(None, "evil", Some("weekly"))).await.unwrap().repeated);
    assert_eq!(plane.job("acme:old").await.unwrap().state, JobState::Pending);
}

#[tokio::test]
async fn finding_03_an_upgrade_submits_nothing_twice_in_memory() {
    upgraded_store_submits_nothing_twice(Arc::new(MemoryPlane::new(BootClock::shared()))).await;
}

#[tokio::test]
async fn finding_03_an_upgrade_submits_nothing_twice_in_sqlite() {
    let folder = tempfile::tempdir().unwrap();
    let store = SqlitePlane::open(folder.path().join("plane.db")).unwrap();
    upgraded_store_submits_nothing_twice(Arc::new(store)).await;
}

#[tokio::test]
async fn finding_03_an_upgrade_submits_nothing_twice_in_redis() {
    let server = RedisServer::start().await.unwrap();
    let store = RedisPlane::open(RedisOptions::parse(&server.url()).unwrap()).unwrap();
    upgraded_store_submits_nothing_twice(Arc::new(store)).await;
}

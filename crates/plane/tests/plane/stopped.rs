//! A replica whose whole process is stopped between writing DISPATCHED and the hand-over.
//!
//! On real stores and in real time, it stands still until a worker has claimed the job through another
//! replica. When it resumes, it must not hand the job over.

// A failed set-up is a failed test.
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use leasehold::StoreUrl;
use leasehold_core::clock::{BootClock, Clock, ClockExt};
use leasehold_core::policy::PolicyBook;
use leasehold_core::rng::OsRandom;
use leasehold_core::{Hold, Holder, Locks};
use leasehold_plane::events::{PlaneEvent, PlaneObserver};
use leasehold_plane::scheduler::{ClaimRequest, Scheduler};
use leasehold_plane::store::{Queue, SharedPlaneStore};
use leasehold_plane::work::{Executors, Publisher};
use leasehold_plane::{Job, JobSpec, JobState, Plane, Settings, Work, open_store};
use leasehold_redis::testkit::RedisServer;
use tokio::runtime::Runtime;

// Short enough for a test, long enough not to expire on a slow machine.
const SHORT_LEASE_POLICY: &str = r#"
[class.scheduler]
ttl = "3s"
acquire = { wait = "1s", timeout = "500ms" }
renew = { every = "ttl/3", timeout = "400ms" }
release = { timeout = "300ms" }
"#;
// Only a failing test waits this long.
const STANDSTILL_TIMEOUT: Duration = Duration::from_secs(60);

/// Signals that DISPATCHED is written, then blocks its whole runtime until it may resume.
#[derive(Debug)]
struct StandstillObserver(Mutex<Option<(Sender<()>, Receiver<()>)>>);

impl PlaneObserver for StandstillObserver {
    fn on_plane_event(&self, event: &PlaneEvent) {
        let dispatched = matches!(event, PlaneEvent::StateChanged { to, .. } if *to == JobState::Dispatched);
        if !dispatched {
            return;
        }
        // Only once: later events must pass.
        if let Some((here, go_on)) = self.0.lock().unwrap().take() {
            here.send(()).unwrap();
            // A closed channel means that the other thread has failed; it reports its own error.
            let _ = go_on.recv();
        }
    }
}

/// Records the jobs that were handed over.
#[derive(Debug, Default)]
struct RecordingPublisher(Mutex<Vec<String>>);

#[async_trait]
impl Publisher for RecordingPublisher {
    async fn publish(&self, _hold: &Hold, job: &Job) -> Result<(), String> {
        self.0.lock().unwrap().push(job.id.clone());
        Ok(())
    }
}

/// A runtime with one thread: if that blocks, renewals and timers stop too, as in a stopped process.
fn single_thread_runtime() -> Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

fn plane(url: &str, who: &str, observers: Vec<Arc<dyn PlaneObserver>>) -> (Plane, SharedPlaneStore) {
    let url = StoreUrl::parse(url).unwrap();
    let locks = Locks::builder(url.open().unwrap())
        .policies(PolicyBook::from_text(SHORT_LEASE_POLICY, "test").unwrap())
        .holder(Holder::new(who).unwrap())
        .build()
        .unwrap();
    let store = open_store(&url).unwrap();
    let plane =
        Plane::with_observers(locks, Arc::clone(&store), Settings::default(), OsRandom::shared(), observers);
    (plane.unwrap(), store)
}

/// Claims the job for a worker as soon as the stopped owner's lease has expired.
async fn claim_from_other_replica(url: &str) {
    let (plane, _) = plane(url, "other", Vec::new());
    let scheduler = Scheduler::new(plane.writer().clone(), Executors::default());
    let end = BootClock.now() + STANDSTILL_TIMEOUT;
    while scheduler.claim(&ClaimRequest::new("work", "worker")).await.unwrap().is_none() {
        assert!(BootClock.now() < end, "the job of a stopped owner was never free");
        BootClock.sleep(Duration::from_millis(20)).await;
    }
}

fn pull_job(id: &str) -> JobSpec {
    JobSpec { id: Some(id.into()), topic: "work".into(), ..JobSpec::new(Work::Pull) }
}

/// Submits a job and handles its message.
async fn submit_and_handle(plane: &Plane, store: &SharedPlaneStore, scheduler: &Scheduler, id: &str) {
    plane.submit(pull_job(id)).await.unwrap();
    let taken = store.receive(Queue::Jobs, 100, plane.settings().visibility_timeout).await;
    for message in taken.unwrap() {
        scheduler.handle_delivery(&message).await;
    }
}

fn an_owner_that_stood_still_hands_nothing_over(url: &str) {
    let (here, stands) = channel();
    let (wake, go_on) = channel();
    let elsewhere = std::thread::spawn({
        let url = url.to_owned();
        move || {
            stands.recv_timeout(STANDSTILL_TIMEOUT).unwrap();
            single_thread_runtime().block_on(claim_from_other_replica(&url));
            wake.send(()).unwrap();
        }
    });
    let published = Arc::new(RecordingPublisher::default());
    let works = Executors::default().publisher(Arc::clone(&published) as _);
    single_thread_runtime().block_on(async {
        let standstill = StandstillObserver(Mutex::new(Some((here, go_on))));
        let (plane, store) = plane(url, "sleeper", vec![Arc::new(standstill)]);
        let scheduler = Scheduler::new(plane.writer().clone(), works);
        submit_and_handle(&plane, &store, &scheduler, "slept").await;
        elsewhere.join().unwrap();
        let job = plane.job("slept").await.unwrap();
        let owner = job.owner.map(|owner| owner.who);
        assert_eq!((job.state, owner.as_deref()), (JobState::Running, Some("worker")));
        // Control: a running owner does hand over, so a missing hand-over would be visible.
        submit_and_handle(&plane, &store, &scheduler, "awake").await;
    });
    assert_eq!(*published.0.lock().unwrap(), ["awake"]);
}

#[test]
fn an_owner_that_stood_still_hands_nothing_over_on_sqlite() {
    let folder = tempfile::tempdir().unwrap();
    let url = format!("sqlite:{}", folder.path().join("locks.db").display());
    an_owner_that_stood_still_hands_nothing_over(&url);
}

#[test]
fn an_owner_that_stood_still_hands_nothing_over_on_redis() {
    let server = single_thread_runtime().block_on(RedisServer::start()).unwrap();
    an_owner_that_stood_still_hands_nothing_over(&server.url());
}

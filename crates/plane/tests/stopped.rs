//! An owner whose whole process stands still between writing DISPATCHED and handing the job over, on real stores and in real
//! time, until a worker has claimed the job through another replica. When it goes on, it must not hand the job over.

// A stage that cannot be set is a failed test.
#![allow(clippy::unwrap_used)]

use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use leasehold::StoreUrl;
use leasehold_core::clock::{BootClock, Clock, ClockExt};
use leasehold_core::policy::PolicyBook;
use leasehold_core::rng::OsRandom;
use leasehold_core::{Hold, Holder, Locks};
use leasehold_plane::note::{Note, Observer};
use leasehold_plane::scheduler::Scheduler;
use leasehold_plane::store::{Queue, SharedPlaneStore};
use leasehold_plane::work::{Publisher, Works};
use leasehold_plane::{Job, JobSpec, JobState, Plane, Settings, Work, open_store};
use leasehold_redis::testkit::RedisServer;
use tokio::runtime::Runtime;

/// A lease that runs out soon, and yet not because a machine is slow.
const CLASSES: &str = r#"
[class.scheduler]
ttl = "3s"
acquire = { wait = "1s", timeout = "500ms" }
renew = { every = "ttl/3", timeout = "400ms" }
release = { timeout = "300ms" }
"#;
/// Only a test that fails waits so long.
const PATIENCE: Duration = Duration::from_secs(60);

/// Says that DISPATCHED is written, and lets nothing of its process run until it is told to go on.
#[derive(Debug)]
struct Standstill(Mutex<Option<(Sender<()>, Receiver<()>)>>);

impl Observer for Standstill {
    fn on(&self, note: &Note) {
        let dispatched = matches!(note, Note::Moved { to, .. } if *to == JobState::Dispatched);
        if !dispatched {
            return;
        }
        // Once: it is awake for what comes later.
        if let Some((here, go_on)) = self.0.lock().unwrap().take() {
            here.send(()).unwrap();
            // Without an answer the other thread has failed, and says so itself.
            let _ = go_on.recv();
        }
    }
}

/// Writes down what was handed over.
#[derive(Debug, Default)]
struct Published(Mutex<Vec<String>>);

#[async_trait]
impl Publisher for Published {
    async fn publish(&self, _hold: &Hold, job: &Job) -> Result<(), String> {
        self.0.lock().unwrap().push(job.id.clone());
        Ok(())
    }
}

/// A runtime on one thread: where that stands still, the renewals and the timers do too.
fn process() -> Runtime {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap()
}

fn plane(url: &str, who: &str, observers: Vec<Arc<dyn Observer>>) -> (Plane, SharedPlaneStore) {
    let url = StoreUrl::parse(url).unwrap();
    let locks = Locks::builder(url.open().unwrap())
        .policies(PolicyBook::from_text(CLASSES, "test").unwrap())
        .holder(Holder::new(who).unwrap())
        .build()
        .unwrap();
    let store = open_store(&url).unwrap();
    let plane = Plane::with(
        locks,
        Arc::clone(&store),
        Settings::default(),
        OsRandom::shared(),
        observers,
    );
    (plane.unwrap(), store)
}

/// Claims the job for a worker as soon as the stopped owner's lease has run out.
async fn claim(url: &str) {
    let (plane, _) = plane(url, "other", Vec::new());
    let scheduler = Scheduler::new(plane.ledger().clone(), Works::default());
    let end = BootClock.now() + PATIENCE;
    while scheduler.claim("work", "worker").await.unwrap().is_none() {
        assert!(BootClock.now() < end, "the job of a stopped owner was never free");
        BootClock.sleep(Duration::from_millis(20)).await;
    }
}

fn pulled(id: &str) -> JobSpec {
    JobSpec {
        id: Some(id.into()),
        topic: "work".into(),
        ..JobSpec::new(Work::Pull)
    }
}

/// Submits a job, and takes its mail one turn further.
async fn turn(plane: &Plane, store: &SharedPlaneStore, scheduler: &Scheduler, id: &str) {
    plane.submit(pulled(id)).await.unwrap();
    let taken = store.take(Queue::Jobs, 100, plane.settings().visible).await;
    for mail in taken.unwrap() {
        scheduler.deliver(&mail).await;
    }
}

fn an_owner_that_stood_still_hands_nothing_over(url: &str) {
    let (here, stands) = channel();
    let (wake, go_on) = channel();
    let elsewhere = std::thread::spawn({
        let url = url.to_owned();
        move || {
            stands.recv_timeout(PATIENCE).unwrap();
            process().block_on(claim(&url));
            wake.send(()).unwrap();
        }
    });
    let published = Arc::new(Published::default());
    let works = Works::default().publisher(Arc::clone(&published) as _);
    process().block_on(async {
        let standstill = Standstill(Mutex::new(Some((here, go_on))));
        let (plane, store) = plane(url, "sleeper", vec![Arc::new(standstill)]);
        let scheduler = Scheduler::new(plane.ledger().clone(), works);
        turn(&plane, &store, &scheduler, "slept").await;
        elsewhere.join().unwrap();
        let job = plane.job("slept").await.unwrap();
        let owner = job.owner.map(|owner| owner.who);
        assert_eq!((job.state, owner.as_deref()), (JobState::Running, Some("worker")));
        // Awake, it does hand over: what it does not is seen here.
        turn(&plane, &store, &scheduler, "awake").await;
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
    let server = process().block_on(RedisServer::start()).unwrap();
    an_owner_that_stood_still_hands_nothing_over(&server.url());
}

use leasehold_core::adapter::FaultyStore;
use leasehold_core::clock::{Clock, run_until};
use leasehold_core::memory::MemoryStore;

use super::*;
use crate::history::HistorySink;

// Only a failing test waits this long.
const TEST_TIMEOUT: Duration = Duration::from_secs(30);

/// A client of a fail-open class with an endless task, on a store that can be made unreachable.
struct EndlessClient {
    client: DrillClient,
    chaos: FaultyStore,
    _folder: tempfile::TempDir,
}

impl EndlessClient {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let clock = BootClock::shared();
        let chaos = FaultyStore::new(Arc::new(MemoryStore::new(Arc::clone(&clock))), Arc::clone(&clock));
        let locks = Locks::builder(chaos.store()).without_log().build().unwrap();
        let client = DrillClient {
            spec: Arc::new(WorkerSpec::new("w", "workflow", "job:1").steps(2, 1).endless()),
            name: Name::new("job:1").unwrap(),
            history: HistorySink::new(std::io::sink(), 10_000, clock).writer("w"),
            locks,
            counters: Arc::default(),
            acquire_requests: Arc::default(),
            target: Arc::new(FencedTarget::open(&folder.path().join("ledger.db")).unwrap()),
            writes_in_flight: TaskTracker::new(),
            writes: AtomicU64::new(0),
            last_deadline: AtomicU64::new(0),
            shutdown: CancellationToken::new(),
        };
        Self { client, chaos, _folder: folder }
    }

    async fn hold(&self) -> Hold {
        match self.client.locks.class("workflow").acquire("job:1").await {
            Ok(Acquired::Held(hold)) => hold,
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test]
async fn endless_work_ends_without_a_lease() {
    let it = EndlessClient::new();
    it.chaos.all().down(true);
    let hold = it.hold().await;
    assert_eq!(hold.exclusivity(), Exclusivity::LocalOnly);
    let worked = it.client.work(1, &hold);
    let ended = run_until(&BootClock, BootClock.now() + TEST_TIMEOUT, worked).await;
    assert!(ended.is_some(), "it goes on with its local lock for ever");
}

#[tokio::test]
async fn endless_work_continues_under_a_lease_until_shutdown() {
    let it = EndlessClient::new();
    let hold = it.hold().await;
    assert_eq!(hold.exclusivity(), Exclusivity::Distributed);
    let told = async {
        // More writes than the two steps of a task that is not endless.
        while it.client.writes.load(Ordering::Relaxed) < 6 {
            BootClock.sleep(Duration::from_millis(2)).await;
        }
        it.client.shutdown.cancel();
    };
    let both = async { tokio::join!(it.client.work(1, &hold), told) };
    let ended = run_until(&BootClock, BootClock.now() + TEST_TIMEOUT, both).await;
    assert!(ended.is_some(), "it has ended before it was told to, or not at all");
}

use leasehold_core::adapter::Chaos;
use leasehold_core::clock::{Clock, until};
use leasehold_core::memory::MemoryStore;

use super::*;
use crate::history::Sink;

/// No test waits so long unless it fails.
const PATIENCE: Duration = Duration::from_secs(30);

/// A client of a fail-open class with a task that has no end, on a store that can be taken away.
struct Endless {
    client: Client,
    chaos: Chaos,
    _folder: tempfile::TempDir,
}

impl Endless {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let clock = BootClock::shared();
        let chaos = Chaos::new(Arc::new(MemoryStore::new(Arc::clone(&clock))), Arc::clone(&clock));
        let locks = Locks::builder(chaos.store()).without_log().build().unwrap();
        let client = Client {
            orders: Arc::new(Orders::new("w", "workflow", "job:1").steps(2, 1).endless()),
            name: Name::new("job:1").unwrap(),
            pen: Sink::new(std::io::sink(), 10_000, clock).pen("w"),
            locks,
            counters: Arc::default(),
            asks: Arc::default(),
            ledger: Arc::new(Ledger::open(&folder.path().join("ledger.db")).unwrap()),
            flying: TaskTracker::new(),
            writes: AtomicU64::new(0),
            believed: AtomicU64::new(0),
            ending: CancellationToken::new(),
        };
        Self {
            client,
            chaos,
            _folder: folder,
        }
    }

    async fn hold(&self) -> Hold {
        match self.client.locks.class("workflow").acquire("job:1").await {
            Ok(Acquired::Held(hold)) => hold,
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test]
async fn work_without_an_end_ends_when_it_has_no_lease() {
    let it = Endless::new();
    it.chaos.all().down(true);
    let hold = it.hold().await;
    assert_eq!(hold.exclusivity(), Exclusivity::LocalOnly);
    let worked = it.client.work(1, &hold);
    let ended = until(&BootClock, BootClock.now() + PATIENCE, worked).await;
    assert!(ended.is_some(), "it goes on with its local lock for ever");
}

#[tokio::test]
async fn work_without_an_end_goes_on_under_a_lease_until_it_is_told_to_end() {
    let it = Endless::new();
    let hold = it.hold().await;
    assert_eq!(hold.exclusivity(), Exclusivity::Distributed);
    let told = async {
        // More than the two steps that a task with an end would have.
        while it.client.writes.load(Ordering::Relaxed) < 6 {
            BootClock.sleep(Duration::from_millis(2)).await;
        }
        it.client.ending.cancel();
    };
    let both = async { tokio::join!(it.client.work(1, &hold), told) };
    let ended = until(&BootClock, BootClock.now() + PATIENCE, both).await;
    assert!(
        ended.is_some(),
        "it has ended before it was told to, or not at all"
    );
}

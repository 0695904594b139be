//! The fixture of these tests: a database file, a manual clock, and short helpers for requests.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use leasehold_core::clock::{Clock, Moment, SharedClock, Sleep};
use leasehold_core::rng::OsRandom;
use leasehold_core::store::{
    AcquireRequest, AcquireResponse, Grant, Lease, ReleaseRequest, ReleaseResponse, RenewRequest,
    RenewResponse, Store, StoreError,
};
use leasehold_core::{Fence, Holder, Name, Token, Ttl};
use leasehold_sqlite::{SqliteOptions, SqliteStore};

/// Generous: these tests judge responses, not speed.
pub(crate) const CALL_TIMEOUT: Duration = Duration::from_secs(30);

/// The boot clock and the wall clock of a host, moved by the test.
#[derive(Debug)]
pub(crate) struct ManualClock {
    now_ms: AtomicU64,
    wall_ms: AtomicU64,
}

impl ManualClock {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self { now_ms: AtomicU64::new(3_600_000), wall_ms: AtomicU64::new(1_800_000_000_000) })
    }

    /// Advances both clocks.
    pub(crate) fn advance(&self, time: Duration) {
        let millis = u64::try_from(time.as_millis()).unwrap();
        self.now_ms.fetch_add(millis, Ordering::SeqCst);
        self.wall_ms.fetch_add(millis, Ordering::SeqCst);
    }

    /// Sets the wall clock, as an operator does.
    pub(crate) fn step_wall(&self, by_ms: i64) {
        self.wall_ms
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |at| Some(at.saturating_add_signed(by_ms)))
            .unwrap();
    }

    /// Restarts the boot clock, as a reboot does.
    pub(crate) fn reboot(&self) {
        self.now_ms.store(10_000, Ordering::SeqCst);
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Moment {
        Moment::ZERO + Duration::from_millis(self.now_ms.load(Ordering::SeqCst))
    }
    fn sleep_until(&self, _at: Moment) -> Sleep {
        unreachable!("a store does not sleep")
    }
    fn wall(&self) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_millis(self.wall_ms.load(Ordering::SeqCst))
    }
}

/// A new database file with a manual clock.
pub(crate) struct Fixture {
    folder: tempfile::TempDir,
    pub(crate) clock: Arc<ManualClock>,
}

impl Fixture {
    pub(crate) fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap(), clock: ManualClock::new() }
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.folder.path().join("locks.db")
    }

    pub(crate) fn options(&self) -> SqliteOptions {
        let clock: SharedClock = Arc::<ManualClock>::clone(&self.clock);
        SqliteOptions::new(self.path()).clock(clock).boot_id("boot-1")
    }

    pub(crate) fn open(&self) -> SqliteStore {
        SqliteStore::open(self.options()).unwrap()
    }

    /// Number of this store's files that the process has open.
    pub(crate) fn open_files(&self) -> usize {
        let all = std::fs::read_dir("/proc/self/fd").unwrap();
        all.flatten()
            .filter_map(|fd| std::fs::read_link(fd.path()).ok())
            .filter(|target| target.starts_with(self.folder.path()))
            .count()
    }

    /// Waits until dropped stores have closed their files. They do so on their own threads, and
    /// remove the log by its name. Before that, a new file cannot be put in its place.
    pub(crate) async fn wait_closed(&self) {
        await_event("the end of the store's threads", async {
            while self.open_files() > 0 {
                tokio::task::yield_now().await;
            }
        })
        .await;
    }

    /// Removes all files of the database.
    pub(crate) fn remove_files(&self) {
        for file in ["locks.db", "locks.db-wal", "locks.db-shm"] {
            drop(std::fs::remove_file(self.path().with_file_name(file)));
        }
    }

    /// A second connection that bypasses the store.
    pub(crate) fn raw_connection(&self) -> rusqlite::Connection {
        rusqlite::Connection::open(self.path()).unwrap()
    }

    pub(crate) fn count(&self, table: &str) -> i64 {
        self.raw_connection()
            .query_row(&format!("SELECT count(*) FROM {table}"), [], |row| row.get(0))
            .unwrap()
    }
}

/// A client: a lock name and a token.
#[derive(Debug, Clone)]
pub(crate) struct TestClient {
    pub(crate) name: Name,
    pub(crate) token: Token,
}

impl TestClient {
    pub(crate) fn new(holder: &str, name: &str) -> Self {
        Self {
            name: Name::new(name).unwrap(),
            token: Token::fresh(&Holder::new(holder).unwrap(), "special", &OsRandom),
        }
    }

    pub(crate) fn acquire_request(&self, ttl_ms: u64) -> AcquireRequest {
        let ttl = Ttl::new(Duration::from_millis(ttl_ms)).unwrap();
        AcquireRequest::new(self.name.clone(), self.token.clone(), ttl)
    }

    pub(crate) fn queue_request(&self) -> AcquireRequest {
        self.acquire_request(60_000).with_queue(Duration::from_secs(600))
    }

    pub(crate) fn renew_request(&self, fence: Fence) -> RenewRequest {
        let ttl = Ttl::new(Duration::from_secs(60)).unwrap();
        RenewRequest::new(&self.name, self.token.clone(), fence, ttl)
    }

    pub(crate) async fn acquire(
        &self,
        store: &dyn Store,
        request: &AcquireRequest,
    ) -> Result<AcquireResponse, StoreError> {
        store.acquire(request, CALL_TIMEOUT).await
    }

    /// Acquires the name for a minute; panics unless granted.
    pub(crate) async fn expect_granted(&self, store: &dyn Store) -> Fence {
        match self.acquire(store, &self.acquire_request(60_000)).await.unwrap() {
            AcquireResponse::Granted(Grant { fence, .. }) => fence,
            other => panic!("{self:?} got {other:?}"),
        }
    }

    pub(crate) async fn expect_queued(&self, store: &dyn Store) {
        match self.acquire(store, &self.queue_request()).await.unwrap() {
            AcquireResponse::Busy(busy) => assert!(busy.queued),
            other => panic!("{self:?} got {other:?}"),
        }
    }

    pub(crate) async fn renew(&self, store: &dyn Store, fence: Fence) -> RenewResponse {
        let mut answers = store.renew(&[self.renew_request(fence)], CALL_TIMEOUT).await;
        answers.remove(0).unwrap()
    }

    pub(crate) async fn release(&self, store: &dyn Store) -> ReleaseResponse {
        let giving = ReleaseRequest::by_owner(self.name.clone(), self.token.clone());
        store.release(&giving, CALL_TIMEOUT).await.unwrap()
    }

    pub(crate) async fn inspect(&self, store: &dyn Store) -> Option<Lease> {
        store.inspect(&self.name, CALL_TIMEOUT).await.unwrap().into_first()
    }
}

/// Awaits an event that must happen; the limit only keeps a broken build from hanging.
#[allow(clippy::disallowed_methods, reason = "real threads and processes are waited for")]
pub(crate) async fn await_event<T>(what: &str, event: impl Future<Output = T>) -> T {
    match tokio::time::timeout(Duration::from_secs(60), event).await {
        Ok(out) => out,
        Err(_) => panic!("{what} did not come"),
    }
}

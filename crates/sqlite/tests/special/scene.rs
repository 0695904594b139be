//! A file in a folder of its own, a clock that stands still unless told otherwise, and short words for
//! asking.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use leasehold_core::clock::{Clock, Moment, SharedClock, Sleep};
use leasehold_core::rng::OsRandom;
use leasehold_core::store::{Answer, Ask, Failure, Given, Giving, Grant, Lease, Renewal, Renewed, Store};
use leasehold_core::{Fence, Holder, Name, Token, Ttl};
use leasehold_sqlite::{SqliteOptions, SqliteStore};

/// Generous: answers are judged, not speed.
pub(crate) const WITHIN: Duration = Duration::from_secs(30);

/// Both clocks of a host, moved by hand.
#[derive(Debug)]
pub(crate) struct HandClock {
    now_ms: AtomicU64,
    wall_ms: AtomicU64,
}

impl HandClock {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self {
            now_ms: AtomicU64::new(3_600_000),
            wall_ms: AtomicU64::new(1_800_000_000_000),
        })
    }

    /// Time passes on both clocks.
    pub(crate) fn pass(&self, time: Duration) {
        let millis = u64::try_from(time.as_millis()).unwrap();
        self.now_ms.fetch_add(millis, Ordering::SeqCst);
        self.wall_ms.fetch_add(millis, Ordering::SeqCst);
    }

    /// Somebody sets the wall clock.
    pub(crate) fn step_wall(&self, by_ms: i64) {
        self.wall_ms
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |at| {
                Some(at.saturating_add_signed(by_ms))
            })
            .unwrap();
    }

    /// The machine boots: its clock starts from the beginning.
    pub(crate) fn reboot(&self) {
        self.now_ms.store(10_000, Ordering::SeqCst);
    }
}

impl Clock for HandClock {
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

/// A fresh file on a clock moved by hand.
pub(crate) struct Scene {
    folder: tempfile::TempDir,
    pub(crate) clock: Arc<HandClock>,
}

impl Scene {
    pub(crate) fn new() -> Self {
        Self {
            folder: tempfile::tempdir().unwrap(),
            clock: HandClock::new(),
        }
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.folder.path().join("locks.db")
    }

    pub(crate) fn options(&self) -> SqliteOptions {
        let clock: SharedClock = Arc::<HandClock>::clone(&self.clock);
        SqliteOptions::new(self.path()).clock(clock).boot_id("boot-1")
    }

    pub(crate) fn open(&self) -> SqliteStore {
        SqliteStore::open(self.options()).unwrap()
    }

    /// How many of its files this process has open.
    pub(crate) fn open_files(&self) -> usize {
        let all = std::fs::read_dir("/proc/self/fd").unwrap();
        all.flatten()
            .filter_map(|fd| std::fs::read_link(fd.path()).ok())
            .filter(|target| target.starts_with(self.folder.path()))
            .count()
    }

    /// A store that was dropped closes its files on threads of its own, and takes its log away by its name: only then can another one's be put there.
    pub(crate) async fn closed(&self) {
        comes("the end of the store's threads", async {
            while self.open_files() > 0 {
                tokio::task::yield_now().await;
            }
        })
        .await;
    }

    /// Everything is gone, as if somebody had tidied up.
    pub(crate) fn wipe(&self) {
        for file in ["locks.db", "locks.db-wal", "locks.db-shm"] {
            drop(std::fs::remove_file(self.path().with_file_name(file)));
        }
    }

    /// A look behind the store's back.
    pub(crate) fn raw(&self) -> rusqlite::Connection {
        rusqlite::Connection::open(self.path()).unwrap()
    }

    pub(crate) fn count(&self, table: &str) -> i64 {
        self.raw()
            .query_row(&format!("SELECT count(*) FROM {table}"), [], |row| row.get(0))
            .unwrap()
    }
}

/// Someone with a token.
#[derive(Debug, Clone)]
pub(crate) struct Who {
    pub(crate) name: Name,
    pub(crate) token: Token,
}

impl Who {
    pub(crate) fn new(holder: &str, name: &str) -> Self {
        Self {
            name: Name::new(name).unwrap(),
            token: Token::fresh(&Holder::new(holder).unwrap(), "special", &OsRandom),
        }
    }

    pub(crate) fn ask(&self, ttl_ms: u64) -> Ask {
        let ttl = Ttl::new(Duration::from_millis(ttl_ms)).unwrap();
        Ask::new(self.name.clone(), self.token.clone(), ttl)
    }

    pub(crate) fn queueing(&self) -> Ask {
        Ask {
            queue: Some(Duration::from_secs(600)),
            ..self.ask(60_000)
        }
    }

    pub(crate) fn renewal(&self, fence: Fence) -> Renewal {
        Renewal {
            name: self.name.clone(),
            token: self.token.clone(),
            fence,
            ttl: Ttl::new(Duration::from_secs(60)).unwrap(),
            lock_delay: Duration::ZERO,
        }
    }

    pub(crate) async fn put(&self, store: &dyn Store, ask: &Ask) -> Result<Answer, Failure> {
        store.acquire(ask, WITHIN).await
    }

    /// Gets it for a minute.
    pub(crate) async fn gets(&self, store: &dyn Store) -> Fence {
        match self.put(store, &self.ask(60_000)).await.unwrap() {
            Answer::Granted(Grant { fence, .. }) => fence,
            other => panic!("{self:?} got {other:?}"),
        }
    }

    pub(crate) async fn queues(&self, store: &dyn Store) {
        match self.put(store, &self.queueing()).await.unwrap() {
            Answer::Busy(busy) => assert!(busy.queued),
            other => panic!("{self:?} got {other:?}"),
        }
    }

    pub(crate) async fn renews(&self, store: &dyn Store, fence: Fence) -> Renewed {
        let mut answers = store.renew(&[self.renewal(fence)], WITHIN).await;
        answers.remove(0).unwrap()
    }

    pub(crate) async fn gives(&self, store: &dyn Store) -> Given {
        let giving = Giving::owned(self.name.clone(), self.token.clone());
        store.release(&giving, WITHIN).await.unwrap()
    }

    pub(crate) async fn sees(&self, store: &dyn Store) -> Option<Lease> {
        store.inspect(&self.name, WITHIN).await.unwrap()
    }
}

/// Waits for something that must come; the limit only keeps a broken build from hanging.
#[allow(
    clippy::disallowed_methods,
    reason = "real threads and processes are waited for"
)]
pub(crate) async fn comes<T>(what: &str, event: impl Future<Output = T>) -> T {
    match tokio::time::timeout(Duration::from_secs(60), event).await {
        Ok(out) => out,
        Err(_) => panic!("{what} did not come"),
    }
}

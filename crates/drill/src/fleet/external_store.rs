//! A store that the drill did not start. It is drilled only if its operator has marked it, because
//! a drill blocks all other clients of the store.
//!
//! - Redis: `redis-cli SET leasehold:drillable yes` in the database to drill.
//! - SQLite: `CREATE TABLE "leasehold:drillable" (why TEXT)` in the file.
//!
//! Remove the mark before the store goes to production.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use leasehold::StoreUrl;
use leasehold_core::clock::{BootClock, Clock, ClockExt, run_until};
use leasehold_sqlite::SqliteOptions;
use rusqlite::{Connection, OpenFlags};

use super::Error;
use super::testbed::StoreKind;

/// The key or table that marks a store as drillable.
pub const DRILLABLE_MARK: &str = "leasehold:drillable";

/// Prefix of the lock names of every drill.
pub(super) const LOCK_NAME_PREFIX: &str = "drill:";

/// Prefix of a run's folder, and after [`LOCK_NAME_PREFIX`] of its lock names.
pub(super) const RUN_NAME_PREFIX: &str = "leasehold-drill-";

const STORE_CALL_TIMEOUT: Duration = Duration::from_secs(5);

const SWEEP_INTERVAL: Duration = Duration::from_millis(50);

/// A store that its operator has marked as drillable.
#[derive(Clone)]
pub struct ExternalStore {
    pub(super) url: String,
    pub(super) location: StoreLocation,
    /// Lock name prefixes of the runs on this store. Clones share the list.
    run_prefixes: Arc<Mutex<Vec<String>>>,
}

#[derive(Clone)]
pub(super) enum StoreLocation {
    Sqlite(PathBuf),
    Redis(SocketAddr),
}

impl std::fmt::Debug for ExternalStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Given").field("url", &leasehold::redact(&self.url)).finish_non_exhaustive()
    }
}

impl ExternalStore {
    /// The kind of the store.
    #[must_use]
    pub fn kind(&self) -> StoreKind {
        match self.location {
            StoreLocation::Sqlite(_) => StoreKind::Sqlite,
            StoreLocation::Redis(_) => StoreKind::Redis,
        }
    }

    /// Opens the store and checks the mark.
    ///
    /// # Errors
    /// The store is not marked, does not answer, or is of a kind that cannot be drilled.
    pub async fn open(url: &str) -> Result<Self, Error> {
        let parsed = StoreUrl::parse(url).map_err(|error| Error::Store(error.to_string()))?;
        match parsed.scheme() {
            "sqlite" => {
                let options = SqliteOptions::parse(&parsed.expose())
                    .map_err(|failure| Error::Store(failure.to_string()))?;
                let path = options.path();
                let marked = Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_ONLY)
                    .and_then(|db| db.table_exists(None, DRILLABLE_MARK))
                    .map_err(|error| Error::Store(format!("{parsed}: {error}")))?;
                let how =
                    format!("sqlite3 {} 'CREATE TABLE \"{DRILLABLE_MARK}\" (why TEXT)'", path.display());
                require_mark(marked, &parsed, &how)?;
                Ok(Self {
                    url: url.to_owned(),
                    location: StoreLocation::Sqlite(path.to_owned()),
                    run_prefixes: Arc::default(),
                })
            }
            "redis" | "valkey" => {
                let address = resolve_address(url).await?;
                let marked = run_until(&BootClock, BootClock.now() + STORE_CALL_TIMEOUT, has_mark(url)).await;
                let marked = marked
                    .unwrap_or_else(|| Err("no answer".to_owned()))
                    .map_err(|why| Error::Store(format!("{parsed}: {why}")))?;
                require_mark(marked, &parsed, &format!("redis-cli SET {DRILLABLE_MARK} yes"))?;
                Ok(Self {
                    url: url.to_owned(),
                    location: StoreLocation::Redis(address),
                    run_prefixes: Arc::default(),
                })
            }
            _ => Err(Error::NotDrillable(format!(
                "{parsed} cannot be drilled: the faults need a SQLite file or a Redis without TLS"
            ))),
        }
    }
}

impl ExternalStore {
    /// Registers a run by its lock name prefix, for the sweep.
    pub(super) fn add_run(&self, prefix: &str) {
        let mut runs = self.run_prefixes.lock().unwrap_or_else(PoisonError::into_inner);
        runs.push(prefix.to_owned());
    }

    /// Removes what the registered runs have left: leases of killed workers, queue entries and
    /// tombstones. All of them would expire, but a lease only after its TTL. Fence counters stay,
    /// because other names share them. Data of other drills stays too.
    ///
    /// Call it when no worker of these runs is alive.
    ///
    /// # Errors
    /// The store does not answer, or new rows keep appearing.
    pub async fn sweep(&self) -> Result<(), Error> {
        let mine = self.run_prefixes.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let swept =
            run_until(&BootClock, BootClock.now() + STORE_CALL_TIMEOUT, self.sweep_until_clean(&mine)).await;
        swept.unwrap_or_else(|| Err(Error::Store("no answer".to_owned())))
    }

    // The store may execute a killed worker's last request after a sweep, so two sweeps in a row
    // must find nothing.
    async fn sweep_until_clean(&self, mine: &[String]) -> Result<(), Error> {
        let mut clean = 0;
        while clean < 2 {
            let removed = match &self.location {
                StoreLocation::Sqlite(path) => {
                    let (path, mine) = (path.clone(), mine.to_vec());
                    let swept = tokio::task::spawn_blocking(move || sweep_file(&path, &mine)).await;
                    let swept = swept.map_err(|error| Error::Store(error.to_string()))?;
                    swept.map_err(|error| Error::Store(error.to_string()))?
                }
                StoreLocation::Redis(_) => sweep_keys(&self.url, mine).await.map_err(Error::Store)?,
            };
            clean = if removed == 0 { clean + 1 } else { 0 };
            BootClock.sleep(SWEEP_INTERVAL).await;
        }
        Ok(())
    }
}

/// Deletes every row whose name starts with one of these prefixes. Returns how many.
fn sweep_file(path: &Path, mine: &[String]) -> rusqlite::Result<usize> {
    let db = Connection::open(path)?;
    db.busy_timeout(STORE_CALL_TIMEOUT)?;
    let mut removed = 0;
    for table in ["leases", "waiters", "tombstones"] {
        let statement = format!("DELETE FROM {table} WHERE substr(name, 1, length(?1)) = ?1");
        for prefix in mine {
            removed += db.execute(&statement, [prefix])?;
        }
    }
    Ok(removed)
}

/// Deletes every key that contains one of these prefixes. Returns how many.
async fn sweep_keys(url: &str, mine: &[String]) -> Result<usize, String> {
    let mut connection = connect(url).await?;
    let (mut cursor, mut removed) = (0_u64, 0);
    loop {
        let (next, keys): (u64, Vec<String>) = redis::cmd("SCAN")
            .arg(cursor)
            .arg("MATCH")
            .arg(format!("*{LOCK_NAME_PREFIX}{RUN_NAME_PREFIX}*"))
            .arg("COUNT")
            .arg(1000)
            .query_async(&mut connection)
            .await
            .map_err(|error| error.to_string())?;
        for key in keys {
            if !mine.iter().any(|prefix| key.contains(prefix)) {
                continue;
            }
            removed += redis::cmd("UNLINK")
                .arg(key)
                .query_async::<usize>(&mut connection)
                .await
                .map_err(|error| error.to_string())?;
        }
        cursor = next;
        if cursor == 0 {
            return Ok(removed);
        }
    }
}

fn require_mark(marked: bool, url: &StoreUrl, how: &str) -> Result<(), Error> {
    if marked {
        return Ok(());
    }
    Err(Error::NotDrillable(format!(
        "{url} is not marked as drillable, so it may be a production store\n\
         if its locks may be starved and its clients cut off, allow it: {how}\n\
         without a store (--store '') drills run on throw-away ones"
    )))
}

/// Resolves the server address of this URL.
pub(super) async fn resolve_address(url: &str) -> Result<SocketAddr, Error> {
    let wrong = |why: String| Error::Store(format!("{}: {why}", leasehold::redact(url)));
    let parsed = url::Url::parse(url).map_err(|error| wrong(error.to_string()))?;
    let host = parsed.host_str().unwrap_or("127.0.0.1").trim_matches(['[', ']']).to_owned();
    let found = tokio::net::lookup_host((host, parsed.port().unwrap_or(6379))).await;
    let mut found = found.map_err(|error| wrong(error.to_string()))?;
    found.next().ok_or_else(|| wrong("its host has no address".to_owned()))
}

async fn has_mark(url: &str) -> Result<bool, String> {
    let mut connection = connect(url).await?;
    redis::cmd("EXISTS")
        .arg(DRILLABLE_MARK)
        .query_async::<bool>(&mut connection)
        .await
        .map_err(|error| error.to_string())
}

async fn connect(url: &str) -> Result<redis::aio::MultiplexedConnection, String> {
    let mut plain =
        url::Url::parse(&url.replacen("valkey:", "redis:", 1)).map_err(|error| error.to_string())?;
    // The store reads its password from this file. This second connection needs the same password.
    let file = plain.query_pairs().find(|(key, _)| key == "password_file");
    if let Some((_, file)) = file.map(|(key, value)| (key.into_owned(), value.into_owned())) {
        let secret = std::fs::read_to_string(&file).map_err(|error| format!("{file}: {error}"))?;
        let set = plain.set_password(Some(secret.trim_end_matches(['\r', '\n'])));
        set.map_err(|()| "a URL without a host cannot have a password".to_owned())?;
    }
    plain.set_query(None);
    let open = async { redis::Client::open(plain)?.get_multiplexed_async_connection().await };
    open.await.map_err(|error: redis::RedisError| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_address_may_be_of_either_kind() {
        for url in ["redis://[::1]:7001", "redis://127.0.0.1:7001"] {
            assert_eq!(resolve_address(url).await.unwrap().port(), 7001, "{url}");
        }
    }
}

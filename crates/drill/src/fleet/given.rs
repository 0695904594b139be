//! A store that is not ours: drilled only if its operator has marked it, because a drill stops and starves whoever else uses it.
//!
//! - Redis: `redis-cli SET leasehold:drillable yes` in the database that is drilled.
//! - SQLite: `CREATE TABLE "leasehold:drillable" (why TEXT)` in the file.
//!
//! Take the mark away when the store goes to production.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use leasehold::StoreUrl;
use leasehold_core::clock::{BootClock, Clock, ClockExt, until};
use rusqlite::{Connection, OpenFlags};

use super::Error;
use super::stage::StoreKind;

/// The key or the table that allows drills.
pub const MARK: &str = "leasehold:drillable";

/// What every drill's lock names begin with.
pub(super) const PREFIX: &str = "drill:";

/// What a run's own folder and, behind [`PREFIX`], its lock names begin with.
pub(super) const RUN: &str = "leasehold-drill-";

/// How long the store may take to answer.
const WITHIN: Duration = Duration::from_secs(5);

/// How long after a look comes the next.
const AGAIN: Duration = Duration::from_millis(50);

/// A store that its operator allows to be drilled.
#[derive(Clone)]
pub struct Given {
    pub(super) url: String,
    pub(super) place: Place,
    /// What the names of each run on it begin with. Clones share it.
    runs: Arc<Mutex<Vec<String>>>,
}

#[derive(Clone)]
pub(super) enum Place {
    Sqlite(PathBuf),
    Redis(SocketAddr),
}

impl std::fmt::Debug for Given {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Given")
            .field("url", &leasehold::redact(&self.url))
            .finish_non_exhaustive()
    }
}

impl Given {
    /// Which kind of store it is.
    #[must_use]
    pub fn kind(&self) -> StoreKind {
        match self.place {
            Place::Sqlite(_) => StoreKind::Sqlite,
            Place::Redis(_) => StoreKind::Redis,
        }
    }

    /// Looks for the mark.
    ///
    /// # Errors
    /// The store is not marked, cannot be asked, or is of a kind that cannot be drilled.
    pub async fn open(url: &str) -> Result<Self, Error> {
        let parsed = StoreUrl::parse(url).map_err(|error| Error::Store(error.to_string()))?;
        match &parsed {
            StoreUrl::Sqlite { path, .. } => {
                let place = path.clone();
                let marked = Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_ONLY)
                    .and_then(|db| db.table_exists(None, MARK))
                    .map_err(|error| Error::Store(format!("{parsed}: {error}")))?;
                let how = format!("sqlite3 {} 'CREATE TABLE \"{MARK}\" (why TEXT)'", path.display());
                require(marked, &parsed, &how)?;
                Ok(Self {
                    url: url.to_owned(),
                    place: Place::Sqlite(place),
                    runs: Arc::default(),
                })
            }
            StoreUrl::Redis { .. } if url.starts_with("redis:") || url.starts_with("valkey:") => {
                let address = address(url).await?;
                let marked = until(&BootClock, BootClock.now() + WITHIN, marked(url)).await;
                let marked = marked
                    .unwrap_or_else(|| Err("no answer".to_owned()))
                    .map_err(|why| Error::Store(format!("{parsed}: {why}")))?;
                require(marked, &parsed, &format!("redis-cli SET {MARK} yes"))?;
                Ok(Self {
                    url: url.to_owned(),
                    place: Place::Redis(address),
                    runs: Arc::default(),
                })
            }
            _ => Err(Error::NotDrillable(format!(
                "{parsed} cannot be drilled: the faults need a SQLite file or a Redis without TLS"
            ))),
        }
    }
}

impl Given {
    /// A run on it takes locks whose names begin with these words.
    pub(super) fn used(&self, prefix: &str) {
        let mut runs = self.runs.lock().unwrap_or_else(PoisonError::into_inner);
        runs.push(prefix.to_owned());
    }

    /// Removes what the runs on it have left: leases of workers that were killed, places in queues and marks of undone
    /// acquires. All of it would go by itself, but a lease only at the end of its time to live. Fence counters stay: they are
    /// shared with other names. So does whatever somebody else's drill has there.
    ///
    /// Call it when nothing of these runs is alive any more.
    ///
    /// # Errors
    /// The store cannot be used, or something comes back again and again.
    pub async fn sweep(&self) -> Result<(), Error> {
        let mine = self.runs.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let swept = until(&BootClock, BootClock.now() + WITHIN, self.sweep_all(&mine)).await;
        swept.unwrap_or_else(|| Err(Error::Store("no answer".to_owned())))
    }

    /// What a worker sent before it was killed may be carried out after a look, so two in a row must find nothing.
    async fn sweep_all(&self, mine: &[String]) -> Result<(), Error> {
        let mut clean = 0;
        while clean < 2 {
            let removed = match &self.place {
                Place::Sqlite(path) => {
                    let (path, mine) = (path.clone(), mine.to_vec());
                    let swept = tokio::task::spawn_blocking(move || sweep_file(&path, &mine)).await;
                    let swept = swept.map_err(|error| Error::Store(error.to_string()))?;
                    swept.map_err(|error| Error::Store(error.to_string()))?
                }
                Place::Redis(_) => sweep_keys(&self.url, mine).await.map_err(Error::Store)?,
            };
            clean = if removed == 0 { clean + 1 } else { 0 };
            BootClock.sleep(AGAIN).await;
        }
        Ok(())
    }
}

/// Deletes every row of a name that begins with any of these words; answers how many there were.
fn sweep_file(path: &Path, mine: &[String]) -> rusqlite::Result<usize> {
    let db = Connection::open(path)?;
    db.busy_timeout(WITHIN)?;
    let mut removed = 0;
    for table in ["leases", "waiters", "tombstones"] {
        let statement = format!("DELETE FROM {table} WHERE substr(name, 1, length(?1)) = ?1");
        for prefix in mine {
            removed += db.execute(&statement, [prefix])?;
        }
    }
    Ok(removed)
}

/// Deletes every key with any of these words in its name; answers how many there were.
async fn sweep_keys(url: &str, mine: &[String]) -> Result<usize, String> {
    let mut connection = connect(url).await?;
    let (mut cursor, mut removed) = (0_u64, 0);
    loop {
        let (next, keys): (u64, Vec<String>) = redis::cmd("SCAN")
            .arg(cursor)
            .arg("MATCH")
            .arg(format!("*{PREFIX}{RUN}*"))
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

fn require(marked: bool, url: &StoreUrl, how: &str) -> Result<(), Error> {
    if marked {
        return Ok(());
    }
    Err(Error::NotDrillable(format!(
        "{url} is not marked as drillable, so it may be somebody's production store\n\
         if its locks may be starved and its clients cut off, allow it: {how}\n\
         without a store (--store '') drills run on throw-away ones"
    )))
}

/// Where the server of this URL is.
pub(super) async fn address(url: &str) -> Result<SocketAddr, Error> {
    let wrong = |why: String| Error::Store(format!("{}: {why}", leasehold::redact(url)));
    let parsed = url::Url::parse(url).map_err(|error| wrong(error.to_string()))?;
    let host = parsed
        .host_str()
        .unwrap_or("127.0.0.1")
        .trim_matches(['[', ']'])
        .to_owned();
    let found = tokio::net::lookup_host((host, parsed.port().unwrap_or(6379))).await;
    let mut found = found.map_err(|error| wrong(error.to_string()))?;
    found
        .next()
        .ok_or_else(|| wrong("its host has no address".to_owned()))
}

async fn marked(url: &str) -> Result<bool, String> {
    let mut connection = connect(url).await?;
    redis::cmd("EXISTS")
        .arg(MARK)
        .query_async::<bool>(&mut connection)
        .await
        .map_err(|error| error.to_string())
}

async fn connect(url: &str) -> Result<redis::aio::MultiplexedConnection, String> {
    let mut plain =
        url::Url::parse(&url.replacen("valkey:", "redis:", 1)).map_err(|error| error.to_string())?;
    // The store reads its password from a file; so must whoever asks beside it.
    let file = plain.query_pairs().find(|(key, _)| key == "password_file");
    if let Some((_, file)) = file.map(|(key, value)| (key.into_owned(), value.into_owned())) {
        let secret = std::fs::read_to_string(&file).map_err(|error| format!("{file}: {error}"))?;
        let set = plain.set_password(Some(secret.trim_end_matches(['\r', '\n'])));
        set.map_err(|()| "a URL without a host cannot have a password".to_owned())?;
    }
    plain.set_query(None);
    let open = async {
        redis::Client::open(plain)?
            .get_multiplexed_async_connection()
            .await
    };
    open.await.map_err(|error: redis::RedisError| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_address_may_be_of_either_kind() {
        for url in ["redis://[::1]:7001", "redis://127.0.0.1:7001"] {
            assert_eq!(address(url).await.unwrap().port(), 7001, "{url}");
        }
    }
}

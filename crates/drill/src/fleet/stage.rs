//! The store under test, its faults, and everything that goes with one run.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use leasehold::StoreUrl;
use leasehold_core::store::{Lease, SharedStore};
use leasehold_redis::testkit::RedisServer;
use rusqlite::Connection;
use tempfile::TempDir;

use super::given::{Given, PREFIX, Place, RUN, address};
use super::server::{Replica, Session, command, local, not_ours, start};
use super::{Error, Ledger, Program, Skew};
use crate::proxy::{Config, Proxy, Stats};

/// The protected target's file.
const LEDGER: &str = "ledger.db";

/// Which store is drilled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StoreKind {
    /// A SQLite file. Its outage: somebody holds the file's write lock.
    Sqlite,
    /// A Redis server behind the fault proxy. Its outage: the proxy is down.
    Redis,
}

impl StoreKind {
    /// The word for it.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Sqlite => "sqlite",
            Self::Redis => "redis",
        }
    }
}

/// Everything that one run needs; gone when it is dropped.
pub struct Stage {
    kind: StoreKind,
    dir: TempDir,
    /// Ours, so it may be robbed of its memory.
    server: Option<RedisServer>,
    /// The words that bind a server to this process.
    binding: Vec<OsString>,
    /// The server's wall clock, if it can be set.
    skew: Option<Skew>,
    proxy: Option<Proxy>,
    url: String,
    direct: String,
    store: SharedStore,
    sqlite: Option<PathBuf>,
    blocked: Mutex<Option<Connection>>,
    prefix: String,
}

impl std::fmt::Debug for Stage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Stage")
            .field("kind", &self.kind)
            .finish_non_exhaustive()
    }
}

impl Stage {
    /// A throw-away store, or the given one behind a proxy, with these policies. `skewed`: a server of ours gets a wall
    /// clock that can be set.
    ///
    /// # Errors
    /// A server cannot be started or reached, or a file not written; or nothing here can set its clock.
    pub async fn build(
        kind: StoreKind,
        given: Option<&Given>,
        policies: &str,
        program: &Program,
        skewed: bool,
    ) -> Result<Self, Error> {
        let dir = tempfile::Builder::new()
            .prefix(RUN)
            .tempdir()
            .map_err(Error::io("cannot make a folder for the drill"))?;
        std::fs::write(dir.path().join("policies.toml"), policies)
            .map_err(Error::io("cannot write the policies"))?;
        // Made here, once: processes that make it at the same time are in each other's way.
        Ledger::open(&dir.path().join(LEDGER))?;
        let (mut server, mut proxy, mut sqlite) = (None, None, None);
        let (binding, mut skew) = (program.binding(), None);
        let (url, direct) = match (kind, given.map(|given| (&given.place, &given.url))) {
            (StoreKind::Sqlite, place) => {
                let path = match place {
                    Some((Place::Sqlite(path), _)) => path.clone(),
                    _ => dir.path().join("locks.db"),
                };
                let url = place.map_or_else(|| format!("sqlite:{}", path.display()), |(_, url)| url.clone());
                sqlite = Some(path);
                (url.clone(), url)
            }
            (StoreKind::Redis, place) => {
                let (address, direct) = match place {
                    Some((Place::Redis(address), url)) => (*address, url.clone()),
                    _ => {
                        let mut words = binding.clone();
                        if skewed {
                            let clock = Skew::new(dir.path(), "server-clock")?;
                            words.extend(clock.words());
                            skew = Some(clock);
                        }
                        // However it ends, by an error or because nobody waits for it any more.
                        let gone = skewed.then_some(Skew::unshare as fn(u32));
                        let ours = start(&words, &[], gone).await?;
                        unshare(skew.as_ref(), &ours);
                        let address = local(&ours);
                        let url = ours.url();
                        server = Some(ours);
                        (address, url)
                    }
                };
                let way = Proxy::start(Config::resp(address)).await?;
                let url = through(&direct, &way)?;
                proxy = Some(way);
                (url, direct)
            }
        };
        let store = open(&direct)?;
        // Names of two runs on one given store never meet.
        let prefix = dir
            .path()
            .file_name()
            .and_then(|name| name.to_str())
            .map_or_else(|| PREFIX.to_owned(), |name| format!("{PREFIX}{name}:"));
        if let Some(given) = given {
            given.used(&prefix);
        }
        Ok(Self {
            kind,
            dir,
            server,
            binding,
            skew,
            proxy,
            url,
            direct,
            store,
            sqlite,
            blocked: Mutex::new(None),
            prefix,
        })
    }

    /// Which store it is.
    #[must_use]
    pub fn kind(&self) -> StoreKind {
        self.kind
    }

    /// The store is ours alone: it may be robbed of its memory.
    #[must_use]
    pub fn owns_server(&self) -> bool {
        self.server.is_some()
    }

    /// Where this run keeps its files.
    #[must_use]
    pub fn folder(&self) -> &Path {
        self.dir.path()
    }

    /// The server's wall clock.
    ///
    /// # Errors
    /// This stage was built without one.
    pub fn skew(&self) -> Result<&Skew, Error> {
        let skew = self.skew.as_ref();
        skew.ok_or_else(|| Error::Store("this store's clock cannot be set".to_owned()))
    }

    /// What went through the proxy so far; nothing without one.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.proxy.as_ref().map(|proxy| proxy.stats()).unwrap_or_default()
    }

    /// A second server of ours that copies the first one, over a way of its own that can be cut.
    ///
    /// # Errors
    /// The first server is not ours, or the second does not start.
    pub async fn replica(&self) -> Result<Replica, Error> {
        Replica::of(self.ours()?, &self.binding).await
    }

    /// The first server is lost for good, and its address leads to this one.
    pub async fn fail_over(&mut self, to: &Replica) -> Result<(), Error> {
        if let Some(server) = &mut self.server {
            server.stop();
        }
        self.direct = to.url();
        self.store = open(&self.direct)?;
        let Some(proxy) = &self.proxy else {
            return Ok(());
        };
        // Connections end with the host they led to.
        proxy.disable().await?;
        proxy.redirect(to.address());
        Ok(proxy.enable().await?)
    }

    /// Kills our own server and starts it again, empty.
    ///
    /// # Errors
    /// It is not ours, or does not start again.
    pub async fn restart(&mut self) -> Result<(), Error> {
        let server = self.server.as_mut().ok_or_else(not_ours)?;
        let restarted = server.restart().await;
        restarted.map_err(Error::io("cannot start redis-server again"))?;
        unshare(self.skew.as_ref(), server);
        Ok(())
    }

    /// Stops our own server in its tracks, or lets it go on: connections stay open, nothing is answered.
    ///
    /// # Errors
    /// It is not ours.
    pub fn freeze(&self, frozen: bool) -> Result<(), Error> {
        let server = self.ours()?;
        if frozen {
            server.pause();
        } else {
            server.resume();
        }
        Ok(())
    }

    fn ours(&self) -> Result<&RedisServer, Error> {
        self.server.as_ref().ok_or_else(not_ours)
    }

    /// The file of a SQLite store.
    #[must_use]
    pub fn file(&self) -> Option<&Path> {
        self.sqlite.as_deref()
    }

    /// How workers reach the store: through the proxy, if there is one.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    /// The policy file.
    #[must_use]
    pub fn policies(&self) -> PathBuf {
        self.dir.path().join("policies.toml")
    }

    /// The protected target.
    #[must_use]
    pub fn ledger(&self) -> PathBuf {
        self.dir.path().join(LEDGER)
    }

    /// A name that only this run uses.
    #[must_use]
    pub fn name(&self, name: &str) -> String {
        format!("{}{name}", self.prefix)
    }

    /// The store answers nobody from now on.
    ///
    /// # Errors
    /// The fault could not be made.
    pub async fn cut(&self) -> Result<(), Error> {
        if let Some(proxy) = &self.proxy {
            return Ok(proxy.disable().await?);
        }
        let path = self.sqlite.clone().unwrap_or_default();
        let block = move || -> rusqlite::Result<Connection> {
            let db = Connection::open(path)?;
            db.busy_timeout(Duration::from_secs(5))?;
            db.execute_batch("BEGIN EXCLUSIVE")?;
            Ok(db)
        };
        let blocked = tokio::task::spawn_blocking(block).await;
        let db = blocked
            .map_err(|error| Error::Store(error.to_string()))?
            .map_err(|error| Error::Store(format!("cannot block the file: {error}")))?;
        *self.blocked.lock().unwrap_or_else(PoisonError::into_inner) = Some(db);
        Ok(())
    }

    /// The store is well again, and no toxic is in force.
    ///
    /// # Errors
    /// The proxy is gone.
    pub async fn heal(&self) -> Result<(), Error> {
        // Closing rolls back: nothing of ours is ever written.
        drop(self.blocked.lock().unwrap_or_else(PoisonError::into_inner).take());
        match &self.proxy {
            Some(proxy) => Ok(proxy.heal().await?),
            None => Ok(()),
        }
    }

    /// Puts a toxic in force, in the proxy's words; nothing without a proxy.
    ///
    /// # Errors
    /// The words are wrong.
    pub fn toxic(&self, words: &str) -> Result<(), Error> {
        match &self.proxy {
            Some(proxy) => Ok(proxy.add(words.parse()?)?),
            None => Ok(()),
        }
    }

    /// A second way to the same server, for a network that splits.
    ///
    /// # Errors
    /// There is no network, or the proxy does not start.
    pub async fn second_way(&self) -> Result<(Proxy, String), Error> {
        let proxy = Proxy::start(Config::resp(address(&self.direct).await?)).await?;
        let url = through(&self.direct, &proxy)?;
        Ok((proxy, url))
    }

    /// Sends a command to our own server, past the proxy.
    ///
    /// # Errors
    /// There is none, or it refuses.
    pub async fn command(&self, words: &[&str]) -> Result<redis::Value, Error> {
        self.ours()?;
        command(&self.direct, words).await
    }

    /// A connection to our own server, past the proxy, that stays open.
    ///
    /// # Errors
    /// It is not ours, or does not answer.
    pub async fn session(&self) -> Result<Session, Error> {
        self.ours()?;
        Session::open(&self.direct).await
    }

    /// The store itself, past the proxy.
    pub(super) fn store(&self) -> &SharedStore {
        &self.store
    }

    /// The live leases of this run, seen past the proxy.
    ///
    /// # Errors
    /// The store cannot be asked.
    pub async fn leases(&self) -> Result<Vec<Lease>, Error> {
        let listed = self
            .store
            .list(&self.prefix, 10_000, Duration::from_secs(5))
            .await;
        Ok(listed.map_err(|error| Error::Store(error.to_string()))?.leases)
    }

    /// Ends the proxy and waits until nothing of it is left.
    pub async fn close(mut self) {
        if let Some(proxy) = self.proxy.take() {
            proxy.stop().await;
        }
    }
}

/// A server under a clock of its own leaves nothing behind, even if this process is killed with it.
fn unshare(clock: Option<&Skew>, server: &RedisServer) {
    if let (Some(_), Some(pid)) = (clock, server.pid()) {
        Skew::unshare(pid);
    }
}

fn open(url: &str) -> Result<SharedStore, Error> {
    let opened = StoreUrl::parse(url).and_then(|url| url.open());
    opened.map_err(|error| Error::Store(error.to_string()))
}

/// The same URL, with the proxy's address.
fn through(direct: &str, proxy: &Proxy) -> Result<String, Error> {
    let wrong = || Error::Store(format!("{}: has no host", leasehold::redact(direct)));
    let mut url = url::Url::parse(direct).map_err(|error| Error::Store(error.to_string()))?;
    url.set_ip_host(proxy.address().ip()).map_err(|()| wrong())?;
    url.set_port(Some(proxy.address().port())).map_err(|()| wrong())?;
    Ok(url.into())
}

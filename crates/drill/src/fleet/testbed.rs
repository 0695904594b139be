//! The store under test, its faults, and the files of one run.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use leasehold::StoreUrl;
use leasehold_core::store::{Lease, SharedStore};
use leasehold_redis::testkit::RedisServer;
use rusqlite::Connection;
use tempfile::TempDir;

use super::external_store::{
    ExternalStore, LOCK_NAME_PREFIX, RUN_NAME_PREFIX, StoreLocation, resolve_address,
};
use super::server::{RedisSession, Replica, local_address, not_our_server, send_command, start_server};
use super::{Error, FakeWallClock, FencedTarget, WorkerProgram};
use crate::proxy::{Proxy, ProxyConfig, ProxyStats};

const TARGET_FILE: &str = "ledger.db";

/// The store to drill.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StoreKind {
    /// A SQLite file. Its outage: another connection holds an exclusive lock on the file.
    Sqlite,
    /// A Redis server behind the fault proxy. Its outage: the proxy is disabled.
    Redis,
}

impl StoreKind {
    /// Its name in reports and on the command line.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Sqlite => "sqlite",
            Self::Redis => "redis",
        }
    }
}

/// The store, its proxy and the files of one run. Dropping it removes all of them.
pub struct Testbed {
    kind: StoreKind,
    dir: TempDir,
    /// A server that this run started, so a drill may delete its data.
    server: Option<RedisServer>,
    /// The command prefix that makes a server die with this process.
    binding_prefix: Vec<OsString>,
    /// The server's wall clock, if the run needs to change it.
    server_clock: Option<FakeWallClock>,
    proxy: Option<Proxy>,
    url: String,
    direct_url: String,
    store: SharedStore,
    sqlite_path: Option<PathBuf>,
    file_lock: Mutex<Option<Connection>>,
    lock_name_prefix: String,
}

impl std::fmt::Debug for Testbed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Stage").field("kind", &self.kind).finish_non_exhaustive()
    }
}

impl Testbed {
    /// Creates a temporary store, or puts the external one behind a proxy, with these policies.
    /// With `skewed`, our own server gets a fake wall clock.
    ///
    /// # Errors
    /// A server cannot be started or reached, a file cannot be written, or libfaketime is missing.
    pub async fn build(
        kind: StoreKind,
        given: Option<&ExternalStore>,
        policies: &str,
        program: &WorkerProgram,
        skewed: bool,
    ) -> Result<Self, Error> {
        let dir = tempfile::Builder::new()
            .prefix(RUN_NAME_PREFIX)
            .tempdir()
            .map_err(Error::io("cannot make a folder for the drill"))?;
        std::fs::write(dir.path().join("policies.toml"), policies)
            .map_err(Error::io("cannot write the policies"))?;
        // Created once, before the workers start: several processes that create the schema block
        // each other.
        FencedTarget::open(&dir.path().join(TARGET_FILE))?;
        let (mut server, mut proxy, mut sqlite) = (None, None, None);
        let (binding, mut skew) = (program.binding_prefix(), None);
        let (url, direct) = match (kind, given.map(|given| (&given.location, &given.url))) {
            (StoreKind::Sqlite, place) => {
                let path = match place {
                    Some((StoreLocation::Sqlite(path), _)) => path.clone(),
                    _ => dir.path().join("locks.db"),
                };
                let url = place.map_or_else(|| format!("sqlite:{}", path.display()), |(_, url)| url.clone());
                sqlite = Some(path);
                (url.clone(), url)
            }
            (StoreKind::Redis, place) => {
                let (address, direct) = match place {
                    Some((StoreLocation::Redis(address), url)) => (*address, url.clone()),
                    _ => {
                        let mut words = binding.clone();
                        if skewed {
                            let clock = FakeWallClock::new(dir.path(), "server-clock")?;
                            words.extend(clock.command_prefix());
                            skew = Some(clock);
                        }
                        // Passed to the server, so that it also runs if the start fails or this
                        // future is dropped.
                        let gone = skewed.then_some(FakeWallClock::remove_shared_memory as fn(u32));
                        let ours = start_server(&words, &[], gone).await?;
                        remove_clock_leftovers(skew.as_ref(), &ours);
                        let address = local_address(&ours);
                        let url = ours.url();
                        server = Some(ours);
                        (address, url)
                    }
                };
                let way = Proxy::start(ProxyConfig::resp(address)).await?;
                let url = via_proxy(&direct, &way)?;
                proxy = Some(way);
                (url, direct)
            }
        };
        let store = open_store(&direct)?;
        // The folder's random name makes lock names unique: two runs on one external store never
        // share a lock.
        let prefix = dir
            .path()
            .file_name()
            .and_then(|name| name.to_str())
            .map_or_else(|| LOCK_NAME_PREFIX.to_owned(), |name| format!("{LOCK_NAME_PREFIX}{name}:"));
        if let Some(given) = given {
            given.add_run(&prefix);
        }
        Ok(Self {
            kind,
            dir,
            server,
            binding_prefix: binding,
            server_clock: skew,
            proxy,
            url,
            direct_url: direct,
            store,
            sqlite_path: sqlite,
            file_lock: Mutex::new(None),
            lock_name_prefix: prefix,
        })
    }

    /// The kind of the store.
    #[must_use]
    pub fn kind(&self) -> StoreKind {
        self.kind
    }

    /// Whether this run started the server, so that a drill may delete its data.
    #[must_use]
    pub fn owns_server(&self) -> bool {
        self.server.is_some()
    }

    /// The folder for the files of this run.
    #[must_use]
    pub fn folder(&self) -> &Path {
        self.dir.path()
    }

    /// The server's wall clock.
    ///
    /// # Errors
    /// This testbed was built without one.
    pub fn server_clock(&self) -> Result<&FakeWallClock, Error> {
        let skew = self.server_clock.as_ref();
        skew.ok_or_else(|| Error::Store("this store's clock cannot be set".to_owned()))
    }

    /// The proxy's counters; zero without a proxy.
    #[must_use]
    pub fn proxy_stats(&self) -> ProxyStats {
        self.proxy.as_ref().map(|proxy| proxy.stats()).unwrap_or_default()
    }

    /// Starts a replica of our own server. It replicates over a proxy of its own, which can be cut
    /// off.
    ///
    /// # Errors
    /// The server is not our own, or the replica does not start.
    pub async fn start_replica(&self) -> Result<Replica, Error> {
        Replica::replicate(self.own_server()?, &self.binding_prefix).await
    }

    /// Stops our own server for good and redirects its address to the replica.
    pub async fn fail_over(&mut self, to: &Replica) -> Result<(), Error> {
        if let Some(server) = &mut self.server {
            server.stop();
        }
        self.direct_url = to.url();
        self.store = open_store(&self.direct_url)?;
        let Some(proxy) = &self.proxy else {
            return Ok(());
        };
        // Disabling closes the open connections, as the loss of the host would.
        proxy.disable().await?;
        proxy.redirect(to.address());
        Ok(proxy.enable().await?)
    }

    /// Kills our own server and starts it again, empty.
    ///
    /// # Errors
    /// The server is not our own, or does not start again.
    pub async fn restart_server(&mut self) -> Result<(), Error> {
        let server = self.server.as_mut().ok_or_else(not_our_server)?;
        let restarted = server.restart().await;
        restarted.map_err(Error::io("cannot start redis-server again"))?;
        remove_clock_leftovers(self.server_clock.as_ref(), server);
        Ok(())
    }

    /// Pauses or resumes our own server. While it is paused, connections stay open and get no
    /// reply.
    ///
    /// # Errors
    /// The server is not our own.
    pub fn set_server_frozen(&self, frozen: bool) -> Result<(), Error> {
        let server = self.own_server()?;
        if frozen {
            server.pause();
        } else {
            server.resume();
        }
        Ok(())
    }

    fn own_server(&self) -> Result<&RedisServer, Error> {
        self.server.as_ref().ok_or_else(not_our_server)
    }

    /// The file of a SQLite store.
    #[must_use]
    pub fn sqlite_file(&self) -> Option<&Path> {
        self.sqlite_path.as_deref()
    }

    /// The store's URL for workers: through the proxy, if there is one.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    /// The path of the policy file.
    #[must_use]
    pub fn policy_path(&self) -> PathBuf {
        self.dir.path().join("policies.toml")
    }

    /// The path of the protected target.
    #[must_use]
    pub fn target_path(&self) -> PathBuf {
        self.dir.path().join(TARGET_FILE)
    }

    /// A lock name that only this run uses.
    #[must_use]
    pub fn lock_name(&self, name: &str) -> String {
        format!("{}{name}", self.lock_name_prefix)
    }

    /// Makes the store unreachable for all clients.
    ///
    /// # Errors
    /// The fault could not be injected.
    pub async fn cut_off(&self) -> Result<(), Error> {
        if let Some(proxy) = &self.proxy {
            return Ok(proxy.disable().await?);
        }
        let path = self.sqlite_path.clone().unwrap_or_default();
        let block = move || -> rusqlite::Result<Connection> {
            let db = Connection::open(path)?;
            db.busy_timeout(Duration::from_secs(5))?;
            // Exclusive, so that readers are blocked too: an unreachable server would not answer
            // them either.
            db.execute_batch("BEGIN EXCLUSIVE")?;
            Ok(db)
        };
        let blocked = tokio::task::spawn_blocking(block).await;
        let db = blocked
            .map_err(|error| Error::Store(error.to_string()))?
            .map_err(|error| Error::Store(format!("cannot block the file: {error}")))?;
        *self.file_lock.lock().unwrap_or_else(PoisonError::into_inner) = Some(db);
        Ok(())
    }

    /// Makes the store reachable again and removes all toxics.
    ///
    /// # Errors
    /// The proxy has been stopped.
    pub async fn heal(&self) -> Result<(), Error> {
        // Closing the connection rolls its transaction back: the fault itself writes nothing.
        drop(self.file_lock.lock().unwrap_or_else(PoisonError::into_inner).take());
        match &self.proxy {
            Some(proxy) => Ok(proxy.heal().await?),
            None => Ok(()),
        }
    }

    /// Adds a toxic, in the proxy's text form. Does nothing without a proxy.
    ///
    /// # Errors
    /// The text is not a valid toxic.
    pub fn add_toxic(&self, words: &str) -> Result<(), Error> {
        match &self.proxy {
            Some(proxy) => Ok(proxy.add(words.parse()?)?),
            None => Ok(()),
        }
    }

    /// Starts a second proxy to the same server, for a split network.
    ///
    /// # Errors
    /// The store has no network address, or the proxy does not start.
    pub async fn start_second_proxy(&self) -> Result<(Proxy, String), Error> {
        let proxy = Proxy::start(ProxyConfig::resp(resolve_address(&self.direct_url).await?)).await?;
        let url = via_proxy(&self.direct_url, &proxy)?;
        Ok((proxy, url))
    }

    /// Sends a command to our own server, bypassing the proxy.
    ///
    /// # Errors
    /// The server is not our own, or returns an error.
    pub async fn send_command(&self, words: &[&str]) -> Result<redis::Value, Error> {
        self.own_server()?;
        send_command(&self.direct_url, words).await
    }

    /// Opens a lasting connection to our own server, bypassing the proxy.
    ///
    /// # Errors
    /// The server is not our own, or does not answer.
    pub async fn open_session(&self) -> Result<RedisSession, Error> {
        self.own_server()?;
        RedisSession::open(&self.direct_url).await
    }

    /// The store, bypassing the proxy.
    pub(super) fn store(&self) -> &SharedStore {
        &self.store
    }

    /// The live leases of this run, read without the proxy.
    ///
    /// # Errors
    /// The store does not answer.
    pub async fn leases(&self) -> Result<Vec<Lease>, Error> {
        let listed = self.store.list(&self.lock_name_prefix, 10_000, Duration::from_secs(5)).await;
        Ok(listed.map_err(|error| Error::Store(error.to_string()))?.leases)
    }

    /// Stops the proxy and waits until its connections are closed.
    pub async fn close(mut self) {
        if let Some(proxy) = self.proxy.take() {
            proxy.stop().await;
        }
    }
}

fn remove_clock_leftovers(clock: Option<&FakeWallClock>, server: &RedisServer) {
    // Removed while the server still runs: if this process is killed with it, nothing would clean
    // up later.
    if let (Some(_), Some(pid)) = (clock, server.pid()) {
        FakeWallClock::remove_shared_memory(pid);
    }
}

fn open_store(url: &str) -> Result<SharedStore, Error> {
    let opened = StoreUrl::parse(url).and_then(|url| url.open());
    opened.map_err(|error| Error::Store(error.to_string()))
}

/// Replaces the address in the URL by the proxy's address.
fn via_proxy(direct: &str, proxy: &Proxy) -> Result<String, Error> {
    let wrong = || Error::Store(format!("{}: has no host", leasehold::redact(direct)));
    let mut url = url::Url::parse(direct).map_err(|error| Error::Store(error.to_string()))?;
    url.set_ip_host(proxy.address().ip()).map_err(|()| wrong())?;
    url.set_port(Some(proxy.address().port())).map_err(|()| wrong())?;
    Ok(url.into())
}

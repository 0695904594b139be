//! The store under test, its faults, and everything that goes with one run.

use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use leasehold::StoreUrl;
use leasehold_core::store::{Lease, SharedStore};
use leasehold_redis::testkit::RedisServer;
use rusqlite::Connection;
use tempfile::TempDir;

use super::Error;
use super::given::{Given, PREFIX, Place};
use crate::proxy::{Config, Proxy};

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
    /// A throw-away store, or the given one behind a proxy, with these policies.
    ///
    /// # Errors
    /// A server cannot be started or reached, or a file not written.
    pub async fn build(kind: StoreKind, given: Option<&Given>, policies: &str) -> Result<Self, Error> {
        let dir = tempfile::Builder::new()
            .prefix("leasehold-drill-")
            .tempdir()
            .map_err(Error::io("cannot make a folder for the drill"))?;
        std::fs::write(dir.path().join("policies.toml"), policies)
            .map_err(Error::io("cannot write the policies"))?;
        let (mut server, mut proxy, mut sqlite) = (None, None, None);
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
                        let started = RedisServer::start().await;
                        let ours =
                            started.map_err(Error::io("cannot start redis-server (is it installed?)"))?;
                        let address = std::net::SocketAddr::from(([127, 0, 0, 1], ours.port()));
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
        let opened = StoreUrl::parse(&direct).and_then(|url| url.open());
        let store = opened.map_err(|error| Error::Store(error.to_string()))?;
        // Names of two runs on one given store never meet.
        let prefix = dir
            .path()
            .file_name()
            .and_then(|name| name.to_str())
            .map_or_else(|| PREFIX.to_owned(), |name| format!("{PREFIX}{name}:"));
        Ok(Self {
            kind,
            dir,
            server,
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
        self.dir.path().join("ledger.db")
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
        let url = url::Url::parse(&self.direct).map_err(|error| Error::Store(error.to_string()))?;
        let host = (
            url.host_str().unwrap_or("127.0.0.1").to_owned(),
            url.port().unwrap_or(6379),
        );
        let found = tokio::net::lookup_host(host).await;
        let address = found
            .map_err(Error::io("cannot find the server"))?
            .next()
            .ok_or_else(|| Error::Store("the server has no address".to_owned()))?;
        let proxy = Proxy::start(Config::resp(address)).await?;
        let url = through(&self.direct, &proxy)?;
        Ok((proxy, url))
    }

    /// Sends a command to our own server, past the proxy.
    ///
    /// # Errors
    /// There is none, or it refuses.
    pub async fn command(&self, words: &[&str]) -> Result<redis::Value, Error> {
        if self.server.is_none() {
            return Err(Error::Store(
                "only a server of our own is told what to forget".to_owned(),
            ));
        }
        let ask = async {
            let client = redis::Client::open(self.direct.as_str())?;
            let mut connection = client.get_multiplexed_async_connection().await?;
            let mut command = redis::cmd(words.first().copied().unwrap_or("PING"));
            for word in words.iter().skip(1) {
                command.arg(*word);
            }
            command.query_async(&mut connection).await
        };
        ask.await
            .map_err(|error: redis::RedisError| Error::Store(format!("the server: {error}")))
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

/// The same URL, with the proxy's address.
fn through(direct: &str, proxy: &Proxy) -> Result<String, Error> {
    let wrong = || Error::Store(format!("{}: has no host", leasehold::redact(direct)));
    let mut url = url::Url::parse(direct).map_err(|error| Error::Store(error.to_string()))?;
    url.set_ip_host(proxy.address().ip()).map_err(|()| wrong())?;
    url.set_port(Some(proxy.address().port())).map_err(|()| wrong())?;
    Ok(url.into())
}

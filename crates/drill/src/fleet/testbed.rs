//! The store under test with its fault proxy and its wall clock, and the files of one run.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use leasehold::StoreUrl;
use leasehold_core::store::{Lease, SharedStore};
use leasehold_core::testbed::{
    NetworkEndpoint, ProcessWrapper, Testbed, TestbedAbility, TestbedInfo, TestbedSetup, WireProtocol,
};
use tempfile::TempDir;

use super::external_store::{LOCK_NAME_PREFIX, RUN_NAME_PREFIX};
use super::{DrillError, DrillStore, FakeWallClock, FencedTarget, WorkerProgram};
use crate::proxy::{Proxy, ProxyConfig, ProxyStats};

const TARGET_FILE: &str = "ledger.db";

/// The store, its proxy and the files of one run. Dropping it removes all of them, but not an
/// external store.
#[derive(Debug)]
pub struct DrillTestbed {
    info: TestbedInfo,
    server: Arc<dyn Testbed>,
    /// The drill did not start it, so its data stays.
    external: bool,
    /// The server's wall clock, if the run needs to change it.
    server_clock: Option<FakeWallClock>,
    /// In front of every store with a network address.
    proxy: Option<Proxy>,
    url: String,
    store: SharedStore,
    lock_name_prefix: String,
    // Dropped after the server, which may use the files.
    dir: TempDir,
}

/// A replica of the store. It replicates over a proxy of its own, which can be cut off.
#[derive(Debug)]
pub struct Replica {
    server: Arc<dyn Testbed>,
    replication_proxy: Proxy,
}

impl Replica {
    /// Whether the replica follows its primary.
    ///
    /// # Errors
    /// The replica does not answer.
    pub async fn is_following(&self) -> Result<bool, DrillError> {
        Ok(self.server.is_following().await?)
    }

    /// Cuts the replica off from its primary.
    ///
    /// # Errors
    /// The proxy has been stopped.
    pub async fn cut_off(&self) -> Result<(), DrillError> {
        Ok(self.replication_proxy.disable().await?)
    }
}

impl DrillTestbed {
    /// Creates a temporary store, or puts the external one behind a proxy, with these policies.
    /// With `fake_clock`, a server of our own whose leases follow its wall clock gets a fake one.
    ///
    /// # Errors
    /// A server cannot be started or reached, a file cannot be written, or libfaketime is missing.
    pub async fn build(
        store: &DrillStore,
        policies: &str,
        program: &WorkerProgram,
        fake_clock: bool,
    ) -> Result<Self, DrillError> {
        let dir = tempfile::Builder::new()
            .prefix(RUN_NAME_PREFIX)
            .tempdir()
            .map_err(DrillError::io("cannot make a folder for the drill"))?;
        std::fs::write(dir.path().join("policies.toml"), policies)
            .map_err(DrillError::io("cannot write the policies"))?;
        // Created once, before the workers start: several processes that create the schema block
        // each other.
        FencedTarget::open(&dir.path().join(TARGET_FILE))?;
        let (info, mut server_clock) = (store.info(), None);
        let server: Arc<dyn Testbed> = match store {
            DrillStore::External(given) => given.testbed(),
            DrillStore::ThrowAway(factory) => {
                let mut wrapper = ProcessWrapper::new(program.binding_prefix());
                if fake_clock && info.can(TestbedAbility::ServerClock) {
                    let clock = FakeWallClock::new(dir.path(), "server-clock")?;
                    wrapper.prefix.extend(clock.command_prefix());
                    // After each start, because nothing cleans up if this process is killed with
                    // the server; and after each end, because a start may fail or be dropped.
                    wrapper.on_start = Some(FakeWallClock::remove_shared_memory);
                    wrapper.on_exit = wrapper.on_start;
                    server_clock = Some(clock);
                }
                factory.start(TestbedSetup::new(dir.path(), "locks").with_wrapper(wrapper)).await?.into()
            }
        };
        let proxy = match server.endpoint() {
            Some(endpoint) => Some(Proxy::start(proxy_config(endpoint)).await?),
            None => None,
        };
        let url = match &proxy {
            Some(proxy) => server.url_through(proxy.address())?,
            None => server.url(),
        };
        // The folder's random name makes lock names unique: two runs on one external store never
        // share a lock.
        let run = dir.path().file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let lock_name_prefix = format!("{LOCK_NAME_PREFIX}{run}:");
        if let DrillStore::External(given) = store {
            given.add_run(&lock_name_prefix);
        }
        Ok(Self {
            info,
            store: open_store(&server.url())?,
            dir,
            server,
            external: matches!(store, DrillStore::External(_)),
            server_clock,
            proxy,
            url,
            lock_name_prefix,
        })
    }

    /// What this kind of store can do.
    #[must_use]
    pub fn info(&self) -> TestbedInfo {
        self.info
    }

    /// The store itself, for faults of its own.
    #[must_use]
    pub fn server(&self) -> &dyn Testbed {
        &*self.server
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
    pub fn server_clock(&self) -> Result<&FakeWallClock, DrillError> {
        let clock = self.server_clock.as_ref();
        clock.ok_or_else(|| DrillError::Store("this store's clock cannot be set".to_owned()))
    }

    /// The proxy's counters; zero without a proxy.
    #[must_use]
    pub fn proxy_stats(&self) -> ProxyStats {
        self.proxy.as_ref().map(|proxy| proxy.stats()).unwrap_or_default()
    }

    /// Starts a replica of our own server.
    ///
    /// # Errors
    /// The server is not our own, or the replica does not start.
    pub async fn start_replica(&self) -> Result<Replica, DrillError> {
        let replication_proxy = Proxy::start(ProxyConfig::raw(self.endpoint()?.address)).await?;
        let server = self.server.start_replica(replication_proxy.address()).await?.into();
        Ok(Replica { server, replication_proxy })
    }

    /// Stops our own server for good and redirects its address to the replica, which is not
    /// promoted yet.
    ///
    /// # Errors
    /// The server is not our own, or the proxy has been stopped.
    pub async fn fail_over(&mut self, to: Replica) -> Result<(), DrillError> {
        self.server.stop().await?;
        self.server = to.server;
        self.store = open_store(&self.server.url())?;
        let address = self.endpoint()?.address;
        let Some(proxy) = &self.proxy else {
            return Ok(());
        };
        // Disabling closes the open connections, as the loss of the host would.
        proxy.disable().await?;
        proxy.redirect(address);
        Ok(proxy.enable().await?)
    }

    fn endpoint(&self) -> Result<NetworkEndpoint, DrillError> {
        let missing = || DrillError::Store("this store has no network address".to_owned());
        self.server.endpoint().ok_or_else(missing)
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
    pub async fn cut_off(&self) -> Result<(), DrillError> {
        match &self.proxy {
            Some(proxy) => Ok(proxy.disable().await?),
            None => Ok(self.server.block().await?),
        }
    }

    /// Whether a request fails at once while the store is cut off: a disabled proxy refuses
    /// connections. A blocked store lets the request wait for its timeout.
    #[must_use]
    pub fn refuses_at_once(&self) -> bool {
        self.proxy.is_some()
    }

    /// Lets the next lock request fail: its answer is lost, or the store is cut off. Returns what
    /// was done, for the history.
    ///
    /// # Errors
    /// The fault could not be injected.
    pub async fn fail_next_request(&self) -> Result<&'static str, DrillError> {
        match self.lock_command() {
            Some(command) => {
                self.add_toxic(&format!("cut_after_forward command={command} times=1"))?;
                Ok("the next command is carried out and its answer lost")
            }
            None => {
                self.cut_off().await?;
                Ok("the store is cut off for the first try")
            }
        }
    }

    /// The command of every lock operation, if the proxy understands the store's protocol.
    #[must_use]
    pub fn lock_command(&self) -> Option<&'static str> {
        match self.server.endpoint()?.protocol {
            WireProtocol::Resp { lock_command } => Some(lock_command),
            _ => None,
        }
    }

    /// Makes the store reachable again and removes all toxics.
    ///
    /// # Errors
    /// The proxy has been stopped.
    pub async fn heal(&self) -> Result<(), DrillError> {
        match &self.proxy {
            Some(proxy) => Ok(proxy.heal().await?),
            None => {
                self.server.unblock().await;
                Ok(())
            }
        }
    }

    /// Adds a toxic, in the proxy's text form. Does nothing without a proxy.
    ///
    /// # Errors
    /// The text is not a valid toxic.
    pub fn add_toxic(&self, words: &str) -> Result<(), DrillError> {
        match &self.proxy {
            Some(proxy) => Ok(proxy.add(words.parse()?)?),
            None => Ok(()),
        }
    }

    /// Starts a second proxy to the same server, for a split network.
    ///
    /// # Errors
    /// The store has no network address, or the proxy does not start.
    pub async fn start_second_proxy(&self) -> Result<(Proxy, String), DrillError> {
        let proxy = Proxy::start(proxy_config(self.endpoint()?)).await?;
        let url = self.server.url_through(proxy.address())?;
        Ok((proxy, url))
    }

    /// The store, bypassing the proxy.
    pub(super) fn store(&self) -> &SharedStore {
        &self.store
    }

    /// Whether the fence counters of this store can be listed: only those of our own server.
    pub(super) fn lists_fence_counters(&self) -> bool {
        !self.external && self.info.can(TestbedAbility::FenceCounters)
    }

    /// The live leases of this run, read without the proxy.
    ///
    /// # Errors
    /// The store does not answer.
    pub async fn leases(&self) -> Result<Vec<Lease>, DrillError> {
        let listed = self.store.list(&self.lock_name_prefix, 10_000, Duration::from_secs(5)).await;
        Ok(listed.map_err(|error| DrillError::Store(error.to_string()))?.leases)
    }

    /// Stops the proxy and waits until its connections are closed.
    pub async fn close(mut self) {
        if let Some(proxy) = self.proxy.take() {
            proxy.stop().await;
        }
    }
}

fn proxy_config(endpoint: NetworkEndpoint) -> ProxyConfig {
    match endpoint.protocol {
        WireProtocol::Resp { .. } => ProxyConfig::resp(endpoint.address),
        _ => ProxyConfig::raw(endpoint.address),
    }
}

fn open_store(url: &str) -> Result<SharedStore, DrillError> {
    let opened = StoreUrl::parse(url).and_then(|url| url.open());
    opened.map_err(|error| DrillError::Store(error.to_string()))
}

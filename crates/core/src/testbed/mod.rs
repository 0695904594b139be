//! What a store's crate offers to tests of the store: a [`Testbed`] for drills and conformance on a
//! real one, and a [`SimProfile`] for the simulator.
//!
//! Code that breaks a store asks what its testbed can do, never which store it is. The fault proxy,
//! the fake wall clock and the files of a run belong to the drill; the testbed does what only the
//! store's own crate knows how to do.

mod error;
mod info;
mod sim_profile;

use std::ffi::OsString;
use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use async_trait::async_trait;

use crate::rng::{Random, RandomExt};

pub use error::TestbedError;
pub use info::{StoreFault, TestbedAbility, TestbedInfo};
pub use sim_profile::{ExpiryClock, FenceSource, SimProfile};

/// The key or table that marks an external store as drillable. Only its operator should set it.
pub const DRILLABLE_MARK: &str = "leasehold:drillable";

/// Starts and attaches testbeds of one backend.
#[async_trait]
pub trait TestbedFactory: fmt::Debug + Send + Sync + 'static {
    /// Name, faults and abilities. Constant.
    fn info(&self) -> TestbedInfo;

    /// Starts an empty throw-away store. Dropping the testbed, or this future, ends every process
    /// that it started.
    ///
    /// # Errors
    /// A file or server cannot be created.
    async fn start(&self, setup: TestbedSetup) -> Result<Box<dyn Testbed>, TestbedError>;

    /// Attaches to a store that exists, if it carries the [`DRILLABLE_MARK`].
    ///
    /// # Errors
    /// The store does not answer, is not marked, or cannot be drilled as this URL names it.
    async fn attach(&self, url: &str) -> Result<Box<dyn Testbed>, TestbedError>;
}

/// One store under test. Methods that need an ability which the testbed lacks return an error; so
/// do those that would harm the data of an attached store.
#[async_trait]
pub trait Testbed: fmt::Debug + Send + Sync + 'static {
    /// The URL of the store itself, without a proxy.
    fn url(&self) -> String;

    /// The address of the server, if the store is reached over a network. The drill then puts its
    /// fault proxy in front.
    fn endpoint(&self) -> Option<NetworkEndpoint> {
        None
    }

    /// The store's URL with the address of a proxy instead of its own.
    ///
    /// # Errors
    /// The store has no network address.
    fn url_through(&self, _proxy: SocketAddr) -> Result<String, TestbedError> {
        Err(TestbedError::unsupported("be reached through a proxy"))
    }

    /// The file to which only one process at a time can write, if the store has such a file.
    fn single_writer_file(&self) -> Option<PathBuf> {
        None
    }

    /// Makes a store without a network address unusable for all clients, until
    /// [`unblock`](Self::unblock).
    ///
    /// # Errors
    /// The fault could not be injected.
    async fn block(&self) -> Result<(), TestbedError> {
        Err(TestbedError::unsupported("be blocked"))
    }

    /// Lets clients use a blocked store again; does nothing to one that is not blocked.
    async fn unblock(&self) {}

    /// Stops the server; see [`TestbedAbility::Restart`].
    ///
    /// # Errors
    /// There is no server of our own.
    async fn stop(&self) -> Result<(), TestbedError> {
        Err(TestbedError::unsupported("be stopped"))
    }

    /// Kills the server if it runs, and starts it again at the same address.
    ///
    /// # Errors
    /// There is no server of our own, or it does not start.
    async fn restart(&self) -> Result<(), TestbedError> {
        Err(TestbedError::unsupported("be restarted"))
    }

    /// Injects one of [`TestbedInfo::faults`] by its name and repairs it. `random` chooses its
    /// length, as a share of the leases' `ttl`.
    ///
    /// # Errors
    /// The fault could not be injected.
    async fn inject(&self, fault: &str, ttl: Duration, random: &dyn Random) -> Result<(), TestbedError>;

    /// Makes the server evict every lease, as it does when its memory is full. Returns whether it
    /// was out of memory; see [`TestbedAbility::Evict`].
    ///
    /// # Errors
    /// There is no server of our own.
    async fn evict(&self) -> Result<bool, TestbedError> {
        Err(TestbedError::unsupported("evict leases"))
    }

    /// Starts a replica that reaches this server through `primary`; see
    /// [`TestbedAbility::FailOver`].
    ///
    /// # Errors
    /// There is no server of our own, or the replica does not start.
    async fn start_replica(&self, _primary: SocketAddr) -> Result<Box<dyn Testbed>, TestbedError> {
        Err(TestbedError::unsupported("have a replica"))
    }

    /// Whether this replica follows its primary.
    ///
    /// # Errors
    /// It does not answer.
    async fn is_following(&self) -> Result<bool, TestbedError> {
        Ok(false)
    }

    /// Promotes this replica.
    ///
    /// # Errors
    /// It does not answer, or is no replica.
    async fn promote(&self) -> Result<(), TestbedError> {
        Err(TestbedError::unsupported("be promoted"))
    }

    /// Counts the fence counters that would expire; there must be none. See
    /// [`TestbedAbility::FenceCounters`].
    ///
    /// # Errors
    /// There is no server of our own, or it does not answer.
    async fn expiring_fence_counters(&self) -> Result<u64, TestbedError> {
        Err(TestbedError::unsupported("list its fence counters"))
    }

    /// Removes leases, queue entries and tombstones of names that begin with one of these
    /// prefixes, and returns how many. Fence counters stay, because other names share them.
    ///
    /// # Errors
    /// The store does not answer.
    async fn remove_leases(&self, name_prefixes: &[String]) -> Result<usize, TestbedError>;
}

/// Where a server listens, and what it speaks there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct NetworkEndpoint {
    /// The server's own address.
    pub address: SocketAddr,
    /// How much of the connections a fault proxy can understand.
    pub protocol: WireProtocol,
}

impl NetworkEndpoint {
    /// A server that a fault proxy can stand before.
    #[must_use]
    pub const fn new(address: SocketAddr, protocol: WireProtocol) -> Self {
        Self { address, protocol }
    }
}

/// The protocol of a store's connections, for a fault proxy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum WireProtocol {
    /// Bytes that a proxy does not understand.
    Opaque,
    /// Redis's protocol: single commands can be lost and repeated.
    Resp {
        /// The command of every lock operation.
        lock_command: &'static str,
    },
}

/// What a throw-away store is started with.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct TestbedSetup {
    /// An existing folder for its files.
    pub folder: PathBuf,
    /// The name of its files, without extension.
    pub name: String,
    /// How its processes are started.
    pub wrapper: ProcessWrapper,
    /// The leases must survive a restart.
    pub durable: bool,
}

impl TestbedSetup {
    /// A store with files of this name in this folder, without a wrapper around its processes. Its
    /// leases need not survive a restart.
    #[must_use]
    pub fn new(folder: impl Into<PathBuf>, name: &str) -> Self {
        Self {
            folder: folder.into(),
            name: name.to_owned(),
            wrapper: ProcessWrapper::default(),
            durable: false,
        }
    }

    /// Sets how its processes are started.
    #[must_use]
    pub fn with_wrapper(mut self, wrapper: ProcessWrapper) -> Self {
        self.wrapper = wrapper;
        self
    }

    /// Demands that leases survive a restart.
    #[must_use]
    pub fn with_durability(mut self) -> Self {
        self.durable = true;
        self
    }
}

/// A command in front of a server's own: it prepares something and then execs the server, as `env`
/// does. A wrapper that did not exec would leave the server behind.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct ProcessWrapper {
    /// The words before the server's command.
    pub prefix: Vec<OsString>,
    /// Called with the id of each process that serves now.
    pub on_start: Option<fn(u32)>,
    /// Called with the id of each started process that has ended.
    pub on_exit: Option<fn(u32)>,
}

impl ProcessWrapper {
    /// Puts these words before the server's command.
    #[must_use]
    pub fn new(prefix: Vec<OsString>) -> Self {
        Self { prefix, ..Self::default() }
    }
}

/// A random share of a duration, from `least` to `most` per cent.
pub fn random_share(of: Duration, random: &dyn Random, least: u64, most: u64) -> Duration {
    let per_cent = least + random.below(most.saturating_sub(least) + 1);
    of * u32::try_from(per_cent).unwrap_or(100) / 100
}

/// Picks an item by its share of the draws. `draw` returns a number below its argument. The order
/// of the items matters: seeds refer to it.
pub fn pick_by_share<T>(
    items: Vec<T>,
    share: impl Fn(&T) -> u64,
    draw: impl FnOnce(u64) -> u64,
) -> Option<T> {
    let mut left = draw(items.iter().map(&share).sum());
    items.into_iter().find(|item| {
        let picked = left < share(item);
        left = left.saturating_sub(share(item));
        picked
    })
}

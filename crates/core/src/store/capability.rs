//! What a store can do and what it promises.

use std::fmt;

use serde::{Deserialize, Serialize};

/// What a store promises about an acknowledged lease. Ordered: a stronger promise is greater.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Promise {
    /// The lease may be forgotten by a restart, a fail-over or an eviction.
    Volatile,
    /// The lease survives a restart or crash of the store.
    Durable,
    /// The lease survives the loss of a minority of the store's machines.
    Consensus,
}

impl fmt::Display for Promise {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Volatile => "volatile",
            Self::Durable => "durable",
            Self::Consensus => "consensus",
        })
    }
}

/// A promise and the findings that limit it. Each finding is a sentence with advice.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PromiseReport {
    /// The promise of the store as it is configured now.
    pub promise: Promise,
    /// The reasons why the promise is not stronger.
    pub limits: Vec<String>,
}

/// The abilities of a store, constant for the life of the value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Capabilities {
    /// `memory`, `sqlite`, `redis`: the value of the metrics' `store` label.
    pub kind: &'static str,
    /// The strongest promise that a good configuration gives.
    pub promise: Promise,
    /// The store can list names with [`Store::list`](super::Store::list).
    pub list: bool,
    /// Keeps waiters in order and grants a released lease to the first live one.
    pub queue: bool,
    /// Notifies a waiter when it should retry.
    pub wake: bool,
    /// Several processes can use the same leases.
    pub cross_process: bool,
    /// The store serves requests in [`Mode::Shared`](super::Mode::Shared).
    pub shared: bool,
    /// The store serves requests in [`Mode::Permits`](super::Mode::Permits).
    pub permits: bool,
    /// Fences keep growing after the store loses its data, as long as its clock does not go back.
    pub fence_survives_loss: bool,
}

impl Capabilities {
    /// A store with none of the optional abilities.
    #[must_use]
    pub const fn new(kind: &'static str, promise: Promise) -> Self {
        Self {
            kind,
            promise,
            list: false,
            queue: false,
            wake: false,
            cross_process: false,
            shared: false,
            permits: false,
            fence_survives_loss: false,
        }
    }

    /// Declares that [`Store::list`](super::Store::list) works.
    #[must_use]
    pub const fn with_list(mut self) -> Self {
        self.list = true;
        self
    }

    /// Declares an ordered queue of waiters with notifications.
    #[must_use]
    pub const fn with_queue(mut self) -> Self {
        self.queue = true;
        self.wake = true;
        self
    }

    /// Declares that several processes can use the same leases.
    #[must_use]
    pub const fn with_cross_process(mut self) -> Self {
        self.cross_process = true;
        self
    }

    /// Declares that fences keep growing after the data is lost.
    #[must_use]
    pub const fn with_fence_survives_loss(mut self) -> Self {
        self.fence_survives_loss = true;
        self
    }
}

use std::fmt;

use serde::{Deserialize, Serialize};

/// What a store promises about a lease it has acknowledged. Ordered: more is greater.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Promise {
    /// It may be forgotten by a restart, a fail-over or an eviction.
    Volatile,
    /// It survives a restart or crash of the store.
    Durable,
    /// It survives the loss of a minority of the store's machines.
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

/// A promise and the findings that limit it, each a sentence with what to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Promised {
    /// What the store promises as it is configured right now.
    pub promise: Promise,
    /// Why it does not promise more.
    pub because: Vec<String>,
}

/// What a store can do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Capabilities {
    /// `memory`, `sqlite`, `redis`: the value of the metrics' `store` label.
    pub kind: &'static str,
    /// The most it can promise when configured well.
    pub promise: Promise,
    /// Can list its leases.
    pub list: bool,
    /// Keeps waiters in order and hands a released lease to the first.
    pub queue: bool,
    /// Tells a waiter when to ask again.
    pub wake: bool,
    /// Other processes can share it.
    pub cross_process: bool,
    /// Serves [`Mode::Shared`](super::Mode::Shared).
    pub shared: bool,
    /// Serves [`Mode::Permits`](super::Mode::Permits).
    pub permits: bool,
    /// Fences keep growing even if the store loses its data, as long as its clock does not go back.
    pub fence_survives_loss: bool,
}

impl Capabilities {
    /// A store that can do no more than it must.
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

    /// With listing.
    #[must_use]
    pub const fn with_list(mut self) -> Self {
        self.list = true;
        self
    }

    /// With a queue of waiters that are woken in order.
    #[must_use]
    pub const fn with_queue(mut self) -> Self {
        self.queue = true;
        self.wake = true;
        self
    }

    /// Shared between processes.
    #[must_use]
    pub const fn with_cross_process(mut self) -> Self {
        self.cross_process = true;
        self
    }

    /// With fences that grow even after the data is lost.
    #[must_use]
    pub const fn with_fence_survives_loss(mut self) -> Self {
        self.fence_survives_loss = true;
        self
    }
}

//! What a store can do and what it promises.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{AcquireRequest, HANDOVER_CLAIM_TTL, Mode, StoreError, StoreErrorKind};
use crate::policy::duration::human;
use crate::types::{NameSet, Ttl};

/// What a store promises about an acknowledged lease. Ordered: a stronger promise is greater.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
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
#[non_exhaustive]
pub struct PromiseReport {
    /// The promise of the store as it is configured now.
    pub promise: Promise,
    /// The reasons why the promise is not stronger.
    pub limits: Vec<String>,
}

impl PromiseReport {
    /// A promise without reasons.
    #[must_use]
    pub const fn new(promise: Promise) -> Self {
        Self { promise, limits: Vec::new() }
    }

    /// Sets the reasons why the promise is not stronger.
    #[must_use]
    pub fn with_limits(mut self, limits: Vec<String>) -> Self {
        self.limits = limits;
        self
    }
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
    /// The store serves requests with several names, all or nothing.
    pub several_names: bool,
    /// The store has [`Documents`](super::Documents).
    pub documents: bool,
    /// A change of a document notifies the followers in all processes. Others only read it again.
    pub document_wake: bool,
    /// Fences keep growing after the store loses its data, as long as its clock does not go back.
    pub fence_survives_loss: bool,
    /// How long a waiter that was granted a released lease has to confirm it, by a retry with its
    /// token. A dead waiter blocks the queue for no longer than this.
    pub claim_ttl: Duration,
    /// The shortest TTL that the store can keep. A class below it is refused.
    pub min_ttl: Ttl,
    /// The store rounds lifetimes up to a multiple of this and tells the result in
    /// [`Grant::ttl`](super::Grant::ttl). The holder counts what it requested.
    pub ttl_step: Duration,
    /// How long after its expiry a lease may still keep others out. A waiter retries after it.
    pub expiry_lag: Duration,
}

impl Capabilities {
    /// A store with none of the optional abilities, that expires leases to the millisecond.
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
            several_names: false,
            documents: false,
            document_wake: false,
            fence_survives_loss: false,
            claim_ttl: HANDOVER_CLAIM_TTL,
            min_ttl: Ttl::MIN,
            ttl_step: Duration::from_millis(1),
            expiry_lag: Duration::ZERO,
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

    /// Declares the modes other than [`Mode::Exclusive`] that are served.
    #[must_use]
    pub const fn with_modes(mut self, shared: bool, permits: bool) -> Self {
        self.shared = shared;
        self.permits = permits;
        self
    }

    /// Declares that one lease can cover several names, all or nothing.
    #[must_use]
    pub const fn with_several_names(mut self) -> Self {
        self.several_names = true;
        self
    }

    /// Declares documents, and whether a change of one notifies its followers.
    #[must_use]
    pub const fn with_documents(mut self, wake: bool) -> Self {
        self.documents = true;
        self.document_wake = wake;
        self
    }

    /// Sets the time in which a waiter must confirm a handover.
    #[must_use]
    pub const fn with_claim_ttl(mut self, claim_ttl: Duration) -> Self {
        self.claim_ttl = claim_ttl;
        self
    }

    /// Sets the shortest TTL, and the step to which lifetimes are rounded up.
    #[must_use]
    pub const fn with_ttl_limits(mut self, min_ttl: Ttl, ttl_step: Duration) -> Self {
        self.min_ttl = min_ttl;
        self.ttl_step = ttl_step;
        self
    }

    /// Sets how long an expired lease may still keep others out.
    #[must_use]
    pub const fn with_expiry_lag(mut self, expiry_lag: Duration) -> Self {
        self.expiry_lag = expiry_lag;
        self
    }

    /// Refuses an acquire that the store does not serve: the mode, several names, or a short TTL.
    /// Every store calls this before it changes anything.
    ///
    /// # Errors
    /// The request is not served; the message names what is not.
    pub fn check_acquire(&self, request: &AcquireRequest) -> Result<(), StoreError> {
        self.check_names(&request.names)?;
        request
            .check_visible()
            .map_err(|invalid| StoreError::not_done(StoreErrorKind::Misconfigured, invalid.to_string()))?;
        match request.mode {
            Mode::Exclusive => {}
            Mode::Shared if self.shared => {}
            Mode::Permits { .. } if self.permits => {}
            Mode::Shared => return Err(self.unsupported("shared leases")),
            Mode::Permits { .. } => return Err(self.unsupported("permits")),
        }
        if request.ttl < self.min_ttl {
            let (ttl, least) = (human(request.ttl.get()), human(self.min_ttl.get()));
            return Err(self.unsupported(&format!("a TTL of {ttl}; the shortest is {least}")));
        }
        Ok(())
    }

    /// Refuses several names if the store serves only one. Every store calls this for each renewal
    /// and release.
    ///
    /// # Errors
    /// The request has several names and the store serves only one.
    pub fn check_names(&self, names: &NameSet) -> Result<(), StoreError> {
        if self.several_names || names.single().is_some() {
            return Ok(());
        }
        Err(self.unsupported("several names in one lease"))
    }

    fn unsupported(&self, what: &str) -> StoreError {
        StoreError::not_done(
            StoreErrorKind::Unsupported,
            format!("the {} store does not serve {what}", self.kind),
        )
    }
}

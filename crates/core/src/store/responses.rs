//! Responses of a store to the requests in `requests.rs`.

use std::time::Duration;

use crate::types::{Fence, Name};

/// The response to an [`AcquireRequest`](super::AcquireRequest).
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum AcquireResponse {
    /// The lease belongs to the request's token.
    Granted(Grant),
    /// Another token holds the lease.
    Busy(BusyLease),
    /// The token was undone earlier and will never be granted again.
    Void,
}

/// The terms of a granted lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Grant {
    /// Greater than every fence granted for any of its names before.
    pub fence: Fence,
    /// How long the store keeps the lease, lock delay included, if that differs from the request in
    /// either direction; `None` if it does not.
    pub ttl: Option<Duration>,
}

impl Grant {
    /// A grant for as long as requested.
    #[must_use]
    pub const fn new(fence: Fence) -> Self {
        Self { fence, ttl: None }
    }

    /// Sets how long the store keeps the lease.
    #[must_use]
    pub fn with_ttl(mut self, ttl: impl Into<Option<Duration>>) -> Self {
        self.ttl = ttl.into();
        self
    }
}

/// The lease that makes a name busy, as far as the store can describe it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct BusyLease {
    /// The holder, or `foreign#` and a fingerprint if another program wrote the value.
    pub holder: String,
    /// The holder's class, unless the value is foreign.
    pub class: Option<String>,
    /// The lease's fence, unless the value is foreign.
    pub fence: Option<Fence>,
    /// Time until the lease expires without a renewal; `None` if it never expires.
    pub remaining: Option<Duration>,
    /// The request's token is registered as a waiter.
    pub queued: bool,
}

impl BusyLease {
    /// A lease of which only the holder is known, and that never expires.
    #[must_use]
    pub fn new(holder: impl Into<String>) -> Self {
        Self { holder: holder.into(), ..Self::default() }
    }

    /// Sets the holder's class.
    #[must_use]
    pub fn with_class(mut self, class: impl Into<Option<String>>) -> Self {
        self.class = class.into();
        self
    }

    /// Sets the lease's fence.
    #[must_use]
    pub fn with_fence(mut self, fence: impl Into<Option<Fence>>) -> Self {
        self.fence = fence.into();
        self
    }

    /// Sets the time until the lease expires.
    #[must_use]
    pub fn with_remaining(mut self, remaining: impl Into<Option<Duration>>) -> Self {
        self.remaining = remaining.into();
        self
    }

    /// Sets whether the request's token is registered as a waiter.
    #[must_use]
    pub fn with_queued(mut self, queued: bool) -> Self {
        self.queued = queued;
        self
    }
}

/// The response to one [`RenewRequest`](super::RenewRequest). Closed: a renewal either extended the
/// lease or did not, and an error tells what is neither.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RenewResponse {
    /// The lease lives for the requested TTL from now on. Made by [`RenewResponse::extended`].
    #[non_exhaustive]
    Extended {
        /// Remaining time just before the extension, if the store knows it. A value far from what
        /// the holder's clock expects shows that the store's clock has jumped.
        remaining_before: Option<Duration>,
    },
    /// The lease no longer belongs to this token and fence. This is definite.
    NotOwned,
}

impl RenewResponse {
    /// The lease was extended; `remaining_before` is what was left of it.
    #[must_use]
    pub fn extended(remaining_before: impl Into<Option<Duration>>) -> Self {
        Self::Extended { remaining_before: remaining_before.into() }
    }
}

/// The response to a [`ReleaseRequest`](super::ReleaseRequest). Closed, like [`RenewResponse`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReleaseResponse {
    /// The lease was ended. The name is free, or already granted to the next waiter.
    Released,
    /// No live lease matched the request's authority.
    NotOwned,
}

/// A live lease as operators see it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Lease {
    /// The locked name.
    pub name: Name,
    /// The holder, or `foreign#` and a fingerprint if another program wrote the value.
    pub holder: String,
    /// The holder's class, unless the value is foreign.
    pub class: Option<String>,
    /// The lease's fence, unless the value is foreign.
    pub fence: Option<Fence>,
    /// Time until the lease expires without a renewal; `None` if it never expires.
    pub remaining: Option<Duration>,
    /// Time since the grant, if the store records it.
    pub age: Option<Duration>,
    /// Number of registered waiters, if the store counts them.
    pub waiters: Option<u64>,
}

impl Lease {
    /// A lease of which only the holder is known, and that never expires.
    #[must_use]
    pub fn new(name: Name, holder: impl Into<String>) -> Self {
        Self {
            name,
            holder: holder.into(),
            class: None,
            fence: None,
            remaining: None,
            age: None,
            waiters: None,
        }
    }

    /// Sets the holder's class.
    #[must_use]
    pub fn with_class(mut self, class: impl Into<Option<String>>) -> Self {
        self.class = class.into();
        self
    }

    /// Sets the lease's fence.
    #[must_use]
    pub fn with_fence(mut self, fence: impl Into<Option<Fence>>) -> Self {
        self.fence = fence.into();
        self
    }

    /// Sets the time until the lease expires.
    #[must_use]
    pub fn with_remaining(mut self, remaining: impl Into<Option<Duration>>) -> Self {
        self.remaining = remaining.into();
        self
    }

    /// Sets the time since the grant.
    #[must_use]
    pub fn with_age(mut self, age: impl Into<Option<Duration>>) -> Self {
        self.age = age.into();
        self
    }

    /// Sets the number of registered waiters.
    #[must_use]
    pub fn with_waiters(mut self, waiters: impl Into<Option<u64>>) -> Self {
        self.waiters = waiters.into();
        self
    }
}

/// The response to [`Store::inspect`](super::Store::inspect) and [`Store::list`](super::Store::list).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct LeaseList {
    /// Sorted by name. A name has several leases if it is held shared or by permits.
    pub leases: Vec<Lease>,
    /// The store holds more matching leases than the limit allowed.
    pub truncated: bool,
}

impl LeaseList {
    /// A complete list.
    #[must_use]
    pub fn new(leases: impl IntoIterator<Item = Lease>) -> Self {
        Self { leases: leases.into_iter().collect(), truncated: false }
    }

    /// Sets whether the store holds more leases than these.
    #[must_use]
    pub fn with_truncated(mut self, truncated: bool) -> Self {
        self.truncated = truncated;
        self
    }

    /// The only lease of an inspected name, for callers that know exclusive leases only; `None` if the
    /// name is free.
    #[must_use]
    pub fn into_first(self) -> Option<Lease> {
        self.leases.into_iter().next()
    }
}

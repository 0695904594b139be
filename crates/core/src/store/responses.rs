//! Responses of a store to the requests in `requests.rs`.

use std::time::Duration;

use crate::types::{Fence, Name};

/// The response to an [`AcquireRequest`](super::AcquireRequest).
#[derive(Debug, Clone, PartialEq, Eq)]
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
pub struct Grant {
    /// Greater than every fence granted for this name before.
    pub fence: Fence,
    /// How long the store keeps the lease, lock delay included, if that differs from the request in
    /// either direction; `None` if it does not.
    pub ttl: Option<Duration>,
}

/// The lease that makes a name busy, as far as the store can describe it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
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

/// The response to one [`RenewRequest`](super::RenewRequest).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RenewResponse {
    /// The lease lives for the requested TTL from now on.
    Extended {
        /// Remaining time just before the extension, if the store knows it. A value far from what
        /// the holder's clock expects shows that the store's clock has jumped.
        remaining_before: Option<Duration>,
    },
    /// The lease no longer belongs to this token and fence. This is definite.
    NotOwned,
}

/// The response to a [`ReleaseRequest`](super::ReleaseRequest).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReleaseResponse {
    /// The lease was ended. The name is free, or already granted to the next waiter.
    Released,
    /// No live lease matched the request's authority.
    NotOwned,
}

/// A live lease as operators see it.
#[derive(Debug, Clone, PartialEq, Eq)]
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

/// The response to [`Store::list`](super::Store::list).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LeaseList {
    /// Sorted by name.
    pub leases: Vec<Lease>,
    /// The store holds more matching leases than the limit allowed.
    pub truncated: bool,
}

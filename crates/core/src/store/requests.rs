//! Requests to a store: acquire, renew, release.

use std::time::Duration;

use crate::types::{Fence, Name, Token, Ttl};

/// How a name is shared. A store declares the modes it serves in its
/// [`Capabilities`](super::Capabilities).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum Mode {
    /// One holder at a time.
    #[default]
    Exclusive,
    /// Any number of holders at once.
    Shared,
    /// At most `of` holders at once.
    Permits {
        /// The limit. Every request for the name must state the same one.
        of: u32,
    },
}

/// A request for a lease.
#[derive(Debug, Clone)]
pub struct AcquireRequest {
    /// The name to lock.
    pub name: Name,
    /// The owner's secret: fresh for every acquire, unchanged in every retry of one acquire.
    pub token: Token,
    /// Exclusive, shared or permits.
    pub mode: Mode,
    /// The lease's time to live as its holder counts it.
    pub ttl: Ttl,
    /// How long the store keeps an unreleased name locked beyond the TTL. The holder counts the TTL
    /// only.
    pub lock_delay: Duration,
    /// The highest fence this client has seen. A new grant's fence must be *greater*, even if the
    /// store lost its counter.
    pub floor: Option<Fence>,
    /// If busy, register the token as a waiter for this long; every retry extends the registration.
    pub queue: Option<Duration>,
}

impl AcquireRequest {
    /// An exclusive request that does not queue, with no lock delay and no fence floor.
    #[must_use]
    pub fn new(name: Name, token: Token, ttl: Ttl) -> Self {
        Self { name, token, mode: Mode::Exclusive, ttl, lock_delay: Duration::ZERO, floor: None, queue: None }
    }

    /// The lifetime of the lease in the store: TTL plus lock delay.
    #[must_use]
    pub fn store_ttl(&self) -> Duration {
        self.ttl.get().saturating_add(self.lock_delay)
    }
}

/// A request to extend one lease.
#[derive(Debug, Clone)]
pub struct RenewRequest {
    /// The name of the lease.
    pub name: Name,
    /// The token to which it was granted.
    pub token: Token,
    /// The fence it was granted with. A lease that was granted again, even to this token, is
    /// another lease.
    pub fence: Fence,
    /// The new time to live, counted from now.
    pub ttl: Ttl,
    /// As in [`AcquireRequest::lock_delay`].
    pub lock_delay: Duration,
}

impl RenewRequest {
    /// The lifetime of the lease in the store: TTL plus lock delay.
    #[must_use]
    pub fn store_ttl(&self) -> Duration {
        self.ttl.get().saturating_add(self.lock_delay)
    }
}

/// What entitles a caller to end a lease or to leave the queue.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum ReleaseAuthority {
    /// The owner knows the token. It may not know the fence, because the grant's response can be
    /// lost.
    Owner(Token),
    /// An operator read this fence in a listing and breaks exactly that grant, not a later one.
    Operator(Fence),
    /// A waiter leaves the queue. A lease that the token was granted in the meantime stays. The
    /// response is always [`ReleaseResponse::NotOwned`](super::ReleaseResponse::NotOwned).
    Waiter(Token),
}

/// A request to end a lease or to leave the queue.
#[derive(Debug, Clone)]
pub struct ReleaseRequest {
    /// The name of the lease.
    pub name: Name,
    /// Selects the lease or waiter entry that ends.
    pub authority: ReleaseAuthority,
    /// Refuse this token for so long, because a late acquire may still arrive
    /// ([`ReleaseAuthority::Owner`] only).
    pub tombstone: Option<Duration>,
}

impl ReleaseRequest {
    /// The owner releases its lease.
    #[must_use]
    pub fn by_owner(name: Name, token: Token) -> Self {
        Self { name, authority: ReleaseAuthority::Owner(token), tombstone: None }
    }

    /// The owner ends a lease that it may or may not have been granted. A tombstone refuses
    /// acquires of the token that arrive later.
    #[must_use]
    pub fn undo(name: Name, token: Token) -> Self {
        Self { name, authority: ReleaseAuthority::Owner(token), tombstone: Some(super::TOMBSTONE_TTL) }
    }

    /// The waiter leaves the queue; a lease of its token stays.
    #[must_use]
    pub fn leave_queue(name: Name, token: Token) -> Self {
        Self { name, authority: ReleaseAuthority::Waiter(token), tombstone: None }
    }
}

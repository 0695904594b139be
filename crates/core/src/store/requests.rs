//! Requests to a store: acquire, renew, release.

use std::num::NonZeroU32;
use std::time::Duration;

use crate::types::{Fence, InvalidInput, Name, NameSet, Token, Ttl};

/// How a name is shared. A store declares the modes it serves in its
/// [`Capabilities`](super::Capabilities).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum Mode {
    /// One holder at a time.
    #[default]
    Exclusive,
    /// Any number of holders at once, none of them exclusive.
    Shared,
    /// Holders whose weights add up to at most `of`. Made by [`Mode::permits`].
    #[non_exhaustive]
    Permits {
        /// The limit. Every request for the name must state the same one.
        of: NonZeroU32,
        /// The permits that this lease takes, at most `of`.
        weight: NonZeroU32,
    },
}

impl Mode {
    /// A lease that takes `weight` of `of` permits.
    ///
    /// # Errors
    /// The weight is zero or greater than `of`.
    pub fn permits(of: u32, weight: u32) -> Result<Self, InvalidInput> {
        match (NonZeroU32::new(of), NonZeroU32::new(weight)) {
            (Some(of), Some(weight)) if weight <= of => Ok(Self::Permits { of, weight }),
            _ => {
                Err(InvalidInput::new("permits", format!("{weight} of {of}"), "must be from 1 to the limit"))
            }
        }
    }
}

/// A request for a lease.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct AcquireRequest {
    /// The names to lock: all of them or none.
    pub names: NameSet,
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
    /// A lease of several names has no queue: a waiter that holds some of them would block others.
    pub queue: Option<Duration>,
    /// The names may contain invisible characters: they name something that exists already.
    pub existing_names: bool,
}

impl AcquireRequest {
    /// Refuses names and a holder that look like others. The one check of every acquire: in the client, the daemon and
    /// [`Capabilities::check_acquire`](super::Capabilities::check_acquire) of every store.
    ///
    /// # Errors
    /// A name or the holder contains an invisible character; the message names its code point.
    pub fn check_visible(&self) -> Result<(), InvalidInput> {
        if !self.existing_names {
            self.names.as_slice().iter().try_for_each(Name::check_visible)?;
        }
        self.token.check_visible()
    }

    /// An exclusive request that does not queue, with no lock delay and no fence floor.
    #[must_use]
    pub fn new(names: impl Into<NameSet>, token: Token, ttl: Ttl) -> Self {
        Self {
            names: names.into(),
            token,
            mode: Mode::Exclusive,
            ttl,
            lock_delay: Duration::ZERO,
            floor: None,
            queue: None,
            existing_names: false,
        }
    }

    /// Accepts names with invisible characters. For names of what was stored before such names were refused.
    #[must_use]
    pub fn with_existing_names(mut self, existing: bool) -> Self {
        self.existing_names = existing;
        self
    }

    /// Sets how the names are shared.
    #[must_use]
    pub fn with_mode(mut self, mode: Mode) -> Self {
        self.mode = mode;
        self
    }

    /// Sets the lock delay.
    #[must_use]
    pub fn with_lock_delay(mut self, lock_delay: Duration) -> Self {
        self.lock_delay = lock_delay;
        self
    }

    /// Sets the highest fence this client has seen.
    #[must_use]
    pub fn with_floor(mut self, floor: impl Into<Option<Fence>>) -> Self {
        self.floor = floor.into();
        self
    }

    /// Sets how long to stay registered as a waiter.
    #[must_use]
    pub fn with_queue(mut self, queue: impl Into<Option<Duration>>) -> Self {
        self.queue = queue.into();
        self
    }

    /// The lifetime of the lease in the store: TTL plus lock delay.
    #[must_use]
    pub fn store_ttl(&self) -> Duration {
        self.ttl.get().saturating_add(self.lock_delay)
    }
}

/// A request to extend one lease.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct RenewRequest {
    /// The names of the lease, as they were granted: all are extended or none.
    pub names: NameSet,
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
    /// A renewal with no lock delay. The store knows the mode of the lease.
    #[must_use]
    pub fn new(names: impl Into<NameSet>, token: Token, fence: Fence, ttl: Ttl) -> Self {
        Self { names: names.into(), token, fence, ttl, lock_delay: Duration::ZERO }
    }

    /// Sets the lock delay.
    #[must_use]
    pub fn with_lock_delay(mut self, lock_delay: Duration) -> Self {
        self.lock_delay = lock_delay;
        self
    }

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
#[non_exhaustive]
pub struct ReleaseRequest {
    /// The names of the lease: all are released, each if the authority matches it.
    pub names: NameSet,
    /// Selects the lease or waiter entry that ends.
    pub authority: ReleaseAuthority,
    /// Refuse this token for so long, because a late acquire may still arrive
    /// ([`ReleaseAuthority::Owner`] only).
    pub tombstone: Option<Duration>,
}

impl ReleaseRequest {
    /// Ends what the authority selects, and leaves no tombstone.
    #[must_use]
    pub fn new(names: impl Into<NameSet>, authority: ReleaseAuthority) -> Self {
        Self { names: names.into(), authority, tombstone: None }
    }

    /// The owner releases its lease.
    #[must_use]
    pub fn by_owner(names: impl Into<NameSet>, token: Token) -> Self {
        Self::new(names, ReleaseAuthority::Owner(token))
    }

    /// An operator breaks the grant with this fence.
    #[must_use]
    pub fn by_operator(names: impl Into<NameSet>, fence: Fence) -> Self {
        Self::new(names, ReleaseAuthority::Operator(fence))
    }

    /// The owner ends a lease that it may or may not have been granted. A tombstone refuses
    /// acquires of the token that arrive later.
    #[must_use]
    pub fn undo(names: impl Into<NameSet>, token: Token) -> Self {
        Self::by_owner(names, token).with_tombstone(super::TOMBSTONE_TTL)
    }

    /// The waiter leaves the queue; a lease of its token stays.
    #[must_use]
    pub fn leave_queue(names: impl Into<NameSet>, token: Token) -> Self {
        Self::new(names, ReleaseAuthority::Waiter(token))
    }

    /// Sets for how long the token is refused.
    #[must_use]
    pub fn with_tombstone(mut self, tombstone: impl Into<Option<Duration>>) -> Self {
        self.tombstone = tombstone.into();
        self
    }
}

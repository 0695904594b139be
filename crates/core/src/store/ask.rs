use std::time::Duration;

use crate::word::{Fence, Name, Token, Ttl};

/// How a name is shared. Stores say in their [`Capabilities`](super::Capabilities) which they serve.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum Mode {
    /// One holder.
    #[default]
    Exclusive,
    /// Any number of holders, none of them exclusive.
    Shared,
    /// At most `of` holders at once.
    Permits {
        /// The limit, the same for every asker of the name.
        of: u32,
    },
}

/// The question "may I have this lease?".
#[derive(Debug, Clone)]
pub struct Ask {
    /// What is to be locked.
    pub name: Name,
    /// Who asks: fresh for every acquire, the same for every repetition of one acquire.
    pub token: Token,
    /// How it is to be shared.
    pub mode: Mode,
    /// How long the lease lives for its holder.
    pub ttl: Ttl,
    /// How long the store keeps the name shut beyond the TTL if nobody releases it. The holder counts the TTL only.
    pub lock_delay: Duration,
    /// The highest fence this client has seen: a new grant's must be *greater*, even if the store lost its counter.
    pub floor: Option<Fence>,
    /// Register as a waiter if busy, for this long unless asked again.
    pub queue: Option<Duration>,
}

impl Ask {
    /// An exclusive ask without waiting, delay or floor.
    #[must_use]
    pub fn new(name: Name, token: Token, ttl: Ttl) -> Self {
        Self {
            name,
            token,
            mode: Mode::Exclusive,
            ttl,
            lock_delay: Duration::ZERO,
            floor: None,
            queue: None,
        }
    }

    /// What the store keeps the lease for: TTL and lock delay.
    #[must_use]
    pub fn kept(&self) -> Duration {
        self.ttl.get().saturating_add(self.lock_delay)
    }
}

/// One lease to extend.
#[derive(Debug, Clone)]
pub struct Renewal {
    /// The lease's name.
    pub name: Name,
    /// The token it was granted to.
    pub token: Token,
    /// The fence it was granted with: a lease that was granted anew, even to this token, is another lease.
    pub fence: Fence,
    /// Its new time to live, from now.
    pub ttl: Ttl,
    /// As in [`Ask::lock_delay`].
    pub lock_delay: Duration,
}

impl Renewal {
    /// What the store keeps the lease for: TTL and lock delay.
    #[must_use]
    pub fn kept(&self) -> Duration {
        self.ttl.get().saturating_add(self.lock_delay)
    }
}

/// By what right a lease is ended.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Claim {
    /// By its owner, who knows the token. The fence may be unknown: the grant's answer may have been lost.
    Owner(Token),
    /// By an operator who saw this fence in a listing and breaks exactly that grant, not a later one.
    Seen(Fence),
    /// Of no lease at all: one who waits leaves the queue. What the token has been granted meanwhile, perhaps by way of another
    /// question, stays. Always answered with [`Given::NotOwned`](super::Given::NotOwned).
    Place(Token),
}

/// A lease to give back.
#[derive(Debug, Clone)]
pub struct Giving {
    /// The lease's name.
    pub name: Name,
    /// By what right.
    pub claim: Claim,
    /// Refuse this token for so long, in case its acquire is still on its way ([`Claim::Owner`] only).
    pub tombstone: Option<Duration>,
}

impl Giving {
    /// The owner gives back.
    #[must_use]
    pub fn owned(name: Name, token: Token) -> Self {
        Self {
            name,
            claim: Claim::Owner(token),
            tombstone: None,
        }
    }

    /// The owner gives back what it may or may not have got, and makes sure that it does not get it later.
    #[must_use]
    pub fn undo(name: Name, token: Token) -> Self {
        Self {
            name,
            claim: Claim::Owner(token),
            tombstone: Some(super::TOMBSTONE),
        }
    }

    /// Who waits gives up its place, and nothing else.
    #[must_use]
    pub fn place(name: Name, token: Token) -> Self {
        Self {
            name,
            claim: Claim::Place(token),
            tombstone: None,
        }
    }
}

use std::time::Duration;

use crate::word::{Fence, Name};

/// The answer to an ask.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// It is yours.
    Granted(Grant),
    /// Someone else has it.
    Busy(Busy),
    /// This token was undone earlier; it will not be granted any more.
    Void,
}

/// What comes with a granted lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Grant {
    /// Greater than every fence granted for this name before.
    pub fence: Fence,
    /// How long the store keeps the lease, lock delay included, if it could not give what was asked (less or more);
    /// `None` if it could.
    pub ttl: Option<Duration>,
}

/// Who has it, as far as the store can tell.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Busy {
    /// The holder, or `foreign#` and a fingerprint if the value is not one of ours.
    pub holder: String,
    /// The holder's class, if it is one of ours.
    pub class: Option<String>,
    /// Its fence, if it is one of ours.
    pub fence: Option<Fence>,
    /// Until the store lets go of the lease if nobody renews it; `None` if it never does by itself.
    pub remaining: Option<Duration>,
    /// The asker was registered as a waiter.
    pub queued: bool,
}

/// The answer to a renewal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Renewed {
    /// Extended from now.
    Extended {
        /// What was left of the lease just before, where the store can tell: if it is far from what this holder's
        /// clock expects, the store's clock has jumped.
        was_left: Option<Duration>,
    },
    /// Not this token's any more. Definite.
    NotOwned,
}

/// The answer to giving back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Given {
    /// The lease was this token's and is free now (or already the next waiter's).
    Released,
    /// It was not this token's (any more).
    NotOwned,
}

/// A live lease, for people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lease {
    /// What is locked.
    pub name: Name,
    /// The holder, or `foreign#` and a fingerprint if the value is not one of ours.
    pub holder: String,
    /// The holder's class, if it is one of ours.
    pub class: Option<String>,
    /// Its fence, if it is one of ours.
    pub fence: Option<Fence>,
    /// Until the store lets go of it if nobody renews it; `None` if it never does by itself.
    pub remaining: Option<Duration>,
    /// Since it was granted, where the store keeps that.
    pub age: Option<Duration>,
    /// How many wait for it, where the store keeps that.
    pub waiters: Option<u64>,
}

/// Live leases, for people.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Listing {
    /// In the order of their names.
    pub leases: Vec<Lease>,
    /// There are more than the limit allowed.
    pub truncated: bool,
}

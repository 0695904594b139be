//! The engine that keeps the truth, behind one small trait.
//!
//! A store answers one question at a time. It has no retry loop, no sleep, no metrics and no policy: the rest
//! of this crate does the waiting and deciding. Contention and *not ours* are answers; a [`Failure`] says that
//! the question could not be answered, and whether it may have taken effect all the same.
//!
//! What every store must do, exactly, stands at each verb; `leasehold-conformance` checks it.

mod answer;
mod ask;
mod capability;
mod failure;
mod finding;
mod listener;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

pub use answer::{Answer, Busy, Given, Grant, Lease, Listing, Renewed};
pub use ask::{Ask, Claim, Giving, Mode, Renewal};
pub use capability::{Capabilities, Promise, Promised};
pub use failure::{Cause, Failure};
pub use finding::{Examination, Finding, Severity};
pub use listener::{Listener, Wakers};

use crate::word::{Name, Token};

/// How long a waiter that was handed a released lock has to confirm it, by asking again with its token. A waiter
/// that died costs the queue no more than this.
pub const CLAIM: Duration = Duration::from_millis(500);

/// How long an undone token is remembered, so that its acquire, if it arrives late, is refused. Longer than any
/// request of ours can still be on its way.
pub const TOMBSTONE: Duration = Duration::from_secs(60);

/// A store that code shares.
pub type SharedStore = Arc<dyn Store>;

/// Where leases live. Object safe; adapters wrap another store and pass every verb on.
///
/// All verbs may be called concurrently and their futures may be dropped at any await point; a dropped call
/// counts as *unknown*. No verb may take much longer than the `within` it is given: a store that can give up
/// earlier and say *definitely not done* helps its caller, but the caller enforces the limit itself too.
#[async_trait]
pub trait Store: Send + Sync + fmt::Debug + 'static {
    /// What this store can do. Constant for the life of the value.
    fn capabilities(&self) -> Capabilities;

    /// Where it is, for people: a URL without secrets.
    fn describe(&self) -> String;

    /// Asks for the lease, as one atomic step:
    ///
    /// 1. The token was undone (a [`Giving`] with a tombstone): [`Answer::Void`], nothing changes.
    /// 2. The live lease already has this token: [`Answer::Granted`] with the *same* fence, the time to live
    ///    starts anew but never shorter than what is left. (An acquire asked twice, or a handed-over claim being confirmed.)
    /// 3. The live lease has another token: [`Answer::Busy`]. With `ask.queue`, the token is registered as a
    ///    waiter behind those already there; asking again keeps its place and renews the registration.
    /// 4. Otherwise the lease is granted for `ask.ttl + ask.lock_delay`, with a fence greater than every one
    ///    granted for this name before and than `ask.floor`; the token's waiter entry is gone.
    async fn acquire(&self, ask: &Ask, within: Duration) -> Result<Answer, Failure>;

    /// Extends leases, each only if its live lease has exactly this token *and* this fence. An expired lease is
    /// never revived, even if its record is still there, and a live one never shortened. One result per item, in order.
    async fn renew(&self, batch: &[Renewal], within: Duration) -> Vec<Result<Renewed, Failure>>;

    /// Gives a lease back, only if the [`Claim`] matches the live lease; the token's waiter entry is removed in
    /// any case, and a tombstone is left if asked for. If others wait, the lease is granted on the spot to
    /// the first live one for [`CLAIM`], with a new fence above its last ask's floor, and that one (only) is woken.
    async fn release(&self, giving: &Giving, within: Duration) -> Result<Given, Failure>;

    /// The live lease of a name, if there is one.
    async fn inspect(&self, name: &Name, within: Duration) -> Result<Option<Lease>, Failure>;

    /// Live leases whose names start with `prefix`, in the order of their names, at most `limit`.
    async fn list(&self, prefix: &str, limit: usize, within: Duration) -> Result<Listing, Failure> {
        let _ = (prefix, limit, within);
        Err(Failure::not_done(
            Cause::Unsupported,
            "this store cannot list its leases",
        ))
    }

    /// Hints for a waiting token: made *before* the first queued ask, it remembers a wake-up that comes between
    /// the ask and the wait. A hint says "ask again", never "you have it". Stores that cannot wake anyone
    /// return a listener that stays silent.
    fn listen(&self, name: &Name, token: &Token) -> Listener {
        let _ = (name, token);
        Listener::silent()
    }

    /// What the store promises about leases it has acknowledged, as configured right now, with the findings
    /// that limit it. Asked before a class that `requires` more than `any` is served.
    async fn promise(&self, within: Duration) -> Result<Promised, Failure> {
        let _ = within;
        Ok(Promised {
            promise: self.capabilities().promise,
            because: Vec::new(),
        })
    }
}

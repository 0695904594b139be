//! What both ends read and write: the JSON documents of the lock routes.
//!
//! Times are whole milliseconds and carry the unit in their name; fences are decimal strings; a field that is not known
//! is an error. Tokens travel in bodies only, never in a URL.

mod acquire;
mod lease;
mod problem;
mod release;
mod renew;
mod secret;

pub use acquire::{Acquire, Granted, ModeWord, Wait, Waited};
pub use lease::{LockList, LockView, StoreView};
pub use problem::Problem;
pub use release::{Break, Broken, Release, Released};
pub use renew::{Renew, RenewBatch, RenewItem, Renewals, RenewedView};
pub use secret::Secret;

use std::time::Duration;

/// The media type of every refusal.
pub const PROBLEM: &str = "application/problem+json";

/// The longest a daemon keeps a request waiting.
pub const LONGEST_POLL: Duration = Duration::from_secs(60);

/// Whole milliseconds, for the wire.
#[must_use]
pub fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

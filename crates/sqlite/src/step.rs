//! One step: the database under one transaction, at one moment.

use std::cell::Cell;
use std::ops::Deref;
use std::time::{Duration, SystemTime};

use leasehold_core::Token;
use leasehold_core::clock::Moment;
use rusqlite::Connection;
use sha2::{Digest, Sha256};

use crate::connection::{moment_to_nanos, unix_micros};

/// A running transaction and its time.
pub(crate) struct Step<'a> {
    /// Connection with the transaction begun.
    db: &'a Connection,
    /// Read after the lock was taken: the whole step happens at this moment.
    now: Moment,
    /// Read at the same time. Lease expiry does not depend on it.
    wall_micros: u64,
    /// Set when the step writes something that a power cut must not lose.
    sync_required: Cell<bool>,
}

impl<'a> Step<'a> {
    /// A step at this moment, under a transaction that has begun.
    pub(crate) fn new(db: &'a Connection, now: Moment, wall: SystemTime) -> Self {
        Self { db, now, wall_micros: unix_micros(wall), sync_required: Cell::new(false) }
    }

    /// The step's moment as a column value.
    pub(crate) fn now(&self) -> i64 {
        moment_to_nanos(self.now)
    }

    /// The moment `by` from now, as a column value.
    pub(crate) fn after(&self, by: Duration) -> i64 {
        moment_to_nanos(self.now + by)
    }

    /// Time until `then`; zero if it is past.
    pub(crate) fn until(&self, then: i64) -> Duration {
        Duration::from_nanos(u64::try_from(then.saturating_sub(self.now())).unwrap_or(0))
    }

    /// Time since `then`; zero if it is in the future.
    pub(crate) fn since(&self, then: i64) -> Duration {
        Duration::from_nanos(u64::try_from(self.now().saturating_sub(then)).unwrap_or(0))
    }

    /// The wall clock in microseconds, the lower bound of new fences.
    pub(crate) fn wall_micros(&self) -> u64 {
        self.wall_micros
    }

    /// The wall clock `by` from now in milliseconds, for people.
    pub(crate) fn wall_millis_after(&self, by: Duration) -> i64 {
        let millis = u128::from(self.wall_micros / 1000) + by.as_millis();
        i64::try_from(millis).unwrap_or(i64::MAX)
    }

    /// Requires that this step is on the disk before its response, whatever the durability option.
    pub(crate) fn require_sync(&self) {
        self.sync_required.set(true);
    }

    /// Whether [`Self::require_sync`] was called.
    pub(crate) fn is_sync_required(&self) -> bool {
        self.sync_required.get()
    }
}

impl Deref for Step<'_> {
    type Target = Connection;
    fn deref(&self) -> &Connection {
        self.db
    }
}

/// The owner hash of a token: half of its SHA-256 in hex. The file stores it and wake-ups are
/// addressed to it; the token cannot be recovered from it.
pub(crate) fn owner_hash(token: &Token) -> String {
    short_hash(token.expose())
}

/// Half of the SHA-256 of a text, in hex.
pub(crate) fn short_hash(text: &str) -> String {
    let hash = Sha256::digest(text.as_bytes());
    let digit = |nibble: u8| char::from_digit(u32::from(nibble), 16).unwrap_or('0');
    hash.iter().take(16).flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]).collect()
}

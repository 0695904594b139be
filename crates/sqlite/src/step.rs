//! What a step sees: the database under one transaction, and one moment.

use std::cell::Cell;
use std::ops::Deref;
use std::time::{Duration, SystemTime};

use leasehold_core::Token;
use leasehold_core::clock::Moment;
use rusqlite::Connection;
use sha2::{Digest, Sha256};

use crate::connection::{micros, nanos};

/// A running transaction.
pub(crate) struct Step<'a> {
    /// With the transaction begun.
    db: &'a Connection,
    /// Read after the lock was got: all of the step happens at this moment.
    now: Moment,
    /// Read at the same time. Leases do not depend on it.
    wall_micros: u64,
    /// Set by whoever writes something that a power cut must not take away.
    to_disk: Cell<bool>,
}

impl<'a> Step<'a> {
    /// A step at this moment, under a transaction that has begun.
    pub(crate) fn new(db: &'a Connection, now: Moment, wall: SystemTime) -> Self {
        Self {
            db,
            now,
            wall_micros: micros(wall),
            to_disk: Cell::new(false),
        }
    }

    /// The moment all of this step happens at, as the database keeps it.
    pub(crate) fn now(&self) -> i64 {
        nanos(self.now)
    }

    /// The moment `by` from now, as the database keeps it.
    pub(crate) fn after(&self, by: Duration) -> i64 {
        nanos(self.now + by)
    }

    /// How long until then; zero if it is past.
    pub(crate) fn until(&self, then: i64) -> Duration {
        Duration::from_nanos(u64::try_from(then.saturating_sub(self.now())).unwrap_or(0))
    }

    /// How long since then; zero if it is to come.
    pub(crate) fn since(&self, then: i64) -> Duration {
        Duration::from_nanos(u64::try_from(self.now().saturating_sub(then)).unwrap_or(0))
    }

    /// The wall clock in microseconds: the fence's floor.
    pub(crate) fn wall_micros(&self) -> u64 {
        self.wall_micros
    }

    /// The wall clock `by` from now in milliseconds, for people.
    pub(crate) fn wall_millis_after(&self, by: Duration) -> i64 {
        let millis = u128::from(self.wall_micros / 1000) + by.as_millis();
        i64::try_from(millis).unwrap_or(i64::MAX)
    }

    /// This step must be on the disk before it is answered, whatever the durability.
    pub(crate) fn require_disk(&self) {
        self.to_disk.set(true);
    }

    /// Somebody asked for that.
    pub(crate) fn must_reach_disk(&self) -> bool {
        self.to_disk.get()
    }
}

impl Deref for Step<'_> {
    type Target = Connection;
    fn deref(&self) -> &Connection {
        self.db
    }
}

/// Who a token belongs to, without the token: half of its SHA-256 in hex. It is what the file keeps and what
/// wake-ups are addressed to; nobody can get back from it to the secret.
pub(crate) fn owner(token: &Token) -> String {
    let hash = Sha256::digest(token.expose().as_bytes());
    let digit = |nibble: u8| char::from_digit(u32::from(nibble), 16).unwrap_or('0');
    hash.iter()
        .take(16)
        .flat_map(|byte| [digit(byte >> 4), digit(byte & 15)])
        .collect()
}

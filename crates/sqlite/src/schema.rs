//! The tables, and who may use them.
//!
//! `leases`, `waiters` and `tombstones` belong to one boot; `fences` belongs to the file and nothing ever
//! deletes from it. Moments are nanoseconds of the boot clock. Owners are kept as a hash of their token: a
//! copy of the file lets nobody renew or release. For people there is the view `locks`, whose times are the
//! wall clock's.

use leasehold_core::store::{Cause, Failure};
use rusqlite::{Connection, OptionalExtension};

use crate::error::Halt;
use crate::transaction::{Kind, Transaction};

/// `PRAGMA user_version` of the tables below.
pub(crate) const VERSION: i64 = 1;

/// `PRAGMA application_id`: "LHLD". Tells our file from another program's.
pub(crate) const APPLICATION: i64 = 0x4c48_4c44;

const TABLES: &str = "
    CREATE TABLE meta (
        key   TEXT PRIMARY KEY,
        value TEXT NOT NULL
    ) STRICT, WITHOUT ROWID;

    CREATE TABLE leases (
        name           TEXT PRIMARY KEY,
        holder         TEXT NOT NULL,
        class          TEXT NOT NULL,
        owner          TEXT NOT NULL,     -- hash of the token
        fence          INTEGER NOT NULL,
        granted_ns     INTEGER NOT NULL,  -- boot clock
        expires_ns     INTEGER NOT NULL,  -- boot clock
        granted_unix_ms INTEGER NOT NULL, -- wall clock, for people: nothing is decided by it
        expires_unix_ms INTEGER NOT NULL  -- wall clock, for people: nothing is decided by it
    ) STRICT, WITHOUT ROWID;

    CREATE TABLE waiters (
        place      INTEGER PRIMARY KEY,   -- the order in which they are served
        name       TEXT NOT NULL,
        holder     TEXT NOT NULL,
        class      TEXT NOT NULL,
        owner      TEXT NOT NULL,         -- hash of the token
        address    TEXT,                  -- the waiter's socket in the wake folder, if it has one
        floor      INTEGER NOT NULL,      -- its grant's fence must be above this
        expires_ns INTEGER NOT NULL,      -- boot clock
        UNIQUE (name, owner)
    ) STRICT;
    CREATE INDEX waiters_by_place ON waiters (name, place);
    CREATE INDEX waiters_by_expiry ON waiters (expires_ns);

    CREATE TABLE tombstones (
        owner      TEXT NOT NULL,         -- hash of the token that must not be granted any more
        name       TEXT NOT NULL,
        expires_ns INTEGER NOT NULL,      -- boot clock
        PRIMARY KEY (owner, name)
    ) STRICT, WITHOUT ROWID;
    CREATE INDEX tombstones_by_expiry ON tombstones (expires_ns);

    CREATE TABLE fences (
        slot INTEGER PRIMARY KEY,         -- hash of the name
        last INTEGER NOT NULL             -- the highest fence issued; only grows
    ) STRICT;

    CREATE VIEW locks AS
        SELECT name, holder, class, fence,
               datetime(granted_unix_ms / 1000, 'unixepoch') AS granted_utc,
               expires_unix_ms - CAST(unixepoch('subsec') * 1000 AS INTEGER) AS remaining_ms,
               (SELECT count(*) FROM waiters WHERE waiters.name = leases.name) AS waiting
        FROM leases
        WHERE expires_unix_ms > unixepoch('subsec') * 1000
        ORDER BY name;
";

/// What a file is to us.
#[derive(Debug, PartialEq, Eq)]
enum State {
    /// Nothing is in it yet.
    Empty,
    /// It has the tables below.
    Current,
}

/// Makes the tables if the file is empty; refuses what is newer or not ours. Safe to race with other
/// processes.
pub(crate) fn ensure(db: &Connection) -> Result<(), Halt> {
    // All of its marks must be seen at one moment: another process may be making the tables right now.
    let look = Transaction::begin(db, Kind::Read)?;
    let found = state(db)?;
    look.commit()?;
    if found == State::Current {
        return Ok(());
    }
    // Changing the journal mode is not possible inside a transaction; it is remembered in the file.
    db.pragma_update_and_check(None, "journal_mode", "WAL", |row| row.get::<_, String>(0))?;
    let step = Transaction::begin(db, Kind::Write)?;
    // Another process may have been faster.
    if state(db)? == State::Empty {
        db.execute_batch(TABLES)?;
        db.pragma_update(None, "application_id", APPLICATION)?;
        db.pragma_update(None, "user_version", VERSION)?;
    }
    step.commit()?;
    Ok(())
}

/// Makes the file this boot's: what another boot left is void. Fence counters stay.
pub(crate) fn adopt(db: &Connection, boot: &str) -> Result<(), Halt> {
    if boot_of(db)?.as_deref() == Some(boot) {
        return Ok(());
    }
    let step = Transaction::begin(db, Kind::Write)?;
    if boot_of(db)?.as_deref() != Some(boot) {
        db.execute_batch("DELETE FROM leases; DELETE FROM waiters; DELETE FROM tombstones;")?;
        db.execute(
            "INSERT INTO meta (key, value) VALUES ('boot', ?1) ON CONFLICT DO UPDATE SET value = excluded.value",
            [boot],
        )?;
    }
    step.commit()?;
    Ok(())
}

/// Refuses to go on if the file was adopted by another boot meanwhile. That cannot happen on one host; it
/// means that two hosts reach the same file, whose clocks must not be compared.
pub(crate) fn check_boot(db: &Connection, boot: &str) -> Result<(), Halt> {
    if boot_of(db)?.as_deref() == Some(boot) {
        return Ok(());
    }
    Err(Failure::not_done(
        Cause::Misconfigured,
        "another host (or boot) has taken over the database, and its clock cannot be compared with this one's: use \
         the file on one host only",
    )
    .into())
}

pub(crate) fn boot_of(db: &Connection) -> rusqlite::Result<Option<String>> {
    db.prepare_cached("SELECT value FROM meta WHERE key = 'boot'")?
        .query_row([], |row| row.get(0))
        .optional()
}

fn state(db: &Connection) -> Result<State, Halt> {
    let mark = |name| db.pragma_query_value(None, name, |row| row.get::<_, i64>(0));
    let (application, version) = (mark("application_id")?, mark("user_version")?);
    let tables: i64 = db.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))?;
    match (application, version, tables) {
        (APPLICATION, VERSION, _) => Ok(State::Current),
        (0, 0, 0) => Ok(State::Empty),
        (APPLICATION, newer, _) => Err(Failure::not_done(
            Cause::Misconfigured,
            format!(
                "the database has schema version {newer}, and this build knows {VERSION}: update this program, or \
                 give it a file of its own"
            ),
        )
        .into()),
        _ => Err(Failure::not_done(
            Cause::Misconfigured,
            "the file is another program's SQLite database: give Leasehold a file of its own",
        )
        .into()),
    }
}

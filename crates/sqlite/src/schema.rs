//! The tables, and the checks that decide whether this process may use them.
//!
//! `leases`, `waiters` and `tombstones` belong to one boot. `fences` belongs to the file, and
//! nothing ever deletes from it; `documents` and `document_state` belong to the file too. Times of leases are
//! nanoseconds of the boot clock. Owners are stored as a
//! hash of their token, so a copy of the file gives no right to renew or release. The view `locks`
//! is for people and shows wall-clock times.

use leasehold_core::store::{StoreError, StoreErrorKind};
use rusqlite::{Connection, OptionalExtension};

use crate::error::StepError;
use crate::transaction::{Transaction, TransactionKind};

/// `PRAGMA user_version` of the tables below.
pub(crate) const SCHEMA_VERSION: i64 = 1;

/// `PRAGMA application_id`: "LHLD". Distinguishes our file from another program's.
pub(crate) const APPLICATION_ID: i64 = 0x4c48_4c44;

const CREATE_TABLES: &str = "
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

/// Came later. The schema version stayed the same, so that older versions of this program still open the file: they
/// use only the tables above.
const CREATE_DOCUMENT_TABLES: &str = "
    CREATE TABLE documents (
        name       TEXT PRIMARY KEY,
        version    INTEGER NOT NULL,
        expires_us INTEGER,               -- the documents' clock; NULL if it does not expire
        value      TEXT NOT NULL
    ) STRICT, WITHOUT ROWID;
    CREATE INDEX documents_by_expiry ON documents (expires_us) WHERE expires_us IS NOT NULL;

    CREATE TABLE document_state (
        id        INTEGER PRIMARY KEY CHECK (id = 1),
        boot      TEXT NOT NULL,          -- the boot for which the offset holds
        offset_us INTEGER NOT NULL,       -- the documents' clock minus the boot clock
        last      INTEGER NOT NULL        -- the highest version of all documents; only grows
    ) STRICT;
";

#[derive(Debug, PartialEq, Eq)]
enum SchemaState {
    /// No tables yet.
    Empty,
    /// Made by an older version of this program.
    WithoutDocuments,
    /// Has the tables above.
    Current,
}

/// Creates the tables that are missing; refuses a newer schema and other programs' files. Safe
/// when several processes do it at once.
pub(crate) fn ensure_tables(db: &Connection) -> Result<(), StepError> {
    // Read all marks in one snapshot: another process may be creating the tables right now.
    let look = Transaction::begin(db, TransactionKind::Read)?;
    let found = read_schema_state(db)?;
    look.commit()?;
    if found == SchemaState::Current {
        return Ok(());
    }
    // The journal mode cannot change inside a transaction. It is stored in the file.
    db.pragma_update_and_check(None, "journal_mode", "WAL", |row| row.get::<_, String>(0))?;
    let step = Transaction::begin(db, TransactionKind::Write)?;
    // Check again under the write lock: another process may have created the tables meanwhile.
    let found = read_schema_state(db)?;
    if found == SchemaState::Empty {
        db.execute_batch(CREATE_TABLES)?;
        db.pragma_update(None, "application_id", APPLICATION_ID)?;
        db.pragma_update(None, "user_version", SCHEMA_VERSION)?;
    }
    if found != SchemaState::Current {
        db.execute_batch(CREATE_DOCUMENT_TABLES)?;
    }
    step.commit()?;
    Ok(())
}

/// Makes the file belong to this boot: leases, waiters and tombstones of another boot
/// are void. Fence counters stay.
pub(crate) fn adopt_boot(db: &Connection, boot: &str) -> Result<(), StepError> {
    if stored_boot_id(db)?.as_deref() == Some(boot) {
        return Ok(());
    }
    let step = Transaction::begin(db, TransactionKind::Write)?;
    // Check again under the write lock, or two starting processes could both
    // delete, the second one live leases.
    if stored_boot_id(db)?.as_deref() != Some(boot) {
        db.execute_batch("DELETE FROM leases; DELETE FROM waiters; DELETE FROM tombstones;")?;
        db.execute(
            "INSERT INTO meta (key, value) VALUES ('boot', ?1) ON CONFLICT DO UPDATE SET value = excluded.value",
            [boot],
        )?;
    }
    step.commit()?;
    Ok(())
}

/// Refuses to continue if another boot has adopted the file meanwhile.
// This cannot happen on one host. It means that two hosts use the same file,
// whose clocks cannot be compared.
pub(crate) fn check_boot(db: &Connection, boot: &str) -> Result<(), StepError> {
    if stored_boot_id(db)?.as_deref() == Some(boot) {
        return Ok(());
    }
    Err(StoreError::not_done(
        StoreErrorKind::Misconfigured,
        "another host (or boot) has taken over the database, and its clock cannot be compared with this one's: use \
         the file on one host only",
    )
    .into())
}

pub(crate) fn stored_boot_id(db: &Connection) -> rusqlite::Result<Option<String>> {
    db.prepare_cached("SELECT value FROM meta WHERE key = 'boot'")?.query_row([], |row| row.get(0)).optional()
}

fn read_schema_state(db: &Connection) -> Result<SchemaState, StepError> {
    let mark = |name| db.pragma_query_value(None, name, |row| row.get::<_, i64>(0));
    let (application, version) = (mark("application_id")?, mark("user_version")?);
    let tables: i64 = db.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))?;
    match (application, version, tables) {
        (APPLICATION_ID, SCHEMA_VERSION, _) if db.table_exists(None, "document_state")? => {
            Ok(SchemaState::Current)
        }
        (APPLICATION_ID, SCHEMA_VERSION, _) => Ok(SchemaState::WithoutDocuments),
        (0, 0, 0) => Ok(SchemaState::Empty),
        (APPLICATION_ID, newer, _) => Err(StoreError::not_done(
            StoreErrorKind::Misconfigured,
            format!(
                "the database has schema version {newer}, and this build knows {SCHEMA_VERSION}: update this program, or \
                 give it a file of its own"
            ),
        )
        .into()),
        _ => Err(StoreError::not_done(
            StoreErrorKind::Misconfigured,
            "the file is another program's SQLite database: give Leasehold a file of its own",
        )
        .into()),
    }
}

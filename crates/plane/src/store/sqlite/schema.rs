//! The tables, and the checks that a file belongs to this program and version.

use leasehold_core::store::{StoreError, StoreErrorKind};
use rusqlite::{Connection, Transaction};

use super::store_error;
use crate::state::TRANSITIONS;

/// `PRAGMA user_version` of the tables below; grows when they change.
const VERSION: i64 = 1;

/// `PRAGMA application_id`, "LHPL" in ASCII. It distinguishes a plane's file from the lock file and others.
const APPLICATION_ID: i64 = 0x4c48_504c;

const CREATE_TABLES: &str = "
    CREATE TABLE docs (
        kind    TEXT NOT NULL,
        id      TEXT NOT NULL,
        version INTEGER NOT NULL,
        state   TEXT NOT NULL,
        due     INTEGER,              -- unix ms
        shelf   TEXT NOT NULL,        -- a job's topic, a run's organisation
        owner   TEXT NOT NULL DEFAULT '', -- the principal whose quota it counts against
        created INTEGER NOT NULL,     -- unix ms
        updated INTEGER NOT NULL,     -- unix ms
        body    TEXT NOT NULL,        -- JSON
        PRIMARY KEY (kind, id)
    ) STRICT;
    CREATE INDEX docs_by_state ON docs (kind, state, due);
    CREATE INDEX docs_by_shelf ON docs (kind, shelf, state, due);
    CREATE INDEX docs_by_owner_age ON docs (kind, owner, state, updated);

    CREATE TABLE events (
        kind    TEXT NOT NULL,
        id      TEXT NOT NULL,
        version INTEGER NOT NULL,     -- of the document, after it
        at      INTEGER NOT NULL,     -- unix ms
        write   TEXT NOT NULL,        -- which write made it: a repetition is known by it
        body    TEXT NOT NULL,        -- JSON
        PRIMARY KEY (kind, id, version)
    ) STRICT, WITHOUT ROWID;

    CREATE TABLE keys (
        kind TEXT NOT NULL,
        key  TEXT NOT NULL,           -- idempotency key
        id   TEXT NOT NULL,
        PRIMARY KEY (kind, key)
    ) STRICT, WITHOUT ROWID;
    CREATE INDEX keys_by_id ON keys (kind, id);

    CREATE TABLE mail (
        queue  TEXT NOT NULL,
        id     TEXT NOT NULL,
        doc    TEXT NOT NULL,
        body   TEXT NOT NULL,         -- JSON
        due    INTEGER NOT NULL,      -- unix ms
        tries  INTEGER NOT NULL,
        PRIMARY KEY (queue, id)
    ) STRICT, WITHOUT ROWID;
    CREATE INDEX mail_by_due ON mail (queue, due);

    -- The table of transitions, so that not even a hand at a prompt can end a job twice.
    CREATE TABLE transitions (
        kind TEXT NOT NULL, before TEXT NOT NULL, after TEXT NOT NULL, PRIMARY KEY (kind, before, after)
    ) STRICT, WITHOUT ROWID;
    CREATE TRIGGER docs_transition BEFORE UPDATE OF state ON docs
        WHEN NEW.kind = 'job' AND NEW.state <> OLD.state AND NOT EXISTS
            (SELECT 1 FROM transitions WHERE kind = NEW.kind AND before = OLD.state AND after = NEW.state)
        BEGIN SELECT RAISE(ABORT, 'leasehold: this state cannot follow that one'); END;

    CREATE VIEW jobs AS SELECT id, state, shelf AS topic, version,
        datetime(updated / 1000, 'unixepoch') AS updated_utc, body FROM docs WHERE kind = 'job' ORDER BY updated;
    CREATE VIEW runs AS SELECT id, state, version,
        datetime(updated / 1000, 'unixepoch') AS updated_utc, body FROM docs WHERE kind = 'run' ORDER BY updated;
";

/// Adds what files of an earlier build lack. Such a build goes on with the file: it leaves the column alone.
fn add_owner_column(tx: Transaction<'_>) -> Result<(), StoreError> {
    let column = "SELECT count(*) FROM pragma_table_info('docs') WHERE name = 'owner'";
    let there: i64 = tx.query_row(column, [], |row| row.get(0)).map_err(store_error)?;
    if there == 0 {
        tx.execute_batch("ALTER TABLE docs ADD COLUMN owner TEXT NOT NULL DEFAULT ''")
            .map_err(store_error)?;
    }
    let index = "DROP INDEX IF EXISTS docs_by_owner;
                 CREATE INDEX IF NOT EXISTS docs_by_owner_age ON docs (kind, owner, state, updated);";
    tx.execute_batch(index).map_err(store_error)?;
    tx.commit().map_err(store_error)
}

/// Creates the tables in an empty file. Refuses a newer version or another program's file.
pub(super) fn ensure_tables(db: &mut Connection) -> Result<(), StoreError> {
    db.pragma_update_and_check(None, "journal_mode", "WAL", |_| Ok(())).map_err(store_error)?;
    // Only while the tables are created; `log_sync` sets NORMAL afterwards.
    db.pragma_update(None, "synchronous", "FULL").map_err(store_error)?;
    // The write lock comes before the check, so two processes cannot both create the tables.
    let tx = db.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate).map_err(store_error)?;
    let mark = |name| tx.pragma_query_value(None, name, |row| row.get::<_, i64>(0));
    let tables: i64 =
        tx.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0)).map_err(store_error)?;
    match (mark("application_id").map_err(store_error)?, mark("user_version").map_err(store_error)?, tables) {
        (APPLICATION_ID, VERSION, _) => return add_owner_column(tx),
        (0, 0, 0) => {}
        (APPLICATION_ID, newer, _) => {
            return Err(StoreError::not_done(
                StoreErrorKind::Misconfigured,
                format!(
                    "the plane's database has schema version {newer}, and this build knows {VERSION}: update this program"
                ),
            ));
        }
        _ => {
            return Err(StoreError::not_done(
                StoreErrorKind::Misconfigured,
                "the file is not a plane's database: give the plane a file of its own",
            ));
        }
    }
    tx.execute_batch(CREATE_TABLES).map_err(store_error)?;
    for (from, to) in TRANSITIONS.iter().flat_map(|(from, to)| to.iter().map(move |to| (from, to))) {
        tx.execute("INSERT INTO transitions VALUES ('job', ?1, ?2)", [from.as_str(), to.as_str()])
            .map_err(store_error)?;
    }
    leasehold_fence::sqlite::install(&tx)?;
    tx.pragma_update(None, "application_id", APPLICATION_ID).map_err(store_error)?;
    tx.pragma_update(None, "user_version", VERSION).map_err(store_error)?;
    tx.commit().map_err(store_error)
}

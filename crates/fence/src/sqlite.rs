//! Marks next to the data in SQLite, checked inside your own transaction.
//!
//! One small table keeps the newest fence of each resource:
//!
//! ```sql
//! CREATE TABLE leasehold_fences (resource TEXT NOT NULL PRIMARY KEY, fence INTEGER NOT NULL) STRICT, WITHOUT ROWID;
//! ```
//!
//! [`admit`] writes to it *first*, which takes SQLite's write lock. Until your commit no other
//! connection can write, so check and write are atomic. A rollback, or a crash before the commit,
//! undoes the mark with the data.
//!
//! ```
//! use leasehold_core::{Fence, Name};
//! use leasehold_fence::sqlite;
//! use rusqlite::{Connection, TransactionBehavior};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let mut db = Connection::open_in_memory()?;
//! db.execute_batch(
//!     "CREATE TABLE job (id INTEGER PRIMARY KEY, state TEXT) STRICT;
//!      INSERT INTO job VALUES (42, 'new')",
//! )?;
//! sqlite::install(&db)?;
//!
//! let (job, fence) = (Name::new("job:42")?, Fence::new(7).unwrap());
//! let tx = db.transaction_with_behavior(TransactionBehavior::Immediate)?;
//! sqlite::admit(&tx, &job, fence)?.into_result()?; // a stale holder leaves here; dropping `tx` rolls back
//! tx.execute("UPDATE job SET state = 'done' WHERE id = 42", [])?;
//! tx.commit()?;
//! # Ok(())
//! # }
//! ```
//!
//! # Rules
//! - Outside a transaction [`admit`] is refused: the check would be over before the write began.
//! - Begin with `IMMEDIATE`, as [`transact`] does. A deferred transaction works too if `admit` is
//!   its first statement. If it has read before, and another connection has written since, SQLite
//!   cannot let it write (`SQLITE_BUSY_SNAPSHOT`). That is a [`StoreError`], neither a refusal nor
//!   an admission. Roll back and begin again.
//! - After a [`StoreError`], do not write. SQLite may have ended the transaction by itself (full
//!   disk, I/O error), and the next statement would run outside it, unfenced.
//! - The mark is kept in the `main` database, so keep the data there too. In WAL mode a crash can
//!   separate a transaction's parts in different attached files.
//!
//! # Row by row, without this table
//! Where each row has its own lock, a column can be the mark. It takes one statement and no
//! transaction. Zero changed rows mean that the fence is stale (or that there is no such row):
//!
//! ```sql
//! UPDATE job SET state = :state, fence = :fence WHERE id = :id AND fence <= :fence;
//! INSERT INTO job (id, state, fence) VALUES (:id, :state, :fence)
//!     ON CONFLICT (id) DO UPDATE SET state = excluded.state, fence = excluded.fence WHERE excluded.fence >= fence;
//! ```
//!
//! A deleted row forgets its fence: mark it as deleted instead, or use the table.

use leasehold_core::store::{StoreError, StoreErrorKind};
use leasehold_core::{Fence, Name};
use rusqlite::{Connection, ErrorCode, OptionalExtension, Transaction, TransactionBehavior, ffi};

use crate::{StaleFence, Verdict};

// The trigger protects against manual edits and other programs: `admit` itself never lowers a mark.
const INSTALL_SQL: &str = "
CREATE TABLE IF NOT EXISTS main.leasehold_fences (
    resource TEXT NOT NULL PRIMARY KEY,
    fence INTEGER NOT NULL CHECK (fence BETWEEN 1 AND 9007199254740991)
) STRICT, WITHOUT ROWID;
CREATE TRIGGER IF NOT EXISTS main.leasehold_fences_only_grow BEFORE UPDATE ON leasehold_fences
    WHEN NEW.fence < OLD.fence
    BEGIN SELECT RAISE(ABORT, 'leasehold: a fence mark never goes back'); END;
";

// Zero changed rows mean that the mark is newer. The statement has taken the write lock even then,
// so the mark that is read next is the one it was compared with.
const ADMIT_SQL: &str = "
INSERT INTO main.leasehold_fences (resource, fence) VALUES (?1, ?2)
    ON CONFLICT (resource) DO UPDATE SET fence = excluded.fence WHERE excluded.fence >= fence";

const NEWEST_SQL: &str = "SELECT fence FROM main.leasehold_fences WHERE resource = ?1";

/// Creates the table `leasehold_fences` if it is missing. Safe to call at every
/// start, from several processes.
///
/// # Errors
/// The database cannot be written.
pub fn install(db: &Connection) -> Result<(), StoreError> {
    db.execute_batch(INSTALL_SQL)
        .map_err(|error| sqlite_error("cannot make the table leasehold_fences", error))
}

/// Compares and remembers the fence, inside the transaction that `db` is in (pass a [`Transaction`]
/// as it is). Write only after [`Verdict::Admitted`], in the same transaction.
///
/// # Errors
/// There is no transaction, the write lock was not free in time, or the table is missing. The fence
/// was neither admitted nor refused.
pub fn admit(db: &Connection, name: &Name, fence: Fence) -> Result<Verdict, StoreError> {
    // In autocommit mode the mark would be committed at once, and a write after it
    // would not be atomic with it.
    if db.is_autocommit() {
        return Err(StoreError::not_done(
            StoreErrorKind::Misconfigured,
            "a fence can only be checked inside a transaction, or the write after it would be unprotected; \
             begin one with BEGIN IMMEDIATE",
        ));
    }
    let refuse = |error| sqlite_error("cannot check the fence", error);
    // A fence has 53 bits, so the sign bit is never set.
    let number = fence.get().cast_signed();
    let changed = db
        .prepare_cached(ADMIT_SQL)
        .and_then(|mut admit| admit.execute((name.as_str(), number)))
        .map_err(refuse)?;
    if changed > 0 {
        return Ok(Verdict::Admitted(()));
    }
    let newest = newest(db, name)?.ok_or_else(|| corrupt_error(name))?;
    Ok(Verdict::Stale(StaleFence::new(name.as_str(), fence, newest)))
}

/// Runs `work` in its own transaction if the fence is not stale, and commits.
///
/// # Errors
/// The error of `work`, unchanged, after a rollback. Or a [`StoreError`] of the check (nothing was
/// written) or of the commit (see its `unknown`).
pub fn transact<T, E: From<StoreError>>(
    db: &mut Connection,
    name: &Name,
    fence: Fence,
    work: impl FnOnce(&Transaction<'_>) -> Result<T, E>,
) -> Result<Verdict<T>, E> {
    let tx = db
        // IMMEDIATE takes the write lock now. A deferred transaction whose `work` reads first
        // could fail at its first write.
        .transaction_with_behavior(TransactionBehavior::Immediate)
        .map_err(|error| sqlite_error("cannot begin the transaction", error))?;
    if let Verdict::Stale(stale) = admit(&tx, name, fence)? {
        return Ok(Verdict::Stale(stale));
    }
    let done = work(&tx)?;
    // `work` can run COMMIT or ROLLBACK as plain SQL, and then writes without
    // the mark's protection.
    if tx.is_autocommit() {
        let why = "the fenced work ended the transaction itself, so what it wrote may be unfenced; \
                   leave COMMIT and ROLLBACK to `transact`";
        return Err(StoreError::unknown(StoreErrorKind::Misconfigured, why).into());
    }
    tx.commit().map_err(|error| match error.sqlite_error_code() {
        // Dropping the transaction after this error rolls it back, so nothing was done.
        Some(ErrorCode::DatabaseBusy) => sqlite_error("cannot commit", error),
        _ => StoreError::unknown(StoreErrorKind::Unreachable, "the commit did not answer clearly")
            .with_source(error),
    })?;
    Ok(Verdict::Admitted(done))
}

/// The newest fence admitted for `name`, if any.
///
/// # Errors
/// The database cannot be read, or holds a number that is not a fence.
pub fn newest(db: &Connection, name: &Name) -> Result<Option<Fence>, StoreError> {
    let number: Option<i64> = db
        .prepare_cached(NEWEST_SQL)
        .and_then(|mut newest| newest.query_row([name.as_str()], |row| row.get(0)).optional())
        .map_err(|error| sqlite_error("cannot read the newest fence", error))?;
    number
        .map(|number| u64::try_from(number).ok().and_then(Fence::new).ok_or_else(|| corrupt_error(name)))
        .transpose()
}

/// Forgets a resource and returns whether it was known. Afterwards *any* fence is admitted for it
/// again. Only use it for resources that are never written again.
///
/// # Errors
/// The database cannot be written.
pub fn forget(db: &Connection, name: &Name) -> Result<bool, StoreError> {
    db.execute("DELETE FROM main.leasehold_fences WHERE resource = ?1", [name.as_str()])
        .map(|deleted| deleted > 0)
        .map_err(|error| sqlite_error("cannot forget the resource", error))
}

fn corrupt_error(name: &Name) -> StoreError {
    StoreError::not_done(
        StoreErrorKind::Corrupt,
        format!("leasehold_fences does not hold a fence for {name:?}; look at the table before writing on"),
    )
}

/// Before the commit nothing has taken effect, so every error here is definite.
fn sqlite_error(what: &str, error: rusqlite::Error) -> StoreError {
    let (code, extended) = match &error {
        rusqlite::Error::SqliteFailure(error, _) => (error.code, error.extended_code),
        _ => (ErrorCode::Unknown, 0),
    };
    let (cause, hint) = match code {
        _ if extended == ffi::SQLITE_BUSY_SNAPSHOT => (
            StoreErrorKind::Overloaded,
            "the transaction has read what another one has changed since; roll back and begin with BEGIN IMMEDIATE",
        ),
        ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked => (
            StoreErrorKind::Overloaded,
            "another connection is writing; roll back and try again, with a busy time-out",
        ),
        ErrorCode::ReadOnly => (StoreErrorKind::ReadOnly, "open the database for writing"),
        ErrorCode::PermissionDenied | ErrorCode::AuthorizationForStatementDenied => {
            (StoreErrorKind::Denied, "check the rights on the file")
        }
        ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase => {
            (StoreErrorKind::Corrupt, "check the database file")
        }
        ErrorCode::CannotOpen | ErrorCode::SystemIoFailure => {
            (StoreErrorKind::Unreachable, "check the file and its disk")
        }
        ErrorCode::DiskFull | ErrorCode::OutOfMemory => (StoreErrorKind::Overloaded, "make room"),
        _ => (StoreErrorKind::Misconfigured, "was the table made with `install`?"),
    };
    StoreError::not_done(cause, format!("{what}: {hint}")).with_source(error)
}

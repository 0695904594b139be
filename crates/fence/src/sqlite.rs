//! Marks next to the data in SQLite, checked inside your own transaction.
//!
//! One small table keeps the newest fence of each resource:
//!
//! ```sql
//! CREATE TABLE leasehold_fences (resource TEXT NOT NULL PRIMARY KEY, fence INTEGER NOT NULL) STRICT, WITHOUT ROWID;
//! ```
//!
//! [`admit`] writes to it *first*, which takes SQLite's write lock: from then until your commit nobody else can
//! write, so check and write are one step. A rollback, or a crash before the commit, undoes the mark with the data.
//!
//! ```
//! use leasehold_core::{Fence, Name};
//! use leasehold_fence::sqlite;
//! use rusqlite::{Connection, TransactionBehavior};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let mut db = Connection::open_in_memory()?;
//! db.execute_batch("CREATE TABLE job (id INTEGER PRIMARY KEY, state TEXT) STRICT; INSERT INTO job VALUES (42, 'new')")?;
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
//! - Begin with `IMMEDIATE`, as [`transact`] does. A deferred transaction works too if `admit` is its first
//!   statement. If it has read before and another connection has written since, SQLite cannot let it write
//!   (`SQLITE_BUSY_SNAPSHOT`): that is a [`Failure`], neither a refusal nor an admission. Roll back, begin again.
//! - After a [`Failure`], do not write: SQLite may have ended the transaction by itself (full disk, I/O error), and
//!   the next statement would run outside it, unfenced.
//! - The mark is kept in the `main` database, so keep the data there too: in WAL mode a crash can separate a
//!   transaction's parts in different attached files.
//!
//! # Row by row, without this table
//! Where each row has its own lock, a column can be the mark. One statement, no transaction needed; zero changed rows
//! mean that the fence is stale (or that there is no such row):
//!
//! ```sql
//! UPDATE job SET state = :state, fence = :fence WHERE id = :id AND fence <= :fence;
//! INSERT INTO job (id, state, fence) VALUES (:id, :state, :fence)
//!     ON CONFLICT (id) DO UPDATE SET state = excluded.state, fence = excluded.fence WHERE excluded.fence >= fence;
//! ```
//!
//! A deleted row forgets its fence: mark it as deleted instead, or use the table.

use leasehold_core::store::{Cause, Failure};
use leasehold_core::{Fence, Name};
use rusqlite::{Connection, ErrorCode, OptionalExtension, Transaction, TransactionBehavior, ffi};

use crate::{Stale, Verdict};

/// The trigger is for people at a prompt and for other programs: `admit` never lowers a mark itself.
const INSTALL: &str = "
CREATE TABLE IF NOT EXISTS main.leasehold_fences (
    resource TEXT NOT NULL PRIMARY KEY,
    fence INTEGER NOT NULL CHECK (fence BETWEEN 1 AND 9007199254740991)
) STRICT, WITHOUT ROWID;
CREATE TRIGGER IF NOT EXISTS main.leasehold_fences_only_grow BEFORE UPDATE ON leasehold_fences
    WHEN NEW.fence < OLD.fence
    BEGIN SELECT RAISE(ABORT, 'leasehold: a fence mark never goes back'); END;
";

/// Zero changed rows mean that the mark is newer. Even then the statement has taken the write lock, so the
/// mark read next is the one that was compared with.
const ADMIT: &str = "
INSERT INTO main.leasehold_fences (resource, fence) VALUES (?1, ?2)
    ON CONFLICT (resource) DO UPDATE SET fence = excluded.fence WHERE excluded.fence >= fence";

const NEWEST: &str = "SELECT fence FROM main.leasehold_fences WHERE resource = ?1";

/// Makes the table `leasehold_fences` unless it is there. Safe to call at every start, from several processes.
///
/// # Errors
/// The database cannot be written.
pub fn install(db: &Connection) -> Result<(), Failure> {
    db.execute_batch(INSTALL)
        .map_err(|error| failure("cannot make the table leasehold_fences", error))
}

/// Compares and remembers, as part of the transaction that `db` is in (a [`Transaction`] can be passed as it is).
/// Write only after [`Verdict::Admitted`], in the same transaction.
///
/// # Errors
/// There is no transaction, the write lock could not be had in time, or the table is missing. Nothing was
/// admitted, and nothing was refused.
pub fn admit(db: &Connection, name: &Name, fence: Fence) -> Result<Verdict, Failure> {
    if db.is_autocommit() {
        return Err(Failure::not_done(
            Cause::Misconfigured,
            "a fence can only be checked inside a transaction, or the write after it would be unprotected; \
             begin one with BEGIN IMMEDIATE",
        ));
    }
    let refuse = |error| failure("cannot check the fence", error);
    // A fence has 53 bits: the sign is never touched.
    let number = fence.get().cast_signed();
    let changed = db
        .prepare_cached(ADMIT)
        .and_then(|mut admit| admit.execute((name.as_str(), number)))
        .map_err(refuse)?;
    if changed > 0 {
        return Ok(Verdict::Admitted(()));
    }
    let newest = newest(db, name)?.ok_or_else(|| corrupt(name))?;
    Ok(Verdict::Stale(Stale::new(name.as_str(), fence, newest)))
}

/// Runs `work` in a transaction of its own if the fence is not stale, and commits. The whole recipe in one call.
///
/// # Errors
/// What `work` returned, unchanged, after everything was rolled back; or a [`Failure`] of the check (nothing was
/// written) or of the commit (look at its `unknown`).
pub fn transact<T, E: From<Failure>>(
    db: &mut Connection,
    name: &Name,
    fence: Fence,
    work: impl FnOnce(&Transaction<'_>) -> Result<T, E>,
) -> Result<Verdict<T>, E> {
    let tx = db
        .transaction_with_behavior(TransactionBehavior::Immediate)
        .map_err(|error| failure("cannot begin the transaction", error))?;
    if let Verdict::Stale(stale) = admit(&tx, name, fence)? {
        return Ok(Verdict::Stale(stale));
    }
    let done = work(&tx)?;
    if tx.is_autocommit() {
        let why = "the fenced work ended the transaction itself, so what it wrote may be unfenced; \
                   leave COMMIT and ROLLBACK to `transact`";
        return Err(Failure::unknown(Cause::Misconfigured, why).into());
    }
    tx.commit().map_err(|error| match error.sqlite_error_code() {
        // Dropping the transaction after this one rolls it back.
        Some(ErrorCode::DatabaseBusy) => failure("cannot commit", error),
        _ => Failure::unknown(Cause::Unreachable, "the commit did not answer clearly").with_source(error),
    })?;
    Ok(Verdict::Admitted(done))
}

/// The newest fence admitted for `name`, if any.
///
/// # Errors
/// The database cannot be read, or holds a number that is no fence.
pub fn newest(db: &Connection, name: &Name) -> Result<Option<Fence>, Failure> {
    let number: Option<i64> = db
        .prepare_cached(NEWEST)
        .and_then(|mut newest| newest.query_row([name.as_str()], |row| row.get(0)).optional())
        .map_err(|error| failure("cannot read the newest fence", error))?;
    number
        .map(|number| {
            u64::try_from(number)
                .ok()
                .and_then(Fence::new)
                .ok_or_else(|| corrupt(name))
        })
        .transpose()
}

/// Forgets a resource and says whether it was known. From then on *any* fence is admitted for it again: only for
/// resources that nobody will write any more.
///
/// # Errors
/// The database cannot be written.
pub fn forget(db: &Connection, name: &Name) -> Result<bool, Failure> {
    db.execute(
        "DELETE FROM main.leasehold_fences WHERE resource = ?1",
        [name.as_str()],
    )
    .map(|deleted| deleted > 0)
    .map_err(|error| failure("cannot forget the resource", error))
}

fn corrupt(name: &Name) -> Failure {
    Failure::not_done(
        Cause::Corrupt,
        format!("leasehold_fences does not hold a fence for {name:?}; look at the table before writing on"),
    )
}

/// Inside a transaction nothing has taken effect before the commit, so every failure here is definite.
fn failure(what: &str, error: rusqlite::Error) -> Failure {
    let (code, extended) = match &error {
        rusqlite::Error::SqliteFailure(error, _) => (error.code, error.extended_code),
        _ => (ErrorCode::Unknown, 0),
    };
    let (cause, hint) = match code {
        _ if extended == ffi::SQLITE_BUSY_SNAPSHOT => (
            Cause::Overloaded,
            "the transaction has read what another one has changed since; roll back and begin with BEGIN IMMEDIATE",
        ),
        ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked => (
            Cause::Overloaded,
            "another connection is writing; roll back and try again, with a busy time-out",
        ),
        ErrorCode::ReadOnly => (Cause::ReadOnly, "open the database for writing"),
        ErrorCode::PermissionDenied | ErrorCode::AuthorizationForStatementDenied => {
            (Cause::Denied, "check the rights on the file")
        }
        ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase => (Cause::Corrupt, "check the database file"),
        ErrorCode::CannotOpen | ErrorCode::SystemIoFailure => {
            (Cause::Unreachable, "check the file and its disk")
        }
        ErrorCode::DiskFull | ErrorCode::OutOfMemory => (Cause::Overloaded, "make room"),
        _ => (Cause::Misconfigured, "was the table made with `install`?"),
    };
    Failure::not_done(cause, format!("{what}: {hint}")).with_source(error)
}

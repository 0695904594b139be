//! The closed table: what each of SQLite's errors means for the question that was asked.
//!
//! A step is one transaction, so what failed before its `COMMIT` was sent has definitely not been done. Only
//! a failing `COMMIT` needs judgement: if SQLite can still roll back it was not done, if the disk failed
//! under it nobody knows. A code that is not in the table is unknown, whatever the moment.

use std::fmt;
use std::io;

use leasehold_core::store::{Cause, Failure};
use rusqlite::ErrorCode;

use crate::blocker::Blocker;

/// Where in its transaction a step was when the error came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stage {
    /// `COMMIT` had not been sent.
    Open,
    /// It was the `COMMIT` that failed.
    Commit,
}

/// Why a step ended without an answer: SQLite's error, or our own refusal.
#[derive(Debug)]
pub(crate) enum Halt {
    /// To be looked up in the table.
    Sqlite(rusqlite::Error),
    /// Already judged: the step found something that it must not go on with.
    Refused(Failure),
}

impl From<rusqlite::Error> for Halt {
    fn from(error: rusqlite::Error) -> Self {
        Self::Sqlite(error)
    }
}

impl From<Failure> for Halt {
    fn from(failure: Failure) -> Self {
        Self::Refused(failure)
    }
}

impl Halt {
    /// As an answer to the caller.
    pub(crate) fn judge(self, stage: Stage) -> Failure {
        match self {
            Self::Sqlite(error) => judge(error, stage),
            Self::Refused(failure) => failure,
        }
    }
}

/// Looks an error up in the table.
pub(crate) fn judge(error: rusqlite::Error, stage: Stage) -> Failure {
    let (cause, advice, at_commit) = match error.sqlite_error_code() {
        Some(code) => match row(code) {
            Some(row) => row,
            None => {
                return Failure::unknown(Cause::Corrupt, "SQLite answered with an error nobody expects")
                    .with_source(error);
            }
        },
        // Not SQLite's own: a column with a type that we never write, a missing row that we always write.
        None => (
            Cause::Corrupt,
            "the database holds a value Leasehold never writes: was it edited by hand?",
            Effect::Unknown,
        ),
    };
    let failure = match (stage, at_commit) {
        (Stage::Open, _) | (Stage::Commit, Effect::None) => Failure::not_done(cause, advice),
        (Stage::Commit, Effect::Unknown) => Failure::unknown(cause, advice),
    };
    failure.with_source(error)
}

/// Others were in the way before anything was done, and this is who.
pub(crate) fn busy(error: rusqlite::Error, blocker: Option<&Blocker>) -> Failure {
    let failure = judge(error, Stage::Open);
    let Some(blocker) = blocker else {
        return failure;
    };
    let told = Failure::not_done(
        failure.cause,
        format!("other processes kept the database busy for the whole time allowed: ask again; {blocker}"),
    );
    told.with_source(failure)
}

/// What a failing `COMMIT` has done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Effect {
    /// Nothing: SQLite still had, or has already rolled back, the transaction.
    None,
    /// Nobody knows until the step is asked again.
    Unknown,
}

/// One row: the cause, what to do about it, and what a `COMMIT` that failed with it has done. `None` for
/// codes that nobody should ever see here.
fn row(code: ErrorCode) -> Option<(Cause, &'static str, Effect)> {
    use Effect::{None as Nothing, Unknown};
    Some(match code {
        ErrorCode::DatabaseBusy => (
            Cause::Overloaded,
            "other processes kept the database busy for the whole time allowed: ask again, or look for \
             one that was stopped inside a transaction",
            Nothing,
        ),
        ErrorCode::DatabaseLocked => (
            Cause::Overloaded,
            "another statement kept a table locked: ask again",
            Nothing,
        ),
        ErrorCode::OutOfMemory => (Cause::Overloaded, "SQLite got no memory: free some", Unknown),
        // In WAL mode a full disk cuts the transaction off before its commit mark is written.
        ErrorCode::DiskFull => (
            Cause::Overloaded,
            "the disk (or the database's page limit) is full: make room",
            Nothing,
        ),
        ErrorCode::OperationInterrupted | ErrorCode::OperationAborted => {
            (Cause::Overloaded, "the step was interrupted: ask again", Unknown)
        }
        ErrorCode::ReadOnly => (
            Cause::ReadOnly,
            "the database cannot be written: check the file's and its folder's permissions, and the mount",
            Nothing,
        ),
        ErrorCode::PermissionDenied | ErrorCode::AuthorizationForStatementDenied => (
            Cause::Denied,
            "the operating system refuses access to the database: check the file's and its folder's owner \
             and permissions",
            Nothing,
        ),
        ErrorCode::CannotOpen => (
            Cause::Unreachable,
            "the database file (or its -wal or -shm) cannot be opened: check that it exists, its \
             permissions and the limit of open files",
            Nothing,
        ),
        ErrorCode::SystemIoFailure => (
            Cause::Unreachable,
            "reading or writing the database failed: check the disk and the kernel's log",
            Unknown,
        ),
        ErrorCode::FileLockingProtocolFailed => (
            Cause::Overloaded,
            "SQLite could not get its file locks: ask again; if it stays, the filesystem does not lock",
            Nothing,
        ),
        ErrorCode::DatabaseCorrupt => (
            Cause::Corrupt,
            "the database is damaged: stop its users, move the file aside and let a new one be made \
             (fences go on growing)",
            Unknown,
        ),
        ErrorCode::NotADatabase => (
            Cause::Misconfigured,
            "the file is not an SQLite database: check the path",
            Nothing,
        ),
        ErrorCode::SchemaChanged | ErrorCode::ConstraintViolation | ErrorCode::TypeMismatch => (
            Cause::Corrupt,
            "the database's tables are not the ones Leasehold made: was its schema edited?",
            Nothing,
        ),
        ErrorCode::TooBig | ErrorCode::NoLargeFileSupport => (
            Cause::Misconfigured,
            "a value or the file is too big for SQLite",
            Nothing,
        ),
        _ => return None,
    })
}

/// An error of the operating system while the file was prepared: nothing has been asked yet, so nothing was
/// done.
pub(crate) fn preparing(error: io::Error, what: impl fmt::Display) -> Failure {
    let (cause, advice) = match error.kind() {
        io::ErrorKind::PermissionDenied => (Cause::Denied, "check the owner and the permissions"),
        io::ErrorKind::ReadOnlyFilesystem => (Cause::ReadOnly, "the filesystem is mounted read-only"),
        io::ErrorKind::StorageFull => (Cause::Overloaded, "the disk is full: make room"),
        io::ErrorKind::NotADirectory | io::ErrorKind::IsADirectory | io::ErrorKind::AlreadyExists => (
            Cause::Misconfigured,
            "something else is in that place: check the path",
        ),
        _ => (Cause::Unreachable, "check the path and the disk"),
    };
    Failure::not_done(cause, format!("{what}: {advice}")).with_source(error)
}

#[cfg(test)]
mod tests {
    use rusqlite::ffi;

    use super::*;

    fn sqlite(code: i32) -> rusqlite::Error {
        rusqlite::Error::SqliteFailure(ffi::Error::new(code), None)
    }

    #[test]
    fn before_the_commit_nothing_was_done() {
        for code in [
            ffi::SQLITE_BUSY,
            ffi::SQLITE_LOCKED,
            ffi::SQLITE_NOMEM,
            ffi::SQLITE_FULL,
            ffi::SQLITE_IOERR,
            ffi::SQLITE_READONLY,
            ffi::SQLITE_PERM,
            ffi::SQLITE_AUTH,
            ffi::SQLITE_CANTOPEN,
            ffi::SQLITE_PROTOCOL,
            ffi::SQLITE_CORRUPT,
            ffi::SQLITE_NOTADB,
            ffi::SQLITE_INTERRUPT,
            ffi::SQLITE_ABORT,
            ffi::SQLITE_SCHEMA,
            ffi::SQLITE_CONSTRAINT,
            ffi::SQLITE_MISMATCH,
            ffi::SQLITE_TOOBIG,
            ffi::SQLITE_NOLFS,
        ] {
            assert!(!judge(sqlite(code), Stage::Open).unknown, "{code}");
        }
    }

    #[test]
    fn a_commit_under_which_the_disk_failed_is_unknown() {
        for code in [
            ffi::SQLITE_IOERR,
            ffi::SQLITE_IOERR_FSYNC,
            ffi::SQLITE_IOERR_WRITE,
            ffi::SQLITE_CORRUPT,
            ffi::SQLITE_NOMEM,
            ffi::SQLITE_INTERRUPT,
        ] {
            assert!(judge(sqlite(code), Stage::Commit).unknown, "{code}");
        }
    }

    #[test]
    fn a_commit_that_can_be_rolled_back_was_not_done() {
        for code in [ffi::SQLITE_BUSY, ffi::SQLITE_FULL, ffi::SQLITE_READONLY] {
            assert!(!judge(sqlite(code), Stage::Commit).unknown, "{code}");
        }
    }

    #[test]
    fn what_is_not_in_the_table_is_unknown_at_any_moment() {
        for code in [ffi::SQLITE_INTERNAL, ffi::SQLITE_MISUSE, ffi::SQLITE_RANGE, 250] {
            for stage in [Stage::Open, Stage::Commit] {
                assert!(judge(sqlite(code), stage).unknown, "{code} {stage:?}");
            }
        }
    }

    #[test]
    fn causes_say_what_the_reader_can_do() {
        for (code, cause) in [
            (ffi::SQLITE_BUSY, Cause::Overloaded),
            (ffi::SQLITE_BUSY_SNAPSHOT, Cause::Overloaded),
            (ffi::SQLITE_FULL, Cause::Overloaded),
            (ffi::SQLITE_READONLY_DIRECTORY, Cause::ReadOnly),
            (ffi::SQLITE_PERM, Cause::Denied),
            (ffi::SQLITE_CANTOPEN, Cause::Unreachable),
            (ffi::SQLITE_IOERR_READ, Cause::Unreachable),
            (ffi::SQLITE_CORRUPT_INDEX, Cause::Corrupt),
            (ffi::SQLITE_NOTADB, Cause::Misconfigured),
        ] {
            assert_eq!(judge(sqlite(code), Stage::Open).cause, cause, "{code}");
        }
    }
}

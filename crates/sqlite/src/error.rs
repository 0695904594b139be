//! Maps each SQLite error to a store error.
//!
//! A step is one transaction, so an error before its `COMMIT` means that nothing was done. Only a
//! failed `COMMIT` needs a decision. If SQLite can still roll back, nothing was done; if the disk
//! failed, the outcome is unknown. A code that is not in the table always means unknown.

use std::fmt;
use std::io;

use leasehold_core::store::{StoreError, StoreErrorKind};
use rusqlite::ErrorCode;

use crate::writer_watch::BlockingWriter;

/// Position in its transaction at which a step failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TransactionPhase {
    /// Before `COMMIT` was sent.
    Open,
    /// `COMMIT` itself failed.
    Commit,
}

/// Why a step ended without a response: an SQLite error, or a refusal by this store.
#[derive(Debug)]
pub(crate) enum StepError {
    /// Not yet classified.
    Sqlite(rusqlite::Error),
    /// Already classified: the step found something it must not continue with.
    Refused(StoreError),
}

impl From<rusqlite::Error> for StepError {
    fn from(error: rusqlite::Error) -> Self {
        Self::Sqlite(error)
    }
}

impl From<StoreError> for StepError {
    fn from(failure: StoreError) -> Self {
        Self::Refused(failure)
    }
}

impl StepError {
    /// Converts it to the error for the caller.
    pub(crate) fn into_store_error(self, testbed: TransactionPhase) -> StoreError {
        match self {
            Self::Sqlite(error) => classify(error, testbed),
            Self::Refused(failure) => failure,
        }
    }
}

/// Classifies an SQLite error by the table below.
pub(crate) fn classify(error: rusqlite::Error, testbed: TransactionPhase) -> StoreError {
    let (cause, advice, at_commit) = match error.sqlite_error_code() {
        Some(code) => match error_table_row(code) {
            Some(row) => row,
            None => {
                return StoreError::unknown(
                    StoreErrorKind::Corrupt,
                    "SQLite answered with an unexpected error code",
                )
                .with_source(error);
            }
        },
        // Not from SQLite: a column type that Leasehold never writes, or a
        // missing row that it always writes.
        None => (
            StoreErrorKind::Corrupt,
            "the database holds a value Leasehold never writes: was it edited by hand?",
            CommitEffect::Unknown,
        ),
    };
    let failure = match (testbed, at_commit) {
        (TransactionPhase::Open, _) | (TransactionPhase::Commit, CommitEffect::None) => {
            StoreError::not_done(cause, advice)
        }
        (TransactionPhase::Commit, CommitEffect::Unknown) => StoreError::unknown(cause, advice),
    };
    failure.with_source(error)
}

/// The error of a step that got no write lock, with the process that holds it.
pub(crate) fn busy_error(error: rusqlite::Error, blocker: Option<&BlockingWriter>) -> StoreError {
    let failure = classify(error, TransactionPhase::Open);
    let Some(blocker) = blocker else {
        return failure;
    };
    let named = StoreError::not_done(
        failure.kind,
        format!("other processes kept the database busy for the whole time allowed: retry; {blocker}"),
    );
    named.with_source(failure)
}

/// Effect of a failed `COMMIT`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CommitEffect {
    /// Nothing was done: SQLite rolls the transaction back, or already has.
    None,
    /// Unknown until the client repeats its request.
    Unknown,
}

/// One table row: error kind, advice, and the effect of a `COMMIT` that failed with this code.
/// `None` for codes that should never occur.
fn error_table_row(code: ErrorCode) -> Option<(StoreErrorKind, &'static str, CommitEffect)> {
    use CommitEffect::{None as Nothing, Unknown};
    Some(match code {
        ErrorCode::DatabaseBusy => (
            StoreErrorKind::Overloaded,
            "other processes kept the database busy for the whole time allowed: retry, or look for \
             one that was stopped inside a transaction",
            Nothing,
        ),
        ErrorCode::DatabaseLocked => {
            (StoreErrorKind::Overloaded, "another statement kept a table locked: retry", Nothing)
        }
        ErrorCode::OutOfMemory => (StoreErrorKind::Overloaded, "SQLite got no memory: free some", Unknown),
        // In WAL mode a full disk stops the transaction before its commit mark is written.
        ErrorCode::DiskFull => (
            StoreErrorKind::Overloaded,
            "the disk (or the database's page limit) is full: make room",
            Nothing,
        ),
        ErrorCode::OperationInterrupted | ErrorCode::OperationAborted => {
            (StoreErrorKind::Overloaded, "the step was interrupted: retry", Unknown)
        }
        ErrorCode::ReadOnly => (
            StoreErrorKind::ReadOnly,
            "the database cannot be written: check the file's and its folder's permissions, and the mount",
            Nothing,
        ),
        ErrorCode::PermissionDenied | ErrorCode::AuthorizationForStatementDenied => (
            StoreErrorKind::Denied,
            "the operating system refuses access to the database: check the file's and its folder's owner \
             and permissions",
            Nothing,
        ),
        ErrorCode::CannotOpen => (
            StoreErrorKind::Unreachable,
            "the database file (or its -wal or -shm) cannot be opened: check that it exists, its \
             permissions and the limit of open files",
            Nothing,
        ),
        ErrorCode::SystemIoFailure => (
            StoreErrorKind::Unreachable,
            "reading or writing the database failed: check the disk and the kernel's log",
            Unknown,
        ),
        ErrorCode::FileLockingProtocolFailed => (
            StoreErrorKind::Overloaded,
            "SQLite could not get its file locks: retry; if it persists, the filesystem does not lock",
            Nothing,
        ),
        ErrorCode::DatabaseCorrupt => (
            StoreErrorKind::Corrupt,
            "the database is damaged: stop its users, move the file aside and let a new one be made \
             (fences go on growing)",
            Unknown,
        ),
        ErrorCode::NotADatabase => {
            (StoreErrorKind::Misconfigured, "the file is not an SQLite database: check the path", Nothing)
        }
        ErrorCode::SchemaChanged | ErrorCode::ConstraintViolation | ErrorCode::TypeMismatch => (
            StoreErrorKind::Corrupt,
            "the database's tables are not the ones Leasehold made: was its schema edited?",
            Nothing,
        ),
        ErrorCode::TooBig | ErrorCode::NoLargeFileSupport => {
            (StoreErrorKind::Misconfigured, "a value or the file is too big for SQLite", Nothing)
        }
        _ => return None,
    })
}

/// Converts an I/O error while the file is prepared. No request has run yet, so nothing was done.
pub(crate) fn prepare_error(error: io::Error, what: impl fmt::Display) -> StoreError {
    let (cause, advice) = match error.kind() {
        io::ErrorKind::PermissionDenied => (StoreErrorKind::Denied, "check the owner and the permissions"),
        io::ErrorKind::ReadOnlyFilesystem => {
            (StoreErrorKind::ReadOnly, "the filesystem is mounted read-only")
        }
        io::ErrorKind::StorageFull => (StoreErrorKind::Overloaded, "the disk is full: make room"),
        io::ErrorKind::NotADirectory | io::ErrorKind::IsADirectory | io::ErrorKind::AlreadyExists => {
            (StoreErrorKind::Misconfigured, "something else is in that place: check the path")
        }
        _ => (StoreErrorKind::Unreachable, "check the path and the disk"),
    };
    StoreError::not_done(cause, format!("{what}: {advice}")).with_source(error)
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
            assert!(!classify(sqlite(code), TransactionPhase::Open).unknown, "{code}");
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
            assert!(classify(sqlite(code), TransactionPhase::Commit).unknown, "{code}");
        }
    }

    #[test]
    fn a_commit_that_can_be_rolled_back_was_not_done() {
        for code in [ffi::SQLITE_BUSY, ffi::SQLITE_FULL, ffi::SQLITE_READONLY] {
            assert!(!classify(sqlite(code), TransactionPhase::Commit).unknown, "{code}");
        }
    }

    #[test]
    fn what_is_not_in_the_table_is_unknown_at_any_moment() {
        for code in [ffi::SQLITE_INTERNAL, ffi::SQLITE_MISUSE, ffi::SQLITE_RANGE, 250] {
            for testbed in [TransactionPhase::Open, TransactionPhase::Commit] {
                assert!(classify(sqlite(code), testbed).unknown, "{code} {testbed:?}");
            }
        }
    }

    #[test]
    fn error_kinds_match_the_advice() {
        for (code, cause) in [
            (ffi::SQLITE_BUSY, StoreErrorKind::Overloaded),
            (ffi::SQLITE_BUSY_SNAPSHOT, StoreErrorKind::Overloaded),
            (ffi::SQLITE_FULL, StoreErrorKind::Overloaded),
            (ffi::SQLITE_READONLY_DIRECTORY, StoreErrorKind::ReadOnly),
            (ffi::SQLITE_PERM, StoreErrorKind::Denied),
            (ffi::SQLITE_CANTOPEN, StoreErrorKind::Unreachable),
            (ffi::SQLITE_IOERR_READ, StoreErrorKind::Unreachable),
            (ffi::SQLITE_CORRUPT_INDEX, StoreErrorKind::Corrupt),
            (ffi::SQLITE_NOTADB, StoreErrorKind::Misconfigured),
        ] {
            assert_eq!(classify(sqlite(code), TransactionPhase::Open).kind, cause, "{code}");
        }
    }
}

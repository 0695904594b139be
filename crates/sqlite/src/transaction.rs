//! `BEGIN` and `COMMIT` as prepared statements.
//!
//! A step is so short that parsing these two each time would be a measurable part of it.

use rusqlite::Connection;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TransactionKind {
    /// Takes the write lock at `BEGIN`. Required if the step may write: see
    /// the module `connection`.
    Write,
    /// Reads one snapshot of the database, without the write lock.
    Read,
}

/// A running transaction. Dropping it rolls it back.
pub(crate) struct Transaction<'a> {
    db: &'a Connection,
}

impl<'a> Transaction<'a> {
    pub(crate) fn begin(db: &'a Connection, kind: TransactionKind) -> rusqlite::Result<Self> {
        let sql = match kind {
            TransactionKind::Write => "BEGIN IMMEDIATE",
            TransactionKind::Read => "BEGIN DEFERRED",
        };
        db.prepare_cached(sql)?.execute([])?;
        Ok(Self { db })
    }

    pub(crate) fn commit(self) -> rusqlite::Result<()> {
        self.db.prepare_cached("COMMIT")?.execute([])?;
        Ok(())
    }
}

impl Drop for Transaction<'_> {
    fn drop(&mut self) {
        // Nothing is left to roll back after a commit, or after an error on which
        // SQLite rolled back by itself. If the rollback fails, the connection is
        // unusable and the next step reports it.
        if !self.db.is_autocommit()
            && let Err(error) = self.db.execute_batch("ROLLBACK")
        {
            tracing::error!(%error, "a failed step of the lock database could not be rolled back");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drop_rolls_back_and_commit_keeps() {
        let db = Connection::open_in_memory().unwrap();
        db.execute_batch("CREATE TABLE t (a)").unwrap();
        let count = || -> i64 { db.query_row("SELECT count(*) FROM t", [], |row| row.get(0)).unwrap() };
        let dropped = Transaction::begin(&db, TransactionKind::Write).unwrap();
        db.execute_batch("INSERT INTO t VALUES (1)").unwrap();
        drop(dropped);
        assert_eq!(count(), 0);
        let kept = Transaction::begin(&db, TransactionKind::Write).unwrap();
        db.execute_batch("INSERT INTO t VALUES (1)").unwrap();
        kept.commit().unwrap();
        assert_eq!(count(), 1);
        assert!(db.is_autocommit());
    }
}

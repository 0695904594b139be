//! `BEGIN` and `COMMIT` as prepared statements: a step is so short that parsing them anew would be felt.

use rusqlite::Connection;

/// How a transaction begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// With the write lock. Never without it if anything may be written: see the module `connection`.
    Write,
    /// As a look at one state of the database, for as long as it takes.
    Read,
}

/// A running transaction. Dropping it undoes it.
pub(crate) struct Transaction<'a> {
    db: &'a Connection,
}

impl<'a> Transaction<'a> {
    pub(crate) fn begin(db: &'a Connection, kind: Kind) -> rusqlite::Result<Self> {
        let sql = match kind {
            Kind::Write => "BEGIN IMMEDIATE",
            Kind::Read => "BEGIN DEFERRED",
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
        // After a commit, and after an error that made SQLite undo it by itself, there is nothing left to
        // undo. If undoing fails the connection is beyond repair, and the next step will say so.
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
    fn dropped_is_undone_and_committed_is_kept() {
        let db = Connection::open_in_memory().unwrap();
        db.execute_batch("CREATE TABLE t (a)").unwrap();
        let count = || -> i64 {
            db.query_row("SELECT count(*) FROM t", [], |row| row.get(0))
                .unwrap()
        };
        let dropped = Transaction::begin(&db, Kind::Write).unwrap();
        db.execute_batch("INSERT INTO t VALUES (1)").unwrap();
        drop(dropped);
        assert_eq!(count(), 0);
        let kept = Transaction::begin(&db, Kind::Write).unwrap();
        db.execute_batch("INSERT INTO t VALUES (1)").unwrap();
        kept.commit().unwrap();
        assert_eq!(count(), 1);
        assert!(db.is_autocommit());
    }
}

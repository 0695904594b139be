//! The rows of documents, their clock, and the counter of their versions.
//!
//! Documents outlive the boot, so the boot clock alone cannot time them, and the wall clock may be set
//! at any moment. Their clock is the boot clock plus an offset: the first process of each boot sets it to
//! the wall clock. Within a boot, setting the wall clock moves no expiry. If the wall clock
//! comes back from a reboot earlier than the last write, the documents' clock continues from that write.

use std::time::{Duration, SystemTime};

use leasehold_core::Name;
use leasehold_core::clock::Moment;
use leasehold_core::store::{
    Document, DocumentList, DocumentQuery, DocumentWrite, StoreError, StoreErrorKind,
};
use rusqlite::{Connection, OptionalExtension, Row};

use crate::connection::{moment_to_nanos, unix_micros};
use crate::error::StepError;
use crate::inspect;
use crate::purge::PURGE_BATCH_ROWS;
use crate::step::Step;
use crate::transaction::{Transaction, TransactionKind};

/// The moment of a step by the documents' clock, in microseconds since 1970.
#[derive(Debug, Clone, Copy)]
pub(crate) struct DocumentTime(i64);

impl DocumentTime {
    pub(crate) fn of(step: &Step<'_>) -> Result<Self, StepError> {
        let offset: i64 =
            step.prepare_cached("SELECT offset_us FROM document_state")?.query_row([], |row| row.get(0))?;
        Ok(Self(offset.saturating_add(step.now() / 1000)))
    }

    pub(crate) fn to_wall(self) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_micros(u64::try_from(self.0).unwrap_or(0))
    }

    fn after(self, by: Duration) -> i64 {
        self.0.saturating_add(i64::try_from(by.as_micros()).unwrap_or(i64::MAX))
    }

    /// Time until `then`; `None` if it has come.
    fn until(self, then: i64) -> Option<Duration> {
        let left = u64::try_from(then.saturating_sub(self.0)).ok().filter(|left| *left > 0)?;
        Some(Duration::from_micros(left))
    }
}

/// Sets the offset of the documents' clock, once in each boot.
// Not part of `adopt_boot`: an older version of this program may have adopted the file for this boot.
pub(crate) fn start_clock(
    db: &Connection,
    boot: &str,
    now: Moment,
    wall: SystemTime,
) -> Result<(), StepError> {
    let started = db.query_row("SELECT boot FROM document_state", [], |row| row.get::<_, String>(0));
    if started.optional()?.as_deref() == Some(boot) {
        return Ok(());
    }
    let transaction = Transaction::begin(db, TransactionKind::Write)?;
    set_offset(db, boot, now, wall)?;
    transaction.commit()?;
    Ok(())
}

fn set_offset(db: &Connection, boot: &str, now: Moment, wall: SystemTime) -> rusqlite::Result<usize> {
    let wall_us = i64::try_from(unix_micros(wall)).unwrap_or(i64::MAX);
    // Compares the boot again, under the write lock: all processes of a boot must use one offset.
    db.execute(
        "INSERT INTO document_state (id, boot, offset_us, last) VALUES (1, ?1, ?2 - ?3, 0)
         ON CONFLICT DO UPDATE SET boot = excluded.boot, offset_us = max(last, ?2) - ?3
         WHERE boot <> excluded.boot",
        (boot, wall_us, moment_to_nanos(now) / 1000),
    )
}

/// Reads a live document.
pub(crate) fn find(step: &Step<'_>, now: DocumentTime, name: &Name) -> Result<Option<Document>, StepError> {
    let mut statement =
        step.prepare_cached("SELECT name, version, expires_us, value FROM documents WHERE name = ?1")?;
    let mut rows = statement.query([name.as_str()])?;
    rows.next()?.map_or(Ok(None), |row| read_live(now, row))
}

/// Reads one page of the live documents whose names start with the query's prefix.
pub(crate) fn list(
    step: &Step<'_>,
    now: DocumentTime,
    query: &DocumentQuery,
) -> Result<DocumentList, StepError> {
    let after = query.after.as_ref().map_or("", Name::as_str);
    // Not `LIKE`: `%` and `_` in a prefix must match only themselves.
    let mut statement = step.prepare_cached(
        "SELECT name, version, expires_us, value FROM documents
         WHERE name >= max(?1, ?2) AND name <> ?2 ORDER BY name",
    )?;
    let mut rows = statement.query((&query.prefix, after))?;
    let mut documents = Vec::new();
    while let Some(row) = rows.next()? {
        // In byte order, names with the same prefix are adjacent: the first
        // other name ends the listing.
        if !row.get_ref(0)?.as_str().is_ok_and(|name| name.starts_with(&query.prefix)) {
            break;
        }
        let Some(document) = read_live(now, row)? else { continue };
        if documents.len() == query.limit {
            return Ok(DocumentList::new(documents, true));
        }
        documents.push(document);
    }
    Ok(DocumentList::new(documents, false))
}

/// Creates or replaces a document, with a new version.
pub(crate) fn put(step: &Step<'_>, now: DocumentTime, request: &DocumentWrite) -> Result<u64, StepError> {
    let version: i64 = step
        .prepare_cached("UPDATE document_state SET last = max(last + 1, ?1) RETURNING last")?
        .query_row([now.0], |row| row.get(0))?;
    step.prepare_cached(
        "INSERT OR REPLACE INTO documents (name, version, expires_us, value) VALUES (?1, ?2, ?3, ?4)",
    )?
    .execute((request.name.as_str(), version, request.ttl.map(|ttl| now.after(ttl)), &request.value))?;
    version_from_column(version)
}

/// Removes the row of a document.
pub(crate) fn remove(step: &Step<'_>, name: &Name) -> Result<(), StepError> {
    step.prepare_cached("DELETE FROM documents WHERE name = ?1")?.execute([name.as_str()])?;
    Ok(())
}

/// Removes a bounded number of expired documents. Each write does so and adds at most one row, so
/// they do not accumulate.
pub(crate) fn purge(step: &Step<'_>, now: DocumentTime) -> Result<(), StepError> {
    step.prepare_cached(
        "DELETE FROM documents WHERE name IN
            (SELECT name FROM documents WHERE expires_us <= ?1 LIMIT ?2)",
    )?
    .execute((now.0, PURGE_BATCH_ROWS))?;
    Ok(())
}

/// Reads the columns name, version, expires_us and value; `None` if the document has expired.
fn read_live(now: DocumentTime, row: &Row<'_>) -> Result<Option<Document>, StepError> {
    let expires: Option<i64> = row.get(2)?;
    let remaining = expires.map(|expires| now.until(expires));
    if remaining == Some(None) {
        return Ok(None);
    }
    let name = inspect::name_from_column(row.get_ref(0)?.as_str().unwrap_or_default())?;
    let document = Document::new(name, version_from_column(row.get(1)?)?, row.get(3)?);
    Ok(Some(document.with_remaining(remaining.flatten())))
}

fn version_from_column(number: i64) -> Result<u64, StepError> {
    let refuse = |_| {
        let why = "the database holds a version of a document Leasehold never writes: was it edited by hand?";
        StoreError::not_done(StoreErrorKind::Corrupt, why)
    };
    Ok(u64::try_from(number).map_err(refuse)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema;

    #[test]
    fn the_second_process_of_a_boot_keeps_the_offset() {
        let db = Connection::open_in_memory().unwrap();
        schema::ensure_tables(&db).unwrap();
        let set = |boot: &str, now_us: u64, wall_us: u64| {
            let wall = SystemTime::UNIX_EPOCH + Duration::from_micros(wall_us);
            set_offset(&db, boot, Moment::from_nanos(now_us * 1000), wall).unwrap();
            let read = "SELECT offset_us FROM document_state";
            db.query_row(read, [], |row| row.get::<_, i64>(0)).unwrap()
        };
        assert_eq!(set("boot-1", 100, 5000), 4900);
        assert_eq!(set("boot-1", 200, 9000), 4900);
        assert_eq!(set("boot-2", 10, 9000), 8990);
        assert_eq!(set("boot-2", 20, 1), 8990);
    }
}

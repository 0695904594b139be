//! The SQL statements of each store operation, run inside the transaction that `mod.rs` opened.

use std::time::Duration;

use leasehold_core::Name;
use leasehold_core::store::StoreError;
use leasehold_fence::sqlite as fences;
use rusqlite::types::Value as SqlValue;
use rusqlite::{OptionalExtension, Result, Row, Transaction, params, params_from_iter};

use super::store_error;
use crate::store::memory::add_to_millis;
use crate::store::{
    CurrentDocument, Delivery, Disposition, Document, DocumentEvent, DocumentKey, DocumentKind, DocumentPage,
    DocumentPosition, DocumentQuery, DocumentScope, KEPT_FIRST_EVENTS, KEPT_NEWEST_EVENTS, KeptEnded,
    KeySpace, MAX_DELETED_PER_WRITE, Message, Queue, Revision, WriteRequest, WriteResponse, check_write,
    document_scope, is_ended_job_of, step_jobs,
};

const DOCUMENT_COLUMNS: &str = "id, version, state, due, created, updated, body";

// SQLite integers are signed; no time or version here comes near the limit.
fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

fn unsigned(row: &Row<'_>, at: usize) -> Result<u64> {
    row.get::<_, i64>(at).map(|number| u64::try_from(number).unwrap_or(0))
}

fn document_from_row(row: &Row<'_>, now: u64) -> Result<Document> {
    Ok(Document {
        id: row.get(0)?,
        version: unsigned(row, 1)?,
        state: row.get(2)?,
        due: row.get::<_, Option<i64>>(3)?.and_then(|due| u64::try_from(due).ok()),
        created: unsigned(row, 4)?,
        updated: unsigned(row, 5)?,
        body: row.get(6)?,
        now,
    })
}

pub(super) fn read(tx: &Transaction<'_>, kind: DocumentKind, id: &str, now: u64) -> Result<Option<Document>> {
    tx.prepare_cached(&format!("SELECT {DOCUMENT_COLUMNS} FROM docs WHERE kind = ?1 AND id = ?2"))?
        .query_row([kind.as_str(), id], |row| document_from_row(row, now))
        .optional()
}

pub(super) fn write(
    tx: &Transaction<'_>,
    write: &WriteRequest,
    now: u64,
) -> std::result::Result<WriteResponse, StoreError> {
    let entry = &write.revision;
    let found = find_current(tx, write).map_err(store_error)?;
    let newest = match &write.fence {
        Some((name, _)) => fences::newest(tx, name)?,
        None => None,
    };
    let key_of = match &entry.key {
        Some(key) => find_id_by_key(tx, entry.kind, key).map_err(store_error)?,
        None => None,
    };
    let owned = count_owned(tx, write).map_err(store_error)?;
    if let Some(answer) = check_write(write, found.as_ref(), newest, key_of, owned) {
        return Ok(answer);
    }
    if let Some((name, fence)) = &write.fence {
        // Compared above already; this stores the fence in the same transaction.
        let _admitted = fences::admit(tx, name, *fence)?;
    }
    if write.only_due_time {
        set_due_time(tx, entry, now).map_err(store_error)?;
        let version = write.expected_version.unwrap_or(0);
        return Ok(WriteResponse::Applied { version, repeated: false, already_existing: Vec::new() });
    }
    let version = write.expected_version.unwrap_or(0) + 1;
    upsert_document(tx, entry, version, &write.id, now).map_err(store_error)?;
    let mut skipped = Vec::new();
    for entry in &write.new_documents {
        if read(tx, entry.kind, &entry.id, now).map_err(store_error)?.is_some() {
            skipped.push(entry.id.clone());
        } else {
            upsert_document(tx, entry, 1, &write.id, now).map_err(store_error)?;
        }
    }
    for message in &write.messages {
        send(tx, message, now).map_err(store_error)?;
    }
    if let Some(kept) = write.quota.as_ref().and_then(|quota| quota.kept_ended.as_ref()) {
        forget_ended(tx, entry.kind, &entry.owner, kept)?;
    }
    Ok(WriteResponse::Applied { version, repeated: false, already_existing: skipped })
}

fn find_current(tx: &Transaction<'_>, write: &WriteRequest) -> Result<Option<CurrentDocument>> {
    tx.prepare_cached(
        "SELECT version, state, (SELECT write FROM events WHERE kind = ?1 AND id = ?2 AND version = ?3)
         FROM docs WHERE kind = ?1 AND id = ?2",
    )?
    .query_row(
        params![
            write.revision.kind.as_str(),
            write.revision.id,
            signed(write.expected_version.unwrap_or(0) + 1)
        ],
        |row| {
            Ok(CurrentDocument {
                version: unsigned(row, 0)?,
                state: row.get(1)?,
                write_after_expected: row.get(2)?,
            })
        },
    )
    .optional()
}

fn set_due_time(tx: &Transaction<'_>, entry: &Revision, now: u64) -> Result<()> {
    let due = entry.due_in.map(|ahead| signed(add_to_millis(now, ahead)));
    tx.prepare_cached("UPDATE docs SET due = ?3 WHERE kind = ?1 AND id = ?2")?.execute(params![
        entry.kind.as_str(),
        entry.id,
        due
    ])?;
    Ok(())
}

fn upsert_document(
    tx: &Transaction<'_>,
    entry: &Revision,
    version: u64,
    write: &str,
    now: u64,
) -> Result<()> {
    let kind = entry.kind.as_str();
    let due = entry.due_in.map(|ahead| signed(add_to_millis(now, ahead)));
    tx.prepare_cached(
        "INSERT INTO docs (kind, id, version, state, due, shelf, created, updated, body, owner)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?7, ?8, ?9)
         ON CONFLICT (kind, id) DO UPDATE SET version = excluded.version, state = excluded.state, due = excluded.due,
             shelf = excluded.shelf, updated = excluded.updated, body = excluded.body, owner = excluded.owner",
    )?
    .execute(params![
        kind,
        entry.id,
        signed(version),
        entry.state,
        due,
        entry.index_key,
        signed(now),
        entry.body,
        entry.owner
    ])?;
    tx.prepare_cached(
        "INSERT INTO events (kind, id, version, at, write, body) VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
    )?
    .execute(params![kind, entry.id, signed(version), signed(now), write, entry.event])?;
    if version > KEPT_FIRST_EVENTS + KEPT_NEWEST_EVENTS {
        tx.prepare_cached(
            "DELETE FROM events WHERE kind = ?1 AND id = ?2 AND version > ?3 AND version <= ?4",
        )?
        .execute(params![
            kind,
            entry.id,
            signed(KEPT_FIRST_EVENTS),
            signed(version - KEPT_NEWEST_EVENTS)
        ])?;
    }
    if let Some(key) = &entry.key {
        tx.prepare_cached("INSERT INTO keys (kind, key, id) VALUES (?1, ?2, ?3) ON CONFLICT DO NOTHING")?
            .execute([key.space().name(entry.kind).as_str(), key.text(), &entry.id])?;
    }
    Ok(())
}

/// The condition of a query, with its parameters.
struct Condition {
    sql: String,
    parameters: Vec<SqlValue>,
}

impl Condition {
    fn new(query: &DocumentQuery) -> Self {
        let mut condition = Self { sql: String::new(), parameters: Vec::new() };
        let kind = condition.parameter(query.kind.as_str().to_owned());
        // The states are inlined: they are constants of this crate, never user input.
        let states: Vec<_> = query.states.iter().map(|state| format!("'{state}'")).collect();
        condition.sql = format!("kind = {kind} AND state IN ({})", states.join(", "));
        for (column, wanted) in [("shelf", &query.index_key), ("owner", &query.owner)] {
            if let Some(wanted) = wanted {
                let wanted = condition.parameter(wanted.clone());
                condition.sql.push_str(&format!(" AND {column} = {wanted}"));
            }
        }
        condition
    }

    fn parameter(&mut self, value: impl Into<SqlValue>) -> String {
        self.parameters.push(value.into());
        format!("?{}", self.parameters.len())
    }

    fn and_in_scope(&mut self, kind: DocumentKind, scope: &DocumentScope) {
        let kind = self.parameter(kind.as_str().to_owned());
        let ids = scope.ids.iter().map(|beginning| ("id", beginning));
        let all = ids.chain(scope.index_keys.iter().map(|beginning| ("shelf", beginning)));
        // Ranges of an index each: the documents of others are not looked at.
        let parts: Vec<_> = all
            .flat_map(|(column, beginning)| {
                let whole = self.parameter(beginning.clone());
                // `;` follows `:`.
                let from = self.parameter(format!("{beginning}:"));
                let to = self.parameter(format!("{beginning};"));
                let select = format!("SELECT rowid FROM docs WHERE kind = {kind} AND {column}");
                [format!("{select} = {whole}"), format!("{select} >= {from} AND {column} < {to}")]
            })
            .collect();
        let rows = if parts.is_empty() { "NULL".to_owned() } else { parts.join(" UNION ALL ") };
        self.sql.push_str(&format!(" AND rowid IN ({rows})"));
    }

    fn and_after(&mut self, after: &DocumentPosition) {
        let never = self.parameter(i64::from(after.due.is_none()));
        let due = self.parameter(signed(after.due.unwrap_or(0)));
        let id = self.parameter(after.id.clone());
        self.sql.push_str(&format!(" AND (due IS NULL, coalesce(due, 0), id) > ({never}, {due}, {id})"));
    }
}

pub(super) fn page(tx: &Transaction<'_>, query: &DocumentQuery, now: u64) -> Result<DocumentPage> {
    let mut condition = Condition::new(query);
    if query.due_only {
        let now = condition.parameter(signed(now));
        condition.sql.push_str(&format!(" AND due <= {now}"));
    }
    if let Some(scope) = &query.scope {
        condition.and_in_scope(query.kind, scope);
    }
    if let Some(after) = &query.after {
        condition.and_after(after);
    }
    let limit = condition.parameter(signed(query.limit as u64).saturating_add(1));
    let sql = format!(
        "SELECT {DOCUMENT_COLUMNS} FROM docs WHERE {} ORDER BY due IS NULL, due, id LIMIT {limit}",
        condition.sql
    );
    let mut statement = tx.prepare_cached(&sql)?;
    let found =
        statement.query_map(params_from_iter(condition.parameters), |row| document_from_row(row, now))?;
    Ok(DocumentPage::cut(found.collect::<Result<_>>()?, query.limit))
}

pub(super) fn count(tx: &Transaction<'_>, query: &DocumentQuery) -> Result<u64> {
    let condition = Condition::new(query);
    let sql = format!("SELECT count(*) FROM docs WHERE {}", condition.sql);
    tx.prepare_cached(&sql)?.query_row(params_from_iter(condition.parameters), |row| unsigned(row, 0))
}

/// How many documents count against the quota of a write.
fn count_owned(tx: &Transaction<'_>, write: &WriteRequest) -> Result<u64> {
    let Some(quota) = &write.quota else { return Ok(0) };
    let mut query = DocumentQuery::new(write.revision.kind, quota.states.iter().copied(), 0);
    query.owner = Some(write.revision.owner.clone());
    count(tx, &query)
}

pub(super) fn find_id_by_key(
    tx: &Transaction<'_>,
    kind: DocumentKind,
    key: &DocumentKey,
) -> Result<Option<String>> {
    let entry = |space: KeySpace, text: &str| -> Result<Option<String>> {
        tx.prepare_cached("SELECT id FROM keys WHERE kind = ?1 AND key = ?2")?
            .query_row([space.name(kind).as_str(), text], |row| row.get(0))
            .optional()
    };
    if let Some(id) = entry(key.space(), key.text())? {
        return Ok(Some(id));
    }
    let Some(earlier) = key.earlier() else { return Ok(None) };
    let Some(id) = entry(KeySpace::Unscoped, &earlier.text)? else { return Ok(None) };
    let document = read(tx, kind, &id, 0)?;
    Ok(document
        .filter(|document| document_scope(kind, &id, &document.body) == earlier.scope)
        .map(|document| document.id))
}

pub(super) fn history(tx: &Transaction<'_>, kind: DocumentKind, id: &str) -> Result<Vec<DocumentEvent>> {
    tx.prepare_cached("SELECT version, at, body FROM events WHERE kind = ?1 AND id = ?2 ORDER BY version")?
        .query_map([kind.as_str(), id], |row| {
            Ok(DocumentEvent { version: unsigned(row, 0)?, at: unsigned(row, 1)?, body: row.get(2)? })
        })?
        .collect()
}

pub(super) fn has_due_message(tx: &Transaction<'_>, queue: Queue, now: u64) -> Result<bool> {
    tx.prepare_cached("SELECT EXISTS (SELECT 1 FROM mail WHERE queue = ?1 AND due <= ?2)")?
        .query_row(params![queue.as_str(), signed(now)], |row| row.get(0))
}

pub(super) fn receive(
    tx: &Transaction<'_>,
    queue: Queue,
    limit: usize,
    visible: Duration,
    now: u64,
) -> Result<Vec<Delivery>> {
    let mut found = tx.prepare_cached(
        "SELECT id, doc, body, tries + 1 FROM mail WHERE queue = ?1 AND due <= ?2 ORDER BY due, id LIMIT ?3",
    )?;
    let taken: Vec<Delivery> = found
        .query_map(params![queue.as_str(), signed(now), signed(limit as u64)], |row| {
            Ok(Delivery {
                queue,
                id: row.get(0)?,
                document_id: row.get(1)?,
                body: row.get(2)?,
                tries: unsigned(row, 3)?,
            })
        })?
        .collect::<Result<_>>()?;
    let mut hide = tx.prepare_cached("UPDATE mail SET due = ?3, tries = ?4 WHERE queue = ?1 AND id = ?2")?;
    for each in &taken {
        hide.execute(params![
            queue.as_str(),
            each.id,
            signed(add_to_millis(now, visible)),
            signed(each.tries)
        ])?;
    }
    Ok(taken)
}

/// Queues the message. False if one with this id is queued already.
pub(super) fn send(tx: &Transaction<'_>, message: &Message, now: u64) -> Result<bool> {
    tx.prepare_cached(
        "INSERT INTO mail (queue, id, doc, body, due, tries) VALUES (?1, ?2, ?3, ?4, ?5, 0) ON CONFLICT DO NOTHING",
    )?
    .execute(params![
        message.queue.as_str(),
        message.id,
        message.document_id,
        message.body,
        signed(add_to_millis(now, message.due_in))
    ])
    .map(|sent| sent > 0)
}

pub(super) fn settle(tx: &Transaction<'_>, taken: &Delivery, settle: Disposition, now: u64) -> Result<bool> {
    let (queue, tries) = (taken.queue.as_str(), signed(taken.tries));
    let changed = match settle {
        Disposition::Ack => tx
            .prepare_cached("DELETE FROM mail WHERE queue = ?1 AND id = ?2 AND tries = ?3")?
            .execute(params![queue, taken.id, tries])?,
        Disposition::Redeliver(after) => tx
            .prepare_cached("UPDATE mail SET due = ?4 WHERE queue = ?1 AND id = ?2 AND tries = ?3")?
            .execute(params![queue, taken.id, tries, signed(add_to_millis(now, after))])?,
    };
    Ok(changed > 0)
}

pub(super) fn purge(
    tx: &Transaction<'_>,
    kind: DocumentKind,
    states: &[&'static str],
    keep: Duration,
    limit: usize,
    now: u64,
) -> std::result::Result<u64, StoreError> {
    let keep = u64::try_from(keep.as_millis()).unwrap_or(u64::MAX);
    let states: Vec<_> = states.iter().map(|state| format!("'{state}'")).collect();
    let sql = format!(
        "SELECT id FROM docs WHERE kind = ?1 AND state IN ({}) AND updated <= ?2 ORDER BY id LIMIT ?3",
        states.join(", ")
    );
    let old = || -> Result<Vec<String>> {
        tx.prepare_cached(&sql)?
            .query_map(
                params![kind.as_str(), signed(now.saturating_sub(keep)), signed(limit as u64)],
                |row| row.get(0),
            )?
            .collect()
    };
    let old = old().map_err(store_error)?;
    for id in &old {
        forget(tx, kind, id)?;
    }
    Ok(old.len() as u64)
}

/// Deletes a document with all that belongs to it.
fn forget(tx: &Transaction<'_>, kind: DocumentKind, id: &str) -> std::result::Result<(), StoreError> {
    let document = read(tx, kind, id, 0).map_err(store_error)?;
    for space in KeySpace::ALL {
        tx.prepare_cached("DELETE FROM keys WHERE kind = ?1 AND id = ?2")
            .and_then(|mut delete| delete.execute([&space.name(kind), id]))
            .map_err(store_error)?;
    }
    for table in ["docs", "events"] {
        tx.prepare_cached(&format!("DELETE FROM {table} WHERE kind = ?1 AND id = ?2"))
            .and_then(|mut delete| delete.execute([kind.as_str(), id]))
            .map_err(store_error)?;
    }
    if let Ok(name) = Name::new(&format!("{}:{id}", kind.as_str())) {
        fences::forget(tx, &name)?;
    }
    match (kind, document) {
        (DocumentKind::Run, Some(run)) => {
            for job in step_jobs(id, &run.body) {
                let found = read(tx, DocumentKind::Job, &job, 0).map_err(store_error)?;
                if found.is_some_and(|found| is_ended_job_of(id, &found.state, &found.body)) {
                    forget(tx, DocumentKind::Job, &job)?;
                }
            }
            Ok(())
        }
        (DocumentKind::Job, Some(_)) => forget(tx, DocumentKind::CancelRequest, id),
        _ => Ok(()),
    }
}

/// Deletes the oldest ended documents of an owner beyond those that are kept.
fn forget_ended(
    tx: &Transaction<'_>,
    kind: DocumentKind,
    owner: &str,
    kept: &KeptEnded,
) -> std::result::Result<(), StoreError> {
    let mut query = DocumentQuery::new(kind, kept.states.iter().copied(), 0);
    query.owner = Some(owner.to_owned());
    let extra = count(tx, &query).map_err(store_error)?.saturating_sub(kept.limit).min(MAX_DELETED_PER_WRITE);
    if extra == 0 {
        return Ok(());
    }
    // By state, because the index is ordered by age within one state only.
    let oldest = |state: &str| -> Result<Vec<(i64, String)>> {
        tx.prepare_cached(
            "SELECT updated, id FROM docs WHERE kind = ?1 AND owner = ?2 AND state = ?3 ORDER BY updated LIMIT ?4",
        )?
        .query_map(params![kind.as_str(), owner, state, signed(extra)], |row| Ok((row.get(0)?, row.get(1)?)))?
        .collect()
    };
    let mut ended = Vec::new();
    for state in &kept.states {
        ended.extend(oldest(state).map_err(store_error)?);
    }
    ended.sort();
    for (_, id) in ended.into_iter().take(usize::try_from(extra).unwrap_or(usize::MAX)) {
        forget(tx, kind, &id)?;
    }
    Ok(())
}

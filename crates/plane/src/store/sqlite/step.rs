//! The verbs as statements, each inside the transaction that `mod.rs` opened.

use std::time::Duration;

use leasehold_core::Name;
use leasehold_core::store::Failure;
use leasehold_fence::sqlite as fences;
use rusqlite::{OptionalExtension, Result, Row, Transaction, params};

use super::failure;
use crate::store::memory::later;
use crate::store::{
    Doc, Entry, Event, Found, Kind, Mail, Query, Queue, Settle, Taken, Write, Written, judge,
};

const DOC: &str = "id, version, state, due, created, updated, body";

/// SQLite's integers are signed; no time or version of ours reaches the sign.
fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

fn unsigned(row: &Row<'_>, at: usize) -> Result<u64> {
    row.get::<_, i64>(at)
        .map(|number| u64::try_from(number).unwrap_or(0))
}

fn doc(row: &Row<'_>, now: u64) -> Result<Doc> {
    Ok(Doc {
        id: row.get(0)?,
        version: unsigned(row, 1)?,
        state: row.get(2)?,
        due: row
            .get::<_, Option<i64>>(3)?
            .and_then(|due| u64::try_from(due).ok()),
        created: unsigned(row, 4)?,
        updated: unsigned(row, 5)?,
        body: row.get(6)?,
        now,
    })
}

pub(super) fn read(tx: &Transaction<'_>, kind: Kind, id: &str, now: u64) -> Result<Option<Doc>> {
    tx.prepare_cached(&format!("SELECT {DOC} FROM docs WHERE kind = ?1 AND id = ?2"))?
        .query_row([kind.word(), id], |row| doc(row, now))
        .optional()
}

pub(super) fn write(tx: &Transaction<'_>, write: &Write, now: u64) -> std::result::Result<Written, Failure> {
    let entry = &write.entry;
    let found = find(tx, write).map_err(failure)?;
    let newest = match &write.fence {
        Some((name, _)) => fences::newest(tx, name)?,
        None => None,
    };
    let key_of = match &entry.key {
        Some(key) => by_key(tx, entry.kind, key).map_err(failure)?,
        None => None,
    };
    if let Some(answer) = judge(write, found.as_ref(), newest, key_of) {
        return Ok(answer);
    }
    if let Some((name, fence)) = &write.fence {
        // Compared above already; this remembers it, in the same transaction.
        let _admitted = fences::admit(tx, name, *fence)?;
    }
    let version = write.expect.unwrap_or(0) + 1;
    put(tx, entry, version, &write.id, now).map_err(failure)?;
    let mut skipped = Vec::new();
    for entry in &write.also {
        if read(tx, entry.kind, &entry.id, now).map_err(failure)?.is_some() {
            skipped.push(entry.id.clone());
        } else {
            put(tx, entry, 1, &write.id, now).map_err(failure)?;
        }
    }
    for mail in &write.send {
        send(tx, mail, now).map_err(failure)?;
    }
    Ok(Written::Done {
        version,
        repeated: false,
        skipped,
    })
}

fn find(tx: &Transaction<'_>, write: &Write) -> Result<Option<Found>> {
    tx.prepare_cached(
        "SELECT version, state, (SELECT write FROM events WHERE kind = ?1 AND id = ?2 AND version = ?3)
         FROM docs WHERE kind = ?1 AND id = ?2",
    )?
    .query_row(
        params![
            write.entry.kind.word(),
            write.entry.id,
            signed(write.expect.unwrap_or(0) + 1)
        ],
        |row| {
            Ok(Found {
                version: unsigned(row, 0)?,
                state: row.get(1)?,
                after_expected: row.get(2)?,
            })
        },
    )
    .optional()
}

fn put(tx: &Transaction<'_>, entry: &Entry, version: u64, write: &str, now: u64) -> Result<()> {
    let kind = entry.kind.word();
    let due = entry.due_in.map(|ahead| signed(later(now, ahead)));
    tx.prepare_cached(
        "INSERT INTO docs (kind, id, version, state, due, shelf, created, updated, body)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?7, ?8)
         ON CONFLICT (kind, id) DO UPDATE SET version = excluded.version, state = excluded.state, due = excluded.due,
             shelf = excluded.shelf, updated = excluded.updated, body = excluded.body",
    )?
    .execute(params![
        kind,
        entry.id,
        signed(version),
        entry.state,
        due,
        entry.shelf,
        signed(now),
        entry.body
    ])?;
    tx.prepare_cached(
        "INSERT INTO events (kind, id, version, at, write, body) VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
    )?
    .execute(params![
        kind,
        entry.id,
        signed(version),
        signed(now),
        write,
        entry.event
    ])?;
    if let Some(key) = &entry.key {
        tx.prepare_cached("INSERT INTO keys (kind, key, id) VALUES (?1, ?2, ?3) ON CONFLICT DO NOTHING")?
            .execute([kind, key, &entry.id])?;
    }
    Ok(())
}

/// The condition of a query, with its states written out: they are words of ours.
fn condition(query: &Query) -> String {
    let states: Vec<_> = query.states.iter().map(|state| format!("'{state}'")).collect();
    let shelf = if query.shelf.is_some() {
        "shelf = ?2"
    } else {
        "?2 = ''"
    };
    format!("kind = ?1 AND {shelf} AND state IN ({})", states.join(", "))
}

pub(super) fn list(tx: &Transaction<'_>, query: &Query, now: u64) -> Result<Vec<Doc>> {
    let due = if query.due { "due <= ?3" } else { "?3 >= 0" };
    let sql = format!(
        "SELECT {DOC} FROM docs WHERE {} AND {due} ORDER BY due IS NULL, due, id LIMIT ?4",
        condition(query)
    );
    tx.prepare_cached(&sql)?
        .query_map(
            params![
                query.kind.word(),
                query.shelf.as_deref().unwrap_or_default(),
                signed(now),
                signed(query.limit as u64)
            ],
            |row| doc(row, now),
        )?
        .collect()
}

pub(super) fn count(tx: &Transaction<'_>, query: &Query) -> Result<u64> {
    let sql = format!("SELECT count(*) FROM docs WHERE {}", condition(query));
    tx.prepare_cached(&sql)?.query_row(
        params![query.kind.word(), query.shelf.as_deref().unwrap_or_default()],
        |row| unsigned(row, 0),
    )
}

pub(super) fn by_key(tx: &Transaction<'_>, kind: Kind, key: &str) -> Result<Option<String>> {
    tx.prepare_cached("SELECT id FROM keys WHERE kind = ?1 AND key = ?2")?
        .query_row([kind.word(), key], |row| row.get(0))
        .optional()
}

pub(super) fn history(tx: &Transaction<'_>, kind: Kind, id: &str) -> Result<Vec<Event>> {
    tx.prepare_cached("SELECT version, at, body FROM events WHERE kind = ?1 AND id = ?2 ORDER BY version")?
        .query_map([kind.word(), id], |row| {
            Ok(Event {
                version: unsigned(row, 0)?,
                at: unsigned(row, 1)?,
                body: row.get(2)?,
            })
        })?
        .collect()
}

pub(super) fn waiting(tx: &Transaction<'_>, queue: Queue, now: u64) -> Result<bool> {
    tx.prepare_cached("SELECT EXISTS (SELECT 1 FROM mail WHERE queue = ?1 AND due <= ?2)")?
        .query_row(params![queue.word(), signed(now)], |row| row.get(0))
}

pub(super) fn take(
    tx: &Transaction<'_>,
    queue: Queue,
    limit: usize,
    visible: Duration,
    now: u64,
) -> Result<Vec<Taken>> {
    let mut found = tx.prepare_cached(
        "SELECT id, doc, body, tries + 1 FROM mail WHERE queue = ?1 AND due <= ?2 ORDER BY due, id LIMIT ?3",
    )?;
    let taken: Vec<Taken> = found
        .query_map(params![queue.word(), signed(now), signed(limit as u64)], |row| {
            Ok(Taken {
                queue,
                id: row.get(0)?,
                to: row.get(1)?,
                body: row.get(2)?,
                tries: unsigned(row, 3)?,
            })
        })?
        .collect::<Result<_>>()?;
    let mut hide = tx.prepare_cached("UPDATE mail SET due = ?3, tries = ?4 WHERE queue = ?1 AND id = ?2")?;
    for each in &taken {
        hide.execute(params![
            queue.word(),
            each.id,
            signed(later(now, visible)),
            signed(each.tries)
        ])?;
    }
    Ok(taken)
}

/// Whether it was not there yet.
pub(super) fn send(tx: &Transaction<'_>, mail: &Mail, now: u64) -> Result<bool> {
    tx.prepare_cached(
        "INSERT INTO mail (queue, id, doc, body, due, tries) VALUES (?1, ?2, ?3, ?4, ?5, 0) ON CONFLICT DO NOTHING",
    )?
    .execute(params![
        mail.queue.word(),
        mail.id,
        mail.to,
        mail.body,
        signed(later(now, mail.due_in))
    ])
    .map(|sent| sent > 0)
}

pub(super) fn settle(tx: &Transaction<'_>, taken: &Taken, settle: Settle, now: u64) -> Result<bool> {
    let (queue, tries) = (taken.queue.word(), signed(taken.tries));
    let changed = match settle {
        Settle::Ack => tx
            .prepare_cached("DELETE FROM mail WHERE queue = ?1 AND id = ?2 AND tries = ?3")?
            .execute(params![queue, taken.id, tries])?,
        Settle::Again(after) => tx
            .prepare_cached("UPDATE mail SET due = ?4 WHERE queue = ?1 AND id = ?2 AND tries = ?3")?
            .execute(params![queue, taken.id, tries, signed(later(now, after))])?,
    };
    Ok(changed > 0)
}

pub(super) fn purge(
    tx: &Transaction<'_>,
    kind: Kind,
    states: &[&'static str],
    keep: Duration,
    limit: usize,
    now: u64,
) -> std::result::Result<u64, Failure> {
    let keep = u64::try_from(keep.as_millis()).unwrap_or(u64::MAX);
    let states: Vec<_> = states.iter().map(|state| format!("'{state}'")).collect();
    let sql = format!(
        "SELECT id FROM docs WHERE kind = ?1 AND state IN ({}) AND updated <= ?2 ORDER BY id LIMIT ?3",
        states.join(", ")
    );
    let old = || -> Result<Vec<String>> {
        tx.prepare_cached(&sql)?
            .query_map(
                params![
                    kind.word(),
                    signed(now.saturating_sub(keep)),
                    signed(limit as u64)
                ],
                |row| row.get(0),
            )?
            .collect()
    };
    let old = old().map_err(failure)?;
    for id in &old {
        for table in ["docs", "events", "keys"] {
            tx.prepare_cached(&format!("DELETE FROM {table} WHERE kind = ?1 AND id = ?2"))
                .and_then(|mut delete| delete.execute([kind.word(), id]))
                .map_err(failure)?;
        }
        if let Ok(name) = Name::new(&format!("{}:{id}", kind.word())) {
            fences::forget(tx, &name)?;
        }
    }
    Ok(old.len() as u64)
}

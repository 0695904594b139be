//! Clean-up: rows whose time is past, a bounded number at a time, inside a step that was due anyway.
//!
//! A step adds at most one row to each table, and a clean-up looks at [`BATCH`] rows, which is more than
//! [`EVERY`] steps can add: the file stays as small as what is alive, and no step ever pays for a long
//! backlog.
//!
//! Leases have no index by expiry, which every acquire, renewal and release would have to write: clean-up
//! goes round the table by name instead, and keeps in the file where it stopped, so that short-lived
//! processes go on where others left off.

use rusqlite::OptionalExtension;

use crate::error::Halt;
use crate::step::Step;

/// A connection cleans up on its first step and after this many more.
pub(crate) const EVERY: u32 = 32;

/// The most rows that one clean-up looks at in one table.
const BATCH: i64 = 64;

/// Removes what is past. Everything is judged by the step's own moment, so nothing alive can go (trap 25).
pub(crate) fn run(step: &Step<'_>) -> Result<(), Halt> {
    for sql in [
        "DELETE FROM waiters WHERE place IN
            (SELECT place FROM waiters WHERE expires_ns <= ?1 ORDER BY expires_ns LIMIT ?2)",
        "DELETE FROM tombstones WHERE (owner, name) IN
            (SELECT owner, name FROM tombstones WHERE expires_ns <= ?1 ORDER BY expires_ns LIMIT ?2)",
    ] {
        step.prepare_cached(sql)?.execute((step.now(), BATCH))?;
    }
    leases(step)
}

fn leases(step: &Step<'_>) -> Result<(), Halt> {
    let from: Option<String> = step
        .prepare_cached("SELECT value FROM meta WHERE key = 'cleaned_up_to'")?
        .query_row([], |row| row.get(0))
        .optional()?;
    let from = from.unwrap_or_default();
    let (to, looked_at): (Option<String>, i64) = step
        .prepare_cached(
            "SELECT max(name), count(*) FROM (SELECT name FROM leases WHERE name > ?1 ORDER BY name LIMIT ?2)",
        )?
        .query_row((&from, BATCH), |row| Ok((row.get(0)?, row.get(1)?)))?;
    if let Some(to) = &to {
        step.prepare_cached("DELETE FROM leases WHERE name > ?1 AND name <= ?2 AND expires_ns <= ?3")?
            .execute((&from, to, step.now()))?;
    }
    // That was the end of the table: round again.
    let to = to.filter(|_| looked_at == BATCH).unwrap_or_default();
    if to != from {
        step.prepare_cached(
            "INSERT INTO meta (key, value) VALUES ('cleaned_up_to', ?1) ON CONFLICT DO UPDATE SET value = excluded.value",
        )?
        .execute([to])?;
    }
    Ok(())
}

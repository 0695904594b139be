//! Removes expired rows, a bounded number at a time, inside a step that runs anyway.
//!
//! A step adds at most one row to each table. A purge checks [`PURGE_BATCH_ROWS`] rows, which is
//! more than [`PURGE_INTERVAL_STEPS`] steps can add. So the file stays about as small as its live
//! rows, and no step pays for a long backlog.
//!
//! Leases have no index by expiry, because every acquire, renewal and release would have to update
//! it. The purge walks the table by name instead and stores its position in the file, so that
//! short-lived processes continue each other's work.

use rusqlite::OptionalExtension;

use crate::error::StepError;
use crate::step::Step;

/// A connection purges on its first step and after this many more.
pub(crate) const PURGE_INTERVAL_STEPS: u32 = 32;

/// Limit of rows that one purge checks in one table.
pub(crate) const PURGE_BATCH_ROWS: i64 = 64;

/// Removes expired rows. The step's own `now` decides, so a live row cannot be removed.
pub(crate) fn run(step: &Step<'_>) -> Result<(), StepError> {
    for sql in [
        "DELETE FROM waiters WHERE place IN
            (SELECT place FROM waiters WHERE expires_ns <= ?1 ORDER BY expires_ns LIMIT ?2)",
        "DELETE FROM tombstones WHERE (owner, name) IN
            (SELECT owner, name FROM tombstones WHERE expires_ns <= ?1 ORDER BY expires_ns LIMIT ?2)",
    ] {
        step.prepare_cached(sql)?.execute((step.now(), PURGE_BATCH_ROWS))?;
    }
    purge_leases(step)
}

fn purge_leases(step: &Step<'_>) -> Result<(), StepError> {
    let from: Option<String> = step
        .prepare_cached("SELECT value FROM meta WHERE key = 'cleaned_up_to'")?
        .query_row([], |row| row.get(0))
        .optional()?;
    let from = from.unwrap_or_default();
    let (to, looked_at): (Option<String>, i64) = step
        .prepare_cached(
            "SELECT max(name), count(*) FROM (SELECT name FROM leases WHERE name > ?1 ORDER BY name LIMIT ?2)",
        )?
        .query_row((&from, PURGE_BATCH_ROWS), |row| Ok((row.get(0)?, row.get(1)?)))?;
    if let Some(to) = &to {
        step.prepare_cached("DELETE FROM leases WHERE name > ?1 AND name <= ?2 AND expires_ns <= ?3")?
            .execute((&from, to, step.now()))?;
    }
    // A short batch was the end of the table: start again from the first name.
    let to = to.filter(|_| looked_at == PURGE_BATCH_ROWS).unwrap_or_default();
    // Skip the write if the position did not move, as in a table with few names.
    if to != from {
        step.prepare_cached(
            "INSERT INTO meta (key, value) VALUES ('cleaned_up_to', ?1) ON CONFLICT DO UPDATE SET value = excluded.value",
        )?
        .execute([to])?;
    }
    Ok(())
}

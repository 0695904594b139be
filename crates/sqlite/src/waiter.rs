//! The queue of a name: rows in the order of arrival.

use std::time::Duration;

use leasehold_core::Name;
use rusqlite::OptionalExtension;

use crate::error::StepError;
use crate::lease::Requester;
use crate::step::Step;

/// The first waiter in a queue.
pub(crate) struct Waiter {
    /// Smaller is earlier.
    pub(crate) place: i64,
    /// Shown to people; not used for decisions.
    pub(crate) holder: String,
    pub(crate) class: String,
    /// Hash of the waiter's token; wake-ups are addressed to it.
    pub(crate) owner: String,
    /// Name of its process's wake socket. Without one, the waiter learns of its grant by polling.
    pub(crate) address: Option<String>,
    /// Highest fence its client has seen; the handed-over lease gets a higher one.
    pub(crate) floor: u64,
}

/// Appends a waiter to the queue, or extends the entry it has, until `stay` from now.
pub(crate) fn enqueue(
    step: &Step<'_>,
    name: &Name,
    requester: &Requester<'_>,
    address: Option<&str>,
    floor: u64,
    stay: Duration,
) -> Result<(), StepError> {
    // An expired entry loses its place: the waiter goes behind those that kept polling.
    step.prepare_cached("DELETE FROM waiters WHERE name = ?1 AND owner = ?2 AND expires_ns <= ?3")?
        .execute((name.as_str(), requester.owner, step.now()))?;
    step.prepare_cached(
        "INSERT INTO waiters (name, holder, class, owner, address, floor, expires_ns)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)
         ON CONFLICT (name, owner) DO UPDATE
            SET address = excluded.address, floor = excluded.floor, expires_ns = excluded.expires_ns",
    )?
    .execute((
        name.as_str(),
        requester.holder,
        requester.class,
        requester.owner,
        address,
        i64::try_from(floor).unwrap_or(i64::MAX),
        step.after(stay),
    ))?;
    Ok(())
}

/// The queue entry of one waiter.
pub(crate) struct QueueEntry {
    /// Time until the entry expires.
    pub(crate) remaining: Duration,
    /// Wake socket that the entry names.
    pub(crate) address: Option<String>,
    /// Fence floor that the entry carries.
    pub(crate) floor: u64,
}

/// Reads the live queue entry of one owner.
pub(crate) fn find_entry(step: &Step<'_>, name: &Name, owner: &str) -> Result<Option<QueueEntry>, StepError> {
    let found = step
        .prepare_cached(
            "SELECT expires_ns, address, floor FROM waiters WHERE name = ?1 AND owner = ?2 AND expires_ns > ?3",
        )?
        .query_row((name.as_str(), owner, step.now()), |row| {
            let left = row.get::<_, i64>(0)?.saturating_sub(step.now());
            Ok(QueueEntry {
                remaining: Duration::from_nanos(u64::try_from(left).unwrap_or(0)),
                address: row.get(1)?,
                floor: u64::try_from(row.get::<_, i64>(2)?).unwrap_or(0),
            })
        })
        .optional()?;
    Ok(found)
}

/// Reads the first waiter whose entry has not expired.
pub(crate) fn first_live(step: &Step<'_>, name: &Name) -> Result<Option<Waiter>, StepError> {
    let found = step
        .prepare_cached(
            "SELECT place, holder, class, owner, address, floor FROM waiters
             WHERE name = ?1 AND expires_ns > ?2 ORDER BY place LIMIT 1",
        )?
        .query_row((name.as_str(), step.now()), |row| {
            let floor: i64 = row.get(5)?;
            Ok(Waiter {
                place: row.get(0)?,
                holder: row.get(1)?,
                class: row.get(2)?,
                owner: row.get(3)?,
                address: row.get(4)?,
                floor: u64::try_from(floor).unwrap_or(0),
            })
        })
        .optional()?;
    Ok(found)
}

/// Removes one waiter by its place.
pub(crate) fn remove_at(step: &Step<'_>, place: i64) -> Result<(), StepError> {
    step.prepare_cached("DELETE FROM waiters WHERE place = ?1")?.execute([place])?;
    Ok(())
}

/// Removes one waiter by its owner.
pub(crate) fn remove_owner(step: &Step<'_>, name: &Name, owner: &str) -> Result<(), StepError> {
    step.prepare_cached("DELETE FROM waiters WHERE name = ?1 AND owner = ?2")?
        .execute((name.as_str(), owner))?;
    Ok(())
}

/// Removes all waiters of a dead process from this queue.
pub(crate) fn remove_process(step: &Step<'_>, name: &Name, address: &str) -> Result<(), StepError> {
    step.prepare_cached("DELETE FROM waiters WHERE name = ?1 AND address = ?2")?
        .execute((name.as_str(), address))?;
    Ok(())
}

//! The queue of a name: rows in the order in which they came.

use std::time::Duration;

use leasehold_core::Name;
use rusqlite::OptionalExtension;

use crate::error::Halt;
use crate::lease::Taker;
use crate::step::Step;

/// The first in a queue.
pub(crate) struct Waiter {
    /// The smaller, the earlier.
    pub(crate) place: i64,
    /// As people read it.
    pub(crate) holder: String,
    /// The class it asks in.
    pub(crate) class: String,
    /// The hash of its token, to which wake-ups are addressed.
    pub(crate) owner: String,
    /// Its process's socket; a waiter without one is found by its own asking only.
    pub(crate) address: Option<String>,
    /// The highest fence its client has seen: what it is handed must be above.
    pub(crate) floor: u64,
}

/// Puts someone at the end of the queue, or keeps the place they have, for this long.
pub(crate) fn enter(
    step: &Step<'_>,
    name: &Name,
    taker: &Taker<'_>,
    address: Option<&str>,
    floor: u64,
    stay: Duration,
) -> Result<(), Halt> {
    // One that ran out has lost its place: it starts behind those who kept asking.
    step.prepare_cached("DELETE FROM waiters WHERE name = ?1 AND owner = ?2 AND expires_ns <= ?3")?
        .execute((name.as_str(), taker.owner, step.now()))?;
    step.prepare_cached(
        "INSERT INTO waiters (name, holder, class, owner, address, floor, expires_ns)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)
         ON CONFLICT (name, owner) DO UPDATE
            SET address = excluded.address, floor = excluded.floor, expires_ns = excluded.expires_ns",
    )?
    .execute((
        name.as_str(),
        taker.holder,
        taker.class,
        taker.owner,
        address,
        i64::try_from(floor).unwrap_or(i64::MAX),
        step.after(stay),
    ))?;
    Ok(())
}

/// What a waiter has of its own.
pub(crate) struct Registered {
    /// How long its place lasts.
    pub(crate) left: Duration,
    /// Where it is woken.
    pub(crate) address: Option<String>,
    /// What it is handed must be above.
    pub(crate) floor: u64,
}

/// The place of this one, if it has one.
pub(crate) fn place(step: &Step<'_>, name: &Name, owner: &str) -> Result<Option<Registered>, Halt> {
    let found = step
        .prepare_cached(
            "SELECT expires_ns, address, floor FROM waiters WHERE name = ?1 AND owner = ?2 AND expires_ns > ?3",
        )?
        .query_row((name.as_str(), owner, step.now()), |row| {
            let left = row.get::<_, i64>(0)?.saturating_sub(step.now());
            Ok(Registered {
                left: Duration::from_nanos(u64::try_from(left).unwrap_or(0)),
                address: row.get(1)?,
                floor: u64::try_from(row.get::<_, i64>(2)?).unwrap_or(0),
            })
        })
        .optional()?;
    Ok(found)
}

/// The first live one.
pub(crate) fn first(step: &Step<'_>, name: &Name) -> Result<Option<Waiter>, Halt> {
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

/// Forgets one waiter by its place.
pub(crate) fn remove(step: &Step<'_>, place: i64) -> Result<(), Halt> {
    step.prepare_cached("DELETE FROM waiters WHERE place = ?1")?
        .execute([place])?;
    Ok(())
}

/// Forgets one waiter by who it is.
pub(crate) fn leave(step: &Step<'_>, name: &Name, owner: &str) -> Result<(), Halt> {
    step.prepare_cached("DELETE FROM waiters WHERE name = ?1 AND owner = ?2")?
        .execute((name.as_str(), owner))?;
    Ok(())
}

/// Forgets all waiters of a process that is gone, in this queue.
pub(crate) fn bury(step: &Step<'_>, name: &Name, address: &str) -> Result<(), Halt> {
    step.prepare_cached("DELETE FROM waiters WHERE name = ?1 AND address = ?2")?
        .execute((name.as_str(), address))?;
    Ok(())
}

//! The row of a live lease, read and written in one place.

use std::time::Duration;

use leasehold_core::{Fence, Name};
use rusqlite::OptionalExtension;

use crate::counter;
use crate::error::Halt;
use crate::step::Step;

/// Who has a name now.
pub(crate) struct Live {
    /// As people read it.
    pub(crate) holder: String,
    /// The class it was asked in.
    pub(crate) class: String,
    /// The hash of the token it was granted to: what every right is compared with.
    pub(crate) owner: String,
    /// The number of this very grant.
    pub(crate) fence: Fence,
    /// Until it runs out, from the step's moment.
    pub(crate) remaining: Duration,
}

/// Someone a lease can be granted to.
pub(crate) struct Taker<'a> {
    /// As people read it.
    pub(crate) holder: &'a str,
    /// The class it asks in.
    pub(crate) class: &'a str,
    /// The hash of its token.
    pub(crate) owner: &'a str,
}

/// The live lease of a name. An expired one is not live, whether or not its row is still there.
pub(crate) fn find(step: &Step<'_>, name: &Name) -> Result<Option<Live>, Halt> {
    let row = step
        .prepare_cached(
            "SELECT holder, class, owner, fence, expires_ns FROM leases WHERE name = ?1 AND expires_ns > ?2",
        )?
        .query_row((name.as_str(), step.now()), |row| {
            let (fence, expires): (i64, i64) = (row.get(3)?, row.get(4)?);
            Ok((row.get(0)?, row.get(1)?, row.get(2)?, fence, expires))
        })
        .optional()?;
    row.map(|(holder, class, owner, fence, expires)| {
        Ok(Live {
            holder,
            class,
            owner,
            fence: counter::from_column(fence)?,
            remaining: step.until(expires),
        })
    })
    .transpose()
}

/// Gives a free name to someone, with a new fence above `floor`.
pub(crate) fn grant(
    step: &Step<'_>,
    name: &Name,
    taker: &Taker<'_>,
    floor: u64,
    kept: Duration,
) -> Result<Fence, Halt> {
    let fence = counter::next(step, name, floor)?;
    step.prepare_cached(
        "INSERT OR REPLACE INTO leases
            (name, holder, class, owner, fence, granted_ns, expires_ns, granted_unix_ms, expires_unix_ms)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)",
    )?
    .execute((
        name.as_str(),
        taker.holder,
        taker.class,
        taker.owner,
        counter::to_column(fence),
        step.now(),
        step.after(kept),
        step.wall_millis_after(Duration::ZERO),
        step.wall_millis_after(kept),
    ))?;
    Ok(fence)
}

/// Lets a lease that the caller has found live go on for `kept` from now. Never shorter: a late repetition, sent before a
/// policy lengthened the TTL, must not cut what its holder was told.
pub(crate) fn extend(step: &Step<'_>, name: &Name, kept: Duration) -> Result<(), Halt> {
    step.prepare_cached(
        "UPDATE leases SET expires_ns = max(expires_ns, ?2), expires_unix_ms = max(expires_unix_ms, ?3)
         WHERE name = ?1",
    )?
    .execute((name.as_str(), step.after(kept), step.wall_millis_after(kept)))?;
    Ok(())
}

/// Frees a name.
pub(crate) fn remove(step: &Step<'_>, name: &Name) -> Result<(), Halt> {
    step.prepare_cached("DELETE FROM leases WHERE name = ?1")?
        .execute([name.as_str()])?;
    Ok(())
}

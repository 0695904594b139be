//! Reads and writes the row of a lease.

use std::time::Duration;

use leasehold_core::{Fence, Name};
use rusqlite::OptionalExtension;

use crate::counter;
use crate::error::StepError;
use crate::step::Step;

/// A lease that has not expired.
pub(crate) struct LiveLease {
    /// Shown to people; not used for decisions.
    pub(crate) holder: String,
    pub(crate) class: String,
    /// Owner hash of the token it was granted to; every renew and release is compared with it.
    pub(crate) owner: String,
    /// The fence of this grant.
    pub(crate) fence: Fence,
    /// Time until it expires, from the step's `now`.
    pub(crate) remaining: Duration,
}

/// The client to which a lease is granted.
pub(crate) struct Requester<'a> {
    /// Shown to people; not used for decisions.
    pub(crate) holder: &'a str,
    pub(crate) class: &'a str,
    pub(crate) owner: &'a str,
}

/// Reads the live lease of a name. An expired row is ignored, whether or not it was purged.
pub(crate) fn find(step: &Step<'_>, name: &Name) -> Result<Option<LiveLease>, StepError> {
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
        Ok(LiveLease {
            holder,
            class,
            owner,
            fence: counter::fence_from_column(fence)?,
            remaining: step.until(expires),
        })
    })
    .transpose()
}

/// Grants a free name, with a new fence above `floor`.
pub(crate) fn grant(
    step: &Step<'_>,
    name: &Name,
    requester: &Requester<'_>,
    floor: u64,
    kept: Duration,
) -> Result<Fence, StepError> {
    // The insert below replaces an expired row that no purge has removed yet.
    let fence = counter::next_fence(step, name, floor)?;
    step.prepare_cached(
        "INSERT OR REPLACE INTO leases
            (name, holder, class, owner, fence, granted_ns, expires_ns, granted_unix_ms, expires_unix_ms)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)",
    )?
    .execute((
        name.as_str(),
        requester.holder,
        requester.class,
        requester.owner,
        counter::fence_to_column(fence),
        step.now(),
        step.after(kept),
        step.wall_millis_after(Duration::ZERO),
        step.wall_millis_after(kept),
    ))?;
    Ok(fence)
}

/// Extends a lease that the caller has found live, to `kept` from now.
pub(crate) fn extend(step: &Step<'_>, name: &Name, kept: Duration) -> Result<(), StepError> {
    // Never shorter: a late repetition, sent before a policy lengthened the TTL, must not cut the
    // time that its holder was promised.
    step.prepare_cached(
        "UPDATE leases SET expires_ns = max(expires_ns, ?2), expires_unix_ms = max(expires_unix_ms, ?3)
         WHERE name = ?1",
    )?
    .execute((name.as_str(), step.after(kept), step.wall_millis_after(kept)))?;
    Ok(())
}

/// Removes the lease row of a name.
pub(crate) fn remove(step: &Step<'_>, name: &Name) -> Result<(), StepError> {
    step.prepare_cached("DELETE FROM leases WHERE name = ?1")?.execute([name.as_str()])?;
    Ok(())
}

//! Reads one lease, or all leases under a prefix.

use leasehold_core::Name;
use leasehold_core::store::{Lease, LeaseList, StoreError, StoreErrorKind};
use rusqlite::Row;

use crate::counter;
use crate::error::StepError;
use crate::step::Step;

/// The columns of a lease that callers may see. Rows come in byte order of their names.
const SELECT_LEASE: &str = "SELECT name, holder, class, fence, granted_ns, expires_ns,
        (SELECT count(*) FROM waiters WHERE waiters.name = leases.name AND waiters.expires_ns > ?2)
     FROM leases WHERE expires_ns > ?2 AND ";

pub(crate) fn inspect_name(step: &Step<'_>, name: &Name) -> Result<LeaseList, StepError> {
    let mut statement = step.prepare_cached(&format!("{SELECT_LEASE} name = ?1"))?;
    let mut rows = statement.query((name.as_str(), step.now()))?;
    Ok(LeaseList::new(rows.next()?.map(|row| read_lease(step, row)).transpose()?))
}

/// Reads live leases whose names start with `prefix`.
pub(crate) fn list_prefix(step: &Step<'_>, prefix: &str, limit: usize) -> Result<LeaseList, StepError> {
    // Not `LIKE`: `%` and `_` in a prefix must match only themselves.
    let mut statement = step.prepare_cached(&format!("{SELECT_LEASE} name >= ?1 ORDER BY name"))?;
    let mut rows = statement.query((prefix, step.now()))?;
    let mut listing = LeaseList::default();
    while let Some(row) = rows.next()? {
        let lease = read_lease(step, row)?;
        // In byte order, names with the same prefix are adjacent: the first
        // other name ends the listing.
        if !lease.name.as_str().starts_with(prefix) {
            break;
        }
        if listing.leases.len() == limit {
            listing.truncated = true;
            break;
        }
        listing.leases.push(lease);
    }
    Ok(listing)
}

fn read_lease(step: &Step<'_>, row: &Row<'_>) -> Result<Lease, StepError> {
    let name: String = row.get(0)?;
    let (fence, granted, expires, waiters): (i64, i64, i64, i64) =
        (row.get(3)?, row.get(4)?, row.get(5)?, row.get(6)?);
    Ok(Lease::new(name_from_column(&name)?, row.get::<_, String>(1)?)
        .with_class(row.get::<_, String>(2)?)
        .with_fence(counter::fence_from_column(fence)?)
        .with_remaining(step.until(expires))
        .with_age(step.since(granted))
        .with_waiters(u64::try_from(waiters).unwrap_or(0)))
}

/// Converts a column value to a name.
pub(crate) fn name_from_column(text: &str) -> Result<Name, StoreError> {
    Name::new(text).map_err(|error| {
        StoreError::not_done(
            StoreErrorKind::Corrupt,
            "the database holds a name Leasehold never writes: was it edited by hand?",
        )
        .with_source(error)
    })
}

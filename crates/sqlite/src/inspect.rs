//! Looking: one lease, or all under a prefix.

use leasehold_core::Name;
use leasehold_core::store::{Cause, Failure, Lease, Listing};
use rusqlite::Row;

use crate::counter;
use crate::error::Halt;
use crate::step::Step;

/// All of a lease that people may see. The rows come in the order of their names' bytes.
const COLUMNS: &str = "SELECT name, holder, class, fence, granted_ns, expires_ns,
        (SELECT count(*) FROM waiters WHERE waiters.name = leases.name AND waiters.expires_ns > ?2)
     FROM leases WHERE expires_ns > ?2 AND ";

/// The live lease of a name.
pub(crate) fn one(step: &Step<'_>, name: &Name) -> Result<Option<Lease>, Halt> {
    let mut statement = step.prepare_cached(&format!("{COLUMNS} name = ?1"))?;
    let mut rows = statement.query((name.as_str(), step.now()))?;
    rows.next()?.map(|row| read(step, row)).transpose()
}

/// Live leases whose names start with `prefix`. The comparison is made here, not with `LIKE`: every character
/// of a prefix means itself.
pub(crate) fn all(step: &Step<'_>, prefix: &str, limit: usize) -> Result<Listing, Halt> {
    let mut statement = step.prepare_cached(&format!("{COLUMNS} name >= ?1 ORDER BY name"))?;
    let mut rows = statement.query((prefix, step.now()))?;
    let mut listing = Listing::default();
    while let Some(row) = rows.next()? {
        let lease = read(step, row)?;
        // Names with one prefix stand together in this order.
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

fn read(step: &Step<'_>, row: &Row<'_>) -> Result<Lease, Halt> {
    let name: String = row.get(0)?;
    let (fence, granted, expires, waiters): (i64, i64, i64, i64) =
        (row.get(3)?, row.get(4)?, row.get(5)?, row.get(6)?);
    Ok(Lease {
        name: Name::new(&name).map_err(|error| {
            Failure::not_done(
                Cause::Corrupt,
                "the database holds a name Leasehold never writes: was it edited by hand?",
            )
            .with_source(error)
        })?,
        holder: row.get(1)?,
        class: Some(row.get(2)?),
        fence: Some(counter::from_column(fence)?),
        remaining: Some(step.until(expires)),
        age: Some(step.since(granted)),
        waiters: Some(u64::try_from(waiters).unwrap_or(0)),
    })
}

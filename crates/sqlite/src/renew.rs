//! Extending leases, a batch in one transaction.

use leasehold_core::store::{Renewal, Renewed};

use crate::error::Halt;
use crate::lease;
use crate::step::{self, Step};

/// One answer per item, in order. An item that is not owned does not hinder the others.
pub(crate) fn run(step: &Step<'_>, batch: &[Renewal]) -> Result<Vec<Renewed>, Halt> {
    batch.iter().map(|renewal| one(step, renewal)).collect()
}

fn one(step: &Step<'_>, renewal: &Renewal) -> Result<Renewed, Halt> {
    match lease::find(step, &renewal.name)? {
        // The fence too: a lease that was lost and granted anew, even to this token, is another lease.
        Some(live) if live.fence == renewal.fence && live.owner == step::owner(&renewal.token) => {
            lease::extend(step, &renewal.name, renewal.kept())?;
            Ok(Renewed::Extended {
                was_left: Some(live.remaining),
            })
        }
        _ => Ok(Renewed::NotOwned),
    }
}

//! The renew operation: a batch in one transaction.

use leasehold_core::store::{RenewRequest, RenewResponse};

use crate::error::StepError;
use crate::lease;
use crate::step::{self, Step};

/// One response per item, in order. An item that is not owned does not affect the others.
pub(crate) fn run(step: &Step<'_>, batch: &[RenewRequest]) -> Result<Vec<RenewResponse>, StepError> {
    batch.iter().map(|renewal| renew_one(step, renewal)).collect()
}

fn renew_one(step: &Step<'_>, renewal: &RenewRequest) -> Result<RenewResponse, StepError> {
    match lease::find(step, &renewal.name)? {
        // Compare the fence too. A lease that was lost and granted again to the same token is a new
        // one, and its holder must learn that.
        Some(live) if live.fence == renewal.fence && live.owner == step::owner_hash(&renewal.token) => {
            lease::extend(step, &renewal.name, renewal.store_ttl())?;
            Ok(RenewResponse::Extended { remaining_before: Some(live.remaining) })
        }
        _ => Ok(RenewResponse::NotOwned),
    }
}

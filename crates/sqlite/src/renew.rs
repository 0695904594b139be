//! The renew operation: a batch in one transaction.

use leasehold_core::store::{RenewRequest, RenewResponse, StoreError};

use crate::backend::CAPABILITIES;
use crate::error::StepError;
use crate::lease;
use crate::step::{self, Step};

/// One result per item, in order. An item that is refused or not owned does not affect the others.
pub(crate) fn run(
    step: &Step<'_>,
    batch: &[RenewRequest],
) -> Result<Vec<Result<RenewResponse, StoreError>>, StepError> {
    let renew = |renewal: &RenewRequest| match CAPABILITIES.check_names(&renewal.names) {
        Ok(()) => renew_one(step, renewal).map(Ok),
        Err(refused) => Ok(Err(refused)),
    };
    batch.iter().map(renew).collect()
}

fn renew_one(step: &Step<'_>, renewal: &RenewRequest) -> Result<RenewResponse, StepError> {
    let name = renewal.names.first();
    match lease::find(step, name)? {
        // Compare the fence too. A lease that was lost and granted again to the same token is a new
        // one, and its holder must learn that.
        Some(live) if live.fence == renewal.fence && live.owner == step::owner_hash(&renewal.token) => {
            lease::extend(step, name, renewal.store_ttl())?;
            Ok(RenewResponse::extended(live.remaining))
        }
        _ => Ok(RenewResponse::NotOwned),
    }
}

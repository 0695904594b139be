//! The acquire operation.

use leasehold_core::Fence;
use leasehold_core::store::{AcquireRequest, AcquireResponse, BusyLease, Grant};

use crate::error::StepError;
use crate::lease::{self, LiveLease, Requester};
use crate::step::{self, Step};
use crate::waiter;

/// Runs the four cases of [`Store::acquire`](leasehold_core::store::Store::acquire), in order.
/// `address` names the socket that receives wake-ups for this client.
pub(crate) fn run(
    step: &Step<'_>,
    request: &AcquireRequest,
    address: Option<&str>,
) -> Result<AcquireResponse, StepError> {
    let owner = step::owner_hash(&request.token);
    // First of all: a late copy of an undone request must neither take the name nor queue.
    if has_tombstone(step, request, &owner)? {
        return Ok(AcquireResponse::Void);
    }
    let taker = Requester { holder: request.token.holder(), class: request.token.class(), owner: &owner };
    let floor = request.floor.map_or(0, Fence::get);
    match lease::find(step, request.names.first())? {
        Some(live) if live.owner == owner => {
            // The same token asks again, for example after a lost response: same lease, same fence.
            lease::extend(step, request.names.first(), request.store_ttl())?;
            Ok(granted_response(live.fence))
        }
        Some(live) => {
            if let Some(stay) = request.queue {
                waiter::enqueue(step, request.names.first(), &taker, address, floor, stay)?;
            }
            Ok(busy_response(live, request.queue.is_some()))
        }
        None => {
            let fence = lease::grant(step, request.names.first(), &taker, floor, request.store_ttl())?;
            // Remove the queue entry in the same step, or the next release would hand the
            // lease over to its own holder.
            waiter::remove_owner(step, request.names.first(), &owner)?;
            Ok(granted_response(fence))
        }
    }
}

/// Answers a waiter's poll with a read, if nothing has changed for it. `None`
/// means: run the full acquire.
pub(crate) fn answer_poll_by_read(
    step: &Step<'_>,
    request: &AcquireRequest,
    address: Option<&str>,
) -> Result<Option<AcquireResponse>, StepError> {
    let owner = step::owner_hash(&request.token);
    // If hundreds of waiters took the write lock for every poll, the next
    // holder would wait behind them.
    let (Some(stay), Some(live)) = (request.queue, lease::find(step, request.names.first())?) else {
        return Ok(None);
    };
    if live.owner == owner || has_tombstone(step, request, &owner)? {
        return Ok(None);
    }
    // The queue entry must outlive the next poll and name the current socket. A higher floor must
    // be stored, because the hand-over uses it. It need not be if the counter is already past it.
    let floor = request.floor.map_or(0, Fence::get);
    match waiter::find_entry(step, request.names.first(), &owner)? {
        Some(place)
            if place.remaining >= stay / 2
                && place.address.as_deref() == address
                && floor <= place.floor.max(live.fence.get()) =>
        {
            Ok(Some(busy_response(live, true)))
        }
        _ => Ok(None),
    }
}

fn granted_response(fence: Fence) -> AcquireResponse {
    AcquireResponse::Granted(Grant::new(fence))
}

fn busy_response(live: LiveLease, queued: bool) -> AcquireResponse {
    let busy = BusyLease::new(live.holder)
        .with_class(live.class)
        .with_fence(live.fence)
        .with_remaining(live.remaining)
        .with_queued(queued);
    AcquireResponse::Busy(busy)
}

fn has_tombstone(step: &Step<'_>, request: &AcquireRequest, owner: &str) -> Result<bool, StepError> {
    Ok(step
        .prepare_cached("SELECT 1 FROM tombstones WHERE owner = ?1 AND name = ?2 AND expires_ns > ?3")?
        .exists((owner, request.names.first().as_str(), step.now()))?)
}

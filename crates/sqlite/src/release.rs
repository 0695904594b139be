//! Releases a lease and hands it over to the next waiter.
//!
//! The next waiter gets the lease in the same transaction that frees it, for the time it needs to
//! confirm. A waiter of a dead process is recognised by its dead socket and skipped at once. A
//! waiter that is merely stopped costs the queue one claim time.

use leasehold_core::store::{ReleaseAuthority, ReleaseRequest, ReleaseResponse};

use crate::backend::CAPABILITIES;
use crate::error::StepError;
use crate::lease::{self, LiveLease, Requester};
use crate::step::{self, Step};
use crate::waiter::{self, Waiter};
use crate::wake::{PendingWake, Route, WakeSender};

/// Limit of dead processes that one release skips. Beyond it the name is left free, and
/// live waiters find it by polling.
const MAX_SKIPPED_PROCESSES: usize = 32;

/// Ends the lease if the authority matches. The caller sends the wake-up after the commit; before
/// it, the woken waiter would not find its lease.
pub(crate) fn run(
    step: &Step<'_>,
    request: &ReleaseRequest,
    wake_sender: &WakeSender,
) -> Result<(ReleaseResponse, Option<PendingWake>), StepError> {
    let name = request.names.first();
    let live = lease::find(step, name)?;
    let matches = match &request.authority {
        ReleaseAuthority::Owner(token) => {
            let owner = step::owner_hash(token);
            waiter::remove_owner(step, name, &owner)?;
            // Also if the token owns nothing now: its acquire request may still be on its way.
            insert_tombstone(step, request, &owner)?;
            live.as_ref().is_some_and(|live| live.owner == owner)
        }
        // An operator breaks the lease that was inspected, and never a newer one.
        ReleaseAuthority::Operator(fence) => {
            live.as_ref().is_some_and(|live: &LiveLease| live.fence == *fence)
        }
        ReleaseAuthority::Waiter(token) => {
            waiter::remove_owner(step, name, &step::owner_hash(token))?;
            false
        }
        // An authority from a later version of the contract: this store cannot check it.
        _ => false,
    };
    if !matches {
        return Ok((ReleaseResponse::NotOwned, None));
    }
    let wake = hand_over(step, request, wake_sender)?;
    Ok((ReleaseResponse::Released, wake))
}

/// Records a tombstone for the token, if the request asks for one.
fn insert_tombstone(step: &Step<'_>, request: &ReleaseRequest, owner: &str) -> Result<(), StepError> {
    if let Some(stay) = request.tombstone {
        step.prepare_cached(
            "INSERT OR REPLACE INTO tombstones (owner, name, expires_ns) VALUES (?1, ?2, ?3)",
        )?
        .execute((owner, request.names.first().as_str(), step.after(stay)))?;
    }
    Ok(())
}

fn hand_over(
    step: &Step<'_>,
    request: &ReleaseRequest,
    wake_sender: &WakeSender,
) -> Result<Option<PendingWake>, StepError> {
    let name = request.names.first();
    for _ in 0..MAX_SKIPPED_PROCESSES {
        let Some(next) = waiter::first_live(step, name)? else {
            break;
        };
        let route = match next.address.as_deref().map(|address| (address, wake_sender.route(address))) {
            Some((address, Route::Dead)) => {
                // All waiters of that process at once: one dead process with
                // many waiters counts as one skip.
                waiter::remove_process(step, name, address)?;
                continue;
            }
            Some((_, route)) => route,
            // No socket does not mean dead: the waiter may find its grant by polling.
            None => Route::Unknown,
        };
        let Waiter { place, owner, .. } = &next;
        let taker = Requester { holder: &next.holder, class: &next.class, owner };
        lease::grant(step, name, &taker, next.floor, CAPABILITIES.claim_ttl)?;
        waiter::remove_at(step, *place)?;
        return Ok(Some(PendingWake::new(next.owner, route)));
    }
    // No live waiter: the name is free for the next acquire.
    lease::remove(step, name)?;
    Ok(None)
}

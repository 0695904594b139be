//! Asking for a lease.

use leasehold_core::Fence;
use leasehold_core::store::{Answer, Ask, Busy, Cause, Failure, Grant, Mode};

use crate::error::Halt;
use crate::lease::{self, Taker};
use crate::step::{self, Step};
use crate::waiter;

/// Refuses what this store cannot do, before anything is queued.
pub(crate) fn check(ask: &Ask) -> Result<(), Failure> {
    match ask.mode {
        Mode::Exclusive => Ok(()),
        _ => Err(Failure::not_done(
            Cause::Unsupported,
            "the SQLite store grants exclusive leases only: use another store for shared leases and permits",
        )),
    }
}

/// The four cases of [`Store::acquire`](leasehold_core::store::Store::acquire), in order. `address` is where
/// a wake-up for this asker can be sent.
pub(crate) fn run(step: &Step<'_>, ask: &Ask, address: Option<&str>) -> Result<Answer, Halt> {
    let owner = step::owner(&ask.token);
    if is_void(step, ask, &owner)? {
        return Ok(Answer::Void);
    }
    let taker = Taker {
        holder: ask.token.holder(),
        class: ask.token.class(),
        owner: &owner,
    };
    let floor = ask.floor.map_or(0, Fence::get);
    match lease::find(step, &ask.name)? {
        Some(live) if live.owner == owner => {
            lease::extend(step, &ask.name, ask.kept())?;
            Ok(granted(live.fence))
        }
        Some(live) => {
            if let Some(stay) = ask.queue {
                waiter::enter(step, &ask.name, &taker, address, floor, stay)?;
            }
            Ok(Answer::Busy(Busy {
                holder: live.holder,
                class: Some(live.class),
                fence: Some(live.fence),
                remaining: Some(live.remaining),
                queued: ask.queue.is_some(),
            }))
        }
        None => {
            let fence = lease::grant(step, &ask.name, &taker, floor, ask.kept())?;
            waiter::leave(step, &ask.name, &owner)?;
            Ok(granted(fence))
        }
    }
}

/// A waiter asks again. As long as nothing has changed for it, a look is the whole answer: hundreds of waiters that each
/// took the write lock for every poll would keep it from the one whose turn it is. `None`: ask in full.
pub(crate) fn look(step: &Step<'_>, ask: &Ask, address: Option<&str>) -> Result<Option<Answer>, Halt> {
    let owner = step::owner(&ask.token);
    let (Some(stay), Some(live)) = (ask.queue, lease::find(step, &ask.name)?) else {
        return Ok(None);
    };
    if live.owner == owner || is_void(step, ask, &owner)? {
        return Ok(None);
    }
    // Its place must last well beyond the next poll, and lead to where it can be woken now. Its floor counts when it is
    // handed the lease, so a higher one must be written down, unless the counter is beyond it anyway.
    let floor = ask.floor.map_or(0, Fence::get);
    match waiter::place(step, &ask.name, &owner)? {
        Some(place)
            if place.left >= stay / 2
                && place.address.as_deref() == address
                && floor <= place.floor.max(live.fence.get()) =>
        {
            Ok(Some(Answer::Busy(Busy {
                holder: live.holder,
                class: Some(live.class),
                fence: Some(live.fence),
                remaining: Some(live.remaining),
                queued: true,
            })))
        }
        _ => Ok(None),
    }
}

fn granted(fence: Fence) -> Answer {
    Answer::Granted(Grant { fence, ttl: None })
}

fn is_void(step: &Step<'_>, ask: &Ask, owner: &str) -> Result<bool, Halt> {
    Ok(step
        .prepare_cached("SELECT 1 FROM tombstones WHERE owner = ?1 AND name = ?2 AND expires_ns > ?3")?
        .exists((owner, ask.name.as_str(), step.now()))?)
}

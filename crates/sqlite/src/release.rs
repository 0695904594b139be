//! Giving a lease back, and on to the next in the queue.
//!
//! The next one gets the lease in the same transaction that frees it, for as long as it takes to confirm. A
//! waiter whose process is gone is recognised by its dead socket and passed over at once; one that is merely
//! stopped costs the queue one [`CLAIM`].

use leasehold_core::store::{CLAIM, Claim, Given, Giving};

use crate::error::Halt;
use crate::lease::{self, Live, Taker};
use crate::step::{self, Step};
use crate::waiter::{self, Waiter};
use crate::wake::{Post, Route, Wake};

/// How many dead processes one release passes over. If even more died at once the name is left free, and the
/// living find it when they ask again.
const PASSED_OVER: usize = 32;

/// Ends the lease if the claim is right. The wake-up must be sent once the step is committed: earlier, the
/// woken one would find nothing.
pub(crate) fn run(step: &Step<'_>, giving: &Giving, post: &Post) -> Result<(Given, Option<Wake>), Halt> {
    let live = lease::find(step, &giving.name)?;
    let matches = match &giving.claim {
        Claim::Owner(token) => {
            let owner = step::owner(token);
            waiter::leave(step, &giving.name, &owner)?;
            bury_token(step, giving, &owner)?;
            live.as_ref().is_some_and(|live| live.owner == owner)
        }
        Claim::Seen(fence) => live.as_ref().is_some_and(|live: &Live| live.fence == *fence),
        Claim::Place(token) => {
            waiter::leave(step, &giving.name, &step::owner(token))?;
            false
        }
        // A claim of a later contract that this store does not know gives nobody a right.
        _ => false,
    };
    if !matches {
        return Ok((Given::NotOwned, None));
    }
    let wake = hand_over(step, giving, post)?;
    Ok((Given::Released, wake))
}

/// Refuses the token from now on, if its owner wants that.
fn bury_token(step: &Step<'_>, giving: &Giving, owner: &str) -> Result<(), Halt> {
    if let Some(stay) = giving.tombstone {
        step.prepare_cached(
            "INSERT OR REPLACE INTO tombstones (owner, name, expires_ns) VALUES (?1, ?2, ?3)",
        )?
        .execute((owner, giving.name.as_str(), step.after(stay)))?;
    }
    Ok(())
}

fn hand_over(step: &Step<'_>, giving: &Giving, post: &Post) -> Result<Option<Wake>, Halt> {
    let name = &giving.name;
    for _ in 0..PASSED_OVER {
        let Some(next) = waiter::first(step, name)? else {
            break;
        };
        let route = match next
            .address
            .as_deref()
            .map(|address| (address, post.route(address)))
        {
            Some((address, Route::Dead)) => {
                waiter::bury(step, name, address)?;
                continue;
            }
            Some((_, route)) => route,
            None => Route::Unknown,
        };
        let Waiter { place, owner, .. } = &next;
        let taker = Taker {
            holder: &next.holder,
            class: &next.class,
            owner,
        };
        lease::grant(step, name, &taker, next.floor, CLAIM)?;
        waiter::remove(step, *place)?;
        return Ok(Some(Wake::new(next.owner, route)));
    }
    lease::remove(step, name)?;
    Ok(None)
}

//! A lock's whole life cycle on a name of its own: checks that the user has every right that is needed.
//!
//! One token acquires, another waits; the lease is renewed, inspected, listed, released, handed over and
//! undone. Each step that fails is reported. Whatever is left over expires within seconds.

use std::time::Duration;

use leasehold::clock::BootClock;
use leasehold::store::{
    AcquireRequest, AcquireResponse, Finding, ReleaseRequest, ReleaseResponse, RenewRequest, RenewResponse,
    SharedStore, StoreError, StoreErrorKind, bounded_call,
};
use leasehold::{Holder, Name, Ttl};
use leasehold_core::Token;
use leasehold_core::rng::{OsRandom, RandomExt};

// Short, so that a trial that is interrupted leaves nothing behind for long.
const TRIAL_TTL: Duration = Duration::from_secs(10);

/// Runs the life cycle and returns what failed.
pub(super) async fn run_trial(store: &SharedStore, within: Duration) -> Vec<Finding> {
    match try_life_cycle(store, within).await {
        Ok(true) => Vec::new(),
        Ok(false) => vec![Finding::risk(
            "store.queue",
            "waiters are not registered: they only poll, and are served in no order",
            "give the user every right of the ACL line in docs/stores/redis.md, and let it subscribe",
        )],
        Err((step, failure)) => vec![to_finding(step, &failure)],
    }
}

type TrialResult<T> = Result<T, (&'static str, StoreError)>;

async fn try_life_cycle(store: &SharedStore, within: Duration) -> TrialResult<bool> {
    let odd = |why: &str| ("store.trial", StoreError::not_done(StoreErrorKind::Corrupt, why));
    let invalid = |error: leasehold::InvalidInput| {
        ("store.trial", StoreError::not_done(StoreErrorKind::Corrupt, error.to_string()))
    };
    let holder = Holder::new("leasehold-doctor").map_err(invalid)?;
    // A random name cannot collide with a user's lock.
    let name = Name::new(&format!("leasehold-doctor:{:032x}", OsRandom.wide())).map_err(invalid)?;
    let token = || Token::fresh(&holder, "doctor", &OsRandom);
    let (first, second) = (token(), token());
    let can = store.capabilities();
    let ttl = Ttl::new(TRIAL_TTL).map_err(invalid)?.max(can.min_ttl);

    let request = AcquireRequest::new(name.clone(), first.clone(), ttl);
    let granted = trial_call("take a lock", within, store.acquire(&request, within)).await?;
    let AcquireResponse::Granted(grant) = granted else {
        return Err(odd("an unused name was not granted"));
    };
    let outcome =
        try_contended_part(store, within, &name, (&first, &second), grant.fence, ttl, can.queue, can.list)
            .await;
    // Undo both tokens on every path, so that no lease is left behind.
    for token in [first, second] {
        let undo = ReleaseRequest::undo(name.clone(), token);
        let given = trial_call("take a lock back", within, store.release(&undo, within)).await;
        if outcome.is_ok() {
            given?;
        }
    }
    outcome
}

#[allow(
    clippy::too_many_arguments,
    reason = "one straight line of steps, cut in two so that the end always comes"
)]
async fn try_contended_part(
    store: &SharedStore,
    within: Duration,
    name: &Name,
    (first, second): (&Token, &Token),
    fence: leasehold::Fence,
    ttl: Ttl,
    queue: bool,
    list: bool,
) -> TrialResult<bool> {
    let odd = |why: &str| ("store.trial", StoreError::not_done(StoreErrorKind::Corrupt, why));
    // Some stores queue a waiter only while it is subscribed.
    let _listener = store.listen(name, second);
    let mut wait = AcquireRequest::new(name.clone(), second.clone(), ttl);
    wait.queue = queue.then_some(TRIAL_TTL);
    let queued = match trial_call("wait for a lock", within, store.acquire(&wait, within)).await? {
        AcquireResponse::Busy(busy) => busy.queued || !queue,
        _ => return Err(odd("a held lock was granted to a second client as well")),
    };
    let batch = [RenewRequest::new(name, first.clone(), fence, ttl)];
    let renewing = async {
        let answer = store.renew(&batch, within).await.into_iter().next();
        answer.unwrap_or_else(|| Err(StoreError::unknown(StoreErrorKind::Corrupt, "no answer")))
    };
    if trial_call("renew a lock", within, renewing).await? == RenewResponse::NotOwned {
        return Err(odd("a lock that is held could not be renewed"));
    }
    if trial_call("look at a lock", within, store.inspect(name, within)).await?.leases.is_empty() {
        return Err(odd("a lock that is held is not shown"));
    }
    if list {
        trial_call("list locks", within, store.list("leasehold-doctor:", 10, within)).await?;
    }
    let request = ReleaseRequest::by_owner(name.clone(), first.clone());
    if trial_call("give a lock back", within, store.release(&request, within)).await?
        == ReleaseResponse::NotOwned
    {
        return Err(odd("a lock that is held could not be given back"));
    }
    let again = AcquireRequest::new(name.clone(), second.clone(), ttl);
    match trial_call("hand a lock over", within, store.acquire(&again, within)).await? {
        AcquireResponse::Granted(next) if next.fence > fence => Ok(queued),
        AcquireResponse::Granted(_) => Err(odd("a fence did not grow")),
        _ => Err(odd("a lock that was given back was not granted to the one who waited")),
    }
}

async fn trial_call<T>(
    what: &'static str,
    within: Duration,
    work: impl Future<Output = Result<T, StoreError>>,
) -> TrialResult<T> {
    let answer = bounded_call(&BootClock, within, work).await;
    answer.map_err(|failure| (what, failure))
}

fn to_finding(step: &'static str, failure: &StoreError) -> Finding {
    let why = failure.message();
    match (step, failure.kind) {
        ("store.trial", _) => Finding::breaks(
            "store.trial",
            format!("the store does not do what a lock needs: {why}"),
            "please report it, with the version of the store",
        ),
        ("list locks", StoreErrorKind::Denied) => Finding::risk(
            "store.permission",
            format!("this user may not list locks: {why}"),
            "give it +scan if people should see who holds what; locks work without",
        ),
        (_, StoreErrorKind::Denied) => Finding::breaks(
            "store.permission",
            format!("this user may not {step}: {why}"),
            "give it the rights of the ACL line in docs/stores/redis.md",
        ),
        _ => Finding::breaks(
            "store.trial",
            format!("cannot {step}: {}: {why}", failure.kind),
            "fix that error: until then locks are unsafe or cannot be acquired",
        ),
    }
}

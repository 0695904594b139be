//! A lock's whole life cycle on a name of its own: checks that the user has every right that is needed.
//!
//! One token acquires, another waits; the lease is renewed, inspected, listed, released, handed over and
//! undone. The first step that fails is reported. A lease that is left over expires within seconds.

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

// The step that a user may be denied although locks work.
const LIST_STEP: &str = "list locks";

// Advice for a store that has none of its own.
const DEFAULT_RIGHTS_ADVICE: &str = "give this user every right on the store";

/// Runs the life cycle and returns what failed. `rights_advice`: the store's, for a missing right.
pub(super) async fn run_trial(
    store: &SharedStore,
    rights_advice: &'static str,
    within: Duration,
) -> Vec<Finding> {
    let advice = if rights_advice.is_empty() { DEFAULT_RIGHTS_ADVICE } else { rights_advice };
    match try_life_cycle(store, within).await {
        Ok(true) => Vec::new(),
        Ok(false) => vec![Finding::risk(
            "store.queue",
            "waiters are not registered: they only poll, and are served in no order",
            advice,
        )],
        Err(TrialError::Contract(why)) => vec![Finding::breaks(
            "store.trial",
            format!("the store does not do what a lock needs: {why}"),
            "please report it, with the version of the store",
        )],
        Err(TrialError::Call(step, failure)) => vec![to_finding(step, &failure, advice)],
    }
}

enum TrialError {
    /// A response that the contract of stores excludes.
    Contract(String),
    /// A step, and the error of its call.
    Call(&'static str, StoreError),
}

type TrialResult<T> = Result<T, TrialError>;

fn contract_error(why: &str) -> TrialError {
    TrialError::Contract(why.to_owned())
}

async fn try_life_cycle(store: &SharedStore, within: Duration) -> TrialResult<bool> {
    let invalid = |error: leasehold::InvalidInput| contract_error(&error.to_string());
    let holder = Holder::new("leasehold-doctor").map_err(invalid)?;
    // A random name cannot collide with a user's lock.
    let name = Name::new(&format!("leasehold-doctor:{:032x}", OsRandom.wide())).map_err(invalid)?;
    let token = || Token::fresh(&holder, "doctor", &OsRandom);
    let (first, second) = (token(), token());
    let can = store.capabilities();
    let ttl = Ttl::new(TRIAL_TTL).map_err(invalid)?.max(can.min_ttl);

    let request = AcquireRequest::new(name.clone(), first.clone(), ttl);
    let granted = trial_call("acquire a lock", within, store.acquire(&request, within)).await?;
    let AcquireResponse::Granted(grant) = granted else {
        return Err(contract_error("an unused name was not granted"));
    };
    let outcome =
        try_contended_part(store, within, &name, (&first, &second), grant.fence, ttl, can.queue, can.list)
            .await;
    // Undo both tokens on every path, so that no lease is left behind.
    for token in [first, second] {
        let undo = ReleaseRequest::undo(name.clone(), token);
        let undone = trial_call("undo an acquire", within, store.release(&undo, within)).await;
        if outcome.is_ok() {
            undone?;
        }
    }
    outcome
}

#[allow(
    clippy::too_many_arguments,
    reason = "one sequence of steps, in two functions so that the undo always runs"
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
    // Some stores queue a waiter only while it is subscribed.
    let _listener = store.listen(name, second);
    let mut wait = AcquireRequest::new(name.clone(), second.clone(), ttl);
    wait.queue = queue.then_some(TRIAL_TTL);
    let queued = match trial_call("wait for a lock", within, store.acquire(&wait, within)).await? {
        AcquireResponse::Busy(busy) => busy.queued || !queue,
        _ => return Err(contract_error("a held lock was granted to a second client as well")),
    };
    let batch = [RenewRequest::new(name, first.clone(), fence, ttl)];
    let renewing = async {
        let answer = store.renew(&batch, within).await.into_iter().next();
        answer.unwrap_or_else(|| Err(StoreError::unknown(StoreErrorKind::Corrupt, "no answer")))
    };
    if trial_call("renew a lock", within, renewing).await? == RenewResponse::NotOwned {
        return Err(contract_error("a held lock could not be renewed"));
    }
    if trial_call("inspect a lock", within, store.inspect(name, within)).await?.leases.is_empty() {
        return Err(contract_error("a held lock is not shown"));
    }
    if list {
        trial_call(LIST_STEP, within, store.list("leasehold-doctor:", 10, within)).await?;
    }
    let request = ReleaseRequest::by_owner(name.clone(), first.clone());
    if trial_call("release a lock", within, store.release(&request, within)).await?
        == ReleaseResponse::NotOwned
    {
        return Err(contract_error("a held lock could not be released"));
    }
    let again = AcquireRequest::new(name.clone(), second.clone(), ttl);
    match trial_call("hand over a lock", within, store.acquire(&again, within)).await? {
        AcquireResponse::Granted(next) if next.fence > fence => Ok(queued),
        AcquireResponse::Granted(_) => {
            Err(contract_error("the fence did not grow from one holder to the next"))
        }
        _ => Err(contract_error("a released lock was not granted to its waiter")),
    }
}

async fn trial_call<T>(
    what: &'static str,
    within: Duration,
    work: impl Future<Output = Result<T, StoreError>>,
) -> TrialResult<T> {
    let answer = bounded_call(&BootClock, within, work).await;
    answer.map_err(|failure| TrialError::Call(what, failure))
}

fn to_finding(step: &'static str, failure: &StoreError, rights_advice: &str) -> Finding {
    let why = failure.message();
    match (step, failure.kind) {
        (LIST_STEP, StoreErrorKind::Denied) => Finding::risk(
            "store.permission",
            format!("this user may not {LIST_STEP}: {why}"),
            format!("locks work without; for `list` and `top`: {rights_advice}"),
        ),
        (_, StoreErrorKind::Denied) => {
            Finding::breaks("store.permission", format!("this user may not {step}: {why}"), rights_advice)
        }
        _ => Finding::breaks(
            "store.trial",
            format!("cannot {step}: {}: {why}", failure.kind),
            "fix that error: until then locks are unsafe or cannot be acquired",
        ),
    }
}

#[cfg(test)]
mod tests {
    use leasehold::StoreUrl;

    use super::*;

    #[test]
    fn the_advice_for_a_missing_right_is_that_of_the_store() {
        let denied = StoreError::not_done(StoreErrorKind::Denied, "no");
        for (url, advice) in [
            ("redis://h", "ACL line in docs/stores/redis.md"),
            ("sqlite:/x", "read and write the file"),
            ("http://h:1", "a grant of `hold`"),
        ] {
            let rights_advice = StoreUrl::parse(url).unwrap().info().rights_advice;
            for step in ["acquire a lock", LIST_STEP] {
                let finding = to_finding(step, &denied, rights_advice);
                assert_eq!(finding.code, "store.permission", "{url} {step}");
                assert!(finding.advice.contains(advice), "{url} {step}: {}", finding.advice);
            }
        }
    }
}

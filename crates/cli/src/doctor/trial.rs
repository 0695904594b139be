//! A lock's whole life on a name of its own: the surest way to see whether the user may do what must be done.
//!
//! One takes it, another waits for it, it is renewed, looked at, listed, given back, handed over and undone. What does
//! not work is named. Whatever is left runs out within seconds.

use std::time::Duration;

use leasehold::clock::{BootClock, Clock, until};
use leasehold::leasehold_core::Token;
use leasehold::leasehold_core::rng::{OsRandom, RandomExt};
use leasehold::store::{Answer, Ask, Cause, Failure, Finding, Given, Giving, Renewal, Renewed, SharedStore};
use leasehold::{Holder, Name, Ttl};

/// How long the lock lives.
const TTL: Duration = Duration::from_secs(10);

/// Goes through it; answers what did not work.
pub(super) async fn trial(store: &SharedStore, within: Duration) -> Vec<Finding> {
    match attempt(store, within).await {
        Ok(true) => Vec::new(),
        Ok(false) => vec![Finding::risk(
            "store.queue",
            "one who waits for a lock is not registered: waiters only poll, and are served in no order",
            "give the user every right of the ACL line in docs/stores/redis.md, and let it subscribe",
        )],
        Err((step, failure)) => vec![finding(step, &failure)],
    }
}

type Step<T> = Result<T, (&'static str, Failure)>;

async fn attempt(store: &SharedStore, within: Duration) -> Step<bool> {
    let odd = |why: &str| ("store.trial", Failure::not_done(Cause::Corrupt, why));
    let invalid = |error: leasehold::Invalid| {
        (
            "store.trial",
            Failure::not_done(Cause::Corrupt, error.to_string()),
        )
    };
    let holder = Holder::new("leasehold-doctor").map_err(invalid)?;
    let name = Name::new(&format!("leasehold-doctor:{:032x}", OsRandom.wide())).map_err(invalid)?;
    let ttl = Ttl::new(TTL).map_err(invalid)?;
    let token = || Token::fresh(&holder, "doctor", &OsRandom);
    let (first, second) = (token(), token());
    let can = store.capabilities();

    let ask = Ask::new(name.clone(), first.clone(), ttl);
    let granted = step("take a lock", within, store.acquire(&ask, within)).await?;
    let Answer::Granted(grant) = granted else {
        return Err(odd("a name that nobody knows was not granted"));
    };
    let outcome = rest(
        store,
        within,
        &name,
        (&first, &second),
        grant.fence,
        ttl,
        can.queue,
        can.list,
    )
    .await;
    // Whatever happened, nothing is left behind.
    for token in [first, second] {
        let undo = Giving::undo(name.clone(), token);
        let given = step("take a lock back", within, store.release(&undo, within)).await;
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
async fn rest(
    store: &SharedStore,
    within: Duration,
    name: &Name,
    (first, second): (&Token, &Token),
    fence: leasehold::Fence,
    ttl: Ttl,
    queue: bool,
    list: bool,
) -> Step<bool> {
    let odd = |why: &str| ("store.trial", Failure::not_done(Cause::Corrupt, why));
    let _bell = store.listen(name, second);
    let mut wait = Ask::new(name.clone(), second.clone(), ttl);
    wait.queue = queue.then_some(TTL);
    let queued = match step("wait for a lock", within, store.acquire(&wait, within)).await? {
        Answer::Busy(busy) => busy.queued || !queue,
        _ => return Err(odd("a lock that is held was granted to someone else as well")),
    };
    let renewal = Renewal {
        name: name.clone(),
        token: first.clone(),
        fence,
        ttl,
        lock_delay: Duration::ZERO,
    };
    let batch = [renewal];
    let renewing = async {
        let answer = store.renew(&batch, within).await.into_iter().next();
        answer.unwrap_or_else(|| Err(Failure::unknown(Cause::Corrupt, "no answer")))
    };
    if step("renew a lock", within, renewing).await? == Renewed::NotOwned {
        return Err(odd("a lock that is held could not be renewed"));
    }
    if step("look at a lock", within, store.inspect(name, within))
        .await?
        .is_none()
    {
        return Err(odd("a lock that is held is not shown"));
    }
    if list {
        step("list locks", within, store.list("leasehold-doctor:", 10, within)).await?;
    }
    let giving = Giving::owned(name.clone(), first.clone());
    if step("give a lock back", within, store.release(&giving, within)).await? == Given::NotOwned {
        return Err(odd("a lock that is held could not be given back"));
    }
    let again = Ask::new(name.clone(), second.clone(), ttl);
    match step("hand a lock over", within, store.acquire(&again, within)).await? {
        Answer::Granted(next) if next.fence > fence => Ok(queued),
        Answer::Granted(_) => Err(odd("a fence did not grow")),
        _ => Err(odd(
            "a lock that was given back was not granted to the one who waited",
        )),
    }
}

async fn step<T>(
    what: &'static str,
    within: Duration,
    work: impl Future<Output = Result<T, Failure>>,
) -> Step<T> {
    match until(&BootClock, BootClock.now() + within, work).await {
        Some(result) => result.map_err(|failure| (what, failure)),
        None => Err((what, Failure::unknown(Cause::TimedOut, "no answer in time"))),
    }
}

fn finding(step: &'static str, failure: &Failure) -> Finding {
    let why = failure.message();
    match (step, failure.cause) {
        ("store.trial", _) => Finding::breaks(
            "store.trial",
            format!("the store does not do what a lock needs: {why}"),
            "please report it, with the version of the store",
        ),
        ("list locks", Cause::Denied) => Finding::risk(
            "store.permission",
            format!("this user may not list locks: {why}"),
            "give it +scan if people should see who holds what; locks work without",
        ),
        (_, Cause::Denied) => Finding::breaks(
            "store.permission",
            format!("this user may not {step}: {why}"),
            "give it the rights of the ACL line in docs/stores/redis.md",
        ),
        _ => Finding::breaks(
            "store.trial",
            format!("cannot {step}: {}: {why}", failure.cause),
            "mend that; no lock is safe, or none can be had, until then",
        ),
    }
}

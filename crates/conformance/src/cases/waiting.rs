//! Waiting is part of the acquire: order, hand-over, and waiters that have gone (liveness L6).

use std::time::Duration;

use anyhow::{Context, bail, ensure};
use leasehold_core::store::{AcquireResponse, SharedStore};

use crate::case::CaseResult;
use crate::client::{TestClient, claim_ttl, expiry_slack, long_ttl};
use crate::fixture::Fixture;
use crate::pace::{Attempt, Pace, Stopwatch, fair, retry_if_too_slow};

/// Lifetime of a queue entry that no case outlives.
const WAITER_TTL: Duration = Duration::from_secs(120);

/// A holder of `name` and its waiters, queued in this order.
async fn queue_waiters(
    store: &SharedStore,
    name: &str,
    waiters: usize,
) -> anyhow::Result<(TestClient, Vec<TestClient>)> {
    let holder = TestClient::new(store, name, "holder")?;
    holder.expect_granted(long_ttl()).await?;
    let mut queued = Vec::new();
    for number in 1..=waiters {
        let waiter = TestClient::new(store, name, &format!("waiter-{number}"))?;
        waiter.expect_queued(WAITER_TTL).await?;
        queued.push(waiter);
    }
    Ok((holder, queued))
}

/// A holder and one waiter.
async fn holder_and_waiter(store: &SharedStore, name: &str) -> anyhow::Result<(TestClient, TestClient)> {
    let (holder, waiters) = queue_waiters(store, name, 1).await?;
    Ok((holder, waiters.into_iter().next().context("one waiter was queued")?))
}

/// *Busy* reports the holder, its class, its fence, and the remaining time.
pub async fn busy_reports_the_holder(fixture: &dyn Fixture) -> CaseResult {
    let store = fixture.open().await?;
    let (a, b) = (TestClient::new(&store, "job:1", "web-1:7")?, TestClient::new(&store, "job:1", "b")?);
    let got = a.expect_granted(long_ttl()).await?;
    let busy = b.expect_busy().await?;
    ensure!(
        busy.holder == "web-1:7"
            && busy.class.as_deref() == Some("conformance")
            && busy.fence == Some(got.fence),
        "a lease of `web-1:7`, class `conformance`, fence {} is reported as {busy:?}",
        got.fence
    );
    ensure!(
        busy.remaining
            // More than half: a wrong unit or a stale value would be far below.
            .is_some_and(|left| left <= got.lifetime && left > got.lifetime / 2),
        "of {:?}, {:?} is said to be left a moment after the grant",
        got.lifetime,
        busy.remaining
    );
    Ok(())
}

/// A waiter is reported as queued exactly if it asked for that and the store keeps a queue.
pub async fn the_response_says_correctly_whether_a_waiter_is_queued(fixture: &dyn Fixture) -> CaseResult {
    let store = fixture.open().await?;
    let can = store.capabilities().queue;
    let (a, b) = (TestClient::new(&store, "job:1", "a")?, TestClient::new(&store, "job:1", "b")?);
    a.expect_granted(long_ttl()).await?;
    ensure!(!b.expect_busy().await?.queued, "who did not ask to wait was registered as a waiter");
    let queued = b.expect_queued(WAITER_TTL).await?.queued;
    ensure!(
        queued == can,
        "the store keeps a queue: {can}; the response says that the waiter is registered: {queued}"
    );
    Ok(())
}

/// No wake-up is needed: a waiter that polls after the release is granted.
pub async fn a_repeated_acquire_needs_no_hint(fixture: &dyn Fixture) -> CaseResult {
    let store = fixture.open().await?;
    let (holder, waiter) = holder_and_waiter(&store, "job:1").await?;
    holder.expect_released().await?;
    match waiter.send_acquire(&waiter.queue_request(WAITER_TTL)).await? {
        AcquireResponse::Granted(_) => Ok(()),
        other => bail!("L2: the only waiter asked again after the release and got {other:?}"),
    }
}

/// First come, first served, even if all waiters poll all the time.
pub async fn waiters_are_served_in_order(fixture: &dyn Fixture) -> CaseResult {
    let store = fixture.open().await?;
    retry_if_too_slow(fixture, async |attempt: Attempt| {
        let (mut holder, waiters) = queue_waiters(&store, &attempt.name("line"), 5).await?;
        for (place, next) in waiters.iter().enumerate() {
            let watch = Stopwatch::start(fixture);
            holder.expect_released().await?;
            // The last waiters poll first: a waiter must not win by polling more.
            for impatient in waiters.iter().skip(place + 1).rev() {
                let answer = impatient.send_acquire(&impatient.queue_request(WAITER_TTL)).await?;
                fair!(
                    watch.is_within(claim_ttl(&store)),
                    matches!(answer, AcquireResponse::Busy(_)),
                    "L6: {:?} overtook {:?}: {answer:?}",
                    impatient.token,
                    next.token
                );
            }
            let answer = next.send_acquire(&next.queue_request(WAITER_TTL)).await?;
            fair!(
                watch.is_within(claim_ttl(&store)),
                matches!(answer, AcquireResponse::Granted(_)),
                "L6: it is the turn of {:?}, and it got {answer:?}",
                next.token
            );
            holder = next.clone();
        }
        Ok(Pace::Conclusive)
    })
    .await
}

/// Between the release and the first waiter's confirmation no other client is granted.
pub async fn handed_over_lease_shuts_others_out(fixture: &dyn Fixture) -> CaseResult {
    let store = fixture.open().await?;
    retry_if_too_slow(fixture, async |attempt: Attempt| {
        let name = attempt.name("handed");
        let (holder, waiter) = holder_and_waiter(&store, &name).await?;
        let passer = TestClient::new(&store, &name, "passer-by")?;
        let watch = Stopwatch::start(fixture);
        holder.expect_released().await?;
        match passer.acquire(long_ttl()).await? {
            AcquireResponse::Busy(busy) => fair!(
                watch.is_within(claim_ttl(&store)),
                busy.holder == waiter.token.holder(),
                "the lease was handed to {:?} and is reported as {busy:?}",
                waiter.token
            ),
            other => fair!(
                watch.is_within(claim_ttl(&store)),
                false,
                "L6: a passer-by got what a waiter was to be handed: {other:?}"
            ),
        }
        Ok(Pace::Conclusive)
    })
    .await
}

/// A poll does not move a waiter to the end of the queue.
pub async fn a_repeated_acquire_keeps_the_place_in_the_queue(fixture: &dyn Fixture) -> CaseResult {
    let store = fixture.open().await?;
    retry_if_too_slow(fixture, async |attempt: Attempt| {
        let (holder, waiters) = queue_waiters(&store, &attempt.name("place"), 3).await?;
        let first = waiters.first().context("three waiters were queued")?;
        for _ in 0..3 {
            first.expect_queued(WAITER_TTL).await?;
        }
        let watch = Stopwatch::start(fixture);
        holder.expect_released().await?;
        let shown = first.inspect().await?;
        fair!(
            watch.is_within(claim_ttl(&store)),
            shown.as_ref().is_some_and(|lease| lease.holder == first.token.holder()),
            "L6: the first waiter asked again and lost its place: {shown:?}"
        );
        Ok(Pace::Conclusive)
    })
    .await
}

/// A waiter that confirms holds for its own TTL, not for the claim's; and its
/// lease is live when granted.
pub async fn trap_17_granted_after_waiting_is_alive(fixture: &dyn Fixture) -> CaseResult {
    let store = fixture.open().await?;
    let (holder, waiter) = holder_and_waiter(&store, "job:1").await?;
    holder.expect_released().await?;
    let got = waiter.expect_granted(long_ttl()).await?;
    let shown = waiter.inspect().await?.context("granted after waiting, and no lease is there")?;
    ensure!(
        shown.fence == Some(got.fence)
            && shown.remaining.is_some_and(|left| left > claim_ttl(&store) && left <= got.lifetime),
        "granted for {:?} with fence {}, the lease is {shown:?}",
        got.lifetime,
        got.fence
    );
    // Longer than a claim: if the confirmation had not set the full TTL, the
    // lease would be gone now.
    fixture.wait(claim_ttl(&store) + expiry_slack(&store)).await;
    waiter.expect_still_held(got.fence).await
}

/// A waiter that gave up is not handed anything: the next waiter is, or the name is free.
pub async fn waiter_that_gave_up_is_forgotten(fixture: &dyn Fixture) -> CaseResult {
    let store = fixture.open().await?;
    retry_if_too_slow(fixture, async |attempt: Attempt| {
        let (holder, waiters) = queue_waiters(&store, &attempt.name("gave-up"), 3).await?;
        let [first, second, third] = waiters.as_slice() else {
            bail!("three waiters were queued");
        };
        // Both ways to give up: with and without a tombstone.
        first.undo().await?;
        second.release().await?;
        let watch = Stopwatch::start(fixture);
        holder.expect_released().await?;
        let answer = third.send_acquire(&third.queue_request(WAITER_TTL)).await?;
        fair!(
            watch.is_within(claim_ttl(&store)),
            matches!(answer, AcquireResponse::Granted(_)),
            "L3: two waiters gave up, and the third got {answer:?}"
        );
        Ok(Pace::Conclusive)
    })
    .await?;
    let (holder, waiter) = holder_and_waiter(&store, "alone").await?;
    waiter.undo().await?;
    holder.expect_released().await?;
    TestClient::new(&store, "alone", "next")?.expect_granted(long_ttl()).await?;
    Ok(())
}

/// A waiter leaves the queue, and the next is served. A holder that leaves it, having been
/// granted meanwhile, still holds.
pub async fn leaving_the_queue_touches_no_lease(fixture: &dyn Fixture) -> CaseResult {
    let store = fixture.open().await?;
    retry_if_too_slow(fixture, async |attempt: Attempt| {
        let (holder, waiters) = queue_waiters(&store, &attempt.name("left"), 2).await?;
        let [first, second] = waiters.as_slice() else {
            bail!("two waiters were queued");
        };
        first.leave_queue().await?;
        let watch = Stopwatch::start(fixture);
        holder.expect_released().await?;
        let answer = second.send_acquire(&second.queue_request(WAITER_TTL)).await?;
        fair!(
            watch.is_within(claim_ttl(&store)),
            matches!(answer, AcquireResponse::Granted(_)),
            "L3: the first waiter left, and the second got {answer:?}"
        );
        Ok(Pace::Conclusive)
    })
    .await?;
    let (holder, waiter) = holder_and_waiter(&store, "granted").await?;
    holder.expect_released().await?;
    let got = waiter.expect_granted(long_ttl()).await?;
    waiter.leave_queue().await?;
    waiter.expect_still_held(got.fence).await
}

/// A waiter died silently: the next one waits one claim longer, not one lease.
pub async fn trap_19_dead_waiter_costs_no_more_than_a_claim(fixture: &dyn Fixture) -> CaseResult {
    let store = fixture.open().await?;
    let (holder, waiters) = queue_waiters(&store, "job:1", 2).await?;
    let second = waiters.last().context("two waiters were queued")?;
    holder.expect_released().await?;
    // The dead waiter's claim must expire first, but not a whole lease.
    fixture.wait(claim_ttl(&store) + expiry_slack(&store)).await;
    match second.send_acquire(&second.queue_request(WAITER_TTL)).await? {
        AcquireResponse::Granted(_) => Ok(()),
        other => bail!(
            "L1: the first waiter never confirmed, and after {:?} the second got {other:?}",
            claim_ttl(&store)
        ),
    }
}

/// A hand-over that the waiter does not confirm expires.
pub async fn unconfirmed_claim_runs_out(fixture: &dyn Fixture) -> CaseResult {
    let store = fixture.open().await?;
    let (holder, late) = holder_and_waiter(&store, "job:1").await?;
    holder.expect_released().await?;
    fixture.wait(claim_ttl(&store) + expiry_slack(&store)).await;
    let next = TestClient::new(&store, "job:1", "next")?;
    let got = next.expect_granted(long_ttl()).await?;
    late.expect_busy().await?;
    next.expect_still_held(got.fence).await
}

/// A queue entry that was not renewed expires: nothing is handed over to it.
pub async fn waiter_entry_runs_out(fixture: &dyn Fixture) -> CaseResult {
    let store = fixture.open().await?;
    let (a, gone) = (TestClient::new(&store, "job:1", "a")?, TestClient::new(&store, "job:1", "gone")?);
    a.expect_granted(long_ttl()).await?;
    gone.expect_queued(fixture.short_ttl().get()).await?;
    fixture.wait(fixture.short_ttl().get() + expiry_slack(&store)).await;
    a.expect_released().await?;
    TestClient::new(&store, "job:1", "next")?.expect_granted(long_ttl()).await?;
    Ok(())
}

/// A poll renews the queue entry.
pub async fn a_repeated_acquire_renews_the_queue_entry(fixture: &dyn Fixture) -> CaseResult {
    let store = fixture.open().await?;
    retry_if_too_slow(fixture, async |attempt: Attempt| {
        let name = attempt.name("renewed");
        let (a, waiter) = (TestClient::new(&store, &name, "a")?, TestClient::new(&store, &name, "waiter")?);
        a.expect_granted(long_ttl()).await?;
        let watch = Stopwatch::start(fixture);
        waiter.expect_queued(attempt.ttl.get()).await?;
        waiter.expect_queued(WAITER_TTL).await?;
        // The first entry may have expired before the second request: the attempt proves nothing.
        if !watch.is_within(attempt.ttl.get()) {
            return Ok(Pace::TooSlow);
        }
        fixture.wait(attempt.ttl.get() + expiry_slack(&store)).await;
        let watch = Stopwatch::start(fixture);
        a.expect_released().await?;
        let shown = waiter.inspect().await?;
        fair!(
            watch.is_within(claim_ttl(&store)),
            shown.as_ref().is_some_and(|lease| lease.holder == waiter.token.holder()),
            "L6: a waiter asked again in time and was forgotten: {shown:?}"
        );
        Ok(Pace::Conclusive)
    })
    .await
}

/// A store that counts waiters counts live ones: not those that gave up or expired, and none twice.
pub async fn waiters_are_counted(fixture: &dyn Fixture) -> CaseResult {
    let store = fixture.open().await?;
    let (holder, waiters) = queue_waiters(&store, "job:1", 3).await?;
    for waiter in &waiters {
        waiter.expect_queued(WAITER_TTL).await?;
    }
    let count = async |wanted: u64| -> CaseResult {
        let shown = holder.inspect().await?.context("a live lease is not shown")?;
        ensure!(
            // `None` passes: a store does not have to count its waiters.
            shown.waiters.is_none_or(|waiters| waiters == wanted),
            "{wanted} wait, and the store shows {:?}",
            shown.waiters
        );
        Ok(())
    };
    count(3).await?;
    for waiter in waiters.iter().take(2) {
        waiter.undo().await?;
    }
    count(1).await
}

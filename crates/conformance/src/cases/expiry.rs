//! A lease ends by itself when its time is over, and not before (liveness L1, invariant I5).

use std::time::Duration;

use anyhow::{bail, ensure};
use leasehold_core::store::{AcquireResponse, RenewResponse};

use crate::case::CaseResult;
use crate::client::{CALL_TIMEOUT, TestClient, expiry_slack, long_ttl, single_response};
use crate::fixture::Fixture;
use crate::pace::{Attempt, Pace, Stopwatch, fair, retry_if_too_slow};

/// A lease that is not renewed is free after its TTL.
pub async fn free_after_the_ttl(fixture: &dyn Fixture) -> CaseResult {
    let store = fixture.open().await?;
    let got = TestClient::new(&store, "job:1", "gone")?.expect_granted(fixture.short_ttl()).await?;
    fixture.wait(got.lifetime + expiry_slack(&store)).await;
    let next = TestClient::new(&store, "job:1", "next")?;
    match next.acquire(long_ttl()).await? {
        AcquireResponse::Granted(_) => Ok(()),
        other => {
            bail!(
                "L1: a lease of {:?} is not free {:?} after its end: {other:?}",
                got.lifetime,
                expiry_slack(&store)
            )
        }
    }
}

/// A lease is not free before its TTL, counted from before the request.
pub async fn not_before_the_ttl(fixture: &dyn Fixture) -> CaseResult {
    let store = fixture.open().await?;
    retry_if_too_slow(fixture, async |attempt: Attempt| {
        let name = attempt.name("early");
        let holder = TestClient::new(&store, &name, "holder")?;
        let watch = Stopwatch::start(fixture);
        let got = holder.expect_granted(attempt.ttl).await?;
        let checks = expect_busy_until(
            fixture,
            &TestClient::new(&store, &name, "early")?,
            &watch,
            Duration::ZERO,
            got.lifetime,
        )
        .await?;
        // Without a check before the expiry, the attempt says nothing.
        Ok(if checks > 0 { Pace::Conclusive } else { Pace::TooSlow })
    })
    .await
}

/// Without a release the name stays locked for the lock delay on top of the TTL, and no longer.
pub async fn lock_delay_keeps_an_unreleased_name_shut(fixture: &dyn Fixture) -> CaseResult {
    let store = fixture.open().await?;
    retry_if_too_slow(fixture, async |attempt: Attempt| {
        let name = attempt.name("delayed");
        let holder = TestClient::new(&store, &name, "holder")?;
        let request = holder.acquire_request(attempt.ttl).with_lock_delay(attempt.ttl.get());
        let watch = Stopwatch::start(fixture);
        let got = holder.expect_granted_with(&request).await?;
        let next = TestClient::new(&store, &name, "next")?;
        let checks = expect_busy_until(fixture, &next, &watch, attempt.ttl.get(), got.lifetime).await?;
        fixture.wait(got.lifetime + expiry_slack(&store)).await;
        let answer = next.acquire(long_ttl()).await?;
        ensure!(
            matches!(answer, AcquireResponse::Granted(_)),
            "L1: a lease kept for {:?} is not free {:?} after its end: {answer:?}",
            got.lifetime,
            expiry_slack(&store)
        );
        Ok(if checks > 0 { Pace::Conclusive } else { Pace::TooSlow })
    })
    .await
}

/// A release frees the name at once, whatever the lock delay.
pub async fn lock_delay_ends_with_a_release(fixture: &dyn Fixture) -> CaseResult {
    let store = fixture.open().await?;
    let (a, b) = (TestClient::new(&store, "job:1", "a")?, TestClient::new(&store, "job:1", "b")?);
    let request = a.acquire_request(long_ttl()).with_lock_delay(Duration::from_secs(600));
    a.expect_granted_with(&request).await?;
    a.expect_released().await?;
    b.expect_granted(long_ttl()).await?;
    Ok(())
}

/// A renewal carries its own lock delay.
pub async fn lock_delay_goes_with_a_renewal(fixture: &dyn Fixture) -> CaseResult {
    let store = fixture.open().await?;
    retry_if_too_slow(fixture, async |attempt: Attempt| {
        let name = attempt.name("renewed");
        let holder = TestClient::new(&store, &name, "holder")?;
        let got = holder.expect_granted(attempt.ttl).await?;
        let watch = Stopwatch::start(fixture);
        let renewal = holder.renew_request(got.fence, attempt.ttl).with_lock_delay(attempt.ttl.get());
        let renewed = single_response(store.renew(std::slice::from_ref(&renewal), CALL_TIMEOUT).await)??;
        ensure!(matches!(renewed, RenewResponse::Extended { .. }), "I4: the owner's renewal got {renewed:?}");
        let next = TestClient::new(&store, &name, "next")?;
        let checks =
            expect_busy_until(fixture, &next, &watch, attempt.ttl.get(), renewal.store_ttl()).await?;
        fixture.wait(renewal.store_ttl() + expiry_slack(&store)).await;
        let answer = next.acquire(long_ttl()).await?;
        fair!(
            // A store with coarser times rounds up, and cannot report that in a renewal.
            got.lifetime == attempt.ttl.get(),
            matches!(answer, AcquireResponse::Granted(_)),
            "L1: a lease renewed for {:?} is not free {:?} after its end: {answer:?}",
            renewal.store_ttl(),
            expiry_slack(&store)
        );
        Ok(if checks > 0 { Pace::Conclusive } else { Pace::TooSlow })
    })
    .await
}

/// Polls until `until` has passed on the watch; every response before then must be
/// *busy*. Returns the number of responses between `from` and `until`; zero means that
/// the machine was too slow to tell.
async fn expect_busy_until(
    fixture: &dyn Fixture,
    client: &TestClient,
    watch: &Stopwatch,
    from: Duration,
    until: Duration,
) -> anyhow::Result<u32> {
    let mut checks = 0;
    loop {
        // Read before the request, so that only requests sent after `from` count.
        let counts = !watch.is_within(from);
        let answer = client.acquire(long_ttl()).await?;
        // The response was made before now: if the lease has not expired now, it had not then.
        if !watch.is_within(until) {
            return Ok(checks);
        }
        ensure!(
            matches!(answer, AcquireResponse::Busy(_)),
            "I1: the lease is kept for {until:?} and another got it before that: {answer:?}"
        );
        checks += u32::from(counts);
        // Sixteen polls per lifetime are enough to catch an early expiry.
        fixture.wait(until / 16).await;
    }
}

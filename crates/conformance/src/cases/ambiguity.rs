//! A timeout is not a refusal: what a client does after an unknown outcome, and how a store must
//! react (invariants I6 and I7).

use std::time::Duration;

use anyhow::{bail, ensure};
use leasehold_core::adapter::FaultyStore;
use leasehold_core::clock::run_until;
use leasehold_core::store::{AcquireResponse, ReleaseResponse};

use crate::case::CaseResult;
use crate::client::{TestClient, expiry_slack, long_ttl};
use crate::fixture::Fixture;
use crate::pace::{Attempt, Pace, Stopwatch, fair, retry_if_too_slow};

async fn expect_void(client: &TestClient, when: &str) -> anyhow::Result<()> {
    match client.acquire(long_ttl()).await? {
        AcquireResponse::Void => Ok(()),
        other => bail!("I6: an acquire {when} got {other:?}"),
    }
}

/// A token that acquires twice holds once: one release frees the name.
pub async fn same_token_twice_is_one_grant(fixture: &dyn Fixture) -> CaseResult {
    let store = fixture.open().await?;
    let (a, b) = (TestClient::new(&store, "job:1", "a")?, TestClient::new(&store, "job:1", "b")?);
    let first = a.expect_granted(long_ttl()).await?;
    let again = a.expect_granted(long_ttl()).await?;
    ensure!(first.fence == again.fence, "R5: one token was granted {} and then {}", first.fence, again.fence);
    b.expect_busy().await?;
    a.expect_released().await?;
    b.expect_granted(long_ttl()).await?;
    Ok(())
}

/// A repeated acquire restarts the TTL: the second response's deadline counts
/// from the second request.
pub async fn a_repeated_acquire_restarts_the_ttl(fixture: &dyn Fixture) -> CaseResult {
    let store = fixture.open().await?;
    retry_if_too_slow(fixture, async |attempt: Attempt| {
        let a = TestClient::new(&store, &attempt.name("again"), "a")?;
        let watch = Stopwatch::start(fixture);
        let first = a.expect_granted(attempt.ttl).await?;
        let again = a.expect_granted(long_ttl()).await?;
        fair!(
            watch.is_within(first.lifetime),
            first.fence == again.fence,
            "R5: one token was granted {} and then {}",
            first.fence,
            again.fence
        );
        fixture.wait(first.lifetime + expiry_slack(&store)).await;
        a.expect_still_held(again.fence).await?;
        Ok(Pace::Conclusive)
    })
    .await
}

/// The response of a grant was lost: the same token acquires again and gets the same grant.
pub async fn lost_reply_then_the_same_grant(fixture: &dyn Fixture) -> CaseResult {
    let chaos = FaultyStore::new(fixture.open().await?, fixture.clock());
    let a = TestClient::new(&chaos.store(), "job:1", "a")?;
    chaos.acquire().lose_reply(1);
    ensure!(a.acquire(long_ttl()).await.is_err(), "the reply was lost, and yet it came");
    // Inspected before the retry, so that the fence of the lost response is known.
    let applied = a.inspect().await?.and_then(|lease| lease.fence);
    let again = a.expect_granted(long_ttl()).await?;
    ensure!(
        applied == Some(again.fence),
        "R3: the lost reply granted {applied:?}, asking again {}",
        again.fence
    );
    Ok(())
}

/// The undo overtakes its acquire: the acquire is refused when it arrives.
pub async fn undo_before_a_late_acquire_makes_it_void(fixture: &dyn Fixture) -> CaseResult {
    let store = fixture.open().await?;
    let (a, b) = (TestClient::new(&store, "job:1", "a")?, TestClient::new(&store, "job:1", "b")?);
    a.undo().await?;
    expect_void(&a, "that its undo overtook").await?;
    b.expect_granted(long_ttl()).await?;
    expect_void(&a, "that its undo overtook, of a name that is taken").await
}

/// The undo of a grant frees the name, and the token is not granted again.
pub async fn undo_of_a_grant_frees_it(fixture: &dyn Fixture) -> CaseResult {
    let store = fixture.open().await?;
    let (a, b) = (TestClient::new(&store, "job:1", "a")?, TestClient::new(&store, "job:1", "b")?);
    a.expect_granted(long_ttl()).await?;
    let given = a.undo().await?;
    ensure!(given == ReleaseResponse::Released, "the undo of a grant got {given:?}");
    expect_void(&a, "that was granted and undone").await?;
    b.expect_granted(long_ttl()).await?;
    Ok(())
}

/// The undo of an acquire that never happened reports *not owned* and leaves the name free.
pub async fn undo_of_what_never_was_changes_nothing(fixture: &dyn Fixture) -> CaseResult {
    let store = fixture.open().await?;
    let (a, b) = (TestClient::new(&store, "job:1", "a")?, TestClient::new(&store, "job:1", "b")?);
    let given = a.undo().await?;
    ensure!(given == ReleaseResponse::NotOwned, "the undo of what never was got {given:?}");
    ensure!(a.inspect().await?.is_none(), "I6: an undo made a lease: {:?}", a.inspect().await?);
    // Another client takes the name first: the repeated undo must not touch its lease.
    let got = b.expect_granted(long_ttl()).await?;
    a.undo().await?;
    b.expect_still_held(got.fence).await
}

/// A tombstone applies to one token: the same holder's next attempt is served.
pub async fn tombstone_concerns_that_token_only(fixture: &dyn Fixture) -> CaseResult {
    let store = fixture.open().await?;
    for _ in 0..3 {
        let attempt = TestClient::new(&store, "job:1", "me")?;
        attempt.expect_granted(long_ttl()).await?;
        attempt.undo().await?;
    }
    TestClient::new(&store, "job:1", "me")?.expect_granted(long_ttl()).await?;
    Ok(())
}

/// An undone token is not queued: nothing is ever handed over to it.
pub async fn void_is_not_queued(fixture: &dyn Fixture) -> CaseResult {
    let store = fixture.open().await?;
    let [a, b, c] = ["a", "b", "c"].map(|who| TestClient::new(&store, "job:1", who));
    let (a, b, c) = (a?, b?, c?);
    b.expect_granted(long_ttl()).await?;
    a.undo().await?;
    let answer = a.send_acquire(&a.queue_request(long_ttl().get())).await?;
    ensure!(answer == AcquireResponse::Void, "I6: an undone token asked to wait and got {answer:?}");
    b.expect_released().await?;
    c.expect_granted(long_ttl()).await?;
    Ok(())
}

/// The caller dropped its acquire, before or after it took effect: after the undo nothing is left.
pub async fn trap_06_dropped_acquire_leaves_nothing_after_its_undo(fixture: &dyn Fixture) -> CaseResult {
    let chaos = FaultyStore::new(fixture.open().await?, fixture.clock());
    let clock = fixture.clock();
    // Lost on its way, applied without a response, and dropped after a short time at
    // whatever point it had reached.
    for round in 0..12_u64 {
        match round {
            0 => _ = chaos.acquire().hang_next(1),
            1 => _ = chaos.acquire().hang_after_next(1),
            _ => {}
        }
        let timeout = if round < 2 {
            Duration::from_millis(500)
        } else {
            // In steps of 200 µs, so that the drop hits the call at different points.
            Duration::from_micros(200 * (round - 2))
        };
        let name = format!("dropped:{round}");
        let (a, b) =
            (TestClient::new(&chaos.store(), &name, "a")?, TestClient::new(&chaos.store(), &name, "b")?);
        let answer = run_until(clock.as_ref(), clock.now() + timeout, a.acquire(long_ttl())).await;
        ensure!(round >= 2 || answer.is_none(), "the acquire hangs, and yet it ended");
        a.undo().await?;
        b.expect_granted(long_ttl()).await?;
        expect_void(&a, "that was dropped and undone").await?;
    }
    Ok(())
}

/// The response of a release was lost: the second attempt gets *not owned*, and the name is free.
pub async fn release_whose_reply_was_lost_has_happened(fixture: &dyn Fixture) -> CaseResult {
    let chaos = FaultyStore::new(fixture.open().await?, fixture.clock());
    let store = chaos.store();
    let (a, b) = (TestClient::new(&store, "job:1", "a")?, TestClient::new(&store, "job:1", "b")?);
    a.expect_granted(long_ttl()).await?;
    chaos.release().lose_reply(1);
    ensure!(a.release().await.is_err(), "the reply was lost, and yet it came");
    let got = b.expect_granted(long_ttl()).await?;
    let given = a.release().await?;
    ensure!(given == ReleaseResponse::NotOwned, "R4: the second release of one lease got {given:?}");
    b.expect_still_held(got.fence).await
}

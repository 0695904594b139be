//! Only the owner of a live lease extends it (invariant I4).

use anyhow::ensure;
use leasehold_core::Fence;
use leasehold_core::adapter::FaultyStore;
use leasehold_core::store::{AcquireResponse, RenewResponse};

use crate::case::CaseResult;
use crate::client::{CALL_TIMEOUT, TestClient, expiry_slack, long_ttl};
use crate::fixture::Fixture;
use crate::pace::{Attempt, Pace, Stopwatch, fair, retry_if_too_slow};

/// A lease that is renewed in time stays alive.
pub async fn keeps_alive_past_the_first_ttl(fixture: &dyn Fixture) -> CaseResult {
    let store = fixture.open().await?;
    retry_if_too_slow(fixture, async |attempt: Attempt| {
        let name = attempt.name("kept");
        let (holder, other) =
            (TestClient::new(&store, &name, "holder")?, TestClient::new(&store, &name, "other")?);
        let whole = Stopwatch::start(fixture);
        let mut since = Stopwatch::start(fixture);
        let got = holder.expect_granted(attempt.ttl).await?;
        while whole.is_within(got.lifetime * 2 + expiry_slack(&store)) {
            fixture.wait(got.lifetime / 4).await;
            // Started before the request: the store may count the new TTL from
            // any moment after this.
            let now = Stopwatch::start(fixture);
            let renewed = holder.renew(got.fence, attempt.ttl).await?;
            fair!(
                since.is_within(got.lifetime),
                matches!(renewed, RenewResponse::Extended { .. }),
                "a lease that was renewed in time got {renewed:?}"
            );
            since = now;
        }
        let answer = other.acquire(long_ttl()).await?;
        fair!(
            since.is_within(got.lifetime),
            matches!(answer, AcquireResponse::Busy(_)),
            "I1: a renewed lease was given to another: {answer:?}"
        );
        Ok(Pace::Conclusive)
    })
    .await
}

/// A late renewal or acquire, sent before a policy lengthened the TTL, must not cut the time
/// that the holder was promised.
pub async fn never_shortens(fixture: &dyn Fixture) -> CaseResult {
    let store = fixture.open().await?;
    let a = TestClient::new(&store, "job:1", "a")?;
    let got = a.expect_granted(long_ttl()).await?;
    let renewed = a.renew(got.fence, fixture.short_ttl()).await?;
    ensure!(matches!(renewed, RenewResponse::Extended { .. }), "I4: the owner's renewal got {renewed:?}");
    a.expect_granted(fixture.short_ttl()).await?;
    let left = a.inspect().await?.and_then(|lease| lease.remaining);
    ensure!(
        left.is_none_or(|left| left > long_ttl().get() / 2),
        "I5: a shorter renewal cut a live lease to {left:?}"
    );
    Ok(())
}

/// Another token's renewal is refused and changes nothing, not even the remaining time.
pub async fn wrong_token_is_not_owned(fixture: &dyn Fixture) -> CaseResult {
    let store = fixture.open().await?;
    let (a, b) = (TestClient::new(&store, "job:1", "a")?, TestClient::new(&store, "job:1", "b")?);
    let got = a.expect_granted(long_ttl()).await?;
    let renewed = b.renew(got.fence, leasehold_core::Ttl::MAX).await?;
    ensure!(renewed == RenewResponse::NotOwned, "I4: another token's renewal got {renewed:?}");
    let left = a.inspect().await?.and_then(|lease| lease.remaining);
    ensure!(
        left.is_some_and(|left| left <= got.lifetime),
        "I4: another token's renewal changed what is left of {:?} to {left:?}",
        got.lifetime
    );
    a.expect_still_held(got.fence).await
}

/// The right token with a wrong fence is refused: it refers to another lease.
pub async fn wrong_fence_is_not_owned(fixture: &dyn Fixture) -> CaseResult {
    let store = fixture.open().await?;
    let a = TestClient::new(&store, "job:1", "a")?;
    let got = a.expect_granted(long_ttl()).await?;
    // One above and one below, so that a store that only compares `>=` or `<=` fails too.
    let others = [got.fence.get() + 1, got.fence.get() - 1].map(Fence::new);
    for fence in others.into_iter().flatten() {
        let renewed = a.renew(fence, long_ttl()).await?;
        ensure!(
            renewed == RenewResponse::NotOwned,
            "I4: a renewal with fence {fence} of a lease with fence {} got {renewed:?}",
            got.fence
        );
    }
    a.expect_still_held(got.fence).await
}

/// An expired lease is not revived, even if the name is still free.
pub async fn expired_lease_is_never_revived(fixture: &dyn Fixture) -> CaseResult {
    let store = fixture.open().await?;
    let (a, b) = (TestClient::new(&store, "job:1", "a")?, TestClient::new(&store, "job:1", "b")?);
    let got = a.expect_granted(fixture.short_ttl()).await?;
    fixture.wait(got.lifetime + expiry_slack(&store)).await;
    let renewed = a.renew(got.fence, long_ttl()).await?;
    ensure!(renewed == RenewResponse::NotOwned, "I4: a lease that had run out was renewed: {renewed:?}");
    let next = b.expect_granted(long_ttl()).await?;
    let renewed = a.renew(got.fence, long_ttl()).await?;
    ensure!(
        renewed == RenewResponse::NotOwned,
        "I4: a renewal of a lease that is another's by now got {renewed:?}"
    );
    b.expect_still_held(next.fence).await
}

/// A renewal that arrives after the release is refused, and the name stays free.
pub async fn trap_10_late_renewal_after_release_cannot_revive(fixture: &dyn Fixture) -> CaseResult {
    let store = fixture.open().await?;
    let (a, b) = (TestClient::new(&store, "job:1", "a")?, TestClient::new(&store, "job:1", "b")?);
    let got = a.expect_granted(long_ttl()).await?;
    a.expect_released().await?;
    let renewed = a.renew(got.fence, long_ttl()).await?;
    ensure!(renewed == RenewResponse::NotOwned, "I4: a renewal after the release got {renewed:?}");
    b.expect_granted(long_ttl()).await?;
    Ok(())
}

/// A renewal was applied and its response lost: the same renewal again is extended, not refused.
pub async fn trap_04_renewal_whose_reply_was_lost_does_not_conflict_with_itself(
    fixture: &dyn Fixture,
) -> CaseResult {
    let chaos = FaultyStore::new(fixture.open().await?, fixture.clock());
    let a = TestClient::new(&chaos.store(), "job:1", "a")?;
    let got = a.expect_granted(long_ttl()).await?;
    for _ in 0..3 {
        chaos.renew().lose_reply(1);
        ensure!(a.renew(got.fence, long_ttl()).await.is_err(), "the reply was lost, and yet it came");
        a.expect_still_held(got.fence).await?;
    }
    Ok(())
}

/// A batch of 300 renewals, valid and invalid in turn: one response each, in order.
pub async fn batch_of_300_is_answered_in_order(fixture: &dyn Fixture) -> CaseResult {
    let store = fixture.open().await?;
    ensure!(store.renew(&[], CALL_TIMEOUT).await.is_empty(), "an empty batch got an answer");
    let (mut batch, mut wanted) = (Vec::new(), Vec::new());
    for number in 0..300_u32 {
        let owner = TestClient::new(&store, &format!("batch:{number}"), "owner")?;
        let stranger = TestClient::new(&store, &format!("batch:{number}"), "stranger")?;
        // In turn: owned, held by another token, and not held at all.
        match number % 3 {
            0 => batch.push(owner.renew_request(owner.expect_granted(long_ttl()).await?.fence, long_ttl())),
            1 => {
                batch.push(stranger.renew_request(owner.expect_granted(long_ttl()).await?.fence, long_ttl()))
            }
            _ => batch.push(stranger.renew_request(Fence::MIN, long_ttl())),
        }
        wanted.push(number % 3 == 0);
    }
    let answers = store.renew(&batch, CALL_TIMEOUT).await;
    ensure!(answers.len() == batch.len(), "a batch of {} got {} answers", batch.len(), answers.len());
    for (number, (answer, wanted)) in answers.into_iter().zip(wanted).enumerate() {
        let extended = matches!(answer?, RenewResponse::Extended { .. });
        ensure!(
            extended == wanted,
            "I4: item {number} of the batch should be extended: {wanted}, and was: {extended}"
        );
    }
    Ok(())
}

/// The reported remaining time is between zero and the last lifetime of the lease.
pub async fn was_left_is_plausible(fixture: &dyn Fixture) -> CaseResult {
    let store = fixture.open().await?;
    let a = TestClient::new(&store, "job:1", "a")?;
    let got = a.expect_granted(long_ttl()).await?;
    let mut kept = got.lifetime;
    for ttl in [long_ttl(), leasehold_core::Ttl::MAX, leasehold_core::Ttl::MAX] {
        if let RenewResponse::Extended { remaining_before: Some(left), .. } = a.renew(got.fence, ttl).await? {
            // Half: far less than a slow machine loses of two minutes, far more
            // than a wrong unit would give.
            ensure!(
                left <= kept + expiry_slack(&store) && left > kept / 2,
                "a renewal says that {left:?} was left of {kept:?} a moment ago"
            );
        }
        kept = ttl.get();
    }
    a.expect_still_held(got.fence).await
}

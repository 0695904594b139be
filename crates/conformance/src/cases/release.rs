//! Only the owner of a live lease, or an operator who names exactly that
//! grant, ends it (invariant I4).

use anyhow::ensure;
use leasehold_core::store::{ReleaseResponse, RenewResponse};

use crate::case::CaseResult;
use crate::client::{TestClient, expiry_slack, long_ttl};
use crate::fixture::Fixture;

fn expect_not_owned(what: &str, given: ReleaseResponse) -> anyhow::Result<()> {
    ensure!(given == ReleaseResponse::NotOwned, "I4: {what} got {given:?}");
    Ok(())
}

/// A released name is free at once.
pub async fn gives_the_name_at_once(fixture: &dyn Fixture) -> CaseResult {
    let store = fixture.open().await?;
    let (a, b) = (TestClient::new(&store, "job:1", "a")?, TestClient::new(&store, "job:1", "b")?);
    a.expect_granted(long_ttl()).await?;
    a.expect_released().await?;
    b.expect_granted(long_ttl()).await?;
    Ok(())
}

/// Another token's release is refused and changes nothing.
pub async fn wrong_token_changes_nothing(fixture: &dyn Fixture) -> CaseResult {
    let store = fixture.open().await?;
    let (a, b) = (TestClient::new(&store, "job:1", "a")?, TestClient::new(&store, "job:1", "b")?);
    let got = a.expect_granted(long_ttl()).await?;
    expect_not_owned("another token's release", b.release().await?)?;
    expect_not_owned("another token's undo", b.undo().await?)?;
    a.expect_still_held(got.fence).await?;
    TestClient::new(&store, "job:1", "c")?.expect_busy().await?;
    Ok(())
}

/// The second release of one lease gets *not owned*.
pub async fn twice_is_not_owned(fixture: &dyn Fixture) -> CaseResult {
    let store = fixture.open().await?;
    let a = TestClient::new(&store, "job:1", "a")?;
    expect_not_owned("a release before the acquire", a.release().await?)?;
    a.expect_granted(long_ttl()).await?;
    a.expect_released().await?;
    expect_not_owned("the second release", a.release().await?)
}

/// An expired lease is no longer its owner's, even if the name is still free.
pub async fn owner_after_expiry_is_not_owned(fixture: &dyn Fixture) -> CaseResult {
    let store = fixture.open().await?;
    let a = TestClient::new(&store, "job:1", "a")?;
    let got = a.expect_granted(fixture.short_ttl()).await?;
    fixture.wait(got.lifetime + expiry_slack(&store)).await;
    expect_not_owned("a release after the lease ran out", a.release().await?)
}

/// The same holder acquired the name again: its earlier handle cannot end the newer lease.
pub async fn trap_12_stale_handle_cannot_delete_the_newer_lease(fixture: &dyn Fixture) -> CaseResult {
    let store = fixture.open().await?;
    let stale = TestClient::new(&store, "job:1", "me")?;
    let got = stale.expect_granted(fixture.short_ttl()).await?;
    fixture.wait(got.lifetime + expiry_slack(&store)).await;
    let newer = TestClient::new(&store, "job:1", "me")?;
    let got = newer.expect_granted(long_ttl()).await?;
    expect_not_owned("a release by the stale handle", stale.release().await?)?;
    expect_not_owned("an undo by the stale handle", stale.undo().await?)?;
    newer.expect_still_held(got.fence).await
}

/// An operator ends the grant whose fence was inspected, and never a later one.
pub async fn seen_breaks_exactly_that_grant(fixture: &dyn Fixture) -> CaseResult {
    let store = fixture.open().await?;
    let (a, b) = (TestClient::new(&store, "job:1", "a")?, TestClient::new(&store, "job:1", "b")?);
    let first = a.expect_granted(long_ttl()).await?;
    let given = b.break_grant(first.fence).await?;
    ensure!(given == ReleaseResponse::Released, "the break of a live grant got {given:?}");
    let second = b.expect_granted(long_ttl()).await?;
    expect_not_owned("the break of an earlier grant", a.break_grant(first.fence).await?)?;
    b.expect_still_held(second.fence).await
}

/// The owner of a broken lease has lost it.
pub async fn broken_owner_has_lost_it(fixture: &dyn Fixture) -> CaseResult {
    let store = fixture.open().await?;
    let a = TestClient::new(&store, "job:1", "a")?;
    let got = a.expect_granted(long_ttl()).await?;
    a.break_grant(got.fence).await?;
    let renewed = a.renew(got.fence, long_ttl()).await?;
    ensure!(renewed == RenewResponse::NotOwned, "I4: a broken lease was renewed: {renewed:?}");
    expect_not_owned("the release of a broken lease", a.release().await?)
}

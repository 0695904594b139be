//! Inspect and list: live leases, in order, without secrets (O1) and without other names (I12).

use anyhow::{Context, bail, ensure};
use leasehold_core::store::{SharedStore, StoreErrorKind};

use crate::case::CaseResult;
use crate::client::{CALL_TIMEOUT, TestClient, TestGrant, expiry_slack, long_ttl};
use crate::fixture::Fixture;

async fn acquire_all(store: &SharedStore, names: &[&str]) -> anyhow::Result<Vec<TestClient>> {
    let mut held = Vec::new();
    for name in names {
        let client = TestClient::new(store, name, "holder")?;
        client.expect_granted(long_ttl()).await?;
        held.push(client);
    }
    Ok(held)
}

async fn list_names(store: &SharedStore, prefix: &str, limit: usize) -> anyhow::Result<(Vec<String>, bool)> {
    let listing = store.list(prefix, limit, CALL_TIMEOUT).await?;
    let names = listing.leases.iter().map(|lease| lease.name.to_string());
    Ok((names.collect(), listing.truncated))
}

/// Inspect shows a lease while it is live, with its holder, fence and remaining time.
pub async fn inspect_shows_live_leases_only(fixture: &dyn Fixture) -> CaseResult {
    let store = fixture.open().await?;
    let (a, b) = (TestClient::new(&store, "job:1", "web-1:7")?, TestClient::new(&store, "job:2", "b")?);
    ensure!(a.inspect().await?.is_none(), "a name that no client took shows a lease");
    let TestGrant { fence, lifetime: lives } = a.expect_granted(long_ttl()).await?;
    let shown = a.inspect().await?.context("a live lease is not shown")?;
    ensure!(
        shown.name == a.name
            && shown.holder == "web-1:7"
            && shown.class.as_deref() == Some("conformance")
            && shown.fence == Some(fence),
        "a lease of `web-1:7`, class `conformance`, fence {fence} is shown as {shown:?}"
    );
    ensure!(
        shown.remaining.is_some_and(|left| left <= lives && left > lives / 2),
        "of {lives:?}, {:?} is said to be left a moment after the grant",
        shown.remaining
    );
    ensure!(
        // Optional: a store need not record when it granted a lease.
        shown.age.is_none_or(|age| age < lives / 2),
        "a lease granted a moment ago is said to be {:?} old",
        shown.age
    );
    a.expect_released().await?;
    ensure!(a.inspect().await?.is_none(), "a released lease is still shown");
    let brief = b.expect_granted(fixture.short_ttl()).await?;
    fixture.wait(brief.lifetime + expiry_slack(&store)).await;
    ensure!(b.inspect().await?.is_none(), "a lease that ran out is still shown");
    Ok(())
}

/// Nothing that is shown, printed or logged contains a token's secret.
pub async fn no_token_is_shown(fixture: &dyn Fixture) -> CaseResult {
    let store = fixture.open().await?;
    let (a, b) = (TestClient::new(&store, "job:1", "a")?, TestClient::new(&store, "job:1", "b")?);
    a.expect_granted(long_ttl()).await?;
    let mut shown =
        format!("{:?} {:?} {store:?} {}", b.expect_busy().await?, a.inspect().await?, store.describe());
    if store.capabilities().list {
        shown.push_str(&format!("{:?}", store.list("", 10, CALL_TIMEOUT).await?));
    }
    for client in [&a, &b] {
        ensure!(
            !shown.contains(client.token.random()),
            "O1: inspecting a lease shows the secret of its token"
        );
    }
    Ok(())
}

/// A store that cannot list returns a definite error; one that says it can, does.
pub async fn cannot_list_is_said(fixture: &dyn Fixture) -> CaseResult {
    let store = fixture.open().await?;
    let can = store.capabilities().list;
    match store.list("", 10, CALL_TIMEOUT).await {
        Ok(_) if can => Ok(()),
        Err(refused) if !can && refused.kind == StoreErrorKind::Unsupported && !refused.unknown => Ok(()),
        other => bail!("the store says that it can list: {can}, and answers {other:?}"),
    }
}

/// Names come in byte order.
pub async fn names_are_in_order(fixture: &dyn Fixture) -> CaseResult {
    let store = fixture.open().await?;
    acquire_all(&store, &["b", "a:2", "a:10", "é", "B", "a", "_", "~"]).await?;
    let (names, truncated) = list_names(&store, "", 100).await?;
    ensure!(
        names == ["B", "_", "a", "a:10", "a:2", "b", "~", "é"] && !truncated,
        "listed out of order or cut (truncated: {truncated}): {names:?}"
    );
    Ok(())
}

/// A prefix is text, not a pattern.
pub async fn prefix_is_literal(fixture: &dyn Fixture) -> CaseResult {
    let store = fixture.open().await?;
    let names = ["a*b", "a", "aXb", "a_b", "a%b", "a[X]b", "A", "b", "a?b", "a\\b"];
    acquire_all(&store, &names).await?;
    for prefix in ["a*", "a_", "a%", "a[X]", "a?", "a\\", "A", "a", "aX", "*", "%", "?", "c"] {
        let (listed, _) = list_names(&store, prefix, 100).await?;
        let mut wanted: Vec<_> = names.iter().filter(|name| name.starts_with(prefix)).collect();
        wanted.sort();
        ensure!(
            listed.iter().eq(wanted.iter().copied()),
            "I12: with the prefix `{prefix}` the store lists {listed:?}, and those that start with it are {wanted:?}"
        );
    }
    Ok(())
}

/// A listing has at most `limit` leases, the first ones, and says whether there are more.
pub async fn limit_and_truncation(fixture: &dyn Fixture) -> CaseResult {
    let store = fixture.open().await?;
    acquire_all(&store, &["l:4", "l:2", "l:5", "l:1", "l:3", "other"]).await?;
    for (limit, wanted, more) in [(3, 3, true), (4, 4, true), (5, 5, false), (6, 5, false)] {
        let (names, truncated) = list_names(&store, "l:", limit).await?;
        let first: Vec<_> = ["l:1", "l:2", "l:3", "l:4", "l:5"].into_iter().take(wanted).collect();
        ensure!(
            names == first && truncated == more,
            "five leases, a limit of {limit}: listed {names:?}, truncated: {truncated}"
        );
    }
    Ok(())
}

/// Expired and released leases are not listed.
pub async fn only_live_leases_are_listed(fixture: &dyn Fixture) -> CaseResult {
    let store = fixture.open().await?;
    let held = acquire_all(&store, &["live", "released"]).await?;
    let gone = TestClient::new(&store, "gone", "holder")?;
    let brief = gone.expect_granted(fixture.short_ttl()).await?;
    for client in held.iter().filter(|client| client.name.as_str() == "released") {
        client.expect_released().await?;
    }
    fixture.wait(brief.lifetime + expiry_slack(&store)).await;
    let (names, _) = list_names(&store, "", 100).await?;
    ensure!(names == ["live"], "of `live`, `released` and `gone` are listed {names:?}");
    Ok(())
}

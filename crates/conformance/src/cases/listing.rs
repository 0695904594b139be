//! What people are shown: live leases, in order, without secrets (O1) and without what they did not ask for (I12).

use anyhow::{Context, bail, ensure};
use leasehold_core::store::{Cause, SharedStore};

use crate::asker::{Asker, Got, SLACK, WITHIN, long};
use crate::case::Verdict;
use crate::fixture::Fixture;

async fn hold(store: &SharedStore, names: &[&str]) -> anyhow::Result<Vec<Asker>> {
    let mut held = Vec::new();
    for name in names {
        let asker = Asker::new(store, name, "holder")?;
        asker.gets(long()).await?;
        held.push(asker);
    }
    Ok(held)
}

async fn listed(store: &SharedStore, prefix: &str, limit: usize) -> anyhow::Result<(Vec<String>, bool)> {
    let listing = store.list(prefix, limit, WITHIN).await?;
    let names = listing.leases.iter().map(|lease| lease.name.to_string());
    Ok((names.collect(), listing.truncated))
}

/// A name shows its lease while there is one, with who, what and how long.
pub async fn inspect_shows_live_leases_only(fixture: &dyn Fixture) -> Verdict {
    let store = fixture.open().await?;
    let (a, b) = (
        Asker::new(&store, "job:1", "web-1:7")?,
        Asker::new(&store, "job:2", "b")?,
    );
    ensure!(a.sees().await?.is_none(), "a name that nobody took shows a lease");
    let Got { fence, lives } = a.gets(long()).await?;
    let shown = a.sees().await?.context("a live lease is not shown")?;
    ensure!(
        shown.name == a.name
            && shown.holder == "web-1:7"
            && shown.class.as_deref() == Some("conformance")
            && shown.fence == Some(fence),
        "a lease of `web-1:7`, class `conformance`, fence {fence} is shown as {shown:?}"
    );
    ensure!(
        shown
            .remaining
            .is_some_and(|left| left <= lives && left > lives / 2),
        "of {lives:?}, {:?} is said to be left a moment after the grant",
        shown.remaining
    );
    ensure!(
        shown.age.is_none_or(|age| age < lives / 2),
        "a lease granted a moment ago is said to be {:?} old",
        shown.age
    );
    a.lets_go().await?;
    ensure!(a.sees().await?.is_none(), "a released lease is still shown");
    let brief = b.gets(fixture.brief()).await?;
    fixture.pass(brief.lives + SLACK).await;
    ensure!(b.sees().await?.is_none(), "a lease that ran out is still shown");
    Ok(())
}

/// Nothing that is shown, printed or logged contains a token's secret.
pub async fn no_token_is_shown(fixture: &dyn Fixture) -> Verdict {
    let store = fixture.open().await?;
    let (a, b) = (
        Asker::new(&store, "job:1", "a")?,
        Asker::new(&store, "job:1", "b")?,
    );
    a.gets(long()).await?;
    let mut shown = format!(
        "{:?} {:?} {store:?} {}",
        b.finds_busy().await?,
        a.sees().await?,
        store.describe()
    );
    if store.capabilities().list {
        shown.push_str(&format!("{:?}", store.list("", 10, WITHIN).await?));
    }
    for asker in [&a, &b] {
        ensure!(
            !shown.contains(asker.token.random()),
            "O1: a token's secret is shown to everybody who looks at its lease"
        );
    }
    Ok(())
}

/// A store that cannot list says so, definitely; one that says it can does.
pub async fn cannot_list_is_said(fixture: &dyn Fixture) -> Verdict {
    let store = fixture.open().await?;
    let can = store.capabilities().list;
    match store.list("", 10, WITHIN).await {
        Ok(_) if can => Ok(()),
        Err(refused) if !can && refused.cause == Cause::Unsupported && !refused.unknown => Ok(()),
        other => bail!("the store says that it can list: {can}, and answers {other:?}"),
    }
}

/// In the order of the names' bytes.
pub async fn names_are_in_order(fixture: &dyn Fixture) -> Verdict {
    let store = fixture.open().await?;
    hold(&store, &["b", "a:2", "a:10", "é", "B", "a", "_", "~"]).await?;
    let (names, truncated) = listed(&store, "", 100).await?;
    ensure!(
        names == ["B", "_", "a", "a:10", "a:2", "b", "~", "é"] && !truncated,
        "listed out of order or cut (truncated: {truncated}): {names:?}"
    );
    Ok(())
}

/// A prefix is text, not a pattern.
pub async fn prefix_is_literal(fixture: &dyn Fixture) -> Verdict {
    let store = fixture.open().await?;
    let names = ["a*b", "a", "aXb", "a_b", "a%b", "a[X]b", "A", "b", "a?b", "a\\b"];
    hold(&store, &names).await?;
    for prefix in [
        "a*", "a_", "a%", "a[X]", "a?", "a\\", "A", "a", "aX", "*", "%", "?", "c",
    ] {
        let (listed, _) = listed(&store, prefix, 100).await?;
        let mut wanted: Vec<_> = names.iter().filter(|name| name.starts_with(prefix)).collect();
        wanted.sort();
        ensure!(
            listed.iter().eq(wanted.iter().copied()),
            "I12: with the prefix `{prefix}` the store lists {listed:?}, and those that start with it are {wanted:?}"
        );
    }
    Ok(())
}

/// No more than the limit, the first ones, and it is said that there are more.
pub async fn limit_and_truncation(fixture: &dyn Fixture) -> Verdict {
    let store = fixture.open().await?;
    hold(&store, &["l:4", "l:2", "l:5", "l:1", "l:3", "other"]).await?;
    for (limit, wanted, more) in [(3, 3, true), (4, 4, true), (5, 5, false), (6, 5, false)] {
        let (names, truncated) = listed(&store, "l:", limit).await?;
        let first: Vec<_> = ["l:1", "l:2", "l:3", "l:4", "l:5"]
            .into_iter()
            .take(wanted)
            .collect();
        ensure!(
            names == first && truncated == more,
            "five leases, a limit of {limit}: listed {names:?}, truncated: {truncated}"
        );
    }
    Ok(())
}

/// Neither what ran out nor what was given back.
pub async fn only_live_leases_are_listed(fixture: &dyn Fixture) -> Verdict {
    let store = fixture.open().await?;
    let held = hold(&store, &["live", "released"]).await?;
    let gone = Asker::new(&store, "gone", "holder")?;
    let brief = gone.gets(fixture.brief()).await?;
    for asker in held.iter().filter(|asker| asker.name.as_str() == "released") {
        asker.lets_go().await?;
    }
    fixture.pass(brief.lives + SLACK).await;
    let (names, _) = listed(&store, "", 100).await?;
    ensure!(
        names == ["live"],
        "of `live`, `released` and `gone` are listed {names:?}"
    );
    Ok(())
}

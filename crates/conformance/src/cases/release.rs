//! Only the owner of a live lease, or an operator who saw exactly that grant, ends it (invariant I4).

use anyhow::ensure;
use leasehold_core::store::{Given, Renewed};

use crate::asker::{Asker, SLACK, long};
use crate::case::Verdict;
use crate::fixture::Fixture;

fn refused(what: &str, given: Given) -> anyhow::Result<()> {
    ensure!(given == Given::NotOwned, "I4: {what} got {given:?}");
    Ok(())
}

/// A released name is free, not after some time but now.
pub async fn gives_the_name_at_once(fixture: &dyn Fixture) -> Verdict {
    let store = fixture.open().await?;
    let (a, b) = (
        Asker::new(&store, "job:1", "a")?,
        Asker::new(&store, "job:1", "b")?,
    );
    a.gets(long()).await?;
    a.lets_go().await?;
    b.gets(long()).await?;
    Ok(())
}

/// Another token's release is refused and changes nothing.
pub async fn wrong_token_changes_nothing(fixture: &dyn Fixture) -> Verdict {
    let store = fixture.open().await?;
    let (a, b) = (
        Asker::new(&store, "job:1", "a")?,
        Asker::new(&store, "job:1", "b")?,
    );
    let got = a.gets(long()).await?;
    refused("another token's release", b.gives().await?)?;
    refused("another token's undo", b.undoes().await?)?;
    a.still_holds(got.fence).await?;
    Asker::new(&store, "job:1", "c")?.finds_busy().await?;
    Ok(())
}

/// The second release of one lease is told so.
pub async fn twice_is_not_owned(fixture: &dyn Fixture) -> Verdict {
    let store = fixture.open().await?;
    let a = Asker::new(&store, "job:1", "a")?;
    refused("a release before the acquire", a.gives().await?)?;
    a.gets(long()).await?;
    a.lets_go().await?;
    refused("the second release", a.gives().await?)
}

/// A lease that ran out is not its owner's any more, even if nobody has taken it since.
pub async fn owner_after_expiry_is_not_owned(fixture: &dyn Fixture) -> Verdict {
    let store = fixture.open().await?;
    let a = Asker::new(&store, "job:1", "a")?;
    let got = a.gets(fixture.brief()).await?;
    fixture.pass(got.lives + SLACK).await;
    refused("a release after the lease ran out", a.gives().await?)
}

/// The same holder took the name again: its earlier handle cannot end the newer lease.
pub async fn trap_12_stale_handle_cannot_delete_the_newer_lease(fixture: &dyn Fixture) -> Verdict {
    let store = fixture.open().await?;
    let stale = Asker::new(&store, "job:1", "me")?;
    let got = stale.gets(fixture.brief()).await?;
    fixture.pass(got.lives + SLACK).await;
    let newer = Asker::new(&store, "job:1", "me")?;
    let got = newer.gets(long()).await?;
    refused("a release by the stale handle", stale.gives().await?)?;
    refused("an undo by the stale handle", stale.undoes().await?)?;
    newer.still_holds(got.fence).await
}

/// An operator ends the grant whose fence it saw, and never the one that came after.
pub async fn seen_breaks_exactly_that_grant(fixture: &dyn Fixture) -> Verdict {
    let store = fixture.open().await?;
    let (a, b) = (
        Asker::new(&store, "job:1", "a")?,
        Asker::new(&store, "job:1", "b")?,
    );
    let first = a.gets(long()).await?;
    let given = b.breaks(first.fence).await?;
    ensure!(
        given == Given::Released,
        "the break of a live grant got {given:?}"
    );
    let second = b.gets(long()).await?;
    refused("the break of an earlier grant", a.breaks(first.fence).await?)?;
    b.still_holds(second.fence).await
}

/// Whoever was broken has lost the lease like anybody else.
pub async fn broken_owner_has_lost_it(fixture: &dyn Fixture) -> Verdict {
    let store = fixture.open().await?;
    let a = Asker::new(&store, "job:1", "a")?;
    let got = a.gets(long()).await?;
    a.breaks(got.fence).await?;
    let renewed = a.renews(got.fence, long()).await?;
    ensure!(
        renewed == Renewed::NotOwned,
        "I4: a broken lease was renewed: {renewed:?}"
    );
    refused("the release of a broken lease", a.gives().await?)
}

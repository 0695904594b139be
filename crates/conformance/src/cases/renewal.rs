//! Only the owner of a live lease extends it (invariant I4).

use anyhow::ensure;
use leasehold_core::Fence;
use leasehold_core::adapter::Chaos;
use leasehold_core::store::{Answer, Renewed};

use crate::asker::{Asker, SLACK, WITHIN, long};
use crate::case::Verdict;
use crate::fixture::Fixture;
use crate::pace::{Attempt, Pace, Stopwatch, fair, fairly};

/// Renewed in time, a lease lives on.
pub async fn keeps_alive_past_the_first_ttl(fixture: &dyn Fixture) -> Verdict {
    let store = fixture.open().await?;
    fairly(fixture, async |attempt: Attempt| {
        let name = attempt.name("kept");
        let (holder, other) = (
            Asker::new(&store, &name, "holder")?,
            Asker::new(&store, &name, "other")?,
        );
        let whole = Stopwatch::start(fixture);
        let mut since = Stopwatch::start(fixture);
        let got = holder.gets(attempt.ttl).await?;
        while whole.within(got.lives * 2 + SLACK) {
            fixture.pass(got.lives / 4).await;
            let now = Stopwatch::start(fixture);
            let renewed = holder.renews(got.fence, attempt.ttl).await?;
            fair!(
                since.within(got.lives),
                matches!(renewed, Renewed::Extended { .. }),
                "a lease that was renewed in time got {renewed:?}"
            );
            since = now;
        }
        let answer = other.ask(long()).await?;
        fair!(
            since.within(got.lives),
            matches!(answer, Answer::Busy(_)),
            "I1: a renewed lease was given to another: {answer:?}"
        );
        Ok(Pace::Fair)
    })
    .await
}

/// A late renewal, or a late repetition of the ask, that was sent before a policy lengthened the TTL does not cut what
/// the holder was told.
pub async fn never_shortens(fixture: &dyn Fixture) -> Verdict {
    let store = fixture.open().await?;
    let a = Asker::new(&store, "job:1", "a")?;
    let got = a.gets(long()).await?;
    let renewed = a.renews(got.fence, fixture.brief()).await?;
    ensure!(
        matches!(renewed, Renewed::Extended { .. }),
        "I4: the owner's renewal got {renewed:?}"
    );
    a.gets(fixture.brief()).await?;
    let left = a.sees().await?.and_then(|lease| lease.remaining);
    ensure!(
        left.is_none_or(|left| left > long().get() / 2),
        "I5: a shorter renewal cut a live lease to {left:?}"
    );
    Ok(())
}

/// Another token's renewal is refused and changes nothing, not even the time that is left.
pub async fn wrong_token_is_not_owned(fixture: &dyn Fixture) -> Verdict {
    let store = fixture.open().await?;
    let (a, b) = (
        Asker::new(&store, "job:1", "a")?,
        Asker::new(&store, "job:1", "b")?,
    );
    let got = a.gets(long()).await?;
    let renewed = b.renews(got.fence, leasehold_core::Ttl::MAX).await?;
    ensure!(
        renewed == Renewed::NotOwned,
        "I4: another token's renewal got {renewed:?}"
    );
    let left = a.sees().await?.and_then(|lease| lease.remaining);
    ensure!(
        left.is_some_and(|left| left <= got.lives),
        "I4: another token's renewal changed what is left of {:?} to {left:?}",
        got.lives
    );
    a.still_holds(got.fence).await
}

/// The right token with a fence that is not the grant's is refused: it speaks of another lease.
pub async fn wrong_fence_is_not_owned(fixture: &dyn Fixture) -> Verdict {
    let store = fixture.open().await?;
    let a = Asker::new(&store, "job:1", "a")?;
    let got = a.gets(long()).await?;
    let others = [got.fence.get() + 1, got.fence.get() - 1].map(Fence::new);
    for fence in others.into_iter().flatten() {
        let renewed = a.renews(fence, long()).await?;
        ensure!(
            renewed == Renewed::NotOwned,
            "I4: a renewal with fence {fence} of a lease with fence {} got {renewed:?}",
            got.fence
        );
    }
    a.still_holds(got.fence).await
}

/// A lease that ran out stays so, even if nobody has taken it since.
pub async fn expired_lease_is_never_revived(fixture: &dyn Fixture) -> Verdict {
    let store = fixture.open().await?;
    let (a, b) = (
        Asker::new(&store, "job:1", "a")?,
        Asker::new(&store, "job:1", "b")?,
    );
    let got = a.gets(fixture.brief()).await?;
    fixture.pass(got.lives + SLACK).await;
    let renewed = a.renews(got.fence, long()).await?;
    ensure!(
        renewed == Renewed::NotOwned,
        "I4: a lease that had run out was renewed: {renewed:?}"
    );
    let next = b.gets(long()).await?;
    let renewed = a.renews(got.fence, long()).await?;
    ensure!(
        renewed == Renewed::NotOwned,
        "I4: a renewal of a lease that is another's by now got {renewed:?}"
    );
    b.still_holds(next.fence).await
}

/// A renewal that arrives after the release is refused, and the name stays free.
pub async fn trap_10_late_renewal_after_release_cannot_revive(fixture: &dyn Fixture) -> Verdict {
    let store = fixture.open().await?;
    let (a, b) = (
        Asker::new(&store, "job:1", "a")?,
        Asker::new(&store, "job:1", "b")?,
    );
    let got = a.gets(long()).await?;
    a.lets_go().await?;
    let renewed = a.renews(got.fence, long()).await?;
    ensure!(
        renewed == Renewed::NotOwned,
        "I4: a renewal after the release got {renewed:?}"
    );
    b.gets(long()).await?;
    Ok(())
}

/// A renewal was applied and its reply lost: the same renewal again is extended, not refused.
pub async fn trap_04_renewal_whose_reply_was_lost_does_not_conflict_with_itself(
    fixture: &dyn Fixture,
) -> Verdict {
    let chaos = Chaos::new(fixture.open().await?, fixture.clock());
    let a = Asker::new(&chaos.store(), "job:1", "a")?;
    let got = a.gets(long()).await?;
    for _ in 0..3 {
        chaos.renew().lose_reply(1);
        ensure!(
            a.renews(got.fence, long()).await.is_err(),
            "the reply was lost, and yet it came"
        );
        a.still_holds(got.fence).await?;
    }
    Ok(())
}

/// Three hundred renewals in one batch, good and bad by turns: one answer each, in the order asked.
pub async fn batch_of_300_is_answered_in_order(fixture: &dyn Fixture) -> Verdict {
    let store = fixture.open().await?;
    ensure!(
        store.renew(&[], WITHIN).await.is_empty(),
        "an empty batch got an answer"
    );
    let (mut batch, mut wanted) = (Vec::new(), Vec::new());
    for number in 0..300_u32 {
        let owner = Asker::new(&store, &format!("batch:{number}"), "owner")?;
        let stranger = Asker::new(&store, &format!("batch:{number}"), "stranger")?;
        match number % 3 {
            0 => batch.push(owner.renewal(owner.gets(long()).await?.fence, long())),
            1 => batch.push(stranger.renewal(owner.gets(long()).await?.fence, long())),
            _ => batch.push(stranger.renewal(Fence::MIN, long())),
        }
        wanted.push(number % 3 == 0);
    }
    let answers = store.renew(&batch, WITHIN).await;
    ensure!(
        answers.len() == batch.len(),
        "a batch of {} got {} answers",
        batch.len(),
        answers.len()
    );
    for (number, (answer, wanted)) in answers.into_iter().zip(wanted).enumerate() {
        let extended = matches!(answer?, Renewed::Extended { .. });
        ensure!(
            extended == wanted,
            "I4: item {number} of the batch should be extended: {wanted}, and was: {extended}"
        );
    }
    Ok(())
}

/// What a store says was left is what was left: between nothing and what the lease was last kept for.
pub async fn was_left_is_plausible(fixture: &dyn Fixture) -> Verdict {
    let store = fixture.open().await?;
    let a = Asker::new(&store, "job:1", "a")?;
    let got = a.gets(long()).await?;
    let mut kept = got.lives;
    for ttl in [long(), leasehold_core::Ttl::MAX, leasehold_core::Ttl::MAX] {
        if let Renewed::Extended { was_left: Some(left) } = a.renews(got.fence, ttl).await? {
            // Half: far below anything that a slow machine loses of two minutes, far above a unit gone wrong.
            ensure!(
                left <= kept + SLACK && left > kept / 2,
                "a renewal says that {left:?} was left of {kept:?} a moment ago"
            );
        }
        kept = ttl.get();
    }
    a.still_holds(got.fence).await
}

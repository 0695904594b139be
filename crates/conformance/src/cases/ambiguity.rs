//! A time-out is not a no: what a client does when it cannot know, and what a store must make of it
//! (invariants I6 and I7).

use std::time::Duration;

use anyhow::{bail, ensure};
use leasehold_core::adapter::Chaos;
use leasehold_core::clock::until;
use leasehold_core::store::{Answer, Given};

use crate::asker::{Asker, SLACK, long};
use crate::case::Verdict;
use crate::fixture::Fixture;
use crate::pace::{Attempt, Pace, Stopwatch, fair, fairly};

async fn is_void(asker: &Asker, when: &str) -> anyhow::Result<()> {
    match asker.ask(long()).await? {
        Answer::Void => Ok(()),
        other => bail!("I6: an acquire {when} got {other:?}"),
    }
}

/// A token that asks twice holds once: one release frees the name.
pub async fn same_token_twice_is_one_grant(fixture: &dyn Fixture) -> Verdict {
    let store = fixture.open().await?;
    let (a, b) = (
        Asker::new(&store, "job:1", "a")?,
        Asker::new(&store, "job:1", "b")?,
    );
    let first = a.gets(long()).await?;
    let again = a.gets(long()).await?;
    ensure!(
        first.fence == again.fence,
        "R5: one token was granted {} and then {}",
        first.fence,
        again.fence
    );
    b.finds_busy().await?;
    a.lets_go().await?;
    b.gets(long()).await?;
    Ok(())
}

/// Asking again starts the time to live anew: the second answer's deadline counts from the second request.
pub async fn asking_again_restarts_the_ttl(fixture: &dyn Fixture) -> Verdict {
    let store = fixture.open().await?;
    fairly(fixture, async |attempt: Attempt| {
        let a = Asker::new(&store, &attempt.name("again"), "a")?;
        let watch = Stopwatch::start(fixture);
        let first = a.gets(attempt.ttl).await?;
        let again = a.gets(long()).await?;
        fair!(
            watch.within(first.lives),
            first.fence == again.fence,
            "R5: one token was granted {} and then {}",
            first.fence,
            again.fence
        );
        fixture.pass(first.lives + SLACK).await;
        a.still_holds(again.fence).await?;
        Ok(Pace::Fair)
    })
    .await
}

/// The grant's reply was lost: the same token asks again and learns the same grant.
pub async fn lost_reply_then_the_same_grant(fixture: &dyn Fixture) -> Verdict {
    let chaos = Chaos::new(fixture.open().await?, fixture.clock());
    let a = Asker::new(&chaos.store(), "job:1", "a")?;
    chaos.acquire().lose_reply(1);
    ensure!(
        a.ask(long()).await.is_err(),
        "the reply was lost, and yet it came"
    );
    let applied = a.sees().await?.and_then(|lease| lease.fence);
    let again = a.gets(long()).await?;
    ensure!(
        applied == Some(again.fence),
        "R3: the lost reply granted {applied:?}, asking again {}",
        again.fence
    );
    Ok(())
}

/// The undo overtakes its acquire: the acquire, when it arrives, is refused.
pub async fn undo_before_a_late_acquire_makes_it_void(fixture: &dyn Fixture) -> Verdict {
    let store = fixture.open().await?;
    let (a, b) = (
        Asker::new(&store, "job:1", "a")?,
        Asker::new(&store, "job:1", "b")?,
    );
    a.undoes().await?;
    is_void(&a, "that its undo overtook").await?;
    b.gets(long()).await?;
    is_void(&a, "that its undo overtook, of a name that is taken").await
}

/// The undo of what was granted frees it, and the token is not granted again.
pub async fn undo_of_a_grant_frees_it(fixture: &dyn Fixture) -> Verdict {
    let store = fixture.open().await?;
    let (a, b) = (
        Asker::new(&store, "job:1", "a")?,
        Asker::new(&store, "job:1", "b")?,
    );
    a.gets(long()).await?;
    let given = a.undoes().await?;
    ensure!(given == Given::Released, "the undo of a grant got {given:?}");
    is_void(&a, "that was granted and undone").await?;
    b.gets(long()).await?;
    Ok(())
}

/// The undo of what never was says so and leaves the name free.
pub async fn undo_of_what_never_was_changes_nothing(fixture: &dyn Fixture) -> Verdict {
    let store = fixture.open().await?;
    let (a, b) = (
        Asker::new(&store, "job:1", "a")?,
        Asker::new(&store, "job:1", "b")?,
    );
    let given = a.undoes().await?;
    ensure!(
        given == Given::NotOwned,
        "the undo of what never was got {given:?}"
    );
    ensure!(
        a.sees().await?.is_none(),
        "I6: an undo made a lease: {:?}",
        a.sees().await?
    );
    let got = b.gets(long()).await?;
    a.undoes().await?;
    b.still_holds(got.fence).await
}

/// A tombstone is for one token: the same holder's next attempt is served.
pub async fn tombstone_concerns_that_token_only(fixture: &dyn Fixture) -> Verdict {
    let store = fixture.open().await?;
    for _ in 0..3 {
        let attempt = Asker::new(&store, "job:1", "me")?;
        attempt.gets(long()).await?;
        attempt.undoes().await?;
    }
    Asker::new(&store, "job:1", "me")?.gets(long()).await?;
    Ok(())
}

/// An undone token does not become a waiter: nothing is ever handed to it.
pub async fn void_is_not_queued(fixture: &dyn Fixture) -> Verdict {
    let store = fixture.open().await?;
    let [a, b, c] = ["a", "b", "c"].map(|who| Asker::new(&store, "job:1", who));
    let (a, b, c) = (a?, b?, c?);
    b.gets(long()).await?;
    a.undoes().await?;
    let answer = a.put(&a.queueing(long().get())).await?;
    ensure!(
        answer == Answer::Void,
        "I6: an undone token asked to wait and got {answer:?}"
    );
    b.lets_go().await?;
    c.gets(long()).await?;
    Ok(())
}

/// The caller dropped its acquire, before or after it took effect: after the undo nothing is left.
pub async fn trap_06_dropped_acquire_leaves_nothing_after_its_undo(fixture: &dyn Fixture) -> Verdict {
    let chaos = Chaos::new(fixture.open().await?, fixture.clock());
    let clock = fixture.clock();
    // Lost on its way, applied without an answer, and cut off by the clock at whatever point it had reached.
    for round in 0..12_u64 {
        match round {
            0 => _ = chaos.acquire().hang_next(1),
            1 => _ = chaos.acquire().hang_after_next(1),
            _ => {}
        }
        let patience = if round < 2 {
            Duration::from_millis(500)
        } else {
            Duration::from_micros(200 * (round - 2))
        };
        let name = format!("dropped:{round}");
        let (a, b) = (
            Asker::new(&chaos.store(), &name, "a")?,
            Asker::new(&chaos.store(), &name, "b")?,
        );
        let answer = until(clock.as_ref(), clock.now() + patience, a.ask(long())).await;
        ensure!(
            round >= 2 || answer.is_none(),
            "the acquire hangs, and yet it ended"
        );
        a.undoes().await?;
        b.gets(long()).await?;
        is_void(&a, "that was dropped and undone").await?;
    }
    Ok(())
}

/// The release's reply was lost: the second attempt says *not owned*, and the name is free.
pub async fn release_whose_reply_was_lost_has_happened(fixture: &dyn Fixture) -> Verdict {
    let chaos = Chaos::new(fixture.open().await?, fixture.clock());
    let store = chaos.store();
    let (a, b) = (
        Asker::new(&store, "job:1", "a")?,
        Asker::new(&store, "job:1", "b")?,
    );
    a.gets(long()).await?;
    chaos.release().lose_reply(1);
    ensure!(a.gives().await.is_err(), "the reply was lost, and yet it came");
    let got = b.gets(long()).await?;
    let given = a.gives().await?;
    ensure!(
        given == Given::NotOwned,
        "R4: the second release of one lease got {given:?}"
    );
    b.still_holds(got.fence).await
}

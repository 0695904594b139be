//! Fences only grow for a name, whatever happens to it (invariant I2), and none is issued twice.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use leasehold_core::Fence;
use leasehold_core::clock::ClockExt;
use leasehold_core::rng::{OsRandom, RandomExt};
use leasehold_core::store::{Answer, Ask, Given, Promise};

use crate::asker::{Asker, SLACK, WITHIN, long};
use crate::case::Verdict;
use crate::fixture::Fixture;

fn grew(how: &str, before: Fence, after: Fence) -> anyhow::Result<()> {
    ensure!(
        after > before,
        "I2: the fence went from {before} to {after} across {how}"
    );
    Ok(())
}

/// Across release.
pub async fn trap_11_grows_across_release(fixture: &dyn Fixture) -> Verdict {
    let store = fixture.open().await?;
    let mut last = None;
    for _ in 0..20 {
        let asker = Asker::new(&store, "job:1", "a")?;
        let got = asker.gets(long()).await?;
        if let Some(last) = last.replace(got.fence) {
            grew("a release", last, got.fence)?;
        }
        asker.lets_go().await?;
    }
    Ok(())
}

/// Across expiry, for the holder that had it as for another.
pub async fn trap_11_grows_across_expiry(fixture: &dyn Fixture) -> Verdict {
    let store = fixture.open().await?;
    let first = Asker::new(&store, "job:1", "a")?.gets(fixture.brief()).await?;
    fixture.pass(first.lives + SLACK).await;
    let second = Asker::new(&store, "job:1", "a")?.gets(fixture.brief()).await?;
    grew("an expiry", first.fence, second.fence)?;
    fixture.pass(second.lives + SLACK).await;
    let third = Asker::new(&store, "job:1", "b")?.gets(long()).await?;
    grew("a second expiry", second.fence, third.fence)
}

/// Across an operator's break.
pub async fn trap_11_grows_across_break(fixture: &dyn Fixture) -> Verdict {
    let store = fixture.open().await?;
    let (a, b) = (
        Asker::new(&store, "job:1", "a")?,
        Asker::new(&store, "job:1", "b")?,
    );
    let first = a.gets(long()).await?;
    let broken = b.breaks(first.fence).await?;
    ensure!(
        broken == Given::Released,
        "the break of a live grant got {broken:?}"
    );
    grew("a break", first.fence, b.gets(long()).await?.fence)
}

/// Across a hand-over to a waiter, whose claim has a fence of its own.
pub async fn trap_11_grows_across_hand_over(fixture: &dyn Fixture) -> Verdict {
    let store = fixture.open().await?;
    let mut holder = Asker::new(&store, "job:1", "first")?;
    let mut last = holder.gets(long()).await?.fence;
    for number in 0..5 {
        let next = Asker::new(&store, "job:1", &format!("waiter-{number}"))?;
        next.queues(long().get()).await?;
        holder.lets_go().await?;
        // Late or not: if the claim ran out meanwhile, this is a new grant, and its fence must be greater too.
        let fence = next.gets(long()).await?.fence;
        grew("a hand-over", last, fence)?;
        (holder, last) = (next, fence);
    }
    Ok(())
}

/// Across closing and opening the store.
pub async fn trap_11_grows_across_reopening(fixture: &dyn Fixture) -> Verdict {
    let store = fixture.open().await?;
    let can = store.capabilities();
    let asker = Asker::new(&store, "job:1", "a")?;
    let first = asker.gets(long()).await?;
    asker.lets_go().await?;
    drop((asker, store));
    let store = fixture.reopen().await?;
    let second = Asker::new(&store, "job:1", "b")?.gets(long()).await?;
    // A store that may forget everything and cannot make up for it has to have said both.
    if can.promise == Promise::Volatile && !can.fence_survives_loss {
        return Ok(());
    }
    grew("reopening the store", first.fence, second.fence)
}

/// Twenty tasks take and give one name in turns: the fences, written down while held, only grow.
pub async fn never_twice_under_racing_tasks(fixture: &dyn Fixture) -> Verdict {
    const TASKS: usize = 20;
    const GRANTS: usize = 3;
    let handles = [fixture.open().await?, fixture.open().await?];
    let seen: Arc<Mutex<Vec<Fence>>> = Arc::default();
    let mut tasks = tokio::task::JoinSet::new();
    for number in 0..TASKS {
        let store = if number % 2 == 0 { &handles[0] } else { &handles[1] };
        let (store, seen, clock) = (Arc::clone(store), Arc::clone(&seen), fixture.clock());
        tasks.spawn(async move {
            let mut grants = 0;
            while grants < GRANTS {
                let asker = Asker::new(&store, "race", &format!("racer-{number}"))?;
                if let Answer::Granted(grant) = asker.ask(long()).await? {
                    seen.lock()
                        .unwrap_or_else(PoisonError::into_inner)
                        .push(grant.fence);
                    grants += 1;
                    asker.lets_go().await?;
                }
                clock.sleep(OsRandom.jitter(Duration::from_millis(5))).await;
            }
            anyhow::Ok(())
        });
    }
    while let Some(done) = tasks.join_next().await {
        done??;
    }
    let seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
    ensure!(
        seen.len() == TASKS * GRANTS,
        "{} grants were written down",
        seen.len()
    );
    match seen.windows(2).find(|pair| pair[0] >= pair[1]) {
        None => Ok(()),
        Some(pair) => bail!("I2: the fence {} was followed by {}", pair[0], pair[1]),
    }
}

/// A grant is never below the highest fence its asker has seen, and the next one is above it too.
pub async fn respects_the_floor(fixture: &dyn Fixture) -> Verdict {
    let store = fixture.open().await?;
    let a = Asker::new(&store, "job:1", "a")?;
    let first = a.gets(long()).await?;
    a.lets_go().await?;
    // An hour of microseconds ahead: more than the store's own clock moves during the case.
    let floor =
        Fence::new(first.fence.get() + 3_600_000_000).context("the fence leaves no room for a floor")?;
    let b = Asker::new(&store, "job:1", "b")?;
    let ask = Ask {
        floor: Some(floor),
        ..b.plain(long())
    };
    let second = b.gets_by(&ask).await?;
    ensure!(
        second.fence > floor,
        "I2: the asker has seen {floor} and was granted {}",
        second.fence
    );
    b.lets_go().await?;
    let third = Asker::new(&store, "job:1", "c")?.gets(long()).await?;
    grew("a grant at a floor", second.fence, third.fence)
}

/// Nothing is above the largest fence: who has seen it is refused, and what others are granted is as far from it as before.
pub async fn nothing_is_granted_above_the_largest(fixture: &dyn Fixture) -> Verdict {
    let store = fixture.open().await?;
    let a = Asker::new(&store, "job:1", "a")?;
    let ask = Ask {
        floor: Some(Fence::MAX),
        ..a.plain(long())
    };
    match store.acquire(&ask, WITHIN).await {
        Ok(answer) => bail!(
            "I2: the asker has seen {} and was answered {answer:?}",
            Fence::MAX
        ),
        Err(failure) => ensure!(
            !failure.unknown,
            "I7: it is certain that nothing was granted: {failure}"
        ),
    }
    let next = Asker::new(&store, "job:1", "b")?.gets(long()).await?;
    ensure!(
        next.fence.get() < Fence::MAX.get() / 2,
        "a floor that was refused has brought the next fence to {}",
        next.fence
    );
    Ok(())
}

/// The floor of a waiter counts when the lease is handed over to it, too.
pub async fn hand_over_respects_the_floor(fixture: &dyn Fixture) -> Verdict {
    let store = fixture.open().await?;
    let (holder, next) = (
        Asker::new(&store, "job:1", "a")?,
        Asker::new(&store, "job:1", "b")?,
    );
    let first = holder.gets(long()).await?;
    let floor =
        Fence::new(first.fence.get() + 3_600_000_000).context("the fence leaves no room for a floor")?;
    let ask = Ask {
        floor: Some(floor),
        queue: Some(long().get()),
        ..next.plain(long())
    };
    let answer = next.put(&ask).await?;
    ensure!(
        matches!(answer, Answer::Busy(_)),
        "I1: a held lease was answered with {answer:?}"
    );
    holder.lets_go().await?;
    let second = next.gets_by(&ask).await?;
    ensure!(
        second.fence > floor,
        "I2: the waiter has seen {floor} and was handed {}",
        second.fence
    );
    Ok(())
}

/// One acquire asked twice is one grant with one fence; a fence is not used up twice for the same lease.
pub async fn same_ask_same_fence(fixture: &dyn Fixture) -> Verdict {
    let store = fixture.open().await?;
    let (a, b) = (
        Asker::new(&store, "job:1", "a")?,
        Asker::new(&store, "job:1", "b")?,
    );
    let first = a.gets(long()).await?;
    let again = a.gets(long()).await?;
    ensure!(
        first.fence == again.fence,
        "one token was granted {} and then {} for one lease",
        first.fence,
        again.fence
    );
    a.lets_go().await?;
    grew("a release", again.fence, b.gets(long()).await?.fence)
}

/// A fence is far from the end of its numbers: centuries of growth are left.
pub async fn leaves_room_to_grow(fixture: &dyn Fixture) -> Verdict {
    let store = fixture.open().await?;
    let got = Asker::new(&store, "job:1", "a")?.gets(long()).await?;
    ensure!(
        got.fence.get() < Fence::MAX.get() / 2,
        "the fence {} is past half of what fits in 53 bits",
        got.fence
    );
    Ok(())
}

//! Fences of a name only grow, whatever happens to it (invariant I2), and none is issued twice.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use leasehold_core::Fence;
use leasehold_core::clock::ClockExt;
use leasehold_core::rng::{OsRandom, RandomExt};
use leasehold_core::store::{AcquireResponse, Promise, ReleaseResponse};

use crate::case::CaseResult;
use crate::client::{CALL_TIMEOUT, TestClient, expiry_slack, long_ttl};
use crate::fixture::Fixture;

fn ensure_grew(how: &str, before: Fence, after: Fence) -> anyhow::Result<()> {
    ensure!(after > before, "I2: the fence went from {before} to {after} across {how}");
    Ok(())
}

/// The fence grows across a release.
pub async fn trap_11_grows_across_release(fixture: &dyn Fixture) -> CaseResult {
    let store = fixture.open().await?;
    let mut last = None;
    for _ in 0..20 {
        let client = TestClient::new(&store, "job:1", "a")?;
        let got = client.expect_granted(long_ttl()).await?;
        if let Some(last) = last.replace(got.fence) {
            ensure_grew("a release", last, got.fence)?;
        }
        client.expect_released().await?;
    }
    Ok(())
}

/// The fence grows across an expiry, for the same holder and for another.
pub async fn trap_11_grows_across_expiry(fixture: &dyn Fixture) -> CaseResult {
    let store = fixture.open().await?;
    let first = TestClient::new(&store, "job:1", "a")?.expect_granted(fixture.short_ttl()).await?;
    fixture.wait(first.lifetime + expiry_slack(&store)).await;
    let second = TestClient::new(&store, "job:1", "a")?.expect_granted(fixture.short_ttl()).await?;
    ensure_grew("an expiry", first.fence, second.fence)?;
    fixture.wait(second.lifetime + expiry_slack(&store)).await;
    let third = TestClient::new(&store, "job:1", "b")?.expect_granted(long_ttl()).await?;
    ensure_grew("a second expiry", second.fence, third.fence)
}

/// The fence grows across an operator's break.
pub async fn trap_11_grows_across_break(fixture: &dyn Fixture) -> CaseResult {
    let store = fixture.open().await?;
    let (a, b) = (TestClient::new(&store, "job:1", "a")?, TestClient::new(&store, "job:1", "b")?);
    let first = a.expect_granted(long_ttl()).await?;
    let broken = b.break_grant(first.fence).await?;
    ensure!(broken == ReleaseResponse::Released, "the break of a live grant got {broken:?}");
    ensure_grew("a break", first.fence, b.expect_granted(long_ttl()).await?.fence)
}

/// The fence grows across a hand-over to a waiter, whose claim has its own fence.
pub async fn trap_11_grows_across_hand_over(fixture: &dyn Fixture) -> CaseResult {
    let store = fixture.open().await?;
    let mut holder = TestClient::new(&store, "job:1", "first")?;
    let mut last = holder.expect_granted(long_ttl()).await?.fence;
    for number in 0..5 {
        let next = TestClient::new(&store, "job:1", &format!("waiter-{number}"))?;
        next.expect_queued(long_ttl().get()).await?;
        holder.expect_released().await?;
        // If the claim has expired meanwhile, this is a new grant, and its
        // fence must be greater too.
        let fence = next.expect_granted(long_ttl()).await?.fence;
        ensure_grew("a hand-over", last, fence)?;
        (holder, last) = (next, fence);
    }
    Ok(())
}

/// The fence grows across closing and opening the store.
pub async fn trap_11_grows_across_reopening(fixture: &dyn Fixture) -> CaseResult {
    let store = fixture.open().await?;
    let can = store.capabilities();
    let asker = TestClient::new(&store, "job:1", "a")?;
    let first = asker.expect_granted(long_ttl()).await?;
    asker.expect_released().await?;
    // `reopen` requires that no handle is open.
    drop((asker, store));
    let store = fixture.reopen().await?;
    let second = TestClient::new(&store, "job:1", "b")?.expect_granted(long_ttl()).await?;
    // Exempt: a store that may lose everything and cannot compensate. Its
    // capabilities must say both.
    if can.promise == Promise::Volatile && !can.fence_survives_loss {
        return Ok(());
    }
    ensure_grew("reopening the store", first.fence, second.fence)
}

/// Twenty tasks acquire and release one name in turn: the fences, recorded while held, only grow.
pub async fn never_twice_under_racing_tasks(fixture: &dyn Fixture) -> CaseResult {
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
                let client = TestClient::new(&store, "race", &format!("racer-{number}"))?;
                if let AcquireResponse::Granted(grant) = client.acquire(long_ttl()).await? {
                    // Recorded while the lease is held, so the order of the
                    // list is the order of the grants.
                    seen.lock().unwrap_or_else(PoisonError::into_inner).push(grant.fence);
                    grants += 1;
                    client.expect_released().await?;
                }
                // With jitter, so that the tasks take turns in no fixed order.
                clock.sleep(OsRandom.jitter(Duration::from_millis(5))).await;
            }
            anyhow::Ok(())
        });
    }
    while let Some(done) = tasks.join_next().await {
        done??;
    }
    let seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
    ensure!(seen.len() == TASKS * GRANTS, "{} grants were written down", seen.len());
    match seen.windows(2).find(|pair| pair[0] >= pair[1]) {
        None => Ok(()),
        Some(pair) => bail!("I2: the fence {} was followed by {}", pair[0], pair[1]),
    }
}

/// A grant is always above the highest fence its client has seen, and so is the next one.
pub async fn respects_the_floor(fixture: &dyn Fixture) -> CaseResult {
    let store = fixture.open().await?;
    let a = TestClient::new(&store, "job:1", "a")?;
    let first = a.expect_granted(long_ttl()).await?;
    a.expect_released().await?;
    // An hour in microseconds: more than the store's own clock advances during the case.
    let floor =
        Fence::new(first.fence.get() + 3_600_000_000).context("the fence leaves no room for a floor")?;
    let b = TestClient::new(&store, "job:1", "b")?;
    let request = b.acquire_request(long_ttl()).with_floor(floor);
    let second = b.expect_granted_with(&request).await?;
    ensure!(second.fence > floor, "I2: the asker has seen {floor} and was granted {}", second.fence);
    b.expect_released().await?;
    let third = TestClient::new(&store, "job:1", "c")?.expect_granted(long_ttl()).await?;
    ensure_grew("a grant at a floor", second.fence, third.fence)
}

/// No fence is above the largest: a client that has seen it is refused, and the refused floor
/// does not raise later fences.
pub async fn nothing_is_granted_above_the_largest(fixture: &dyn Fixture) -> CaseResult {
    let store = fixture.open().await?;
    let a = TestClient::new(&store, "job:1", "a")?;
    let ask = a.acquire_request(long_ttl()).with_floor(Fence::MAX);
    match store.acquire(&ask, CALL_TIMEOUT).await {
        Ok(answer) => bail!("I2: the asker has seen {} and was answered {answer:?}", Fence::MAX),
        Err(failure) => ensure!(!failure.unknown, "I7: it is certain that nothing was granted: {failure}"),
    }
    let next = TestClient::new(&store, "job:1", "b")?.expect_granted(long_ttl()).await?;
    ensure!(
        // A store that had recorded the refused floor would now be at the end of its range.
        next.fence.get() < Fence::MAX.get() / 2,
        "a floor that was refused has brought the next fence to {}",
        next.fence
    );
    Ok(())
}

/// The floor of a waiter also applies when the lease is handed over to it.
pub async fn hand_over_respects_the_floor(fixture: &dyn Fixture) -> CaseResult {
    let store = fixture.open().await?;
    let (holder, next) = (TestClient::new(&store, "job:1", "a")?, TestClient::new(&store, "job:1", "b")?);
    let first = holder.expect_granted(long_ttl()).await?;
    let floor =
        Fence::new(first.fence.get() + 3_600_000_000).context("the fence leaves no room for a floor")?;
    let request = next.acquire_request(long_ttl()).with_floor(floor).with_queue(long_ttl().get());
    let answer = next.send_acquire(&request).await?;
    ensure!(matches!(answer, AcquireResponse::Busy(_)), "I1: a held lease was answered with {answer:?}");
    holder.expect_released().await?;
    let second = next.expect_granted_with(&request).await?;
    ensure!(second.fence > floor, "I2: the waiter has seen {floor} and was handed {}", second.fence);
    Ok(())
}

/// One acquire sent twice is one grant with one fence.
pub async fn same_ask_same_fence(fixture: &dyn Fixture) -> CaseResult {
    let store = fixture.open().await?;
    let (a, b) = (TestClient::new(&store, "job:1", "a")?, TestClient::new(&store, "job:1", "b")?);
    let first = a.expect_granted(long_ttl()).await?;
    let again = a.expect_granted(long_ttl()).await?;
    ensure!(
        first.fence == again.fence,
        "one token was granted {} and then {} for one lease",
        first.fence,
        again.fence
    );
    a.expect_released().await?;
    ensure_grew("a release", again.fence, b.expect_granted(long_ttl()).await?.fence)
}

/// A fence is far below the maximum: centuries of growth are left.
pub async fn leaves_room_to_grow(fixture: &dyn Fixture) -> CaseResult {
    let store = fixture.open().await?;
    let got = TestClient::new(&store, "job:1", "a")?.expect_granted(long_ttl()).await?;
    ensure!(
        got.fence.get() < Fence::MAX.get() / 2,
        "the fence {} is past half of what fits in 53 bits",
        got.fence
    );
    Ok(())
}

//! One holder at a time (invariant I1), and names do not affect each other (I12).

use anyhow::{bail, ensure};
use leasehold_core::store::{AcquireRequest, AcquireResponse, Mode, StoreErrorKind};

use crate::case::CaseResult;
use crate::client::{CALL_TIMEOUT, EXPIRY_SLACK, TestClient, long_ttl};
use crate::fixture::Fixture;

/// While one token holds a name, another gets *busy*, even one of the same holder.
/// After the release it is granted.
pub async fn second_token_is_busy(fixture: &dyn Fixture) -> CaseResult {
    let store = fixture.open().await?;
    let (a, b) = (TestClient::new(&store, "job:1", "a")?, TestClient::new(&store, "job:1", "b")?);
    a.expect_granted(long_ttl()).await?;
    b.expect_busy().await?;
    // The lease belongs to the token, not to the holder: a process that
    // acquires twice contends with itself.
    TestClient::new(&store, "job:1", "a")?.expect_busy().await?;
    a.expect_released().await?;
    b.expect_granted(long_ttl()).await?;
    a.expect_busy().await?;
    Ok(())
}

/// Fifty tokens on two handles acquire at once: one is granted.
pub async fn fifty_racers_one_winner(fixture: &dyn Fixture) -> CaseResult {
    let handles = [fixture.open().await?, fixture.open().await?];
    let mut racers = tokio::task::JoinSet::new();
    for number in 0..50 {
        // Two handles, so that a lock inside one handle cannot hide a race in the store.
        let store = if number % 2 == 0 { &handles[0] } else { &handles[1] };
        let racer = TestClient::new(store, "race", &format!("racer-{number}"))?;
        racers.spawn(async move { racer.acquire(long_ttl()).await });
    }
    let winners = count_granted(racers).await?;
    ensure!(winners == 1, "I1: 50 askers raced for one name and {winners} got it");
    Ok(())
}

/// A lease has expired and two clients acquire at once: one is granted.
pub async fn trap_13_two_candidates_on_one_expired_lease_exactly_one_wins(
    fixture: &dyn Fixture,
) -> CaseResult {
    let handles = [fixture.open().await?, fixture.open().await?];
    let mut longest = EXPIRY_SLACK;
    // Several names, because a race that is lost only sometimes must show in one run.
    let names: Vec<_> = (0..10).map(|number| format!("expired:{number}")).collect();
    for name in &names {
        let got = TestClient::new(&handles[0], name, "gone")?.expect_granted(fixture.short_ttl()).await?;
        longest = longest.max(got.lifetime + EXPIRY_SLACK);
    }
    fixture.wait(longest).await;
    for name in &names {
        let mut racers = tokio::task::JoinSet::new();
        for (number, store) in handles.iter().enumerate() {
            let racer = TestClient::new(store, name, &format!("candidate-{number}"))?;
            racers.spawn(async move { racer.acquire(long_ttl()).await });
        }
        let winners = count_granted(racers).await?;
        ensure!(
            winners == 1,
            "I1: two candidates asked for `{name}`, whose lease had run out, and {winners} got it"
        );
    }
    Ok(())
}

/// Similar names are different names.
pub async fn names_are_independent(fixture: &dyn Fixture) -> CaseResult {
    let store = fixture.open().await?;
    let askers = ["job", "job:1", "job:10", "jo", "JOB"].map(|name| TestClient::new(&store, name, "a"));
    let mut held = Vec::new();
    for asker in askers {
        let asker = asker?;
        held.push((asker.expect_granted(long_ttl()).await?, asker));
    }
    let Some(((_, first), rest)) = held.split_first() else {
        bail!("nothing was asked for");
    };
    // Releasing `job` must not touch names that start with it or differ only in case.
    first.expect_released().await?;
    for (got, asker) in rest {
        asker.expect_still_held(got.fence).await?;
    }
    Ok(())
}

/// Two handles on one store show the same leases.
pub async fn a_second_handle_sees_the_same_leases(fixture: &dyn Fixture) -> CaseResult {
    let (one, two) = (fixture.open().await?, fixture.open().await?);
    let (a, b) = (TestClient::new(&one, "job:1", "a")?, TestClient::new(&two, "job:1", "b")?);
    let got = a.expect_granted(long_ttl()).await?;
    let busy = b.expect_busy().await?;
    ensure!(
        busy.fence == Some(got.fence),
        "the other handle shows the fence {:?} of a lease granted with {}",
        busy.fence,
        got.fence
    );
    // The token proves ownership through any handle.
    let a_elsewhere = TestClient { store: two, ..a };
    a_elsewhere.expect_still_held(got.fence).await?;
    a_elsewhere.expect_released().await?;
    b.expect_granted(long_ttl()).await?;
    Ok(())
}

/// A mode that the store does not support is refused: nothing is locked half-way.
pub async fn unsupported_modes_are_refused(fixture: &dyn Fixture) -> CaseResult {
    let store = fixture.open().await?;
    let can = store.capabilities();
    for (served, mode) in [(can.shared, Mode::Shared), (can.permits, Mode::Permits { of: 3 })] {
        let asker = TestClient::new(&store, "job:1", "a")?;
        let ask = AcquireRequest { mode, ..asker.acquire_request(long_ttl()) };
        match store.acquire(&ask, CALL_TIMEOUT).await {
            Ok(AcquireResponse::Granted(_)) if served => asker.expect_released().await?,
            Err(refused) if !served && refused.kind == StoreErrorKind::Unsupported && !refused.unknown => {}
            other => bail!("served: {served}, and an ask for {mode:?} got {other:?}"),
        }
    }
    // The refused requests left nothing behind.
    TestClient::new(&store, "job:1", "b")?.expect_granted(long_ttl()).await?;
    Ok(())
}

async fn count_granted(
    mut racers: tokio::task::JoinSet<anyhow::Result<AcquireResponse>>,
) -> anyhow::Result<usize> {
    let mut winners = 0;
    while let Some(raced) = racers.join_next().await {
        match raced?? {
            AcquireResponse::Granted(_) => winners += 1,
            AcquireResponse::Busy(_) => {}
            AcquireResponse::Void => bail!("a token that was not undone was answered `Void`"),
        }
    }
    Ok(winners)
}

//! One holder at a time (invariant I1), and names do not affect each other (I12).

use std::fmt::Debug;
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use leasehold_core::NameSet;
use leasehold_core::store::{
    AcquireRequest, AcquireResponse, Mode, ReleaseRequest, RenewRequest, RenewResponse, StoreError,
    StoreErrorKind,
};

use crate::case::CaseResult;
use crate::client::{CALL_TIMEOUT, TestClient, expiry_slack, long_ttl, single_response};
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
    let mut longest = Duration::ZERO;
    // Several names, because a race that is lost only sometimes must show in one run.
    let names: Vec<_> = (0..10).map(|number| format!("expired:{number}")).collect();
    for name in &names {
        let got = TestClient::new(&handles[0], name, "gone")?.expect_granted(fixture.short_ttl()).await?;
        longest = longest.max(got.lifetime + expiry_slack(&handles[0]));
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
    let clients = ["job", "job:1", "job:10", "jo", "JOB"].map(|name| TestClient::new(&store, name, "a"));
    let mut held = Vec::new();
    for client in clients {
        let client = client?;
        held.push((client.expect_granted(long_ttl()).await?, client));
    }
    let Some(((_, first), rest)) = held.split_first() else {
        bail!("nothing was asked for");
    };
    // Releasing `job` must not touch names that start with it or differ only in case.
    first.expect_released().await?;
    for (got, client) in rest {
        client.expect_still_held(got.fence).await?;
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
    for (served, mode) in [(can.shared, Mode::Shared), (can.permits, Mode::permits(3, 1)?)] {
        let client = TestClient::new(&store, "job:1", "a")?;
        let request = client.acquire_request(long_ttl()).with_mode(mode);
        match store.acquire(&request, CALL_TIMEOUT).await {
            Ok(AcquireResponse::Granted(_)) if served => client.expect_released().await?,
            other if served => bail!("{mode:?} is served, and an ask for it got {other:?}"),
            other => expect_unsupported(&format!("an ask for {mode:?}"), &other)?,
        }
    }
    // The refused requests left nothing behind.
    TestClient::new(&store, "job:1", "b")?.expect_granted(long_ttl()).await?;
    Ok(())
}

/// A store that serves one name per lease refuses requests for several, and changes none of them.
pub async fn several_names_are_refused_unless_served(fixture: &dyn Fixture) -> CaseResult {
    let store = fixture.open().await?;
    if store.capabilities().several_names {
        return Ok(());
    }
    let a = TestClient::new(&store, "job:1", "a")?;
    let (b, next) = (TestClient::new(&store, "job:2", "b")?, TestClient::new(&store, "job:2", "next")?);
    let got = a.expect_granted(long_ttl()).await?;
    let both = NameSet::new([a.name.clone(), b.name.clone()])?;
    let free = NameSet::new([b.name.clone(), leasehold_core::Name::new("job:3")?])?;
    for names in [&both, &free] {
        let request = AcquireRequest::new(names.clone(), b.token.clone(), long_ttl());
        expect_unsupported("an acquire", &store.acquire(&request, CALL_TIMEOUT).await)?;
    }
    // The refused item comes first: it must not cost the other one its renewal.
    let several = RenewRequest::new(both.clone(), a.token.clone(), got.fence, long_ttl());
    let batch = [several.clone(), a.renew_request(got.fence, long_ttl())];
    let mut answers = store.renew(&batch, CALL_TIMEOUT).await;
    let renewed = answers.pop().context("a batch of two renewals got no answer")?;
    ensure!(
        matches!(renewed, Ok(RenewResponse::Extended { .. })),
        "I4: beside a renewal that is not served, the owner's own got {renewed:?}"
    );
    expect_unsupported("a renewal in a batch", &single_response(answers)?)?;
    expect_unsupported("a renewal", &single_response(store.renew(&[several], CALL_TIMEOUT).await)?)?;
    for request in [
        ReleaseRequest::undo(both.clone(), a.token.clone()),
        ReleaseRequest::by_operator(both.clone(), got.fence),
        ReleaseRequest::leave_queue(both, a.token.clone()),
    ] {
        expect_unsupported("a release", &store.release(&request, CALL_TIMEOUT).await)?;
    }
    a.expect_still_held(got.fence).await?;
    // A refused undo leaves no tombstone.
    a.expect_granted(long_ttl()).await?;
    // Nothing was locked half-way.
    next.expect_granted(long_ttl()).await?;
    Ok(())
}

/// Fails unless the request was refused as unsupported, definitely.
fn expect_unsupported<T: Debug>(what: &str, answer: &Result<T, StoreError>) -> CaseResult {
    let refused =
        matches!(answer, Err(refused) if refused.kind == StoreErrorKind::Unsupported && !refused.unknown);
    ensure!(refused, "{what} is not served; it must be refused as unsupported and got {answer:?}");
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
            other => bail!("a token that was not undone was answered {other:?}"),
        }
    }
    Ok(winners)
}

//! One holder at a time (invariant I1), and one name has nothing to do with another (I12).

use anyhow::{bail, ensure};
use leasehold_core::store::{Answer, Ask, Cause, Mode};

use crate::asker::{Asker, SLACK, WITHIN, long};
use crate::case::Verdict;
use crate::fixture::Fixture;

/// While one token holds a name, another is told that it is busy, even one of the same holder; afterwards it gets it.
pub async fn second_token_is_busy(fixture: &dyn Fixture) -> Verdict {
    let store = fixture.open().await?;
    let (a, b) = (
        Asker::new(&store, "job:1", "a")?,
        Asker::new(&store, "job:1", "b")?,
    );
    a.gets(long()).await?;
    b.finds_busy().await?;
    // The lease is the token's, not the holder's: a process that asks twice contends with itself.
    Asker::new(&store, "job:1", "a")?.finds_busy().await?;
    a.lets_go().await?;
    b.gets(long()).await?;
    a.finds_busy().await?;
    Ok(())
}

/// Fifty tokens on two handles ask at once: one gets it.
pub async fn fifty_racers_one_winner(fixture: &dyn Fixture) -> Verdict {
    let handles = [fixture.open().await?, fixture.open().await?];
    let mut racers = tokio::task::JoinSet::new();
    for number in 0..50 {
        let store = if number % 2 == 0 { &handles[0] } else { &handles[1] };
        let racer = Asker::new(store, "race", &format!("racer-{number}"))?;
        racers.spawn(async move { racer.ask(long()).await });
    }
    let winners = count_granted(racers).await?;
    ensure!(
        winners == 1,
        "I1: 50 askers raced for one name and {winners} got it"
    );
    Ok(())
}

/// A lease ran out and two ask at once: one gets it.
pub async fn trap_13_two_candidates_on_one_expired_lease_exactly_one_wins(fixture: &dyn Fixture) -> Verdict {
    let handles = [fixture.open().await?, fixture.open().await?];
    let mut longest = SLACK;
    // Several names, because a race that is lost once in a while must show in one run.
    let names: Vec<_> = (0..10).map(|number| format!("expired:{number}")).collect();
    for name in &names {
        let got = Asker::new(&handles[0], name, "gone")?
            .gets(fixture.brief())
            .await?;
        longest = longest.max(got.lives + SLACK);
    }
    fixture.pass(longest).await;
    for name in &names {
        let mut racers = tokio::task::JoinSet::new();
        for (number, store) in handles.iter().enumerate() {
            let racer = Asker::new(store, name, &format!("candidate-{number}"))?;
            racers.spawn(async move { racer.ask(long()).await });
        }
        let winners = count_granted(racers).await?;
        ensure!(
            winners == 1,
            "I1: two candidates asked for `{name}`, whose lease had run out, and {winners} got it"
        );
    }
    Ok(())
}

/// Names that look related are different names.
pub async fn names_are_independent(fixture: &dyn Fixture) -> Verdict {
    let store = fixture.open().await?;
    let askers = ["job", "job:1", "job:10", "jo", "JOB"].map(|name| Asker::new(&store, name, "a"));
    let mut held = Vec::new();
    for asker in askers {
        let asker = asker?;
        held.push((asker.gets(long()).await?, asker));
    }
    let Some(((_, first), rest)) = held.split_first() else {
        bail!("nothing was asked for");
    };
    first.lets_go().await?;
    for (got, asker) in rest {
        asker.still_holds(got.fence).await?;
    }
    Ok(())
}

/// Two handles on one store show the same leases.
pub async fn a_second_handle_sees_the_same_leases(fixture: &dyn Fixture) -> Verdict {
    let (one, two) = (fixture.open().await?, fixture.open().await?);
    let (a, b) = (Asker::new(&one, "job:1", "a")?, Asker::new(&two, "job:1", "b")?);
    let got = a.gets(long()).await?;
    let busy = b.finds_busy().await?;
    ensure!(
        busy.fence == Some(got.fence),
        "the other handle shows the fence {:?} of a lease granted with {}",
        busy.fence,
        got.fence
    );
    // The token is the owner's proof wherever it is shown.
    let a_elsewhere = Asker { store: two, ..a };
    a_elsewhere.still_holds(got.fence).await?;
    a_elsewhere.lets_go().await?;
    b.gets(long()).await?;
    Ok(())
}

/// A mode that the store does not serve is refused as such: nothing is locked half-way.
pub async fn unsupported_modes_are_refused(fixture: &dyn Fixture) -> Verdict {
    let store = fixture.open().await?;
    let can = store.capabilities();
    for (served, mode) in [(can.shared, Mode::Shared), (can.permits, Mode::Permits { of: 3 })] {
        let asker = Asker::new(&store, "job:1", "a")?;
        let ask = Ask {
            mode,
            ..asker.plain(long())
        };
        match store.acquire(&ask, WITHIN).await {
            Ok(Answer::Granted(_)) if served => asker.lets_go().await?,
            Err(refused) if !served && refused.cause == Cause::Unsupported && !refused.unknown => {}
            other => bail!("served: {served}, and an ask for {mode:?} got {other:?}"),
        }
    }
    // The refused asks left nothing behind.
    Asker::new(&store, "job:1", "b")?.gets(long()).await?;
    Ok(())
}

async fn count_granted(mut racers: tokio::task::JoinSet<anyhow::Result<Answer>>) -> anyhow::Result<usize> {
    let mut winners = 0;
    while let Some(raced) = racers.join_next().await {
        match raced?? {
            Answer::Granted(_) => winners += 1,
            Answer::Busy(_) => {}
            Answer::Void => bail!("a token that nobody undid was answered `Void`"),
        }
    }
    Ok(winners)
}

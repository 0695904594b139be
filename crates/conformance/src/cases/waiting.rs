//! Waiting is part of the question: order, hand-over, and waiters that are no more (liveness L6).

use std::time::Duration;

use anyhow::{Context, bail, ensure};
use leasehold_core::store::{Answer, CLAIM, SharedStore};

use crate::asker::{Asker, SLACK, long};
use crate::case::Verdict;
use crate::fixture::Fixture;
use crate::pace::{Attempt, Pace, Stopwatch, fair, fairly};

/// A waiter's registration that no case outlives.
const KEEP: Duration = Duration::from_secs(120);

/// A holder of `name` and its waiters, queued in this order.
async fn line(store: &SharedStore, name: &str, waiters: usize) -> anyhow::Result<(Asker, Vec<Asker>)> {
    let holder = Asker::new(store, name, "holder")?;
    holder.gets(long()).await?;
    let mut queued = Vec::new();
    for number in 1..=waiters {
        let waiter = Asker::new(store, name, &format!("waiter-{number}"))?;
        waiter.queues(KEEP).await?;
        queued.push(waiter);
    }
    Ok((holder, queued))
}

/// Like [`line`], with one waiter.
async fn pair(store: &SharedStore, name: &str) -> anyhow::Result<(Asker, Asker)> {
    let (holder, waiters) = line(store, name, 1).await?;
    Ok((
        holder,
        waiters.into_iter().next().context("one waiter was queued")?,
    ))
}

/// *Busy* says who, in which class, with which fence, and for how long at most.
pub async fn busy_reports_the_holder(fixture: &dyn Fixture) -> Verdict {
    let store = fixture.open().await?;
    let (a, b) = (
        Asker::new(&store, "job:1", "web-1:7")?,
        Asker::new(&store, "job:1", "b")?,
    );
    let got = a.gets(long()).await?;
    let busy = b.finds_busy().await?;
    ensure!(
        busy.holder == "web-1:7"
            && busy.class.as_deref() == Some("conformance")
            && busy.fence == Some(got.fence),
        "a lease of `web-1:7`, class `conformance`, fence {} is reported as {busy:?}",
        got.fence
    );
    ensure!(
        busy.remaining
            .is_some_and(|left| left <= got.lives && left > got.lives / 2),
        "of {:?}, {:?} is said to be left a moment after the grant",
        got.lives,
        busy.remaining
    );
    Ok(())
}

/// A waiter is told that it is queued exactly if it asked for it and the store keeps a queue.
pub async fn queued_is_told_truly(fixture: &dyn Fixture) -> Verdict {
    let store = fixture.open().await?;
    let can = store.capabilities().queue;
    let (a, b) = (
        Asker::new(&store, "job:1", "a")?,
        Asker::new(&store, "job:1", "b")?,
    );
    a.gets(long()).await?;
    ensure!(
        !b.finds_busy().await?.queued,
        "who did not ask to wait was registered as a waiter"
    );
    let queued = b.queues(KEEP).await?.queued;
    ensure!(
        queued == can,
        "the store keeps a queue: {can}; a waiter was told that it is registered: {queued}"
    );
    Ok(())
}

/// No hint is needed: a waiter that asks again after the release gets in.
pub async fn asking_again_needs_no_hint(fixture: &dyn Fixture) -> Verdict {
    let store = fixture.open().await?;
    let (holder, waiter) = pair(&store, "job:1").await?;
    holder.lets_go().await?;
    match waiter.put(&waiter.queueing(KEEP)).await? {
        Answer::Granted(_) => Ok(()),
        other => bail!("L2: the only waiter asked again after the release and got {other:?}"),
    }
}

/// First come, first served, while everybody asks all the time.
pub async fn waiters_are_served_in_order(fixture: &dyn Fixture) -> Verdict {
    let store = fixture.open().await?;
    fairly(fixture, async |attempt: Attempt| {
        let (mut holder, waiters) = line(&store, &attempt.name("line"), 5).await?;
        for (place, next) in waiters.iter().enumerate() {
            let watch = Stopwatch::start(fixture);
            holder.lets_go().await?;
            // The last ones ask first: who asks loudest must not win.
            for impatient in waiters.iter().skip(place + 1).rev() {
                let answer = impatient.put(&impatient.queueing(KEEP)).await?;
                fair!(
                    watch.within(CLAIM),
                    matches!(answer, Answer::Busy(_)),
                    "L6: {:?} overtook {:?}: {answer:?}",
                    impatient.token,
                    next.token
                );
            }
            let answer = next.put(&next.queueing(KEEP)).await?;
            fair!(
                watch.within(CLAIM),
                matches!(answer, Answer::Granted(_)),
                "L6: it is the turn of {:?}, and it got {answer:?}",
                next.token
            );
            holder = next.clone();
        }
        Ok(Pace::Fair)
    })
    .await
}

/// Between the release and the first waiter's claim nobody else gets in.
pub async fn handed_over_lease_shuts_others_out(fixture: &dyn Fixture) -> Verdict {
    let store = fixture.open().await?;
    fairly(fixture, async |attempt: Attempt| {
        let name = attempt.name("handed");
        let (holder, waiter) = pair(&store, &name).await?;
        let passer = Asker::new(&store, &name, "passer-by")?;
        let watch = Stopwatch::start(fixture);
        holder.lets_go().await?;
        match passer.ask(long()).await? {
            Answer::Busy(busy) => fair!(
                watch.within(CLAIM),
                busy.holder == waiter.token.holder(),
                "the lease was handed to {:?} and is reported as {busy:?}",
                waiter.token
            ),
            other => fair!(
                watch.within(CLAIM),
                false,
                "L6: a passer-by got what a waiter was to be handed: {other:?}"
            ),
        }
        Ok(Pace::Fair)
    })
    .await
}

/// Asking again does not send a waiter to the end of the line.
pub async fn asking_again_keeps_the_place(fixture: &dyn Fixture) -> Verdict {
    let store = fixture.open().await?;
    fairly(fixture, async |attempt: Attempt| {
        let (holder, waiters) = line(&store, &attempt.name("place"), 3).await?;
        let first = waiters.first().context("three waiters were queued")?;
        for _ in 0..3 {
            first.queues(KEEP).await?;
        }
        let watch = Stopwatch::start(fixture);
        holder.lets_go().await?;
        let shown = first.sees().await?;
        fair!(
            watch.within(CLAIM),
            shown
                .as_ref()
                .is_some_and(|lease| lease.holder == first.token.holder()),
            "L6: the first waiter asked again and lost its place: {shown:?}"
        );
        Ok(Pace::Fair)
    })
    .await
}

/// A waiter that confirms holds for its own time to live, not for the claim's; and it is alive when granted.
pub async fn trap_17_granted_after_waiting_is_alive(fixture: &dyn Fixture) -> Verdict {
    let store = fixture.open().await?;
    let (holder, waiter) = pair(&store, "job:1").await?;
    holder.lets_go().await?;
    let got = waiter.gets(long()).await?;
    let shown = waiter
        .sees()
        .await?
        .context("granted after waiting, and no lease is there")?;
    ensure!(
        shown.fence == Some(got.fence)
            && shown
                .remaining
                .is_some_and(|left| left > CLAIM && left <= got.lives),
        "granted for {:?} with fence {}, the lease is {shown:?}",
        got.lives,
        got.fence
    );
    fixture.pass(CLAIM + SLACK).await;
    waiter.still_holds(got.fence).await
}

/// A waiter that gave up is not handed anything: the next is, or the name is free.
pub async fn waiter_that_gave_up_is_forgotten(fixture: &dyn Fixture) -> Verdict {
    let store = fixture.open().await?;
    fairly(fixture, async |attempt: Attempt| {
        let (holder, waiters) = line(&store, &attempt.name("gave-up"), 3).await?;
        let [first, second, third] = waiters.as_slice() else {
            bail!("three waiters were queued");
        };
        // Both ways of giving up: with and without a tombstone.
        first.undoes().await?;
        second.gives().await?;
        let watch = Stopwatch::start(fixture);
        holder.lets_go().await?;
        let answer = third.put(&third.queueing(KEEP)).await?;
        fair!(
            watch.within(CLAIM),
            matches!(answer, Answer::Granted(_)),
            "L3: two waiters gave up, and the third got {answer:?}"
        );
        Ok(Pace::Fair)
    })
    .await?;
    let (holder, waiter) = pair(&store, "alone").await?;
    waiter.undoes().await?;
    holder.lets_go().await?;
    Asker::new(&store, "alone", "next")?.gets(long()).await?;
    Ok(())
}

/// A waiter leaves the queue: the next is served. A holder that leaves it, having been granted meanwhile, still holds.
pub async fn leaving_the_queue_touches_no_lease(fixture: &dyn Fixture) -> Verdict {
    let store = fixture.open().await?;
    fairly(fixture, async |attempt: Attempt| {
        let (holder, waiters) = line(&store, &attempt.name("left"), 2).await?;
        let [first, second] = waiters.as_slice() else {
            bail!("two waiters were queued");
        };
        first.leaves().await?;
        let watch = Stopwatch::start(fixture);
        holder.lets_go().await?;
        let answer = second.put(&second.queueing(KEEP)).await?;
        fair!(
            watch.within(CLAIM),
            matches!(answer, Answer::Granted(_)),
            "L3: the first waiter left, and the second got {answer:?}"
        );
        Ok(Pace::Fair)
    })
    .await?;
    let (holder, waiter) = pair(&store, "granted").await?;
    holder.lets_go().await?;
    let got = waiter.gets(long()).await?;
    waiter.leaves().await?;
    waiter.still_holds(got.fence).await
}

/// A waiter died without a word: the next one waits for a claim more, not for a lease.
pub async fn trap_19_dead_waiter_costs_no_more_than_a_claim(fixture: &dyn Fixture) -> Verdict {
    let store = fixture.open().await?;
    let (holder, waiters) = line(&store, "job:1", 2).await?;
    let second = waiters.last().context("two waiters were queued")?;
    holder.lets_go().await?;
    fixture.pass(CLAIM + SLACK).await;
    match second.put(&second.queueing(KEEP)).await? {
        Answer::Granted(_) => Ok(()),
        other => bail!("L1: the first waiter never confirmed, and after {CLAIM:?} the second got {other:?}"),
    }
}

/// What a waiter was handed and did not confirm is not kept for it.
pub async fn unconfirmed_claim_runs_out(fixture: &dyn Fixture) -> Verdict {
    let store = fixture.open().await?;
    let (holder, late) = pair(&store, "job:1").await?;
    holder.lets_go().await?;
    fixture.pass(CLAIM + SLACK).await;
    let next = Asker::new(&store, "job:1", "next")?;
    let got = next.gets(long()).await?;
    late.finds_busy().await?;
    next.still_holds(got.fence).await
}

/// A registration that was not renewed is over: nothing is handed to it.
pub async fn waiter_entry_runs_out(fixture: &dyn Fixture) -> Verdict {
    let store = fixture.open().await?;
    let (a, gone) = (
        Asker::new(&store, "job:1", "a")?,
        Asker::new(&store, "job:1", "gone")?,
    );
    a.gets(long()).await?;
    gone.queues(fixture.brief().get()).await?;
    fixture.pass(fixture.brief().get() + SLACK).await;
    a.lets_go().await?;
    Asker::new(&store, "job:1", "next")?.gets(long()).await?;
    Ok(())
}

/// Asking again renews the registration.
pub async fn asking_again_renews_the_entry(fixture: &dyn Fixture) -> Verdict {
    let store = fixture.open().await?;
    fairly(fixture, async |attempt: Attempt| {
        let name = attempt.name("renewed");
        let (a, waiter) = (
            Asker::new(&store, &name, "a")?,
            Asker::new(&store, &name, "waiter")?,
        );
        a.gets(long()).await?;
        let watch = Stopwatch::start(fixture);
        waiter.queues(attempt.ttl.get()).await?;
        waiter.queues(KEEP).await?;
        if !watch.within(attempt.ttl.get()) {
            return Ok(Pace::TooSlow);
        }
        fixture.pass(attempt.ttl.get() + SLACK).await;
        let watch = Stopwatch::start(fixture);
        a.lets_go().await?;
        let shown = waiter.sees().await?;
        fair!(
            watch.within(CLAIM),
            shown
                .as_ref()
                .is_some_and(|lease| lease.holder == waiter.token.holder()),
            "L6: a waiter asked again in time and was forgotten: {shown:?}"
        );
        Ok(Pace::Fair)
    })
    .await
}

/// A store that counts waiters counts those who wait: not who gave up, not who ran out, nobody twice.
pub async fn waiters_are_counted(fixture: &dyn Fixture) -> Verdict {
    let store = fixture.open().await?;
    let (holder, waiters) = line(&store, "job:1", 3).await?;
    for waiter in &waiters {
        waiter.queues(KEEP).await?;
    }
    let count = async |wanted: u64| -> Verdict {
        let shown = holder.sees().await?.context("a live lease is not shown")?;
        ensure!(
            shown.waiters.is_none_or(|waiters| waiters == wanted),
            "{wanted} wait, and the store shows {:?}",
            shown.waiters
        );
        Ok(())
    };
    count(3).await?;
    for waiter in waiters.iter().take(2) {
        waiter.undoes().await?;
    }
    count(1).await
}

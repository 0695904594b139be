//! Processes that share a store, and die, stop or sleep while they hold.

use std::time::Duration;

use anyhow::{Context, ensure};
use leasehold_core::store::Answer;

use crate::asker::{Asker, SLACK, long};
use crate::case::Verdict;
use crate::fixture::Fixture;
use crate::pace::{Attempt, Pace, Stopwatch, fairly};
use crate::patience::wait_for;
use crate::taker::Taker;

/// How long a name may take to become free beyond its time. Generous: only *never* is a failure.
const PATIENCE: Duration = Duration::from_secs(30);

async fn process(fixture: &dyn Fixture) -> anyhow::Result<Taker> {
    let command = fixture.taker().context(
        "the store says that processes can share it: its fixture must say how to start one (`taker`)",
    )?;
    Taker::spawn(&command).await
}

async fn gets_in_the_end(asker: &Asker) -> anyhow::Result<leasehold_core::Fence> {
    let granted = wait_for("the name to become free", PATIENCE, async || {
        match asker.ask(long()).await {
            Ok(Answer::Granted(grant)) => Some(Ok(grant.fence)),
            Ok(_) => None,
            Err(failed) => Some(Err(failed)),
        }
    });
    granted.await.context("L1")?
}

/// What another process holds is busy here, and free when it gives it back.
pub async fn another_process_is_kept_out(fixture: &dyn Fixture) -> Verdict {
    let store = fixture.open().await?;
    let mut other = process(fixture).await?;
    let theirs = other.gets("x", "job:1", long().get()).await?;
    let a = Asker::new(&store, "job:1", "a")?;
    let busy = a.finds_busy().await?;
    ensure!(
        busy.fence == Some(theirs) && busy.holder.ends_with(&format!(":{}", other.id())),
        "process {} holds with fence {theirs}, and that is reported as {busy:?}",
        other.id()
    );
    let released = other.tell("release x").await?;
    ensure!(
        released == "released",
        "the other process's release got `{released}`"
    );
    let ours = a.gets(long()).await?;
    let answer = other.tell("ask y job:1 60000").await?;
    ensure!(
        answer == "busy a",
        "I1: the other process asked for what we hold with fence {} and got `{answer}`",
        ours.fence
    );
    other.start(&format!("wait y job:1 60000 {}", PATIENCE.as_millis()))?;
    a.lets_go().await?;
    let answer = other.line().await?;
    ensure!(
        answer.starts_with("granted "),
        "L1: the other process waited for what we gave back and got `{answer}`"
    );
    Ok(())
}

/// `kill -9` of a holder: the name is free after its TTL, and not before.
pub async fn trap_14_killed_process_is_free_after_its_ttl_not_before(fixture: &dyn Fixture) -> Verdict {
    let store = fixture.open().await?;
    fairly(fixture, async |attempt: Attempt| {
        let (name, ttl) = (attempt.name("killed"), attempt.ttl.get() * 2);
        let mut other = process(fixture).await?;
        let watch = Stopwatch::start(fixture);
        let theirs = other.gets("x", &name, ttl).await?;
        // It dies in the middle of keeping another lease alive, which must come free as well.
        let kept = attempt.name("kept");
        other.gets("y", &kept, ttl).await?;
        let holding = other.tell(&format!("hold y {}", (ttl / 8).as_millis())).await?;
        ensure!(
            holding == "holding",
            "told to go on renewing, it answered `{holding}`"
        );
        other.kill()?;
        let a = Asker::new(&store, &name, "a")?;
        let mut checks = 0;
        loop {
            let answer = a.ask(long()).await?;
            // The answer was made before this moment: if the time is not over yet, it was not over then.
            if !watch.within(ttl) {
                break;
            }
            ensure!(
                matches!(answer, Answer::Busy(_)),
                "I1: a killed process's lease of {ttl:?} was given away before its time: {answer:?}"
            );
            checks += 1;
            fixture.pass(ttl / 16).await;
        }
        let ours = gets_in_the_end(&a).await?;
        ensure!(ours > theirs, "I2: after {theirs} came {ours}");
        gets_in_the_end(&Asker::new(&store, &kept, "a")?).await?;
        Ok(if checks > 0 { Pace::Fair } else { Pace::TooSlow })
    })
    .await
}

/// Stopped for longer than its TTL and continued: its fence is old, its renewal and its release are refused.
pub async fn trap_05_stopped_past_its_ttl_then_continued(fixture: &dyn Fixture) -> Verdict {
    let store = fixture.open().await?;
    let mut other = process(fixture).await?;
    let ttl = fixture.brief().get() * 2;
    let theirs = other.gets("x", "job:1", ttl).await?;
    // It stands still between two commands: one that is stopped inside a transaction may keep a file locked.
    other.stop()?;
    fixture.pass(ttl + SLACK).await;
    let a = Asker::new(&store, "job:1", "a")?;
    let ours = gets_in_the_end(&a).await?;
    ensure!(
        ours > theirs,
        "I2: the stopped holder has {theirs}, the next one was granted {ours}"
    );
    other.cont()?;
    for command in ["renew x", "release x", "renew x"] {
        let answer = other.tell(command).await?;
        ensure!(
            answer == "not-owned",
            "I4: continued after its lease had run out, `{command}` got `{answer}`"
        );
    }
    a.still_holds(ours).await
}

/// `kill -9` of a waiter: the next one gets in all the same.
pub async fn trap_19_killed_waiter_does_not_block(fixture: &dyn Fixture) -> Verdict {
    let store = fixture.open().await?;
    let mut other = process(fixture).await?;
    let (a, b) = (
        Asker::new(&store, "job:1", "a")?,
        Asker::new(&store, "job:1", "b")?,
    );
    a.gets(long()).await?;
    let answer = other
        .tell(&format!("queue x job:1 {0} {0}", long().as_millis()))
        .await?;
    ensure!(
        answer == "busy a",
        "I1: the other process asked to wait and got `{answer}`"
    );
    b.queues(long().get()).await?;
    other.kill()?;
    a.lets_go().await?;
    gets_in_the_end(&b).await?;
    Ok(())
}

/// Processes take turns: the fence grows from one to the next.
pub async fn trap_11_fences_grow_across_processes(fixture: &dyn Fixture) -> Verdict {
    let store = fixture.open().await?;
    let mut others = [process(fixture).await?, process(fixture).await?];
    let mut last = None;
    for round in 0..5 {
        for other in &mut others {
            let fence = other.gets(&format!("r{round}"), "job:1", long().get()).await?;
            ensure!(last < Some(fence), "I2: after {last:?} came {fence}");
            last = Some(fence);
            other.tell(&format!("release r{round}")).await?;
        }
        let a = Asker::new(&store, "job:1", "a")?;
        let fence = a.gets(long()).await?.fence;
        ensure!(last < Some(fence), "I2: after {last:?} came {fence}");
        last = Some(fence);
        a.lets_go().await?;
    }
    Ok(())
}

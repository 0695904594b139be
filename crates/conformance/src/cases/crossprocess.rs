//! Processes that share a store, and are killed, stopped or paused while they hold leases.

use std::time::Duration;

use anyhow::{Context, ensure};
use leasehold_core::store::AcquireResponse;

use crate::case::CaseResult;
use crate::client::{TestClient, expiry_slack, long_ttl};
use crate::fixture::Fixture;
use crate::pace::{Attempt, Pace, Stopwatch, retry_if_too_slow};
use crate::polling::wait_for;
use crate::taker::LockProcess;

/// How long a name may take to become free after its lease has expired.
/// Generous: only *never* is a failure.
const FREE_NAME_TIMEOUT: Duration = Duration::from_secs(30);

async fn spawn_process(fixture: &dyn Fixture) -> anyhow::Result<LockProcess> {
    let command = fixture.taker().context(
        "the store says that processes can share it: its fixture must say how to start one (`taker`)",
    )?;
    LockProcess::spawn(&command).await
}

async fn wait_until_granted(client: &TestClient) -> anyhow::Result<leasehold_core::Fence> {
    let granted = wait_for("the name to become free", FREE_NAME_TIMEOUT, async || {
        match client.acquire(long_ttl()).await {
            Ok(AcquireResponse::Granted(grant)) => Some(Ok(grant.fence)),
            Ok(_) => None,
            Err(failed) => Some(Err(failed)),
        }
    });
    granted.await.context("L1")?
}

/// A lease of another process is busy here, and free after that process releases it.
pub async fn another_process_is_kept_out(fixture: &dyn Fixture) -> CaseResult {
    let store = fixture.open().await?;
    let mut other = spawn_process(fixture).await?;
    let theirs = other.expect_granted("x", "job:1", long_ttl().get()).await?;
    let a = TestClient::new(&store, "job:1", "a")?;
    let busy = a.expect_busy().await?;
    ensure!(
        // The default holder name ends with the process id.
        busy.fence == Some(theirs) && busy.holder.ends_with(&format!(":{}", other.id())),
        "process {} holds with fence {theirs}, and that is reported as {busy:?}",
        other.id()
    );
    let released = other.send_command("release x").await?;
    ensure!(released == "released", "the other process's release got `{released}`");
    let ours = a.expect_granted(long_ttl()).await?;
    let answer = other.send_command("ask y job:1 60000").await?;
    ensure!(
        answer == "busy a",
        "I1: the other process asked for what we hold with fence {} and got `{answer}`",
        ours.fence
    );
    other.start_command(&format!("wait y job:1 60000 {}", FREE_NAME_TIMEOUT.as_millis()))?;
    a.expect_released().await?;
    let answer = other.next_response().await?;
    ensure!(
        answer.starts_with("granted "),
        "L1: the other process waited for what we gave back and got `{answer}`"
    );
    Ok(())
}

/// `kill -9` of a holder: the name is free after its TTL, and not before.
pub async fn trap_14_killed_process_is_free_after_its_ttl_not_before(fixture: &dyn Fixture) -> CaseResult {
    let store = fixture.open().await?;
    retry_if_too_slow(fixture, async |attempt: Attempt| {
        let (name, ttl) = (attempt.name("killed"), attempt.ttl.get() * 2);
        let mut other = spawn_process(fixture).await?;
        let watch = Stopwatch::start(fixture);
        let theirs = other.expect_granted("x", &name, ttl).await?;
        // The process dies while it keeps another lease alive, which must become free as well.
        let kept = attempt.name("kept");
        other.expect_granted("y", &kept, ttl).await?;
        let holding = other.send_command(&format!("hold y {}", (ttl / 8).as_millis())).await?;
        ensure!(holding == "holding", "told to go on renewing, it answered `{holding}`");
        other.kill()?;
        let a = TestClient::new(&store, &name, "a")?;
        let mut checks = 0;
        loop {
            let answer = a.acquire(long_ttl()).await?;
            // The response was made before now: if the lease has not expired now, it had not then.
            if !watch.is_within(ttl) {
                break;
            }
            ensure!(
                matches!(answer, AcquireResponse::Busy(_)),
                "I1: a killed process's lease of {ttl:?} was given away before its time: {answer:?}"
            );
            checks += 1;
            fixture.wait(ttl / 16).await;
        }
        let ours = wait_until_granted(&a).await?;
        ensure!(ours > theirs, "I2: after {theirs} came {ours}");
        wait_until_granted(&TestClient::new(&store, &kept, "a")?).await?;
        // Without a check before the expiry, the attempt says nothing about *not before*.
        Ok(if checks > 0 { Pace::Conclusive } else { Pace::TooSlow })
    })
    .await
}

/// A process stopped for longer than its TTL and continued: its fence is old, so its
/// renewal and release are refused.
pub async fn trap_05_stopped_past_its_ttl_then_continued(fixture: &dyn Fixture) -> CaseResult {
    let store = fixture.open().await?;
    let mut other = spawn_process(fixture).await?;
    let ttl = fixture.short_ttl().get() * 2;
    let theirs = other.expect_granted("x", "job:1", ttl).await?;
    // It is stopped between two commands: stopped inside a transaction, it
    // could keep a file locked.
    other.stop()?;
    fixture.wait(ttl + expiry_slack(&store)).await;
    let a = TestClient::new(&store, "job:1", "a")?;
    let ours = wait_until_granted(&a).await?;
    ensure!(ours > theirs, "I2: the stopped holder has {theirs}, the next one was granted {ours}");
    other.resume()?;
    // Renew twice, because the refused release must not have changed anything either.
    for command in ["renew x", "release x", "renew x"] {
        let answer = other.send_command(command).await?;
        ensure!(
            answer == "not-owned",
            "I4: continued after its lease had run out, `{command}` got `{answer}`"
        );
    }
    a.expect_still_held(ours).await
}

/// `kill -9` of a waiter: the next one is granted all the same.
pub async fn trap_19_killed_waiter_does_not_block(fixture: &dyn Fixture) -> CaseResult {
    let store = fixture.open().await?;
    let mut other = spawn_process(fixture).await?;
    let (a, b) = (TestClient::new(&store, "job:1", "a")?, TestClient::new(&store, "job:1", "b")?);
    a.expect_granted(long_ttl()).await?;
    let answer = other.send_command(&format!("queue x job:1 {0} {0}", long_ttl().as_millis())).await?;
    ensure!(answer == "busy a", "I1: the other process asked to wait and got `{answer}`");
    // Behind the process that is about to die, so that its entry is first in the queue.
    b.expect_queued(long_ttl().get()).await?;
    other.kill()?;
    a.expect_released().await?;
    wait_until_granted(&b).await?;
    Ok(())
}

/// Processes take turns: the fence grows from one to the next.
pub async fn trap_11_fences_grow_across_processes(fixture: &dyn Fixture) -> CaseResult {
    let store = fixture.open().await?;
    let mut others = [spawn_process(fixture).await?, spawn_process(fixture).await?];
    let mut last = None;
    for round in 0..5 {
        for other in &mut others {
            let fence = other.expect_granted(&format!("r{round}"), "job:1", long_ttl().get()).await?;
            ensure!(last < Some(fence), "I2: after {last:?} came {fence}");
            last = Some(fence);
            other.send_command(&format!("release r{round}")).await?;
        }
        let a = TestClient::new(&store, "job:1", "a")?;
        let fence = a.expect_granted(long_ttl()).await?.fence;
        ensure!(last < Some(fence), "I2: after {last:?} came {fence}");
        last = Some(fence);
        a.expect_released().await?;
    }
    Ok(())
}

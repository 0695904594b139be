//! Wake-ups: only the first waiter is woken, and nothing depends on it (liveness L2).

use std::time::Duration;

use anyhow::ensure;
use leasehold_core::clock::run_until;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::JoinSet;

use crate::case::CaseResult;
use crate::client::{EXPIRY_SLACK, TestClient, claim_ttl, long_ttl};
use crate::fixture::Fixture;
use crate::pace::{Attempt, Pace, Stopwatch, fair, retry_if_too_slow};

/// How long a wake-up may take before it counts as lost. Generous: wake-ups
/// are not judged by speed.
const WAKE_TIMEOUT: Duration = Duration::from_secs(20);

/// Lifetime of a queue entry that no case outlives.
const WAITER_TTL: Duration = Duration::from_secs(120);

/// The waiter that is handed the lease is woken.
pub async fn hint_arrives(fixture: &dyn Fixture) -> CaseResult {
    let store = fixture.open().await?;
    let (a, b) = (TestClient::new(&store, "job:1", "a")?, TestClient::new(&store, "job:1", "b")?);
    a.expect_granted(long_ttl()).await?;
    let mut rings = WakeLog::default();
    rings.record(0, &b);
    b.expect_queued(WAITER_TTL).await?;
    // The waiter must already be waiting when the release comes.
    rings.drop_early_wakeups(fixture).await?;
    a.expect_released().await?;
    ensure!(
        rings.next_woken(fixture, WAKE_TIMEOUT).await == Some(0),
        "the first waiter was not woken within {WAKE_TIMEOUT:?} of the release"
    );
    Ok(())
}

/// A wake-up between the acquire and the wait is not lost.
pub async fn hint_before_the_wait_is_remembered(fixture: &dyn Fixture) -> CaseResult {
    let store = fixture.open().await?;
    let (a, b) = (TestClient::new(&store, "job:1", "a")?, TestClient::new(&store, "job:1", "b")?);
    a.expect_granted(long_ttl()).await?;
    let listener = store.listen(&b.name, &b.token);
    b.expect_queued(WAITER_TTL).await?;
    a.expect_released().await?;
    // Gives the wake-up time to arrive before the waiter starts to wait.
    fixture.wait(EXPIRY_SLACK * 4).await;
    let clock = fixture.clock();
    ensure!(
        run_until(clock.as_ref(), clock.now() + WAKE_TIMEOUT, listener.notified()).await.is_some(),
        "a hint that came before the waiter waited is lost"
    );
    Ok(())
}

/// One release wakes the first waiter and no other.
pub async fn trap_18_one_release_wakes_one(fixture: &dyn Fixture) -> CaseResult {
    let store = fixture.open().await?;
    retry_if_too_slow(fixture, async |attempt: Attempt| {
        let name = attempt.name("woken");
        let holder = TestClient::new(&store, &name, "holder")?;
        holder.expect_granted(long_ttl()).await?;
        let mut rings = WakeLog::default();
        for number in 0..20 {
            let waiter = TestClient::new(&store, &name, &format!("waiter-{number}"))?;
            rings.record(number, &waiter);
            waiter.expect_queued(WAITER_TTL).await?;
        }
        rings.drop_early_wakeups(fixture).await?;
        let watch = Stopwatch::start(fixture);
        holder.expect_released().await?;
        let first = rings.next_woken(fixture, WAKE_TIMEOUT).await;
        ensure!(first.is_some(), "20 wait, and none was woken within {WAKE_TIMEOUT:?} of the release");
        fair!(
            // An expired claim may be passed on, so later wake-ups can have another reason.
            watch.is_within(claim_ttl(&store)),
            first == Some(0),
            "20 wait for one release; woken is {first:?}, and should be waiter 0"
        );
        // Half a claim: after a whole one, the store may rightly wake the next waiter.
        let second = rings.next_woken(fixture, claim_ttl(&store) / 2).await;
        fair!(
            watch.is_within(claim_ttl(&store)),
            second.is_none(),
            "one release woke waiter 0 and then {second:?}"
        );
        Ok(Pace::Conclusive)
    })
    .await
}

/// Every wake-up of some waiters, in order of arrival.
struct WakeLog {
    sender: UnboundedSender<usize>,
    receiver: UnboundedReceiver<usize>,
    listening: JoinSet<()>,
}

impl Default for WakeLog {
    fn default() -> Self {
        let (tell, told) = unbounded_channel();
        Self { sender: tell, receiver: told, listening: JoinSet::new() }
    }
}

impl WakeLog {
    /// Records the wake-ups of this waiter from now on.
    fn record(&mut self, number: usize, waiter: &TestClient) {
        let (listener, tell) = (waiter.store.listen(&waiter.name, &waiter.token), self.sender.clone());
        self.listening.spawn(async move {
            loop {
                listener.notified().await;
                if tell.send(number).is_err() {
                    return;
                }
            }
        });
    }

    /// Drops the wake-ups that came before the release: a store may wake all listeners once it has
    /// subscribed. Two per waiter are allowed; more is a busy loop.
    async fn drop_early_wakeups(&mut self, fixture: &dyn Fixture) -> CaseResult {
        fixture.wait(EXPIRY_SLACK * 4).await;
        let mut early = 0;
        while self.receiver.try_recv().is_ok() {
            early += 1;
        }
        let waiters = self.listening.len();
        ensure!(
            early <= 2 * waiters,
            "L2: {waiters} waiters were woken {early} times while nothing happened"
        );
        Ok(())
    }

    /// The number of the waiter that is woken next; `None` if none is within the limit.
    async fn next_woken(&mut self, fixture: &dyn Fixture, limit: Duration) -> Option<usize> {
        let clock = fixture.clock();
        run_until(clock.as_ref(), clock.now() + limit, self.receiver.recv()).await.flatten()
    }
}

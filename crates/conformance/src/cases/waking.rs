//! Hints: the first waiter is told, nobody else, and nothing depends on it (liveness L2).

use std::time::Duration;

use anyhow::ensure;
use leasehold_core::clock::until;
use leasehold_core::store::CLAIM;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::JoinSet;

use crate::asker::{Asker, SLACK, long};
use crate::case::Verdict;
use crate::fixture::Fixture;
use crate::pace::{Attempt, Pace, Stopwatch, fair, fairly};

/// How long a hint may take before it counts as lost. Generous: hints are not judged by speed.
const HINT: Duration = Duration::from_secs(20);

/// A waiter's registration that no case outlives.
const KEEP: Duration = Duration::from_secs(120);

/// The waiter that is handed the lease is told.
pub async fn hint_arrives(fixture: &dyn Fixture) -> Verdict {
    let store = fixture.open().await?;
    let (a, b) = (
        Asker::new(&store, "job:1", "a")?,
        Asker::new(&store, "job:1", "b")?,
    );
    a.gets(long()).await?;
    let mut rings = Rings::default();
    rings.of(0, &b);
    b.queues(KEEP).await?;
    // The waiter waits already when the release comes.
    rings.settle(fixture).await?;
    a.lets_go().await?;
    ensure!(
        rings.next(fixture, HINT).await == Some(0),
        "the first waiter was not woken within {HINT:?} of the release"
    );
    Ok(())
}

/// A hint that comes between the ask and the wait is not lost.
pub async fn hint_before_the_wait_is_remembered(fixture: &dyn Fixture) -> Verdict {
    let store = fixture.open().await?;
    let (a, b) = (
        Asker::new(&store, "job:1", "a")?,
        Asker::new(&store, "job:1", "b")?,
    );
    a.gets(long()).await?;
    let listener = store.listen(&b.name, &b.token);
    b.queues(KEEP).await?;
    a.lets_go().await?;
    // Whatever carries the hint has time to bring it before anybody waits for it.
    fixture.pass(SLACK * 4).await;
    let clock = fixture.clock();
    ensure!(
        until(clock.as_ref(), clock.now() + HINT, listener.woken())
            .await
            .is_some(),
        "a hint that came before the waiter waited is lost"
    );
    Ok(())
}

/// One release wakes the first waiter and nobody else.
pub async fn trap_18_one_release_wakes_one(fixture: &dyn Fixture) -> Verdict {
    let store = fixture.open().await?;
    fairly(fixture, async |attempt: Attempt| {
        let name = attempt.name("woken");
        let holder = Asker::new(&store, &name, "holder")?;
        holder.gets(long()).await?;
        let mut rings = Rings::default();
        for number in 0..20 {
            let waiter = Asker::new(&store, &name, &format!("waiter-{number}"))?;
            rings.of(number, &waiter);
            waiter.queues(KEEP).await?;
        }
        rings.settle(fixture).await?;
        let watch = Stopwatch::start(fixture);
        holder.lets_go().await?;
        let first = rings.next(fixture, HINT).await;
        ensure!(
            first.is_some(),
            "20 wait, and nobody was woken within {HINT:?} of the release"
        );
        fair!(
            // A claim that ran out may be passed on, so later rings can have another reason.
            watch.within(CLAIM),
            first == Some(0),
            "20 wait for one release; woken is {first:?}, and should be waiter 0"
        );
        let second = rings.next(fixture, CLAIM / 2).await;
        fair!(
            watch.within(CLAIM),
            second.is_none(),
            "one release woke waiter 0 and then {second:?}"
        );
        Ok(Pace::Fair)
    })
    .await
}

/// Every ring of some waiters' bells, in the order they came.
struct Rings {
    tell: UnboundedSender<usize>,
    told: UnboundedReceiver<usize>,
    listening: JoinSet<()>,
}

impl Default for Rings {
    fn default() -> Self {
        let (tell, told) = unbounded_channel();
        Self {
            tell,
            told,
            listening: JoinSet::new(),
        }
    }
}

impl Rings {
    /// Listens for this waiter, from now on.
    fn of(&mut self, number: usize, waiter: &Asker) {
        let (listener, tell) = (
            waiter.store.listen(&waiter.name, &waiter.token),
            self.tell.clone(),
        );
        self.listening.spawn(async move {
            loop {
                listener.woken().await;
                if tell.send(number).is_err() {
                    return;
                }
            }
        });
    }

    /// Forgets the rings that came before anything happened: a store may say "ask again" once it has
    /// subscribed. Twice per waiter is enough for that; more is a spin.
    async fn settle(&mut self, fixture: &dyn Fixture) -> Verdict {
        fixture.pass(SLACK * 4).await;
        let mut early = 0;
        while self.told.try_recv().is_ok() {
            early += 1;
        }
        let waiters = self.listening.len();
        ensure!(
            early <= 2 * waiters,
            "L2: {waiters} waiters were woken {early} times while nothing happened"
        );
        Ok(())
    }

    /// Whose bell rings next, if one does.
    async fn next(&mut self, fixture: &dyn Fixture, limit: Duration) -> Option<usize> {
        let clock = fixture.clock();
        until(clock.as_ref(), clock.now() + limit, self.told.recv())
            .await
            .flatten()
    }
}

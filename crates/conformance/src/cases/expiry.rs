//! A lease ends by itself when its time is over, and not before (liveness L1, invariant I5).

use std::time::Duration;

use anyhow::{bail, ensure};
use leasehold_core::store::{Answer, Ask, Renewal, Renewed};

use crate::asker::{Asker, SLACK, WITHIN, long, one};
use crate::case::Verdict;
use crate::fixture::Fixture;
use crate::pace::{Attempt, Pace, Stopwatch, fair, fairly};

/// A lease that nobody renews is free after its time.
pub async fn free_after_the_ttl(fixture: &dyn Fixture) -> Verdict {
    let store = fixture.open().await?;
    let got = Asker::new(&store, "job:1", "gone")?.gets(fixture.brief()).await?;
    fixture.pass(got.lives + SLACK).await;
    let next = Asker::new(&store, "job:1", "next")?;
    match next.ask(long()).await? {
        Answer::Granted(_) => Ok(()),
        other => bail!(
            "L1: a lease of {:?} is not free {SLACK:?} after its end: {other:?}",
            got.lives
        ),
    }
}

/// A lease is not free before its time, counted from before it was asked for.
pub async fn not_before_the_ttl(fixture: &dyn Fixture) -> Verdict {
    let store = fixture.open().await?;
    fairly(fixture, async |attempt: Attempt| {
        let name = attempt.name("early");
        let holder = Asker::new(&store, &name, "holder")?;
        let watch = Stopwatch::start(fixture);
        let got = holder.gets(attempt.ttl).await?;
        let checks = busy_until(
            fixture,
            &Asker::new(&store, &name, "early")?,
            &watch,
            Duration::ZERO,
            got.lives,
        )
        .await?;
        Ok(if checks > 0 { Pace::Fair } else { Pace::TooSlow })
    })
    .await
}

/// After an unclean loss the name stays shut for the lock delay on top of the TTL, and no longer.
pub async fn lock_delay_keeps_an_unreleased_name_shut(fixture: &dyn Fixture) -> Verdict {
    let store = fixture.open().await?;
    fairly(fixture, async |attempt: Attempt| {
        let name = attempt.name("delayed");
        let holder = Asker::new(&store, &name, "holder")?;
        let ask = Ask {
            lock_delay: attempt.ttl.get(),
            ..holder.plain(attempt.ttl)
        };
        let watch = Stopwatch::start(fixture);
        let got = holder.gets_by(&ask).await?;
        let next = Asker::new(&store, &name, "next")?;
        let checks = busy_until(fixture, &next, &watch, attempt.ttl.get(), got.lives).await?;
        fixture.pass(got.lives + SLACK).await;
        let answer = next.ask(long()).await?;
        ensure!(
            matches!(answer, Answer::Granted(_)),
            "L1: a lease kept for {:?} is not free {SLACK:?} after its end: {answer:?}",
            got.lives
        );
        Ok(if checks > 0 { Pace::Fair } else { Pace::TooSlow })
    })
    .await
}

/// A clean release frees the name at once, whatever the lock delay.
pub async fn lock_delay_ends_with_a_release(fixture: &dyn Fixture) -> Verdict {
    let store = fixture.open().await?;
    let (a, b) = (
        Asker::new(&store, "job:1", "a")?,
        Asker::new(&store, "job:1", "b")?,
    );
    let ask = Ask {
        lock_delay: Duration::from_secs(600),
        ..a.plain(long())
    };
    a.gets_by(&ask).await?;
    a.lets_go().await?;
    b.gets(long()).await?;
    Ok(())
}

/// A renewal brings its own lock delay.
pub async fn lock_delay_goes_with_a_renewal(fixture: &dyn Fixture) -> Verdict {
    let store = fixture.open().await?;
    fairly(fixture, async |attempt: Attempt| {
        let name = attempt.name("renewed");
        let holder = Asker::new(&store, &name, "holder")?;
        let got = holder.gets(attempt.ttl).await?;
        let watch = Stopwatch::start(fixture);
        let renewal = Renewal {
            lock_delay: attempt.ttl.get(),
            ..holder.renewal(got.fence, attempt.ttl)
        };
        let renewed = one(store.renew(std::slice::from_ref(&renewal), WITHIN).await)??;
        ensure!(
            matches!(renewed, Renewed::Extended { .. }),
            "I4: the owner's renewal got {renewed:?}"
        );
        let next = Asker::new(&store, &name, "next")?;
        let checks = busy_until(fixture, &next, &watch, attempt.ttl.get(), renewal.kept()).await?;
        fixture.pass(renewal.kept() + SLACK).await;
        let answer = next.ask(long()).await?;
        fair!(
            // A store with coarser times than ours rounds up, and cannot say so in a renewal.
            got.lives == attempt.ttl.get(),
            matches!(answer, Answer::Granted(_)),
            "L1: a lease renewed for {:?} is not free {SLACK:?} after its end: {answer:?}",
            renewal.kept()
        );
        Ok(if checks > 0 { Pace::Fair } else { Pace::TooSlow })
    })
    .await
}

/// Asks again and again until `until` has passed on the watch; every answer that came before then must be *busy*.
/// Returns how many came between `from` and `until`: none means that the machine was too slow to tell.
async fn busy_until(
    fixture: &dyn Fixture,
    asker: &Asker,
    watch: &Stopwatch,
    from: Duration,
    until: Duration,
) -> anyhow::Result<u32> {
    let mut checks = 0;
    loop {
        let counts = !watch.within(from);
        let answer = asker.ask(long()).await?;
        // The answer was made before this moment: if the time is not over yet, it was not over then.
        if !watch.within(until) {
            return Ok(checks);
        }
        ensure!(
            matches!(answer, Answer::Busy(_)),
            "I1: the lease is kept for {until:?} and another got it before that: {answer:?}"
        );
        checks += u32::from(counts);
        fixture.pass(until / 16).await;
    }
}

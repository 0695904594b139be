//! A long pause and a slow network at once: the holder is stopped while its write is on its way.

use std::time::Duration;

use super::PATIENCE;
use super::draft::Draft;
use super::scene::Scene;
use crate::fleet::{Error, Orders};
use crate::history::{Entry, Wrote};

/// Tries: a worker that is stopped in the middle of a SQLite commit blocks everybody, and one that is stopped a moment too
/// late holds nothing. Neither shows anything.
const TRIES: u32 = 5;
/// What a worker wrote before it was stopped has arrived by then.
const ARRIVE: Duration = Duration::from_millis(200);

pub(super) async fn play(scene: &mut Scene, draft: &mut Draft) -> Result<(), Error> {
    let sleeper = scene
        .orders("sleeper", "scheduler", "job:1")
        .steps(5, 300)
        .rest(200);
    let rival = scene.orders("rival", "scheduler", "job:1").steps(5, 50);
    scene.stage.toxic("latency latency=40 jitter=20")?;
    let woken = overtake(scene, sleeper, rival).await?;
    draft.promise(
        "the rival is granted the name of a stopped holder, and writes",
        woken.is_some(),
        if woken.is_some() { "it was" } else { "it never was" },
    );
    let Some(woken) = woken else {
        return Ok(());
    };
    let told = scene
        .tape
        .wait(woken, PATIENCE, |record| {
            record.who == "sleeper"
                && matches!(
                    record.what,
                    Entry::Written {
                        answer: Wrote::Refused,
                        ..
                    } | Entry::Reported { lost: true, .. }
                )
        })
        .await;
    draft.promise(
        "the sleeper learns that it has lost its lease, before or at its next write",
        told.is_some(),
        match told.map(|record| record.what) {
            Some(Entry::Written { .. }) => "its late write was refused",
            Some(_) => "its work was stopped before the next write",
            None => "it never did",
        },
    );
    Ok(())
}

/// Stops the sleeper at work until the rival has written with a newer fence, then lets it go on; answers from which
/// place of the history on it is awake, or nothing if the rival never wrote.
pub(super) async fn overtake(
    scene: &mut Scene,
    sleeper: Orders,
    rival: Orders,
) -> Result<Option<usize>, Error> {
    scene.crew.start(sleeper).await?;
    scene.at_work(0, "sleeper").await?;
    scene.crew.start(rival).await?;
    let mut stopped = false;
    for _ in 0..TRIES {
        let from = scene.tape.place();
        let work = scene.at_work(from, "sleeper").await?;
        scene.crew.stop("sleeper");
        scene.rest(ARRIVE).await;
        let history = scene.tape.history();
        let since = history.records.get(from..).unwrap_or_default();
        let released = since
            .iter()
            .filter(|record| record.who == "sleeper" && record.at > work.at)
            .any(|record| matches!(record.what, Entry::Releasing { .. }));
        if released {
            scene.crew.go_on("sleeper");
            continue;
        }
        scene.fault("the holder is stopped, with a write on its way");
        stopped = true;
        let overtaken = scene
            .tape
            .wait(from, super::TTL * 3, |record| {
                let applied = matches!(
                    record.what,
                    Entry::Written {
                        answer: Wrote::Applied,
                        ..
                    }
                );
                record.who == "rival" && record.at > work.at + 1_000_000_000 && applied
            })
            .await;
        let woken = scene.tape.place();
        scene.crew.go_on("sleeper");
        if overtaken.is_some() {
            scene.mend("the sleeper goes on");
            return Ok(Some(woken));
        }
    }
    if stopped {
        return Ok(None);
    }
    Err(Error::Waited("to stop the sleeper while it holds".to_owned()))
}

//! The control run: the same pause, but nobody looks and nothing is fenced. What the checker says about it proves the
//! checker, not the locks.

use super::PATIENCE;
use super::draft::Draft;
use super::pause_and_delay::overtake;
use super::scene::Scene;
use crate::fleet::Error;
use crate::history::{Entry, Wrote};

/// What a control run's history says of itself.
pub const CONTROL: &str = "a control run: its workers neither look nor send a fence";

pub(super) async fn play(scene: &mut Scene, draft: &mut Draft) -> Result<(), Error> {
    scene.fault(CONTROL);
    let sleeper = scene
        .orders("sleeper", "scheduler", "job:1")
        .steps(5, 300)
        .rest(200)
        .reckless();
    let rival = scene
        .orders("rival", "scheduler", "job:1")
        .steps(5, 50)
        .reckless();
    let woken = overtake(scene, sleeper, rival).await?;
    let rival_wrote = || Error::Waited("for the rival to write while the holder was stopped".to_owned());
    let woken = woken.ok_or_else(rival_wrote)?;
    let late = scene
        .tape
        .wait(woken, PATIENCE, |record| {
            record.who == "sleeper"
                && matches!(
                    record.what,
                    Entry::Written {
                        answer: Wrote::Applied,
                        ..
                    }
                )
        })
        .await;
    draft.promise(
        "without a fence the late write is applied",
        late.is_some(),
        if late.is_some() {
            "it was"
        } else {
            "it was not: the control shows nothing"
        },
    );
    Ok(())
}

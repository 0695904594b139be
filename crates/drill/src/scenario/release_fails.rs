//! The store is gone when the work ends.

use super::scene::{Scene, between, secs};
use super::verdict::Draft;
use super::{PATIENCE, SLACK, TTL};
use crate::fleet::Error;
use crate::history::Entry;

pub(super) async fn play(scene: &mut Scene, draft: &mut Draft) -> Result<(), Error> {
    let owes = scene
        .orders("owes", "scheduler", "job:1")
        .steps(1, 1500)
        .rest(3000);
    scene.crew.start(owes).await?;
    let claim = scene.at_work(0, "owes").await?;
    let during = scene.tape.place();
    scene.stage.cut().await?;
    scene.fault("no release is answered");

    let told = scene
        .tape
        .wait(during, PATIENCE, |record| {
            record.who == "owes"
                && matches!(
                    record.what,
                    Entry::Reported {
                        value: Some(_),
                        lost: false,
                        ..
                    }
                )
        })
        .await;
    draft.promise(
        "the work's result is handed on although its release fails",
        told.is_some(),
        told.as_ref().map_or_else(
            || "it was not".to_owned(),
            |told| format!("told {} after its last look", secs(between(claim.at, told.at))),
        ),
    );
    let debt = scene.event(during, "owes", "debt").await?;
    let waits = scene.orders("waits", "scheduler", "job:1").rest(20);
    scene.crew.start(waits).await?;

    scene.stage.heal().await?;
    let healed = scene.mend("releases are answered again");
    let cleared = scene.event(during, "owes", "debt_cleared").await?;
    draft.promise(
        "the debt is collected in the background, at the latest when the lease ends",
        between(debt.at, cleared.at) <= TTL + SLACK,
        format!("owed for {}", secs(between(debt.at, cleared.at))),
    );
    let next = scene.event(during, "waits", "acquired").await?;
    draft.promise(
        "the next one gets in",
        between(healed, next.at) <= TTL + SLACK,
        format!("{} after the store was back", secs(between(healed, next.at))),
    );
    Ok(())
}

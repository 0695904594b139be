//! Three faults in one: renewals fail, the lease expires while its holder is stopped, and the holder wakes up to give back
//! what is somebody else's by then.

use super::scene::{Scene, transition};
use super::verdict::Draft;
use super::{PATIENCE, TTL};
use crate::fleet::Error;
use crate::history::Entry;

pub(super) async fn play(scene: &mut Scene, draft: &mut Draft) -> Result<(), Error> {
    let old = scene
        .orders("old", "scheduler", "job:1")
        .steps(100, 100)
        .rest(5000);
    let new = scene.orders("new", "scheduler", "job:1").steps(60, 100).rest(20);
    scene.crew.start(old).await?;
    scene.event(0, "old", "renewed").await?;

    scene.stage.cut().await?;
    scene.fault("no renewal is answered");
    scene.rest(TTL / 3).await;
    scene.crew.stop("old");
    scene.fault("the holder is stopped");
    scene.stage.heal().await?;
    let after = scene.tape.place();
    scene.crew.start(new).await?;
    scene.event(after, "new", "acquired").await?;
    // The old one wakes up in the middle of the new one's work.
    scene.at_work(after, "new").await?;
    let woken = scene.tape.place();
    scene.crew.go_on("old");
    scene.mend("the old holder wakes up");

    let lost = scene
        .tape
        .wait(woken, PATIENCE, |record| {
            record.who == "old" && matches!(record.what, Entry::Reported { lost: true, .. })
        })
        .await;
    draft.promise(
        "the old holder finds out by itself and stops",
        lost.is_some(),
        if lost.is_some() {
            "its work ended as lost"
        } else {
            "it did not"
        },
    );
    // Long enough for anything stale to do its harm.
    scene.rest(TTL).await;
    let harmed = scene.tape.history().records.iter().any(|record| {
        let seen = transition(record).map(|seen| seen.event.as_str());
        record.who == "new" && matches!(seen, Some("not_owned" | "abandoned" | "already_lost"))
    });
    draft.promise(
        "its stale renewals and its stale release do not touch the new holder",
        !harmed,
        if harmed {
            "the new holder lost its lease"
        } else {
            "the new holder kept its lease"
        },
    );
    Ok(())
}

//! Three faults in one: renewals fail, the lease expires while its holder is stopped, and the holder wakes up to give back
//! what is somebody else's by then.

use super::draft::Draft;
use super::scene::{Scene, transition};
use super::{PATIENCE, SLACK, TTL};
use crate::fleet::Error;
use crate::history::{Entry, History};

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
    let stopped = scene.fault("the holder is stopped");
    scene.stage.heal().await?;
    let after = scene.tape.place();
    scene.crew.start(new).await?;
    let taken = scene.look(after, PATIENCE, "new", "acquired").await;
    draft.within(
        "the name of a stopped holder is granted to the next one when its lease has run out",
        stopped,
        taken.as_ref(),
        TTL + SLACK,
    );
    // The old one wakes up in the middle of the new one's work.
    if taken.is_some() {
        scene.at_work(after, "new").await?;
    }
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
    untouched(&scene.tape.history(), draft);
    Ok(())
}

/// What is stale takes no lease away, on any machine. That the new holder gives up by itself, a slow one can explain.
pub(super) fn untouched(history: &History, draft: &mut Draft) {
    let new = || {
        let of_new = history.records.iter().filter(|record| record.who == "new");
        of_new.filter_map(transition)
    };
    let robbed = new().any(|seen| matches!(seen.event.as_str(), "not_owned" | "already_lost"));
    let fenced = new().any(|seen| seen.event == "abandoned");
    draft.always(
        "its stale renewals and its stale release do not touch the new holder's lease",
        !robbed,
        if robbed {
            "the new holder lost its lease"
        } else {
            "the store never said that it was not its own"
        },
    );
    draft.promise(
        "the new holder works on",
        !fenced,
        if fenced { "it was fenced" } else { "it did" },
    );
}

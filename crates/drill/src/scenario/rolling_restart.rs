//! Every worker is ended and started anew, one after the other, under load.

use super::PATIENCE;
use super::draft::Draft;
use super::scene::{Scene, transition};
use crate::fleet::Error;
use crate::history::History;

pub(super) async fn play(scene: &mut Scene, draft: &mut Draft) -> Result<(), Error> {
    let orders = |scene: &Scene, who: &str| scene.orders(who, "scheduler", "job:1").steps(3, 30);
    for who in ["a", "b", "c"] {
        scene.crew.start(orders(scene, who)).await?;
    }
    for who in ["a", "b", "c"] {
        scene.event(0, who, "acquired").await?;
    }
    for (old, new) in [("a", "a2"), ("b", "b2"), ("c", "c2")] {
        scene.fault(&format!("{old} is ended and {new} started in its place"));
        let from = scene.tape.place();
        let in_order = scene.crew.finish(old).await.in_order();
        scene.crew.start(orders(scene, new)).await?;
        let served = scene.look(from, PATIENCE, new, "acquired").await.is_some();
        draft.promise(
            &format!("{old} ends in order, {new} gets its turn"),
            in_order && served,
            match (in_order, served) {
                (true, true) => "both",
                (false, _) => "it did not end in order",
                (true, false) => "it was never granted the name",
            },
        );
    }
    nothing_lost(&scene.tape.history(), draft);
    Ok(())
}

/// A restart takes no lease from anybody: that has nothing to do with how fast anything is.
pub(super) fn nothing_lost(history: &History, draft: &mut Draft) {
    let harm = history
        .records
        .iter()
        .filter_map(transition)
        .filter(|seen| seen.event == "not_owned")
        .count();
    draft.always(
        "nobody loses its lease to a restart",
        harm == 0,
        format!("{harm} lost"),
    );
}

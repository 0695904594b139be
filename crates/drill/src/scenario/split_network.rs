//! One of two replicas loses its way to the store, the other one does not.

use super::draft::Draft;
use super::scene::{Scene, between, secs};
use super::{PATIENCE, SLACK, TTL};
use crate::fleet::Error;
use crate::history::Record;

pub(super) async fn play(scene: &mut Scene, draft: &mut Draft) -> Result<(), Error> {
    let (way, url) = scene.stage.second_way().await?;
    let inside = scene.orders("inside", "scheduler", "job:1").steps(20, 100);
    let outside = scene.orders("outside", "scheduler", "job:1").steps(60, 100);
    scene.crew.start_on(&url, outside).await?;
    scene.event(0, "outside", "renewed").await?;
    scene.crew.start(inside).await?;
    scene.look(0, PATIENCE, "inside", "busy").await;

    let from = scene.tape.place();
    way.disable().await?;
    let split = scene.fault("the holder loses its way to the store, the other replica does not");
    let stopped = scene.look(from, PATIENCE, "outside", "abandoned").await;
    let taken = scene.look(from, PATIENCE, "inside", "acquired").await;
    let after = |record: Option<&Record>| {
        record.map_or_else(|| "never".to_owned(), |record| secs(between(split, record.at)))
    };
    draft.promise(
        "the side without a store stops before the other one begins",
        matches!((&stopped, &taken), (Some(stopped), Some(taken)) if stopped.at <= taken.at),
        format!(
            "stopped after: {}, taken over after: {}",
            after(stopped.as_ref()),
            after(taken.as_ref())
        ),
    );
    draft.within(
        "the other side takes over within the TTL (and what a loaded host adds)",
        split,
        taken.as_ref(),
        TTL + SLACK,
    );
    let after = scene.tape.place();
    way.heal().await?;
    scene.mend("the network is whole again");
    let back = scene.look(after, PATIENCE, "outside", "acquired").await;
    draft.promise(
        "the lost side comes back when it is whole",
        back.is_some(),
        if back.is_some() {
            "granted again"
        } else {
            "never granted again"
        },
    );
    // The way must last until its worker has ended.
    let in_order = scene.crew.finish("outside").await.in_order();
    draft.promise(
        "the lost side ends in order",
        in_order,
        if in_order { "it did" } else { "it did not" },
    );
    way.stop().await;
    Ok(())
}

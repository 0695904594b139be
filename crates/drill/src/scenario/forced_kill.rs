//! The game day: the holder is killed with -9 in the middle of its work.

use super::scene::{Scene, between, secs, transition};
use super::verdict::Draft;
use super::{PATIENCE, SLACK, TTL};
use crate::fleet::Error;

pub(super) async fn play(scene: &mut Scene, draft: &mut Draft) -> Result<(), Error> {
    for who in ["a", "b", "c"] {
        let orders = scene.orders(who, "scheduler", "job:1").steps(40, 50);
        scene.crew.start(orders).await?;
    }
    let first = scene
        .tape
        .wait(0, PATIENCE, |record| {
            transition(record).is_some_and(|seen| seen.event == "renewed" || seen.event == "acquired")
        })
        .await
        .ok_or_else(|| Error::Waited("for the first grant".to_owned()))?;
    let victim = first.who;
    scene.at_work(0, &victim).await?;

    let after = scene.tape.place();
    scene.fault(&format!("kill -9 of {victim}"));
    scene.crew.kill(&victim).await;
    let killed = scene
        .tape
        .history()
        .records
        .iter()
        .map(|record| record.at)
        .max()
        .unwrap_or(0);
    let next = scene
        .tape
        .wait(after, PATIENCE, |record| {
            record.who != victim && transition(record).is_some_and(|seen| seen.event == "acquired")
        })
        .await;
    let took = next.as_ref().map(|next| between(killed, next.at));
    draft.promise(
        "another worker takes over within the TTL (and what a loaded host adds)",
        took.is_some_and(|took| took <= TTL + SLACK),
        took.map_or_else(
            || "nobody took over".to_owned(),
            |took| format!("after {}", secs(took)),
        ),
    );
    Ok(())
}

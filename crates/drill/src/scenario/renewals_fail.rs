//! Renewals fail under two long tasks: one class fences, the other continues.

use super::scene::{Scene, between, secs};
use super::verdict::Draft;
use super::{PATIENCE, TTL};
use crate::fleet::Error;
use crate::history::{Entry, Record};

pub(super) async fn play(scene: &mut Scene, draft: &mut Draft) -> Result<(), Error> {
    let fences = scene.orders("fences", "scheduler", "job:1").steps(60, 150);
    let continues = scene.orders("continues", "workflow", "job:2").steps(60, 150);
    scene.crew.start(fences).await?;
    scene.crew.start(continues).await?;
    // Renewed at least once: the deadline has moved as it does in a long life.
    scene.event(0, "fences", "renewed").await?;
    scene.event(0, "continues", "renewed").await?;

    let during = scene.tape.place();
    scene.stage.cut().await?;
    let cut = scene.fault("no renewal is answered");
    let stopped = scene.event(during, "fences", "abandoned").await?;
    let unproven = scene.look(during, PATIENCE, "continues", "unproven").await;
    // It goes on: another look at work after the lease could not be proven any more.
    let worked = match &unproven {
        Some(unproven) => scene
            .tape
            .wait(during, PATIENCE, |record| {
                record.at > unproven.at && record.who == "continues" && claimed(record)
            })
            .await
            .is_some(),
        None => false,
    };
    let last = scene
        .tape
        .history()
        .records
        .iter()
        .filter(|record| record.who == "fences" && record.at < stopped.at && claimed(record))
        .map(|record| record.at)
        .max()
        .unwrap_or(cut);
    draft.promise(
        "scheduler: fenced at the third failure or at the deadline, before the lease can end",
        between(cut, last) <= TTL,
        format!(
            "last look {} after the fault, fenced after {}",
            secs(between(cut, last)),
            secs(between(cut, stopped.at))
        ),
    );
    draft.promise(
        "workflow: work goes on, and says that it cannot prove its lease",
        worked,
        if unproven.is_some() {
            "unproven, and went on"
        } else {
            "never said so"
        },
    );
    let after = scene.tape.place();
    scene.stage.heal().await?;
    scene.mend("renewals are answered again");
    let over = scene
        .tape
        .wait(after, PATIENCE, |record| {
            record.who == "continues"
                && super::scene::transition(record)
                    .is_some_and(|seen| matches!(seen.event.as_str(), "proven_again" | "overlap_ended"))
        })
        .await;
    let overlap = over
        .as_ref()
        .and_then(super::scene::transition)
        .and_then(|seen| seen.span);
    draft.promise(
        "workflow: the overlap is measured",
        overlap.is_some_and(|overlap| overlap > 0),
        overlap.map_or_else(|| "not measured".to_owned(), |overlap| secs(between(0, overlap))),
    );
    Ok(())
}

fn claimed(record: &Record) -> bool {
    matches!(record.what, Entry::Claimed { .. })
}

//! Renewals fail under long tasks of every class: three fence, one continues.

use super::scene::{Scene, between, secs, transition};
use super::draft::Draft;
use super::{PATIENCE, TTL};
use crate::fleet::Error;
use crate::history::{Entry, Record};

const FENCED: &[&str] = &["scheduler", "workflow-critical", "approval"];
const CONTINUES: &str = "workflow";

pub(super) async fn play(scene: &mut Scene, draft: &mut Draft) -> Result<(), Error> {
    for class in FENCED.iter().chain([&CONTINUES]) {
        let orders = scene.orders(class, class, &format!("job:{class}"));
        scene.crew.start(orders.steps(60, 150)).await?;
    }
    // Renewed at least once: the deadline has moved as it does in a long life.
    for class in FENCED.iter().chain([&CONTINUES]) {
        scene.event(0, class, "renewed").await?;
    }

    let during = scene.tape.place();
    scene.stage.cut().await?;
    let cut = scene.fault("no renewal is answered");
    for class in FENCED {
        let stopped = scene.event(during, class, "abandoned").await?;
        let why = transition(&stopped)
            .and_then(|seen| seen.detail.clone())
            .unwrap_or_default();
        let last = scene
            .tape
            .history()
            .records
            .iter()
            .filter(|record| record.who == *class && record.at < stopped.at && claimed(record))
            .map(|record| record.at)
            .max()
            .unwrap_or(cut);
        draft.promise(
            &format!("{class}: fenced at the third failure or at the deadline, before the lease can end"),
            between(cut, last) <= TTL,
            format!(
                "last look {} after the fault, fenced after {} ({why})",
                secs(between(cut, last)),
                secs(between(cut, stopped.at))
            ),
        );
    }
    let unproven = scene.look(during, PATIENCE, CONTINUES, "unproven").await;
    // It goes on: another look at work after the lease could not be proven any more.
    let worked = match &unproven {
        Some(unproven) => scene
            .tape
            .wait(during, PATIENCE, |record| {
                record.at > unproven.at && record.who == CONTINUES && claimed(record)
            })
            .await
            .is_some(),
        None => false,
    };
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
            record.who == CONTINUES
                && transition(record)
                    .is_some_and(|seen| matches!(seen.event.as_str(), "proven_again" | "overlap_ended"))
        })
        .await;
    let overlap = over.as_ref().and_then(transition).and_then(|seen| seen.span);
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

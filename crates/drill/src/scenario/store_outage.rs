//! The store answers nobody for longer than a TTL: every class at once, each as its policy says.

use super::PATIENCE;
use super::scene::{Scene, between, secs, transition};
use super::draft::Draft;
use crate::fleet::Error;
use crate::history::{Answer, Entry, Record};

/// Fail-closed classes and the fail-open one, each with a worker and a name of its own.
const CLOSED: &[&str] = &["scheduler", "workflow-critical", "approval"];
const OPEN: &str = "workflow";

pub(super) async fn play(scene: &mut Scene, draft: &mut Draft) -> Result<(), Error> {
    for class in CLOSED.iter().chain([&OPEN]) {
        let orders = scene.orders(class, class, &format!("job:{class}")).rest(100);
        scene.crew.start(orders).await?;
    }
    for class in CLOSED.iter().chain([&OPEN]) {
        scene.at_work(0, class).await?;
    }

    let during = scene.tape.place();
    scene.stage.cut().await?;
    let cut = scene.fault(&format!(
        "the store answers nobody for {}",
        secs(scene.options.outage)
    ));
    scene.rest(scene.options.outage).await;
    for class in CLOSED {
        let refused = scene
            .tape
            .wait(during, PATIENCE, |record| {
                record.who == *class && answered(record, Answer::Unavailable)
            })
            .await;
        draft.promise(
            &format!("{class} (fail-closed): work pauses while the store is away"),
            refused.is_some(),
            count(scene, during, class, "acquires refused", |record| {
                answered(record, Answer::Unavailable)
            }),
        );
    }
    let fell = scene.look(during, PATIENCE, OPEN, "fell_back").await;
    draft.promise(
        "workflow (fail-open): work goes on with a local lock, and each time is counted",
        fell.is_some(),
        count(scene, during, OPEN, "fall-backs counted", |record| {
            transition(record).is_some_and(|seen| seen.event == "fell_back")
        }),
    );

    let after = scene.tape.place();
    scene.stage.heal().await?;
    let healed = scene.mend("the store answers again");
    draft.promise(
        "the outage was as long as it was asked for",
        between(cut, healed) >= scene.options.outage,
        secs(between(cut, healed)),
    );
    for class in CLOSED.iter().chain([&OPEN]) {
        let back = scene.look(after, PATIENCE, class, "acquired").await;
        draft.promise(
            &format!("{class}: back to normal when the store is"),
            back.is_some(),
            back.map_or_else(
                || "no lease was granted again".to_owned(),
                |back| format!("a lease again after {}", secs(between(healed, back.at))),
            ),
        );
    }
    Ok(())
}

fn answered(record: &Record, wanted: Answer) -> bool {
    matches!(record.what, Entry::Answered { answer, .. } if answer == wanted)
}

fn count(scene: &Scene, from: usize, who: &str, what: &str, fits: impl Fn(&Record) -> bool) -> String {
    let history = scene.tape.history();
    let since = history.records.get(from..).unwrap_or_default();
    let number = since
        .iter()
        .filter(|record| record.who == who && fits(record))
        .count();
    format!("{number} {what}")
}

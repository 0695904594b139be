//! A flood of acquires beside one long holder.

use std::time::Duration;

use super::draft::Draft;
use super::scene::{Scene, transition};
use crate::fleet::Error;

const FLOOD: Duration = Duration::from_secs(8);

pub(super) async fn play(scene: &mut Scene, draft: &mut Draft) -> Result<(), Error> {
    let holder = scene.orders("holder", "scheduler", "job:1").steps(120, 100);
    scene.crew.start(holder).await?;
    scene.at_work(0, "holder").await?;
    scene.fault("a flood of acquires begins");
    let from = scene.tape.place();
    let mut flood = scene
        .orders("flood", "workflow", "job:2")
        .clients(24)
        .steps(0, 0)
        .rest(0);
    flood.names = (2..=9)
        .map(|number| scene.stage.name(&format!("job:{number}")))
        .collect();
    scene.crew.start(flood).await?;
    scene.rest(FLOOD).await;

    let history = scene.tape.history();
    let flood = history.records.get(from..).unwrap_or_default();
    let of_holder = |event: &str| {
        let seen = flood.iter().filter(|record| {
            record.who == "holder" && transition(record).is_some_and(|seen| seen.event == event)
        });
        seen.count()
    };
    let asked = flood
        .iter()
        .filter(|record| {
            record.who.starts_with("flood") && matches!(record.what, crate::history::Entry::Answered { .. })
        })
        .count();
    draft.promise(
        "the flood is a flood",
        asked > 50,
        format!("{asked} acquires answered in {} s", FLOOD.as_secs()),
    );
    draft.promise(
        "the holder's renewals have their own way: it never loses its lock",
        of_holder("abandoned") == 0 && of_holder("renewed") > 0,
        format!(
            "{} renewed, {} lost",
            of_holder("renewed"),
            of_holder("abandoned")
        ),
    );
    Ok(())
}

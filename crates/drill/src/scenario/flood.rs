//! Many clients acquire without pause while one long holder renews.

use std::time::Duration;

use super::context::{ScenarioContext, transition};
use super::verdict_builder::VerdictBuilder;
use crate::fleet::DrillError;

const FLOOD_DURATION: Duration = Duration::from_secs(8);

pub(super) async fn run(context: &mut ScenarioContext, draft: &mut VerdictBuilder) -> Result<(), DrillError> {
    let holder = context.worker_spec("holder", "scheduler", "job:1").steps(120, 100);
    context.workers.start(holder).await?;
    context.wait_until_working(0, "holder").await?;
    context.record_fault("a flood of acquires begins");
    let from = context.history.position();
    let mut flood = context.worker_spec("flood", "workflow", "job:2").clients(24).steps(0, 0).rest(0);
    flood.names = (2..=9).map(|number| context.testbed.lock_name(&format!("job:{number}"))).collect();
    context.workers.start(flood).await?;
    context.sleep(FLOOD_DURATION).await;

    let history = context.history.snapshot();
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
            record.who.starts_with("flood")
                && matches!(record.what, crate::history::HistoryEntry::Answered { .. })
        })
        .count();
    draft.promise(
        "the flood is a flood",
        asked > 50,
        format!("{asked} acquires answered in {} s", FLOOD_DURATION.as_secs()),
    );
    draft.promise(
        "the holder's renewals have their own way: it never loses its lock",
        of_holder("abandoned") == 0 && of_holder("renewed") > 0,
        format!("{} renewed, {} lost", of_holder("renewed"), of_holder("abandoned")),
    );
    Ok(())
}

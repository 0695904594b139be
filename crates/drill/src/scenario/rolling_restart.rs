//! Each worker is ended and replaced by a new one, one after the other, under load.

use super::EVENT_TIMEOUT;
use super::context::{ScenarioContext, transition};
use super::verdict_builder::VerdictBuilder;
use crate::fleet::DrillError;
use crate::history::History;

pub(super) async fn run(context: &mut ScenarioContext, draft: &mut VerdictBuilder) -> Result<(), DrillError> {
    let orders =
        |context: &ScenarioContext, who: &str| context.worker_spec(who, "scheduler", "job:1").steps(3, 30);
    for who in ["a", "b", "c"] {
        context.workers.start(orders(context, who)).await?;
    }
    for who in ["a", "b", "c"] {
        context.require_event(0, who, "acquired").await?;
    }
    for (old, new) in [("a", "a2"), ("b", "b2"), ("c", "c2")] {
        context.record_fault(&format!("{old} is ended and {new} started in its place"));
        let from = context.history.position();
        let in_order = context.workers.end_worker(old).await.is_clean();
        context.workers.start(orders(context, new)).await?;
        let served = context.wait_for_event(from, EVENT_TIMEOUT, new, "acquired").await.is_some();
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
    promise_nothing_lost(&context.history.snapshot(), draft);
    Ok(())
}

/// Adds the promise that no client loses its lease to a restart. It does not depend on the speed of
/// the host.
pub(super) fn promise_nothing_lost(history: &History, draft: &mut VerdictBuilder) {
    let harm = history.records.iter().filter_map(transition).filter(|seen| seen.event == "not_owned").count();
    draft.promise_untimed("no client loses its lease to a restart", harm == 0, format!("{harm} lost"));
}

//! One of two workers loses its connection to the store; the other one keeps it.

use super::context::{ScenarioContext, between, format_secs};
use super::verdict_builder::VerdictBuilder;
use super::{DRILL_TTL, EVENT_TIMEOUT, HOST_SLACK};
use crate::fleet::DrillError;
use crate::history::HistoryRecord;

pub(super) async fn run(context: &mut ScenarioContext, draft: &mut VerdictBuilder) -> Result<(), DrillError> {
    let (way, url) = context.testbed.start_second_proxy().await?;
    let inside = context.worker_spec("inside", "scheduler", "job:1").steps(20, 100);
    let outside = context.worker_spec("outside", "scheduler", "job:1").steps(60, 100);
    context.workers.start_with_url(&url, outside).await?;
    context.require_event(0, "outside", "renewed").await?;
    context.workers.start(inside).await?;
    context.wait_for_event(0, EVENT_TIMEOUT, "inside", "busy").await;

    let from = context.history.position();
    way.disable().await?;
    let split = context.record_fault("the holder loses its way to the store, the other replica does not");
    let stopped = context.wait_for_event(from, EVENT_TIMEOUT, "outside", "abandoned").await;
    let taken = context.wait_for_event(from, EVENT_TIMEOUT, "inside", "acquired").await;
    let after = |record: Option<&HistoryRecord>| {
        record.map_or_else(|| "never".to_owned(), |record| format_secs(between(split, record.at)))
    };
    draft.promise(
        "the side without a store stops before the other one begins",
        matches!((&stopped, &taken), (Some(stopped), Some(taken)) if stopped.at <= taken.at),
        format!("stopped after: {}, taken over after: {}", after(stopped.as_ref()), after(taken.as_ref())),
    );
    draft.promise_within(
        "the other side takes over within the TTL (and what a loaded host adds)",
        split,
        taken.as_ref(),
        DRILL_TTL + HOST_SLACK,
    );
    let after = context.history.position();
    way.heal().await?;
    context.record_repair("the network is whole again");
    let back = context.wait_for_event(after, EVENT_TIMEOUT, "outside", "acquired").await;
    draft.promise(
        "the lost side comes back when it is whole",
        back.is_some(),
        if back.is_some() { "granted again" } else { "never granted again" },
    );
    // The second proxy must live until its worker has ended.
    let in_order = context.workers.end_worker("outside").await.is_clean();
    draft.promise("the lost side ends in order", in_order, if in_order { "it did" } else { "it did not" });
    way.stop().await;
    Ok(())
}

//! A server with an eviction policy runs out of memory and evicts the leases. Two holders at once
//! cannot be prevented then. The remaining promises: fences grow, stale writes are refused, and the
//! old holder notices its loss.

use super::context::ScenarioContext;
use super::verdict_builder::VerdictBuilder;
use super::{DRILL_TTL, EVENT_TIMEOUT, HOST_SLACK};
use crate::fleet::DrillError;
use crate::history::HistoryEntry;

pub(super) async fn run(context: &mut ScenarioContext, draft: &mut VerdictBuilder) -> Result<(), DrillError> {
    let old = context.worker_spec("old", "scheduler", "job:1").steps(80, 100).rest(1000);
    let new = context.worker_spec("new", "scheduler", "job:1").steps(10, 50);
    context.workers.start(old).await?;
    context.wait_until_working(0, "old").await?;
    context.workers.start(new).await?;
    context.wait_for_event(0, EVENT_TIMEOUT, "new", "busy").await;

    let from = context.history.position();
    // Noted before and after the fault: a lease granted while the fault lasts may be lost too.
    context.history.record(HistoryEntry::Forgot);
    let evicted = context.record_fault("the server evicts every key");
    let out_of_memory = context.testbed.server().evict().await?;
    context.history.record(HistoryEntry::Forgot);
    draft.promise(
        "the fault is real: the server was out of memory",
        out_of_memory,
        if out_of_memory { "it refused a write" } else { "it took a write" },
    );
    let learned = context.wait_for_event(from, EVENT_TIMEOUT, "old", "abandoned").await;
    draft.promise_within(
        "the old holder learns it with its next renewal and stops",
        evicted,
        learned.as_ref(),
        DRILL_TTL + HOST_SLACK,
    );
    let next = context.wait_for_event(from, EVENT_TIMEOUT, "new", "acquired").await;
    draft.promise_within(
        "the name is not lost with its key: it is granted again",
        evicted,
        next.as_ref(),
        EVENT_TIMEOUT,
    );
    Ok(())
}

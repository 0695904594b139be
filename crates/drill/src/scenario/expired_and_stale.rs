//! Three faults in one: renewals fail, the lease expires while its holder is paused, and the holder
//! resumes and releases a lease that belongs to another client by then.

use super::context::{ScenarioContext, transition};
use super::verdict_builder::VerdictBuilder;
use super::{DRILL_TTL, EVENT_TIMEOUT, HOST_SLACK};
use crate::fleet::DrillError;
use crate::history::{History, HistoryEntry};

pub(super) async fn run(context: &mut ScenarioContext, draft: &mut VerdictBuilder) -> Result<(), DrillError> {
    let old = context.worker_spec("old", "scheduler", "job:1").steps(100, 100).rest(5000);
    let new = context.worker_spec("new", "scheduler", "job:1").steps(60, 100).rest(20);
    context.workers.start(old).await?;
    context.require_event(0, "old", "renewed").await?;

    context.testbed.cut_off().await?;
    context.record_fault("no renewal is answered");
    context.sleep(DRILL_TTL / 3).await;
    context.workers.pause("old");
    let stopped = context.record_fault("the holder is stopped");
    context.testbed.heal().await?;
    let after = context.history.position();
    context.workers.start(new).await?;
    let taken = context.wait_for_event(after, EVENT_TIMEOUT, "new", "acquired").await;
    draft.promise_within(
        "the name of a stopped holder is granted to the next one when its lease has run out",
        stopped,
        taken.as_ref(),
        DRILL_TTL + HOST_SLACK,
    );
    // The old holder must resume while the new holder works.
    if taken.is_some() {
        context.wait_until_working(after, "new").await?;
    }
    let woken = context.history.position();
    context.workers.resume("old");
    context.record_repair("the old holder wakes up");

    let lost = context
        .history
        .wait_for(woken, EVENT_TIMEOUT, |record| {
            record.who == "old" && matches!(record.what, HistoryEntry::Reported { lost: true, .. })
        })
        .await;
    draft.promise(
        "the old holder finds out by itself and stops",
        lost.is_some(),
        if lost.is_some() { "its work ended as lost" } else { "it did not" },
    );
    // Long enough for every stale renewal and release of the old holder to arrive.
    context.sleep(DRILL_TTL).await;
    promise_new_holder_untouched(&context.history.snapshot(), draft);
    Ok(())
}

/// Adds the promises about the new holder. A stale request must never take its lease, on any host.
/// A fenced new holder may be the effect of a slow host.
pub(super) fn promise_new_holder_untouched(history: &History, draft: &mut VerdictBuilder) {
    let new = || {
        let of_new = history.records.iter().filter(|record| record.who == "new");
        of_new.filter_map(transition)
    };
    let robbed = new().any(|seen| matches!(seen.event.as_str(), "not_owned" | "already_lost"));
    let fenced = new().any(|seen| seen.event == "abandoned");
    draft.promise_untimed(
        "its stale renewals and its stale release do not touch the new holder's lease",
        !robbed,
        if robbed { "the new holder lost its lease" } else { "the store never said that it was not its own" },
    );
    draft.promise("the new holder works on", !fenced, if fenced { "it was fenced" } else { "it did" });
}

//! The server is lost with leases that were not replicated, and its replica is promoted.
//!
//! Two holders at once cannot be prevented then. The remaining promises: fences grow across the
//! fail-over, the target refuses the old holder, and a class that requires more than this store
//! promises is refused from the start.

use std::time::Duration;

use leasehold_core::Locks;
use leasehold_core::clock::{BootClock, Clock, ClockExt};
use leasehold_core::policy::PolicyBook;

use super::context::{ScenarioContext, transition};
use super::verdict_builder::VerdictBuilder;
use super::{DRILL_TTL, EVENT_TIMEOUT, HOST_SLACK};
use crate::fleet::{DrillError, Replica};
use crate::history::{HistoryEntry, RecordedOutcome};

pub(super) async fn run(context: &mut ScenarioContext, draft: &mut VerdictBuilder) -> Result<(), DrillError> {
    check_durable_class(context, draft).await?;
    // One replicated grant, so that the replica's fence counter exists but is behind after the
    // fail-over.
    let first = context.worker_spec("first", "scheduler", "job:1").turns(1);
    context.workers.start(first).await?;
    context.require_event(0, "first", "released").await?;
    let replica = context.testbed.start_replica().await?;
    wait_for_replication(&replica).await?;

    replica.cut_off().await?;
    context.record_fault("the replica hears nothing from the server any more");
    let old = context.worker_spec("old", "scheduler", "job:1").steps(100, 100).rest(1000);
    context.workers.start(old).await?;
    let granted = context.require_event(0, "old", "acquired").await?;
    context.wait_until_working(0, "old").await?;

    let from = context.history.position();
    context.history.record(HistoryEntry::Forgot);
    let lost = context.record_fault("the server is lost, and its address leads to the replica");
    context.testbed.fail_over(replica).await?;
    // A replica refuses writes. That must be reported as unavailable and not as busy: no client
    // holds the name.
    let new = context.worker_spec("new", "scheduler", "job:1").steps(40, 50);
    context.workers.start(new).await?;
    let told = context.wait_for_answer(from, "new").await;
    promise_no_contention(told, draft);
    context.testbed.server().promote().await?;
    let promoted = context.record_repair("the replica is promoted");
    context.history.record(HistoryEntry::Forgot);
    let next = context.wait_for_event(from, EVENT_TIMEOUT, "new", "acquired").await;
    draft.promise_within(
        "the store is back with the promotion: the name is granted again",
        promoted,
        next.as_ref(),
        DRILL_TTL + HOST_SLACK,
    );
    if let Some(next) = &next {
        let fences = (fence(&granted), fence(next));
        draft.promise_untimed(
            "the fence grows across the fail-over, although the replica's counter was behind",
            fences.0.is_some() && fences.1 > fences.0,
            format!("{} then {}", fence_text(fences.0), fence_text(fences.1)),
        );
    }
    let learned = context.wait_for_event(from, EVENT_TIMEOUT, "old", "abandoned").await;
    draft.promise_within(
        "the old holder stops: told by a renewal, or at its deadline at the latest",
        lost,
        learned.as_ref(),
        DRILL_TTL + HOST_SLACK,
    );
    let after = context.history.position();
    let back = context.wait_for_event(after, EVENT_TIMEOUT, "old", "acquired").await;
    draft.promise(
        "both work on with the new server",
        back.is_some(),
        if back.is_some() {
            "the old holder was granted it again"
        } else {
            "the old holder was never granted it again"
        },
    );
    Ok(())
}

/// Adds the promise that a read-only replica is reported as unavailable. Only a missing answer can
/// be due to a slow host.
pub(super) fn promise_no_contention(told: Option<RecordedOutcome>, draft: &mut VerdictBuilder) {
    let what = "before the replica is promoted, acquires fail because the store is unavailable, not because a client holds the name";
    match told {
        Some(told) => draft.promise_untimed(
            what,
            told == RecordedOutcome::Unavailable,
            format!("{told:?}").to_lowercase(),
        ),
        None => draft.promise(what, false, "never answered"),
    }
}

/// Checks that a class with `requires = "durable"` is refused by a server without persistence,
/// before any loss occurs.
async fn check_durable_class(
    context: &ScenarioContext,
    draft: &mut VerdictBuilder,
) -> Result<(), DrillError> {
    let wrong = |error: &dyn std::fmt::Display| DrillError::Store(error.to_string());
    let url = leasehold::StoreUrl::parse(context.testbed.url()).map_err(|error| wrong(&error))?;
    let store = url.open().map_err(|error| wrong(&error))?;
    let book = PolicyBook::from_file(context.testbed.policy_path()).map_err(|error| wrong(&error))?;
    let locks = Locks::builder(store).policies(book).without_log().build().map_err(|error| wrong(&error))?;
    let asked = locks.class("durable").acquire(context.testbed.lock_name("job:1")).await;
    let seen = match &asked {
        Err(leasehold_core::Error::Invalid(refused)) if refused.field.ends_with("requires") => Ok(refused),
        other => Err(format!("{other:?}")),
    };
    promise_durable_refused(seen.map(ToString::to_string), draft);
    drop(asked);
    locks.shutdown(Duration::from_secs(1)).await;
    Ok(())
}

/// Adds the promise. `seen` is the refusal, or what happened instead.
pub(super) fn promise_durable_refused(seen: Result<String, String>, draft: &mut VerdictBuilder) {
    draft.promise_untimed(
        "a class that requires `durable` is refused, because this server keeps nothing",
        seen.is_ok(),
        seen.unwrap_or_else(|other| other),
    );
}

async fn wait_for_replication(replica: &Replica) -> Result<(), DrillError> {
    let end = BootClock.now() + EVENT_TIMEOUT;
    while BootClock.now() < end {
        if replica.is_following().await? {
            return Ok(());
        }
        BootClock.sleep(Duration::from_millis(50)).await;
    }
    Err(DrillError::WaitTimedOut("for the replica to follow".to_owned()))
}

fn fence(record: &crate::history::HistoryRecord) -> Option<leasehold_core::Fence> {
    transition(record).and_then(|seen| seen.fence)
}

fn fence_text(fence: Option<leasehold_core::Fence>) -> String {
    fence.map_or_else(|| "none".to_owned(), |fence| fence.to_string())
}

//! The control run: as `pause-and-delay`, but workers ignore the state of their holds and writes
//! are not fenced. It tests the checker, not the locks.

use super::EVENT_TIMEOUT;
use super::context::ScenarioContext;
use super::pause_and_delay::overtake;
use super::verdict_builder::VerdictBuilder;
use crate::fleet::DrillError;
use crate::history::{HistoryEntry, WriteOutcome};

/// The note in a control run's history, which marks it as one.
pub const CONTROL_RUN_NOTE: &str = "a control run: its workers neither look nor send a fence";

pub(super) async fn run(context: &mut ScenarioContext, draft: &mut VerdictBuilder) -> Result<(), DrillError> {
    context.record_fault(CONTROL_RUN_NOTE);
    let sleeper = context.worker_spec("sleeper", "scheduler", "job:1").steps(5, 300).rest(200).reckless();
    let rival = context.worker_spec("rival", "scheduler", "job:1").steps(5, 50).reckless();
    let woken = overtake(context, sleeper, rival).await?;
    let rival_wrote =
        || DrillError::WaitTimedOut("for the rival to write while the holder was stopped".to_owned());
    // Without a write of the rival nothing is stale, so the checker has nothing to find: the run is
    // invalid.
    let woken = woken.ok_or_else(rival_wrote)?;
    let late = context
        .history
        .wait_for(woken, EVENT_TIMEOUT, |record| {
            record.who == "sleeper"
                && matches!(record.what, HistoryEntry::Written { answer: WriteOutcome::Applied, .. })
        })
        .await;
    draft.promise(
        "without a fence the late write is applied",
        late.is_some(),
        if late.is_some() { "it was" } else { "it was not: the control shows nothing" },
    );
    Ok(())
}

//! A long pause and a slow network at once: the holder is paused while its write is in flight.

use std::time::Duration;

use super::EVENT_TIMEOUT;
use super::context::ScenarioContext;
use super::verdict_builder::VerdictBuilder;
use crate::fleet::{DrillError, WorkerSpec};
use crate::history::{HistoryEntry, WriteOutcome};

// Some pauses show nothing: a worker paused during a SQLite commit blocks all others, and one
// paused a moment too late has released already.
const MAX_PAUSES: u32 = 5;
// By then the director has read what the worker wrote to its pipe before the pause.
const PIPE_READ_TIME: Duration = Duration::from_millis(200);

pub(super) async fn run(context: &mut ScenarioContext, draft: &mut VerdictBuilder) -> Result<(), DrillError> {
    let sleeper = context.worker_spec("sleeper", "scheduler", "job:1").steps(5, 300).rest(200);
    let rival = context.worker_spec("rival", "scheduler", "job:1").steps(5, 50);
    context.testbed.add_toxic("latency latency=40 jitter=20")?;
    let woken = overtake(context, sleeper, rival).await?;
    draft.promise(
        "the rival is granted the name of a stopped holder, and writes",
        woken.is_some(),
        if woken.is_some() { "it was" } else { "it never was" },
    );
    let Some(woken) = woken else {
        return Ok(());
    };
    let told = context
        .history
        .wait_for(woken, EVENT_TIMEOUT, |record| {
            record.who == "sleeper"
                && matches!(
                    record.what,
                    HistoryEntry::Written { answer: WriteOutcome::Refused, .. }
                        | HistoryEntry::Reported { lost: true, .. }
                )
        })
        .await;
    draft.promise(
        "the sleeper learns that it has lost its lease, before or at its next write",
        told.is_some(),
        match told.map(|record| record.what) {
            Some(HistoryEntry::Written { .. }) => "its late write was refused",
            Some(_) => "its work was stopped before the next write",
            None => "it never did",
        },
    );
    Ok(())
}

/// Pauses the sleeper during its work until the rival has written with a newer fence, then resumes
/// it. Returns the position of the history at that time, or none if the rival never wrote.
pub(super) async fn overtake(
    context: &mut ScenarioContext,
    sleeper: WorkerSpec,
    rival: WorkerSpec,
) -> Result<Option<usize>, DrillError> {
    context.workers.start(sleeper).await?;
    context.wait_until_working(0, "sleeper").await?;
    context.workers.start(rival).await?;
    let mut stopped = false;
    for _ in 0..MAX_PAUSES {
        let from = context.history.position();
        let work = context.wait_until_working(from, "sleeper").await?;
        context.workers.pause("sleeper");
        context.sleep(PIPE_READ_TIME).await;
        let history = context.history.snapshot();
        let since = history.records.get(from..).unwrap_or_default();
        let released = since
            .iter()
            .filter(|record| record.who == "sleeper" && record.at > work.at)
            .any(|record| matches!(record.what, HistoryEntry::Releasing { .. }));
        if released {
            context.workers.resume("sleeper");
            continue;
        }
        context.record_fault("the holder is stopped, with a write on its way");
        stopped = true;
        let overtaken = context
            .history
            .wait_for(from, super::DRILL_TTL * 3, |record| {
                let applied =
                    matches!(record.what, HistoryEntry::Written { answer: WriteOutcome::Applied, .. });
                record.who == "rival" && record.at > work.at + 1_000_000_000 && applied
            })
            .await;
        let woken = context.history.position();
        context.workers.resume("sleeper");
        if overtaken.is_some() {
            context.record_repair("the sleeper goes on");
            return Ok(Some(woken));
        }
    }
    if stopped {
        return Ok(None);
    }
    Err(DrillError::WaitTimedOut("to stop the sleeper while it holds".to_owned()))
}

//! The clean-up loop: purges documents that ended longer ago than the retention, dead letters included.

use std::time::Duration;

use leasehold_core::Hold;

use crate::error::PlaneError;
use crate::fenced_writer::FencedWriter;
use crate::state::JobState;
use crate::store::DocumentKind;
use crate::workflow::RunState;

/// Per kind: a large backlog is purged over several ticks.
const MAX_PURGED_PER_TICK: usize = 200;

pub(super) async fn tick(writer: &FencedWriter, hold: &Hold) -> Result<usize, PlaneError> {
    let keep = writer.settings.retention;
    let jobs: Vec<_> = JobState::all().filter(|state| state.is_terminal()).map(JobState::as_str).collect();
    let runs: Vec<_> =
        RunState::ALL.into_iter().filter(|state| state.is_terminal()).map(RunState::as_str).collect();
    let mut gone = 0;
    for (kind, states) in
        [(DocumentKind::Job, &jobs), (DocumentKind::Run, &runs), (DocumentKind::CancelRequest, &vec!["DONE"])]
    {
        gone += purge_kind(writer, hold, kind, states, keep).await?;
    }
    Ok(gone)
}

async fn purge_kind(
    writer: &FencedWriter,
    hold: &Hold,
    kind: DocumentKind,
    states: &[&'static str],
    keep: Duration,
) -> Result<usize, PlaneError> {
    // A purge carries no fence, so the hold is checked right before it. Purging twice is harmless.
    hold.check()?;
    let gone = writer.call(writer.store.purge(kind, states, keep, MAX_PURGED_PER_TICK)).await?;
    Ok(usize::try_from(gone).unwrap_or(usize::MAX))
}

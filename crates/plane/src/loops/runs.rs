//! The loops of workflow runs: one wakes runs whose delay is over, one checks runs without progress.

use std::time::Duration;

use leasehold_core::Hold;
use serde_json::json;

use crate::error::PlaneError;
use crate::fenced_writer::FencedWriter;
use crate::store::{Document, DocumentKind, DocumentQuery};
use crate::workflow::RunState;

const MAX_RUNS_PER_TICK: usize = 1000;

/// Sends runs whose delay is over to the engine.
pub(super) async fn wake_delayed(writer: &FencedWriter, hold: &Hold) -> Result<usize, PlaneError> {
    let due = unfinished_runs(writer, true).await?;
    send_to_engine(writer, hold, &due, "wake").await
}

/// Sends runs without recent progress to the engine: a start or result message may have been lost.
pub(super) async fn wake_stuck(writer: &FencedWriter, hold: &Hold) -> Result<usize, PlaneError> {
    let age = u64::try_from(writer.settings.run_age.as_millis()).unwrap_or(u64::MAX);
    let mut old = unfinished_runs(writer, false).await?;
    // Filtered here, because stores can query by due time but not by the time of the last write.
    old.retain(|doc| doc.now >= doc.updated.saturating_add(age));
    send_to_engine(writer, hold, &old, "tick").await
}

async fn unfinished_runs(writer: &FencedWriter, due: bool) -> Result<Vec<Document>, PlaneError> {
    let states = [RunState::Pending.as_str(), RunState::Running.as_str()];
    let query =
        DocumentQuery { due_only: due, ..DocumentQuery::new(DocumentKind::Run, states, MAX_RUNS_PER_TICK) };
    Ok(writer.call(writer.store.list(&query)).await?)
}

/// Sends one message per run to the engine. Returns how many were not queued already.
async fn send_to_engine(
    writer: &FencedWriter,
    hold: &Hold,
    docs: &[Document],
    verb: &str,
) -> Result<usize, PlaneError> {
    let mut sent = 0;
    for doc in docs {
        // The version in the id: while the run does not change, repeated ticks send nothing new.
        let id = format!("{verb}:{}:{}", doc.id, doc.version);
        let message = crate::workflow::run_message(&doc.id, &id, &json!({"verb": verb}), Duration::ZERO);
        sent += usize::from(writer.publish(hold, &message).await?);
    }
    Ok(sent)
}

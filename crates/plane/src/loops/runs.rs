//! The loops of workflow runs: wake those whose delay is over, look at those that do not move.

use std::time::Duration;

use leasehold_core::Hold;
use serde_json::json;

use crate::error::PlaneError;
use crate::ledger::Ledger;
use crate::store::{Doc, Kind, Query};
use crate::workflow::RunState;

/// How many runs one tick looks at.
const MANY: usize = 1000;

/// Runs whose delay is over.
pub(super) async fn delayed(ledger: &Ledger, hold: &Hold) -> Result<usize, PlaneError> {
    let due = under_way(ledger, true).await?;
    for doc in &due {
        tick(ledger, hold, doc, "wake").await?;
    }
    Ok(due.len())
}

/// Runs that have not moved for their age: a result may have been lost, or the start.
pub(super) async fn stuck(ledger: &Ledger, hold: &Hold) -> Result<usize, PlaneError> {
    let age = u64::try_from(ledger.settings.run_age.as_millis()).unwrap_or(u64::MAX);
    let mut old = under_way(ledger, false).await?;
    old.retain(|doc| doc.now >= doc.updated.saturating_add(age));
    for doc in &old {
        tick(ledger, hold, doc, "tick").await?;
    }
    Ok(old.len())
}

async fn under_way(ledger: &Ledger, due: bool) -> Result<Vec<Doc>, PlaneError> {
    let query = Query {
        kind: Kind::Run,
        states: vec![RunState::Pending.word(), RunState::Running.word()],
        due,
        shelf: None,
        limit: MANY,
    };
    Ok(ledger.call(ledger.store.list(&query)).await?)
}

/// Asks the engine to look at a run: once for each version of it.
async fn tick(ledger: &Ledger, hold: &Hold, doc: &Doc, verb: &str) -> Result<(), PlaneError> {
    let id = format!("{verb}:{}:{}", doc.id, doc.version);
    let mail = crate::workflow::mail(&doc.id, &id, &json!({"verb": verb}), Duration::ZERO);
    ledger.publish(hold, &mail).await
}

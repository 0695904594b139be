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
    tick(ledger, hold, &due, "wake").await
}

/// Runs that have not moved for their age: a result may have been lost, or the start.
pub(super) async fn stuck(ledger: &Ledger, hold: &Hold) -> Result<usize, PlaneError> {
    let age = u64::try_from(ledger.settings.run_age.as_millis()).unwrap_or(u64::MAX);
    let mut old = under_way(ledger, false).await?;
    old.retain(|doc| doc.now >= doc.updated.saturating_add(age));
    tick(ledger, hold, &old, "tick").await
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

/// Asks the engine to look at these runs: once at a time for each version of one. Answers how many had not been asked for.
async fn tick(ledger: &Ledger, hold: &Hold, docs: &[Doc], verb: &str) -> Result<usize, PlaneError> {
    let mut sent = 0;
    for doc in docs {
        let id = format!("{verb}:{}:{}", doc.id, doc.version);
        let mail = crate::workflow::mail(&doc.id, &id, &json!({"verb": verb}), Duration::ZERO);
        sent += usize::from(ledger.publish(hold, &mail).await?);
    }
    Ok(sent)
}

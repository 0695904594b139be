//! The replayer: a job that nobody has taken up for its age is submitted again.

use std::time::Duration;

use leasehold_core::Hold;

use crate::error::PlaneError;
use crate::job::{Job, go};
use crate::ledger::Ledger;
use crate::state::JobState;
use crate::store::{Kind, Query};

/// How many jobs one tick looks at.
const MANY: usize = 500;

pub(super) async fn tick(ledger: &Ledger, hold: &Hold) -> Result<usize, PlaneError> {
    let query = Query {
        kind: Kind::Job,
        states: vec![JobState::Pending.word(), JobState::Retrying.word()],
        due: true,
        shelf: None,
        limit: MANY,
    };
    let mut sent = 0;
    for doc in &ledger.call(ledger.store.list(&query)).await? {
        match Job::read(doc) {
            // The very mail that it should have had: if that is only slow, it is there still, and nothing is sent.
            Ok(job) => sent += usize::from(ledger.publish(hold, &go(&job, Duration::ZERO)).await?),
            Err(error) => tracing::warn!(job = %doc.id, %error, "cannot be submitted again"),
        }
    }
    Ok(sent)
}

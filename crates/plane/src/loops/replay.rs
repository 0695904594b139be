//! The replayer: a job that nobody has taken up for its age is submitted again.

use leasehold_core::Hold;

use crate::error::PlaneError;
use crate::job::look;
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
    let old = ledger.call(ledger.store.list(&query)).await?;
    for doc in &old {
        // If its mail is only slow, this one finds nothing left to do.
        ledger.publish(hold, &look(&doc.id)).await?;
    }
    Ok(old.len())
}

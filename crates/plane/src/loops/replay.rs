//! The replayer: sends the message of a waiting job again if no scheduler has taken the job in time.

use std::time::Duration;

use leasehold_core::Hold;

use crate::error::PlaneError;
use crate::fenced_writer::FencedWriter;
use crate::job::{Job, dispatch_message};
use crate::state::JobState;
use crate::store::{DocumentKind, DocumentQuery};

const MAX_REPLAYED_PER_TICK: usize = 500;

pub(super) async fn tick(writer: &FencedWriter, hold: &Hold) -> Result<usize, PlaneError> {
    let states = [JobState::Pending.as_str(), JobState::Retrying.as_str()];
    let query = DocumentQuery {
        due_only: true,
        ..DocumentQuery::new(DocumentKind::Job, states, MAX_REPLAYED_PER_TICK)
    };
    let mut sent = 0;
    for doc in &writer.call(writer.store.list(&query)).await? {
        match Job::read(doc) {
            // The same message id as the original: if that message is only delayed, the store drops this one.
            Ok(job) => {
                sent += usize::from(writer.publish(hold, &dispatch_message(&job, Duration::ZERO)).await?)
            }
            Err(error) => tracing::warn!(job = %doc.id, %error, "cannot be submitted again"),
        }
    }
    Ok(sent)
}

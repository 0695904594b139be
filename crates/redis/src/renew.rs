//! The renew operation, in batches.

use std::time::Duration;

use leasehold_core::store::{RenewRequest, RenewResponse, StoreError, StoreErrorKind};
use redis::Value;

use crate::acquire::lease_millis;
use crate::backend::{CAPABILITIES, Context};
use crate::connection::CallDeadline;
use crate::error;
use crate::script::{ScriptCall, run_batch};
use crate::value::pttl_to_remaining;

/// Size of one pipeline: large enough to share the round trip, small enough
/// not to stall the server.
const RENEW_BATCH_SIZE: usize = 128;

pub(crate) async fn renew(
    store: &Context,
    batch: &[RenewRequest],
    within: Duration,
) -> Vec<Result<RenewResponse, StoreError>> {
    let limit = CallDeadline::new(store.clock(), within);
    let mut answers = Vec::with_capacity(batch.len());
    for chunk in batch.chunks(RENEW_BATCH_SIZE) {
        // A definite error instead of unknown: the client can repeat these at once.
        if limit.remaining().is_zero() && !answers.is_empty() {
            answers.extend(chunk.iter().map(|_| {
                Err(StoreError::not_done(
                    StoreErrorKind::TimedOut,
                    "the time was used up by the renewals before this one; it was not sent",
                ))
            }));
            continue;
        }
        answers.extend(renew_chunk(store, chunk, &limit).await);
    }
    answers
}

async fn renew_chunk(
    store: &Context,
    chunk: &[RenewRequest],
    limit: &CallDeadline<'_>,
) -> Vec<Result<RenewResponse, StoreError>> {
    let parts: Vec<_> = chunk.iter().map(|renewal| RenewArgs::of(store, renewal)).collect();
    // Skip items that cannot be sent. They must not cost the others their lease.
    let calls: Vec<_> = parts.iter().flatten().map(RenewArgs::call).collect();
    let sent = async {
        let connection = store.renewal_slot.get_or_connect(limit).await?;
        run_batch(&calls, &store.renewal_slot, &connection, limit).await
    };
    let sent = match sent.await {
        Ok(answers) => answers,
        Err(failure) => calls.iter().map(|_| Err(error::repeat_error(&failure))).collect(),
    };
    let mut sent = sent.into_iter();
    let mut next = || sent.next().unwrap_or_else(|| Err(error::unexpected_response("a renewal")));
    parts
        .iter()
        .map(|part| match part {
            Ok(_) => next().and_then(|value| parse_response(&value)),
            Err(failure) => Err(error::repeat_error(failure)),
        })
        .collect()
}

/// Arguments of one renewal.
struct RenewArgs {
    key: String,
    value: String,
    millis: String,
}

impl RenewArgs {
    fn of(store: &Context, renewal: &RenewRequest) -> Result<Self, StoreError> {
        CAPABILITIES.check_names(&renewal.names)?;
        Ok(Self {
            key: store.keys().key(renewal.names.first()),
            // Compare the whole value: a lease granted again to the same token is a new lease.
            value: format!("{}|{}", renewal.token.expose(), renewal.fence),
            millis: lease_millis(renewal.ttl, renewal.lock_delay)?.to_string(),
        })
    }

    fn call(&self) -> ScriptCall<'_> {
        ScriptCall::renew(vec![&self.key], vec![&self.value, &self.millis])
    }
}

fn parse_response(value: &Value) -> Result<RenewResponse, StoreError> {
    match value {
        Value::Int(-3) => Ok(RenewResponse::NotOwned),
        Value::Int(left) => Ok(RenewResponse::extended(pttl_to_remaining(*left))),
        _ => Err(error::unexpected_response("a renewal")),
    }
}

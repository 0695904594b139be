//! Extending leases, many at a time.

use std::time::Duration;

use leasehold_core::store::{Cause, Failure, Renewal, Renewed};
use redis::Value;

use crate::acquire::lease_millis;
use crate::connection::Limit;
use crate::error;
use crate::script::{Call, run_all};
use crate::store::Shared;
use crate::value::remaining;

/// How many go out together: enough that the round trip is shared, few enough that the server is not held up.
const CHUNK: usize = 128;

pub(crate) async fn renew(
    store: &Shared,
    batch: &[Renewal],
    within: Duration,
) -> Vec<Result<Renewed, Failure>> {
    let limit = Limit::new(store.clock(), within);
    let mut answers = Vec::with_capacity(batch.len());
    for chunk in batch.chunks(CHUNK) {
        if limit.left().is_zero() && !answers.is_empty() {
            answers.extend(chunk.iter().map(|_| {
                Err(Failure::not_done(
                    Cause::TimedOut,
                    "the time was used up by the renewals before this one; it was not sent",
                ))
            }));
            continue;
        }
        answers.extend(renew_chunk(store, chunk, &limit).await);
    }
    answers
}

async fn renew_chunk(store: &Shared, chunk: &[Renewal], limit: &Limit<'_>) -> Vec<Result<Renewed, Failure>> {
    let parts: Vec<_> = chunk.iter().map(|renewal| Parts::of(store, renewal)).collect();
    // One that cannot be sent must not cost the others their lease.
    let calls: Vec<_> = parts.iter().flatten().map(Parts::call).collect();
    let sent = async {
        let wire = store.keeping.wire(limit).await?;
        run_all(&calls, &store.keeping, &wire, limit).await
    };
    let sent = match sent.await {
        Ok(answers) => answers,
        Err(failure) => calls.iter().map(|_| Err(error::again(&failure))).collect(),
    };
    let mut sent = sent.into_iter();
    let mut next = || sent.next().unwrap_or_else(|| Err(error::nonsense("a renewal")));
    parts
        .iter()
        .map(|part| match part {
            Ok(_) => next().and_then(|value| read(&value)),
            Err(failure) => Err(error::again(failure)),
        })
        .collect()
}

/// What one renewal sends.
struct Parts {
    key: String,
    value: String,
    millis: String,
}

impl Parts {
    fn of(store: &Shared, renewal: &Renewal) -> Result<Self, Failure> {
        Ok(Self {
            key: store.keys().key(&renewal.name),
            // The whole value: a lease granted anew, even to this token, is another lease.
            value: format!("{}|{}", renewal.token.expose(), renewal.fence),
            millis: lease_millis(renewal.ttl, renewal.lock_delay)?.to_string(),
        })
    }

    fn call(&self) -> Call<'_> {
        Call::renew(vec![&self.key], vec![&self.value, &self.millis])
    }
}

fn read(value: &Value) -> Result<Renewed, Failure> {
    match value {
        Value::Int(-3) => Ok(Renewed::NotOwned),
        Value::Int(left) => Ok(Renewed::Extended {
            was_left: remaining(*left),
        }),
        _ => Err(error::nonsense("a renewal")),
    }
}

//! The acquire operation: one round trip, granted or busy.

use std::time::Duration;

use leasehold_core::store::{
    AcquireRequest, AcquireResponse, BusyLease, Grant, ReleaseRequest, StoreError, StoreErrorKind,
};
use leasehold_core::types::{Fence, Ttl};
use redis::Value;

use crate::backend::{CAPABILITIES, Context};
use crate::connection::{CallDeadline, Connection, as_text};
use crate::error;
use crate::keys::LockKeys;
use crate::script::ScriptCall;
use crate::value::{LockValue, pttl_to_remaining};

/// Limit of the lock delay: with a longer one, a forgotten lock would block
/// its name for more than a year.
const MAX_LOCK_DELAY: Duration = Duration::from_secs(365 * 24 * 60 * 60);
/// Limit of a queue entry's life without a poll.
const MAX_QUEUE_STAY: Duration = Ttl::MAX.get();

pub(crate) async fn acquire(
    store: &Context,
    request: &AcquireRequest,
    within: Duration,
) -> Result<AcquireResponse, StoreError> {
    CAPABILITIES.check_acquire(request)?;
    let limit = CallDeadline::new(store.clock(), within);
    let keys = store.keys().lock_keys(request.names.first());
    let Some(wait) = request.queue else {
        return run_acquire(store, request, &keys, None, &limit).await;
    };
    if !store.wake_subscription.is_subscribed() {
        // A waiter that cannot be woken looks dead to a release and loses its place. So ask
        // without queueing first, and wait for the subscription only if the lock is busy. A
        // free lock does not wait for it.
        let first = run_acquire(store, request, &keys, None, &limit).await?;
        if !matches!(first, AcquireResponse::Busy(_))
            || !store.wake_subscription.wait_subscribed(&limit.half_remaining()).await
        {
            return Ok(first);
        }
    }
    run_acquire(store, request, &keys, Some(wait), &limit).await
}

async fn run_acquire(
    store: &Context,
    request: &AcquireRequest,
    keys: &LockKeys,
    wait: Option<Duration>,
    limit: &CallDeadline<'_>,
) -> Result<AcquireResponse, StoreError> {
    let kept = lease_millis(request.ttl, request.lock_delay)?.to_string();
    let floor = request.floor.map_or_else(String::new, |floor| floor.to_string());
    let (wait, place) = match wait {
        Some(wait) => (
            // At least 1 ms: Redis rejects an expiry of 0.
            wait.clamp(Duration::from_millis(1), MAX_QUEUE_STAY).as_millis().to_string(),
            format!(
                "{}|{}",
                store.wake_subscription.wake_address(&request.token),
                request.floor.map_or(0, Fence::get)
            ),
        ),
        None => (String::new(), String::new()),
    };
    let tombstone = keys.tombstone(&request.token);
    let connection = store.request_slot.get_or_connect(limit).await?;
    // Once per slot and connection: only a new connection can lead to a server
    // that has lost fences.
    let clock = if connection.is_fence_checked(keys.slot) { "0" } else { "1" };
    let call = ScriptCall::acquire(
        vec![&keys.lock, &keys.fence, &tombstone, &keys.waiters_flag, &keys.queue, &keys.entries],
        vec![request.token.expose(), &kept, &floor, clock, &wait, &place],
    );
    let answer = parse_response(&call.run(&store.request_slot, &connection, limit).await?)?;
    if matches!(answer, AcquireResponse::Granted(_)) {
        connection.mark_fence_checked(keys.slot);
        if store.wait_replicas() > 0 {
            wait_for_replicas(store, request, &connection, limit).await?;
        }
    }
    Ok(answer)
}

/// Waits until enough replicas have the grant, or releases it again (hazard R7). This makes a loss
/// by fail-over less likely; it does not rule it out.
async fn wait_for_replicas(
    store: &Context,
    request: &AcquireRequest,
    connection: &Connection,
    limit: &CallDeadline<'_>,
) -> Result<(), StoreError> {
    let wanted = store.wait_replicas();
    // `WAIT` with 0 would wait for ever. Half of the remaining time is kept for the release.
    let timeout = u64::try_from((limit.remaining() / 2).as_millis()).unwrap_or(u64::MAX).max(1);
    let mut command = redis::cmd("WAIT");
    command.arg(wanted).arg(timeout);
    let message = match store.request_slot.send(connection, &command, limit).await {
        Ok(Value::Int(have)) if have >= i64::from(wanted) => return Ok(()),
        Ok(Value::Int(have)) => format!("only {have} of {wanted} replicas confirmed the grant"),
        Ok(Value::ServerError(err)) => error::from_server(&err).message().to_owned(),
        Ok(_) => error::unexpected_response("WAIT").message().to_owned(),
        Err(failure) => failure.message().to_owned(),
    };
    let undo = ReleaseRequest::by_owner(request.names.clone(), request.token.clone());
    match crate::release::release(store, &undo, limit.remaining()).await {
        Ok(_) => Err(StoreError::not_done(
            StoreErrorKind::Overloaded,
            format!("{message}, so it was taken back; fix replication or lower wait_replicas"),
        )),
        Err(failure) => Err(StoreError::unknown(
            StoreErrorKind::Overloaded,
            format!("{message}, and taking it back failed too: {}", failure.message()),
        )),
    }
}

/// How long the server keeps a lease. Never 0: that would delete the lock (hazard R13).
pub(crate) fn lease_millis(ttl: Ttl, delay: Duration) -> Result<u64, StoreError> {
    if delay > MAX_LOCK_DELAY {
        return Err(StoreError::not_done(
            StoreErrorKind::Misconfigured,
            format!("a lock delay of {delay:?} is too long; at most {MAX_LOCK_DELAY:?} is allowed"),
        ));
    }
    let delay = u64::try_from(delay.as_millis()).unwrap_or(u64::MAX);
    Ok(ttl.as_millis().saturating_add(delay))
}

fn parse_response(value: &Value) -> Result<AcquireResponse, StoreError> {
    let nonsense = || error::unexpected_response("an acquire");
    match value {
        Value::Int(0) => Ok(AcquireResponse::Void),
        // Fences travel as decimal text, because Lua counts in doubles (hazard R19).
        Value::BulkString(_) => {
            let fence = as_text(value).and_then(|fence| fence.parse().ok()).ok_or_else(nonsense)?;
            Ok(AcquireResponse::Granted(Grant::new(fence)))
        }
        Value::Array(parts) => {
            let [value, Value::Int(left), Value::Int(queued)] = parts.as_slice() else {
                return Err(nonsense());
            };
            let seen = match value {
                Value::BulkString(bytes) => LockValue::parse(bytes),
                _ => LockValue::wrong_type(),
            };
            let busy = BusyLease::new(seen.holder)
                .with_class(seen.class)
                .with_fence(seen.fence)
                .with_remaining(pttl_to_remaining(*left))
                .with_queued(*queued == 1);
            Ok(AcquireResponse::Busy(busy))
        }
        _ => Err(nonsense()),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn r13_leases_are_never_zero_and_never_overflow(
            ttl in 100_u64..=86_400_000,
            // Half of the values are around the limit.
            secs in prop_oneof![0_u64..63_072_000, any::<u64>()],
            nanos in 0_u32..1_000_000_000,
        ) {
            let ttl = Ttl::new(Duration::from_millis(ttl)).unwrap();
            let delay = Duration::new(secs, nanos);
            match lease_millis(ttl, delay) {
                Ok(millis) => {
                    prop_assert!((100..1 << 36).contains(&millis));
                    prop_assert_eq!(u128::from(millis), u128::from(ttl.as_millis()) + delay.as_millis());
                }
                Err(failure) => prop_assert!(!failure.unknown),
            }
        }
    }

    #[test]
    fn malformed_responses_are_unknown_not_grants() {
        for odd in [
            Value::Nil,
            Value::Okay,
            Value::Array(vec![]),
            Value::Array(vec![Value::Int(1)]),
            Value::BulkString(b"1.79e+15".to_vec()),
        ] {
            assert!(parse_response(&odd).unwrap_err().unknown);
        }
    }
}

//! Asking for a lease: one round trip, granted or not.

use std::time::Duration;

use leasehold_core::store::{Answer, Ask, Busy, Cause, Failure, Giving, Grant, Mode};
use leasehold_core::word::{Fence, Ttl};
use redis::Value;

use crate::connection::{Limit, Wire, text};
use crate::error;
use crate::keys::LockKeys;
use crate::script::Call;
use crate::store::Shared;
use crate::value::{Seen, remaining};

/// The longest lock delay: beyond it a forgotten lock would outlive every memory of it.
const DELAY_MAX: Duration = Duration::from_secs(365 * 24 * 60 * 60);
/// The longest place in the queue without asking again.
const QUEUE_MAX: Duration = Ttl::MAX.get();

pub(crate) async fn acquire(store: &Shared, ask: &Ask, within: Duration) -> Result<Answer, Failure> {
    if ask.mode != Mode::Exclusive {
        return Err(Failure::not_done(
            Cause::Unsupported,
            "the Redis store serves exclusive leases only; use a store that serves this mode",
        ));
    }
    let limit = Limit::new(store.clock(), within);
    let keys = store.keys().of(&ask.name);
    let Some(wait) = ask.queue else {
        return attempt(store, ask, &keys, None, &limit).await;
    };
    if !store.ear.subscribed() {
        // A waiter that cannot be woken would be taken for dead and lose its place: ask without queueing, and
        // only if it is busy, wait for the subscription. A free lock is not made to wait for it.
        let first = attempt(store, ask, &keys, None, &limit).await?;
        if !matches!(first, Answer::Busy(_)) || !store.ear.ready(&limit.half()).await {
            return Ok(first);
        }
    }
    attempt(store, ask, &keys, Some(wait), &limit).await
}

async fn attempt(
    store: &Shared,
    ask: &Ask,
    keys: &LockKeys,
    wait: Option<Duration>,
    limit: &Limit<'_>,
) -> Result<Answer, Failure> {
    let kept = lease_millis(ask.ttl, ask.lock_delay)?.to_string();
    let floor = ask.floor.map_or_else(String::new, |floor| floor.to_string());
    let (wait, place) = match wait {
        Some(wait) => (
            wait.clamp(Duration::from_millis(1), QUEUE_MAX)
                .as_millis()
                .to_string(),
            format!(
                "{}|{}",
                store.ear.place(&ask.token),
                ask.floor.map_or(0, Fence::get)
            ),
        ),
        None => (String::new(), String::new()),
    };
    let tombstone = keys.tombstone(&ask.token);
    let wire = store.asking.wire(limit).await?;
    // Once per slot and connection: only a new connection can lead to a server that has lost fences.
    let clock = if wire.checked(keys.slot) { "0" } else { "1" };
    let call = Call::acquire(
        vec![
            &keys.lock,
            &keys.fence,
            &tombstone,
            &keys.flag,
            &keys.queue,
            &keys.places,
        ],
        vec![ask.token.expose(), &kept, &floor, clock, &wait, &place],
    );
    let answer = read(&call.run(&store.asking, &wire, limit).await?)?;
    if matches!(answer, Answer::Granted(_)) {
        wire.mark_checked(keys.slot);
        if store.wait_replicas() > 0 {
            confirm(store, ask, &wire, limit).await?;
        }
    }
    Ok(answer)
}

/// Waits until enough replicas have the grant, or takes it back (hazard R7). This makes it less likely that a
/// fail-over forgets the lease; it does not rule it out.
async fn confirm(store: &Shared, ask: &Ask, wire: &Wire, limit: &Limit<'_>) -> Result<(), Failure> {
    let wanted = store.wait_replicas();
    // `WAIT` with 0 would wait for ever. Half the time is kept for taking the grant back.
    let patience = u64::try_from((limit.left() / 2).as_millis())
        .unwrap_or(u64::MAX)
        .max(1);
    let mut command = redis::cmd("WAIT");
    command.arg(wanted).arg(patience);
    let said = match store.asking.send(wire, &command, limit).await {
        Ok(Value::Int(have)) if have >= i64::from(wanted) => return Ok(()),
        Ok(Value::Int(have)) => format!("only {have} of {wanted} replicas confirmed the grant"),
        Ok(Value::ServerError(err)) => error::from_server(&err).message().to_owned(),
        Ok(_) => error::nonsense("WAIT").message().to_owned(),
        Err(failure) => failure.message().to_owned(),
    };
    let giving = Giving::owned(ask.name.clone(), ask.token.clone());
    match crate::release::release(store, &giving, limit.left()).await {
        Ok(_) => Err(Failure::not_done(
            Cause::Overloaded,
            format!("{said}, so it was taken back; mend replication or lower wait_replicas"),
        )),
        Err(failure) => Err(Failure::unknown(
            Cause::Overloaded,
            format!("{said}, and taking it back failed too: {}", failure.message()),
        )),
    }
}

/// What the server is told to keep a lease for. Never 0: that would delete the lock (hazard R13).
pub(crate) fn lease_millis(ttl: Ttl, delay: Duration) -> Result<u64, Failure> {
    if delay > DELAY_MAX {
        return Err(Failure::not_done(
            Cause::Misconfigured,
            format!("a lock delay of {delay:?} is too long; at most {DELAY_MAX:?} is allowed"),
        ));
    }
    let delay = u64::try_from(delay.as_millis()).unwrap_or(u64::MAX);
    Ok(ttl.as_millis().saturating_add(delay))
}

fn read(value: &Value) -> Result<Answer, Failure> {
    let nonsense = || error::nonsense("an acquire");
    match value {
        Value::Int(0) => Ok(Answer::Void),
        Value::BulkString(_) => {
            let fence = text(value)
                .and_then(|fence| fence.parse().ok())
                .ok_or_else(nonsense)?;
            Ok(Answer::Granted(Grant { fence, ttl: None }))
        }
        Value::Array(parts) => {
            let [value, Value::Int(left), Value::Int(queued)] = parts.as_slice() else {
                return Err(nonsense());
            };
            let seen = match value {
                Value::BulkString(bytes) => Seen::read(bytes),
                _ => Seen::of_another_type(),
            };
            Ok(Answer::Busy(Busy {
                holder: seen.holder,
                class: seen.class,
                fence: seen.fence,
                remaining: remaining(*left),
                queued: *queued == 1,
            }))
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
            // Half of them around the longest that is allowed.
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
    fn odd_answers_are_unknown_not_grants() {
        for odd in [
            Value::Nil,
            Value::Okay,
            Value::Array(vec![]),
            Value::Array(vec![Value::Int(1)]),
            Value::BulkString(b"1.79e+15".to_vec()),
        ] {
            assert!(read(&odd).unwrap_err().unknown);
        }
    }
}

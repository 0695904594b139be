//! Reads one lock, or all locks under a prefix.

use std::collections::BTreeMap;
use std::time::Duration;

use leasehold_core::store::{Lease, LeaseList, StoreError, StoreErrorKind};
use leasehold_core::types::Name;
use redis::Value;

use crate::backend::Context;
use crate::connection::{CallDeadline, as_text};
use crate::error;
use crate::script::{ScriptCall, run_batch};
use crate::value::{LockValue, pttl_to_remaining};

/// `COUNT` of one `SCAN` step: the number of keys it checks.
const SCAN_COUNT: u32 = 1000;
/// Limit of `SCAN` steps, so that a listing ends even if the keyspace grows faster than it is read.
const MAX_SCAN_STEPS: u32 = 20_000;
/// Number of locks inspected in one batch.
const INSPECT_BATCH_SIZE: usize = 128;

pub(crate) async fn inspect(store: &Context, name: &Name, within: Duration) -> Result<LeaseList, StoreError> {
    let limit = CallDeadline::new(store.clock(), within);
    let keys = store.keys().lock_keys(name);
    let call = ScriptCall::inspect(vec![&keys.lock, &keys.queue]);
    let look = async {
        let connection = store.request_slot.get_or_connect(&limit).await?;
        call.run(&store.request_slot, &connection, &limit).await
    };
    Ok(LeaseList::new(parse_response(name, &look.await.map_err(error::into_not_done)?)?))
}

pub(crate) async fn list(
    store: &Context,
    prefix: &str,
    limit: usize,
    within: Duration,
) -> Result<LeaseList, StoreError> {
    let time = CallDeadline::new(store.clock(), within);
    let (found, truncated) = scan(store, prefix, limit, &time).await.map_err(error::into_not_done)?;
    let keys: Vec<_> = found.keys().map(|name| (name, store.keys().lock_keys(name))).collect();
    let mut leases = Vec::with_capacity(keys.len());
    for chunk in keys.chunks(INSPECT_BATCH_SIZE) {
        let calls: Vec<_> =
            chunk.iter().map(|(_, keys)| ScriptCall::inspect(vec![&keys.lock, &keys.queue])).collect();
        let connection = store.request_slot.get_or_connect(&time).await?;
        let answers =
            run_batch(&calls, &store.request_slot, &connection, &time).await.map_err(error::into_not_done)?;
        for ((name, _), answer) in chunk.iter().zip(answers) {
            // A lock that ended since the scan is no longer live, so it is not listed.
            leases.extend(parse_response(name, &answer.map_err(error::into_not_done)?)?);
        }
    }
    Ok(LeaseList::new(leases).with_truncated(truncated))
}

/// The first `limit` names in order, and whether there were more. Memory is bounded by `limit`.
async fn scan(
    store: &Context,
    prefix: &str,
    limit: usize,
    time: &CallDeadline<'_>,
) -> Result<(BTreeMap<Name, ()>, bool), StoreError> {
    let (mut names, mut truncated) = (BTreeMap::new(), false);
    for pattern in store.keys().patterns(prefix) {
        let (mut cursor, mut steps) = ("0".to_owned(), 0);
        loop {
            let mut command = redis::cmd("SCAN");
            command.arg(&cursor).arg("MATCH").arg(&pattern).arg("COUNT").arg(SCAN_COUNT);
            let connection = store.request_slot.get_or_connect(time).await?;
            let (next, keys) =
                parse_scan_response(store.request_slot.send(&connection, &command, time).await?)?;
            for key in keys {
                // `MATCH` is only a coarse filter: a longer rule may own a key
                // that the pattern matches.
                let name = as_text(&key).and_then(|key| store.keys().name(key));
                if let Some(name) = name.filter(|name| name.as_str().starts_with(prefix)) {
                    names.insert(name, ());
                    if names.len() > limit {
                        names.pop_last();
                        truncated = true;
                    }
                }
            }
            steps += 1;
            if next == "0" {
                break;
            }
            if steps >= MAX_SCAN_STEPS {
                truncated = true;
                break;
            }
            cursor = next;
        }
    }
    Ok((names, truncated))
}

fn parse_scan_response(answer: Value) -> Result<(String, Vec<Value>), StoreError> {
    match answer {
        Value::ServerError(err) => Err(error::from_server(&err)),
        Value::Array(parts) => match <[Value; 2]>::try_from(parts) {
            Ok([cursor, Value::Array(keys)]) => {
                let cursor = as_text(&cursor).ok_or_else(|| error::unexpected_response("SCAN"))?;
                Ok((cursor.to_owned(), keys))
            }
            _ => Err(error::unexpected_response("SCAN")),
        },
        _ => Err(error::unexpected_response("SCAN")),
    }
}

fn parse_response(name: &Name, value: &Value) -> Result<Option<Lease>, StoreError> {
    // A read changes nothing, so even a malformed reply is a definite error.
    let odd = || {
        StoreError::not_done(StoreErrorKind::Corrupt, error::unexpected_response("an inspection").message())
    };
    let Value::Array(parts) = value else {
        return Err(odd());
    };
    let [Value::Int(pttl), value, Value::Int(waiters)] = parts.as_slice() else {
        return Err(odd());
    };
    if *pttl == -2 {
        return Ok(None);
    }
    let seen = match value {
        Value::BulkString(bytes) => LockValue::parse(bytes),
        _ => LockValue::wrong_type(),
    };
    Ok(Some(
        Lease::new(name.clone(), seen.holder)
            .with_class(seen.class)
            .with_fence(seen.fence)
            .with_remaining(pttl_to_remaining(*pttl))
            .with_waiters(u64::try_from(*waiters).ok()),
    ))
}

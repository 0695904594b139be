//! Looking: one lock, or all whose names begin alike.

use std::collections::BTreeMap;
use std::time::Duration;

use leasehold_core::store::{Cause, Failure, Lease, Listing};
use leasehold_core::word::Name;
use redis::Value;

use crate::connection::{Limit, text};
use crate::error;
use crate::script::{Call, run_all};
use crate::store::Shared;
use crate::value::{Seen, remaining};

/// How many keys one `SCAN` step looks at.
const SCAN_COUNT: u32 = 1000;
/// How many steps a listing takes at most: it ends even if the keyspace grows faster than it is read.
const SCAN_STEPS: u32 = 20_000;
/// How many locks are looked at in one batch.
const CHUNK: usize = 128;

pub(crate) async fn inspect(store: &Shared, name: &Name, within: Duration) -> Result<Option<Lease>, Failure> {
    let limit = Limit::new(store.clock(), within);
    let keys = store.keys().of(name);
    let call = Call::inspect(vec![&keys.lock, &keys.queue]);
    let look = async {
        let wire = store.asking.wire(&limit).await?;
        call.run(&store.asking, &wire, &limit).await
    };
    read(name, &look.await.map_err(error::read_only)?)
}

pub(crate) async fn list(
    store: &Shared,
    prefix: &str,
    limit: usize,
    within: Duration,
) -> Result<Listing, Failure> {
    let time = Limit::new(store.clock(), within);
    let (found, truncated) = scan(store, prefix, limit, &time)
        .await
        .map_err(error::read_only)?;
    let keys: Vec<_> = found.keys().map(|name| (name, store.keys().of(name))).collect();
    let mut leases = Vec::with_capacity(keys.len());
    for chunk in keys.chunks(CHUNK) {
        let calls: Vec<_> = chunk
            .iter()
            .map(|(_, keys)| Call::inspect(vec![&keys.lock, &keys.queue]))
            .collect();
        let wire = store.asking.wire(&time).await?;
        let answers = run_all(&calls, &store.asking, &wire, &time)
            .await
            .map_err(error::read_only)?;
        for ((name, _), answer) in chunk.iter().zip(answers) {
            // A lock that ended since the scan is not live any more, and so not listed.
            leases.extend(read(name, &answer.map_err(error::read_only)?)?);
        }
    }
    Ok(Listing { leases, truncated })
}

/// The first `limit` names in order, and whether there were more. Keeps no more than that in memory.
async fn scan(
    store: &Shared,
    prefix: &str,
    limit: usize,
    time: &Limit<'_>,
) -> Result<(BTreeMap<Name, ()>, bool), Failure> {
    let (mut names, mut truncated) = (BTreeMap::new(), false);
    for pattern in store.keys().patterns(prefix) {
        let (mut cursor, mut steps) = ("0".to_owned(), 0);
        loop {
            let mut command = redis::cmd("SCAN");
            command
                .arg(&cursor)
                .arg("MATCH")
                .arg(&pattern)
                .arg("COUNT")
                .arg(SCAN_COUNT);
            let wire = store.asking.wire(time).await?;
            let (next, keys) = step(store.asking.send(&wire, &command, time).await?)?;
            for key in keys {
                let name = text(&key).and_then(|key| store.keys().name(key));
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
            if steps >= SCAN_STEPS {
                truncated = true;
                break;
            }
            cursor = next;
        }
    }
    Ok((names, truncated))
}

fn step(answer: Value) -> Result<(String, Vec<Value>), Failure> {
    match answer {
        Value::ServerError(err) => Err(error::from_server(&err)),
        Value::Array(parts) => match <[Value; 2]>::try_from(parts) {
            Ok([cursor, Value::Array(keys)]) => {
                let cursor = text(&cursor).ok_or_else(|| error::nonsense("SCAN"))?;
                Ok((cursor.to_owned(), keys))
            }
            _ => Err(error::nonsense("SCAN")),
        },
        _ => Err(error::nonsense("SCAN")),
    }
}

fn read(name: &Name, value: &Value) -> Result<Option<Lease>, Failure> {
    let odd = || Failure::not_done(Cause::Corrupt, error::nonsense("an inspection").message());
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
        Value::BulkString(bytes) => Seen::read(bytes),
        _ => Seen::of_another_type(),
    };
    Ok(Some(Lease {
        name: name.clone(),
        holder: seen.holder,
        class: seen.class,
        fence: seen.fence,
        remaining: remaining(*pttl),
        age: None,
        waiters: u64::try_from(*waiters).ok(),
    }))
}

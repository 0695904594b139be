//! What the server, as configured now, promises about an acknowledged lease.
//!
//! Read from `INFO` on each call, because the server may have been restarted or
//! replaced with another configuration.

use std::collections::HashMap;
use std::time::Duration;

use leasehold_core::store::{Promise, PromiseReport, StoreError, StoreErrorKind};
use redis::Value;

use crate::backend::Context;
use crate::connection::{CallDeadline, as_text};
use crate::error;

pub(crate) async fn promise(store: &Context, within: Duration) -> Result<PromiseReport, StoreError> {
    let limit = CallDeadline::new(store.clock(), within);
    let acquire = async {
        let connection = store.request_slot.get_or_connect(&limit).await?;
        store.request_slot.send(&connection, &redis::cmd("INFO"), &limit).await
    };
    let answer = match acquire.await.map_err(error::into_not_done)? {
        Value::ServerError(err) => return Err(error::into_not_done(error::from_server(&err))),
        other => other,
    };
    let info = as_text(&answer).ok_or_else(|| error::into_not_done(error::unexpected_response("INFO")))?;
    derive_promise(&parse_info(info), store.wait_replicas())
}

pub(crate) fn parse_info(info: &str) -> HashMap<&str, &str> {
    info.lines().filter_map(|line| line.trim_end().split_once(':')).collect()
}

pub(crate) fn derive_promise(
    info: &HashMap<&str, &str>,
    wait_replicas: u32,
) -> Result<PromiseReport, StoreError> {
    let field = |key: &str| info.get(key).copied().unwrap_or_default();
    if field("role") == "slave" {
        return Err(StoreError::not_done(
            StoreErrorKind::ReadOnly,
            "this server is a replica and promises nothing; connect to the primary",
        ));
    }
    let mut because = Vec::new();
    let logged = field("aof_enabled") == "1";
    if !logged {
        because.push(
            "appendonly is off: a restart or crash loses the leases and fence counters since the last snapshot, or \
             all of them; set `appendonly yes`"
                .to_owned(),
        );
    }
    let policy = field("maxmemory_policy");
    let kept = policy == "noeviction";
    if !kept {
        let what = if policy.starts_with("volatile") {
            "locks have a time to live and so are the first to go"
        } else {
            "locks and fence counters may go at any time"
        };
        because.push(format!(
            "maxmemory-policy is {policy:?}: when memory runs out, {what}; set `maxmemory-policy noeviction`"
        ));
    }
    let written = field("aof_last_write_status") != "err";
    if logged && !written {
        because.push(
            "the append-only file could not be written last time; look at the server's disk".to_owned(),
        );
    }
    let durable = logged && kept && written;
    if durable {
        because.push(
            "with appendfsync everysec (the default) a power loss can lose the last second, and a crash of Redis on \
             a slow disk what the server had put off writing; `appendfsync always` closes that gap"
                .to_owned(),
        );
    }
    // Replication does not change the level of the promise: it is asynchronous, so a
    // fail-over can lose any lease.
    let replicas = field("connected_slaves").parse().unwrap_or(0_u32);
    if replicas > 0 && wait_replicas == 0 {
        because.push(format!(
            "{replicas} replica(s) follow asynchronously: a fail-over can forget a lease that was acknowledged; \
             wait_replicas=1 makes that less likely, only a fence checked where the data lives makes it harmless"
        ));
    }
    if wait_replicas > replicas {
        because.push(format!(
            "wait_replicas={wait_replicas}, but {replicas} replica(s) are connected: no lease can be granted; \
             connect replicas or lower it"
        ));
    }
    let promise = if durable { Promise::Durable } else { Promise::Volatile };
    Ok(PromiseReport::new(promise).with_limits(because))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn promise_of(info: &str, wait_replicas: u32) -> PromiseReport {
        derive_promise(&parse_info(info), wait_replicas).unwrap()
    }

    #[test]
    fn r09_r11_only_a_log_without_eviction_is_durable() {
        let good = "role:master\r\naof_enabled:1\r\nmaxmemory_policy:noeviction\r\nconnected_slaves:0\r\n";
        assert_eq!(promise_of(good, 0).promise, Promise::Durable);
        for (bad, why) in [
            (good.replace("aof_enabled:1", "aof_enabled:0"), "appendonly yes"),
            (good.replace("noeviction", "volatile-lru"), "first to go"),
            (good.replace("noeviction", "allkeys-lfu"), "fence counters"),
            (format!("{good}aof_last_write_status:err\r\n"), "disk"),
            (String::new(), "appendonly"),
        ] {
            let judged = promise_of(&bad, 0);
            assert_eq!(judged.promise, Promise::Volatile, "{bad}");
            assert!(judged.limits.join(" ").contains(why), "{:?}", judged.limits);
        }
    }

    #[test]
    fn r07_asynchronous_replicas_are_a_finding() {
        let info = "role:master\naof_enabled:1\nmaxmemory_policy:noeviction\nconnected_slaves:2\n";
        assert!(promise_of(info, 0).limits.join(" ").contains("fail-over"));
        assert!(!promise_of(info, 1).limits.join(" ").contains("fail-over"));
        assert!(promise_of(info, 3).limits.join(" ").contains("no lease can be granted"));
    }

    #[test]
    fn a_replica_promises_nothing() {
        assert_eq!(
            derive_promise(&parse_info("role:slave\n"), 0).unwrap_err().kind,
            StoreErrorKind::ReadOnly
        );
    }
}

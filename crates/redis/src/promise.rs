//! What this server, as it is configured right now, promises about a lease it has acknowledged.
//!
//! Read from `INFO` each time it is asked, so a server that was restarted or replaced with another configuration is
//! judged by that one.

use std::collections::HashMap;
use std::time::Duration;

use leasehold_core::store::{Cause, Failure, Promise, Promised};
use redis::Value;

use crate::connection::{Limit, text};
use crate::error;
use crate::store::Shared;

pub(crate) async fn promise(store: &Shared, within: Duration) -> Result<Promised, Failure> {
    let limit = Limit::new(store.clock(), within);
    let asking = async {
        let wire = store.asking.wire(&limit).await?;
        store.asking.send(&wire, &redis::cmd("INFO"), &limit).await
    };
    let answer = match asking.await.map_err(error::read_only)? {
        Value::ServerError(err) => return Err(error::read_only(error::from_server(&err))),
        other => other,
    };
    let info = text(&answer).ok_or_else(|| error::read_only(error::nonsense("INFO")))?;
    judge(&fields(info), store.wait_replicas())
}

pub(crate) fn fields(info: &str) -> HashMap<&str, &str> {
    info.lines()
        .filter_map(|line| line.trim_end().split_once(':'))
        .collect()
}

pub(crate) fn judge(info: &HashMap<&str, &str>, wait_replicas: u32) -> Result<Promised, Failure> {
    let field = |key: &str| info.get(key).copied().unwrap_or_default();
    if field("role") == "slave" {
        return Err(Failure::not_done(
            Cause::ReadOnly,
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
    Ok(Promised {
        promise: if durable {
            Promise::Durable
        } else {
            Promise::Volatile
        },
        because,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(info: &str, wait_replicas: u32) -> Promised {
        judge(&fields(info), wait_replicas).unwrap()
    }

    #[test]
    fn r09_r11_only_a_log_without_eviction_is_durable() {
        let good = "role:master\r\naof_enabled:1\r\nmaxmemory_policy:noeviction\r\nconnected_slaves:0\r\n";
        assert_eq!(judged(good, 0).promise, Promise::Durable);
        for (bad, why) in [
            (good.replace("aof_enabled:1", "aof_enabled:0"), "appendonly yes"),
            (good.replace("noeviction", "volatile-lru"), "first to go"),
            (good.replace("noeviction", "allkeys-lfu"), "fence counters"),
            (format!("{good}aof_last_write_status:err\r\n"), "disk"),
            (String::new(), "appendonly"),
        ] {
            let judged = judged(&bad, 0);
            assert_eq!(judged.promise, Promise::Volatile, "{bad}");
            assert!(judged.because.join(" ").contains(why), "{:?}", judged.because);
        }
    }

    #[test]
    fn r07_asynchronous_replicas_are_a_finding() {
        let info = "role:master\naof_enabled:1\nmaxmemory_policy:noeviction\nconnected_slaves:2\n";
        assert!(judged(info, 0).because.join(" ").contains("fail-over"));
        assert!(!judged(info, 1).because.join(" ").contains("fail-over"));
        assert!(
            judged(info, 3)
                .because
                .join(" ")
                .contains("no lease can be granted")
        );
    }

    #[test]
    fn a_replica_promises_nothing() {
        assert_eq!(
            judge(&fields("role:slave\n"), 0).unwrap_err().cause,
            Cause::ReadOnly
        );
    }
}

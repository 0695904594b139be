//! What can be wrong with a Redis server for locks, found out on one connection of its own.
//!
//! Each hazard of `docs/hazards.md` that a client can see has its finding. Nothing is written.

use std::collections::HashMap;
use std::time::{Duration, SystemTime};

use leasehold_core::clock::Clock;
use leasehold_core::store::{Cause, Examination, Failure, Finding};
use redis::aio::MultiplexedConnection;
use redis::{Cmd, PushInfo, Value};

use crate::connection::{Dialer, Limit, text};
use crate::error;
use crate::options::RedisOptions;
use crate::promise::{fields, judge};

/// How often the way there and back is measured.
const PINGS: usize = 7;
/// The oldest version with everything that our scripts and the protocol need.
const OLDEST: (u32, u32) = (6, 2);
/// A clock that is off by more than this is not kept by anyone.
const OFF: Duration = Duration::from_secs(1);
/// A server this full turns clients away soon.
const CROWDED: f64 = 0.8;

type Info<'a> = HashMap<&'a str, &'a str>;

/// Examines a server.
///
/// # Errors
/// It could not be reached or does not answer, so nothing can be said about it. A server that refuses us is a finding.
pub async fn examine(options: &RedisOptions, within: Duration) -> Result<Examination, Failure> {
    let mut out = Examination::default();
    let dialer = Dialer {
        options: options.clone(),
    };
    let clock = std::sync::Arc::clone(&options.clock);
    let limit = Limit::new(&*clock, within);
    let deaf = |_: PushInfo| Ok::<(), redis::aio::SendError>(());
    let late = || {
        Failure::not_done(
            Cause::Unreachable,
            format!("{} did not answer in time", options.describe()),
        )
    };
    let connection = match limit
        .run(dialer.connect(deaf))
        .await
        .unwrap_or_else(|| Err(late()))
    {
        Ok(connection) => connection,
        Err(failure) if failure.cause == Cause::Denied => {
            out.found(Finding::breaks(
                "redis.access",
                format!("the server refuses us: {}", failure.message()),
                "name the ACL user in the URL and its password's file with password_file=",
            ));
            return Ok(out);
        }
        Err(failure) => return Err(failure),
    };
    let mut asker = Asker {
        connection,
        limit: &limit,
        place: options.describe(),
    };
    round_trip(&mut asker, &mut out).await?;
    if let Some(info) = permitted(asker.ask(&redis::cmd("INFO")).await?, "INFO", "+info", &mut out) {
        let info = text(&info).ok_or_else(|| error::nonsense("INFO"))?.to_owned();
        read_info(&fields(&info), options, &mut out);
    }
    if let Some(time) = permitted(asker.ask(&redis::cmd("TIME")).await?, "TIME", "+time", &mut out) {
        judge_clock(&time, &*clock, out.round_trip.unwrap_or_default(), &mut out);
    }
    settings(&mut asker, &mut out).await?;
    out.sort();
    Ok(out)
}

/// Asks on one connection, within one limit.
struct Asker<'a> {
    connection: MultiplexedConnection,
    limit: &'a Limit<'a>,
    place: String,
}

impl Asker<'_> {
    async fn ask(&mut self, cmd: &Cmd) -> Result<Value, Failure> {
        match self.limit.run(self.connection.send_packed_command(cmd)).await {
            Some(Ok(value)) => Ok(value),
            Some(Err(err)) => Err(error::read_only(error::from_transport(err))),
            None => Err(Failure::not_done(
                Cause::TimedOut,
                format!("no answer from {} in the time given", self.place),
            )),
        }
    }
}

/// An answer, or the finding that we may not ask for it.
fn permitted(answer: Value, command: &str, right: &str, out: &mut Examination) -> Option<Value> {
    let Value::ServerError(err) = &answer else {
        return Some(answer);
    };
    let said = err.details().unwrap_or_default();
    out.found(if err.code() == "NOPERM" {
        Finding::breaks(
            "redis.permission",
            format!("the user may not run {command} ({said}), so what it would tell is not known"),
            format!("give the user {right}: see the ACL line in docs/stores/redis.md"),
        )
    } else {
        Finding::breaks(
            "redis.serving",
            format!("the server does not serve: {} {said}", err.code()),
            "wait until it has loaded, or look at its log",
        )
    });
    None
}

async fn round_trip(asker: &mut Asker<'_>, out: &mut Examination) -> Result<(), Failure> {
    let mut took = Vec::with_capacity(PINGS);
    for _ in 0..PINGS {
        let before = asker.limit.now();
        // An error is an answer too, as far as time goes.
        asker.ask(&redis::cmd("PING")).await?;
        took.push(asker.limit.now().since(before));
    }
    took.sort_unstable();
    out.round_trip = took.get(took.len() / 2).copied();
    Ok(())
}

fn read_info(info: &Info<'_>, options: &RedisOptions, out: &mut Examination) {
    let field = |key: &str| info.get(key).copied().unwrap_or_default();
    out.fact("version", field("redis_version"));
    out.fact("role", field("role"));
    version(field("redis_version"), out);
    if field("redis_mode") == "sentinel" {
        out.found(Finding::breaks(
            "redis.sentinel",
            "this is a Sentinel, which keeps no data",
            "connect to the primary it watches",
        ));
        return;
    }
    if field("cluster_enabled") == "1" {
        out.found(Finding::breaks(
            "redis.cluster",
            "this is a node of a Redis Cluster: it answers MOVED for names of other nodes",
            "use a single server; a cluster is not supported",
        ));
    }
    if field("role") == "slave" {
        out.found(Finding::breaks(
            "redis.replica",
            format!(
                "this server is a replica of {}:{}: it cannot be written to, and what it shows is the past",
                field("master_host"),
                field("master_port")
            ),
            "connect to the primary",
        ));
    } else if let Ok(promised) = judge(info, options.wait_replicas) {
        out.promised = Some(promised);
    }
    if field("loading") == "1" {
        out.found(Finding::breaks(
            "redis.loading",
            "the server is still loading its data and refuses every lock",
            "wait until it has loaded",
        ));
    }
    eviction(info, out);
    persistence(info, out);
    replication(info, options.wait_replicas, out);
    clients(info, out);
}

fn version(version: &str, out: &mut Examination) {
    let mut parts = version.split('.').map(|part| part.parse::<u32>().unwrap_or(0));
    let found = (parts.next().unwrap_or(0), parts.next().unwrap_or(0));
    if found < OLDEST && !version.is_empty() {
        out.found(Finding::breaks(
            "redis.version",
            format!(
                "version {version} is older than {}.{}, which our scripts need",
                OLDEST.0, OLDEST.1
            ),
            "update the server; 7.0 and later are tested",
        ));
    } else if found < (7, 0) {
        out.found(Finding::note(
            "redis.version",
            format!("version {version} is older than what is tested"),
            "7.0 and later are tested",
        ));
    }
}

/// Hazard R11.
fn eviction(info: &Info<'_>, out: &mut Examination) {
    let policy = info.get("maxmemory_policy").copied().unwrap_or("noeviction");
    let limit = info.get("maxmemory").copied().unwrap_or("0");
    let used = info.get("used_memory").copied().unwrap_or("0");
    let (limit, used) = (limit.parse().unwrap_or(0_u64), used.parse().unwrap_or(0_u64));
    if policy != "noeviction" {
        let what = if policy.starts_with("volatile") {
            "locks have a time to live and so are the first to go"
        } else {
            "locks and fence counters may go at any time"
        };
        let when = if limit == 0 {
            "should a maxmemory be set"
        } else {
            "when memory runs out"
        };
        out.found(Finding::breaks(
            "redis.eviction",
            format!("maxmemory-policy is {policy}: {when}, {what}, and someone else is granted a lock that is held"),
            "set `maxmemory-policy noeviction`, or give locks a server of their own",
        ));
    }
    if limit > 0 && used > limit / 10 * 9 {
        out.found(Finding::risk(
            "redis.memory",
            format!("{used} of {limit} bytes are used: soon locks are refused, or evicted"),
            "raise maxmemory, or move other data elsewhere",
        ));
    }
}

/// Hazards R8 and R9.
fn persistence(info: &Info<'_>, out: &mut Examination) {
    if info.get("aof_enabled") != Some(&"1") {
        out.found(Finding::breaks(
            "redis.persistence",
            "appendonly is off: a restart or crash of the server forgets locks that are held, and their fence counters",
            "set `appendonly yes` (and run `CONFIG REWRITE`, or put it into redis.conf)",
        ));
    } else if info.get("aof_last_write_status") == Some(&"err") {
        out.found(Finding::breaks(
            "redis.persistence",
            "the append-only file could not be written last time, so a restart forgets locks",
            "look at the server's disk and its log",
        ));
    }
    if info.get("rdb_last_bgsave_status") == Some(&"err") {
        out.found(Finding::risk(
            "redis.snapshot",
            "the last snapshot failed; with stop-writes-on-bgsave-error the server refuses every lock (MISCONF)",
            "look at the server's disk and its log",
        ));
    }
}

/// Hazards R7 and R20.
fn replication(info: &Info<'_>, wait_replicas: u32, out: &mut Examination) {
    let replicas = info
        .get("connected_slaves")
        .and_then(|count| count.parse().ok())
        .unwrap_or(0_u32);
    if replicas > 0 && wait_replicas == 0 {
        out.found(Finding::breaks(
            "redis.async-replicas",
            format!(
                "{replicas} replica(s) follow asynchronously: a fail-over can forget a lock that was granted, and grant it again"
            ),
            "write wait_replicas=1 in the URL to make it unlikely, and check the fence where the data lives to make it harmless",
        ));
    }
    if wait_replicas > replicas {
        out.found(Finding::breaks(
            "redis.wait-replicas",
            format!("wait_replicas={wait_replicas}, but {replicas} replica(s) are connected: no lock can be granted"),
            "connect replicas, or lower wait_replicas",
        ));
    }
}

fn clients(info: &Info<'_>, out: &mut Examination) {
    let number = |key: &str| info.get(key).and_then(|value| value.parse::<f64>().ok());
    if let (Some(now), Some(most)) = (number("connected_clients"), number("maxclients"))
        && most > 0.0
        && now / most > CROWDED
    {
        out.found(Finding::risk(
            "redis.clients",
            format!("{now} of at most {most} clients are connected: soon new ones are turned away, and holders cannot renew"),
            "raise maxclients (and the open-file limit), or find who leaks connections",
        ));
    }
}

/// Hazard R10.
fn judge_clock(time: &Value, clock: &dyn Clock, round_trip: Duration, out: &mut Examination) {
    let Value::Array(parts) = time else { return };
    let number = |at: usize| parts.get(at).and_then(text)?.parse::<u64>().ok();
    let (Some(seconds), Some(micros)) = (number(0), number(1)) else {
        return;
    };
    let theirs = Duration::from_secs(seconds) + Duration::from_micros(micros);
    let ours = clock
        .wall()
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default();
    let (off, way) = if theirs > ours {
        (theirs - ours, "ahead of")
    } else {
        (ours - theirs, "behind")
    };
    let ahead = if way == "behind" { "-" } else { "+" };
    out.fact("clock", format!("{ahead}{:.3}s", off.as_secs_f64()));
    if off > OFF + round_trip {
        out.found(Finding::breaks(
            "redis.clock",
            format!(
                "the server's clock is {:.1}s {way} this machine's: locks expire by it, so the jump that corrects it ends them \
                 early or late, and a step back lets fences of lost data repeat",
                off.as_secs_f64()
            ),
            "run a time service (chrony, ntpd) on the server and here; slew, do not step",
        ));
    }
}

/// What only `CONFIG` tells. Most users may not ask, and need not be able to.
async fn settings(asker: &mut Asker<'_>, out: &mut Examination) -> Result<(), Failure> {
    let answer = asker
        .ask(redis::cmd("CONFIG").arg("GET").arg("appendfsync"))
        .await?;
    let fsync = match &answer {
        Value::Map(pairs) => pairs.first().and_then(|(_, value)| text(value)),
        Value::Array(parts) => parts.get(1).and_then(text),
        _ => None,
    };
    let logged = out
        .promised
        .as_ref()
        .is_some_and(|promised| promised.promise >= leasehold_core::store::Promise::Durable);
    match fsync {
        Some("no") if logged => out.found(Finding::risk(
            "redis.fsync",
            "appendfsync is no: a power loss can forget locks of the last half minute",
            "set `appendfsync everysec`, or `always` for locks that must survive a power loss",
        )),
        Some("everysec") if logged => out.found(Finding::note(
            "redis.fsync",
            "appendfsync is everysec: a power loss can forget locks of the last second",
            "set `appendfsync always` if that matters; it costs speed",
        )),
        _ => {}
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn codes(info: &str, wait: &str) -> Vec<&'static str> {
        let options = RedisOptions::parse(&format!("redis://h?wait_replicas={wait}")).unwrap();
        let mut out = Examination::default();
        read_info(&fields(info), &options, &mut out);
        out.findings.iter().map(|finding| finding.code).collect()
    }

    const GOOD: &str = "redis_version:7.2.4\nrole:master\naof_enabled:1\nmaxmemory_policy:noeviction\nmaxmemory:0\n\
                        connected_slaves:0\nconnected_clients:3\nmaxclients:10000\n";

    #[test]
    fn a_good_server_has_no_findings() {
        assert!(codes(GOOD, "0").is_empty());
    }

    #[test]
    fn each_hazard_has_its_finding() {
        for (from, to, wait, code) in [
            ("noeviction", "volatile-lru", "0", "redis.eviction"),
            ("aof_enabled:1", "aof_enabled:0", "0", "redis.persistence"),
            (
                "connected_slaves:0",
                "connected_slaves:2",
                "0",
                "redis.async-replicas",
            ),
            (
                "connected_slaves:0",
                "connected_slaves:0",
                "1",
                "redis.wait-replicas",
            ),
            ("role:master", "role:slave", "0", "redis.replica"),
            ("7.2.4", "5.0.7", "0", "redis.version"),
            ("7.2.4", "6.2.1", "0", "redis.version"),
            (
                "connected_clients:3",
                "connected_clients:9000",
                "0",
                "redis.clients",
            ),
            (
                "maxmemory:0",
                "maxmemory:100\nused_memory:99",
                "0",
                "redis.memory",
            ),
            ("role:master", "role:master\nloading:1", "0", "redis.loading"),
            (
                "role:master",
                "role:master\ncluster_enabled:1",
                "0",
                "redis.cluster",
            ),
            (
                "role:master",
                "role:master\nredis_mode:sentinel",
                "0",
                "redis.sentinel",
            ),
            (
                "role:master",
                "role:master\naof_last_write_status:err",
                "0",
                "redis.persistence",
            ),
            (
                "role:master",
                "role:master\nrdb_last_bgsave_status:err",
                "0",
                "redis.snapshot",
            ),
        ] {
            let found = codes(&GOOD.replace(from, to), wait);
            assert_eq!(found, [code], "{to}");
        }
    }
}

//! Findings about a Redis server, made on a connection of its own, for `leasehold doctor`.
//!
//! Each hazard of `docs/hazards.md` that a client can detect has a finding. Writes nothing.

use std::collections::HashMap;
use std::time::{Duration, SystemTime};

use leasehold_core::clock::Clock;
use leasehold_core::store::{Examination, Finding, StoreError, StoreErrorKind};
use redis::aio::MultiplexedConnection;
use redis::{Cmd, PushInfo, Value};

use crate::connection::{CallDeadline, Connector, as_text};
use crate::error;
use crate::options::RedisOptions;
use crate::promise::{derive_promise, parse_info};
use crate::transport_check::check_transport;

/// Number of pings for the round-trip median.
const PING_COUNT: usize = 7;
/// Oldest version with all commands that the scripts and the protocol need.
const MIN_VERSION: (u32, u32) = (6, 2);
/// A clock that is off by more than this has no working time service.
const MAX_CLOCK_OFFSET: Duration = Duration::from_secs(1);
/// Share of `maxclients` above which the server will soon reject clients.
const CLIENT_COUNT_RISK_RATIO: f64 = 0.8;

type Info<'a> = HashMap<&'a str, &'a str>;

/// Examines a server and reports what can break locks on it.
///
/// # Errors
/// The server cannot be reached or does not respond. A server that denies
/// access is a finding, not an error.
pub async fn examine(options: &RedisOptions, within: Duration) -> Result<Examination, StoreError> {
    let mut out = Examination::default();
    check_transport(options, &mut out);
    let connector = Connector { options: options.clone() };
    let clock = std::sync::Arc::clone(&options.clock);
    let limit = CallDeadline::new(&*clock, within);
    // The connection needs a push handler, but an examination subscribes to nothing.
    let deaf = |_: PushInfo| Ok::<(), redis::aio::SendError>(());
    let late = || {
        StoreError::not_done(
            StoreErrorKind::Unreachable,
            format!("{} did not answer in time", options.describe()),
        )
    };
    let connection = match limit.run(connector.connect_any_role(deaf)).await.unwrap_or_else(|| Err(late())) {
        Ok(connection) => connection,
        Err(failure) if failure.kind == StoreErrorKind::Denied => {
            out.add_finding(
                Finding::breaks(
                    "redis.access",
                    format!("the server refuses us: {}", failure.message()),
                    "name the ACL user in the URL and its password's file with password_file=",
                )
                .fatal(),
            );
            return Ok(out);
        }
        Err(failure) => return Err(failure),
    };
    let mut client = ExamineConnection { connection, limit: &limit, url: options.describe() };
    measure_round_trip(&mut client, &mut out).await?;
    if let Some(info) = unless_denied(client.query(&redis::cmd("INFO")).await?, "INFO", "+info", &mut out) {
        let info = as_text(&info).ok_or_else(|| error::unexpected_response("INFO"))?.to_owned();
        read_info(&parse_info(&info), options, &mut out);
    }
    if let Some(time) = unless_denied(client.query(&redis::cmd("TIME")).await?, "TIME", "+time", &mut out) {
        check_clock(&time, &*clock, out.round_trip.unwrap_or_default(), &mut out);
    }
    check_fsync(&mut client, &mut out).await?;
    out.sort_findings();
    Ok(out)
}

/// One connection with one deadline.
struct ExamineConnection<'a> {
    connection: MultiplexedConnection,
    limit: &'a CallDeadline<'a>,
    url: String,
}

impl ExamineConnection<'_> {
    async fn query(&mut self, cmd: &Cmd) -> Result<Value, StoreError> {
        match self.limit.run(self.connection.send_packed_command(cmd)).await {
            Some(Ok(value)) => Ok(value),
            Some(Err(err)) => Err(error::into_not_done(error::from_transport(err))),
            None => Err(StoreError::not_done(
                StoreErrorKind::TimedOut,
                format!("no answer from {} in the time given", self.url),
            )),
        }
    }
}

/// The reply, or a finding that the user may not run the command.
fn unless_denied(answer: Value, command: &str, right: &str, out: &mut Examination) -> Option<Value> {
    let Value::ServerError(err) = &answer else {
        return Some(answer);
    };
    let message = err.details().unwrap_or_default();
    out.add_finding(if err.code() == "NOPERM" {
        Finding::breaks(
            "redis.permission",
            format!("the user may not run {command} ({message}), so what it would tell is not known"),
            format!("give the user {right}: see the ACL line in docs/stores/redis.md"),
        )
    } else {
        Finding::breaks(
            "redis.serving",
            format!("the server does not serve: {} {message}", err.code()),
            "wait until it has loaded, or look at its log",
        )
    });
    None
}

async fn measure_round_trip(
    client: &mut ExamineConnection<'_>,
    out: &mut Examination,
) -> Result<(), StoreError> {
    let mut took = Vec::with_capacity(PING_COUNT);
    for _ in 0..PING_COUNT {
        let before = client.limit.now();
        // An error reply measures the round trip as well.
        client.query(&redis::cmd("PING")).await?;
        took.push(client.limit.now().since(before));
    }
    took.sort_unstable();
    // The median, so that one slow ping does not count.
    out.round_trip = took.get(took.len() / 2).copied();
    Ok(())
}

fn read_info(info: &Info<'_>, options: &RedisOptions, out: &mut Examination) {
    let field = |key: &str| info.get(key).copied().unwrap_or_default();
    out.add_fact("version", field("redis_version"));
    out.add_fact("role", field("role"));
    check_version(field("redis_version"), out);
    // A Sentinel has none of the fields that the checks below read.
    if field("redis_mode") == "sentinel" {
        out.add_finding(
            Finding::breaks(
                "redis.sentinel",
                "this is a Sentinel, which keeps no data",
                "connect to the primary it watches",
            )
            .fatal(),
        );
        return;
    }
    if field("cluster_enabled") == "1" {
        out.add_finding(Finding::breaks(
            "redis.cluster",
            "this is a node of a Redis Cluster: it answers MOVED for names of other nodes",
            "use a single server; a cluster is not supported",
        ));
    }
    if field("role") == "slave" {
        out.add_finding(Finding::breaks(
            "redis.replica",
            format!(
                "this server is a replica of {}:{}: it cannot be written to, and what it shows is the past",
                field("master_host"),
                field("master_port")
            ),
            "connect to the primary",
        ).fatal());
    } else if let Ok(promised) = derive_promise(info, options.wait_replicas) {
        out.promised = Some(promised);
    }
    if field("loading") == "1" {
        out.add_finding(
            Finding::breaks(
                "redis.loading",
                "the server is still loading its data and refuses every lock",
                "wait until it has loaded",
            )
            .fatal(),
        );
    }
    check_eviction(info, out);
    check_persistence(info, out);
    check_replication(info, options.wait_replicas, out);
    check_clients(info, out);
}

fn check_version(version: &str, out: &mut Examination) {
    let mut parts = version.split('.').map(|part| part.parse::<u32>().unwrap_or(0));
    let found = (parts.next().unwrap_or(0), parts.next().unwrap_or(0));
    if found < MIN_VERSION && !version.is_empty() {
        out.add_finding(Finding::breaks(
            "redis.version",
            format!(
                "version {version} is older than {}.{}, which our scripts need",
                MIN_VERSION.0, MIN_VERSION.1
            ),
            "update the server; 7.0 and later are tested",
        ));
    } else if found < (7, 0) {
        out.add_finding(Finding::note(
            "redis.version",
            format!("version {version} is older than what is tested"),
            "7.0 and later are tested",
        ));
    }
}

/// Eviction removes locks (hazard R11).
fn check_eviction(info: &Info<'_>, out: &mut Examination) {
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
        let when = if limit == 0 { "should a maxmemory be set" } else { "when memory runs out" };
        out.add_finding(Finding::breaks(
            "redis.eviction",
            format!("maxmemory-policy is {policy}: {when}, {what}, and another client is granted a lock that is held"),
            "set `maxmemory-policy noeviction`, or give locks a server of their own",
        ));
    }
    if limit > 0 && used > limit / 10 * 9 {
        out.add_finding(Finding::risk(
            "redis.memory",
            format!("{used} of {limit} bytes are used: soon locks are refused, or evicted"),
            "raise maxmemory, or move other data elsewhere",
        ));
    }
}

/// A restart or crash loses locks (hazards R8 and R9).
fn check_persistence(info: &Info<'_>, out: &mut Examination) {
    if info.get("aof_enabled") != Some(&"1") {
        out.add_finding(Finding::breaks(
            "redis.persistence",
            "appendonly is off: a restart or crash of the server forgets locks that are held, and their fence counters",
            "set `appendonly yes` (and run `CONFIG REWRITE`, or put it into redis.conf)",
        ));
    } else if info.get("aof_last_write_status") == Some(&"err") {
        out.add_finding(Finding::breaks(
            "redis.persistence",
            "the append-only file could not be written last time, so a restart forgets locks",
            "look at the server's disk and its log",
        ));
    }
    if info.get("rdb_last_bgsave_status") == Some(&"err") {
        out.add_finding(Finding::risk(
            "redis.snapshot",
            "the last snapshot failed; with stop-writes-on-bgsave-error the server refuses every lock (MISCONF)",
            "look at the server's disk and its log",
        ));
    }
}

/// A fail-over loses locks (hazards R7 and R20).
fn check_replication(info: &Info<'_>, wait_replicas: u32, out: &mut Examination) {
    let replicas = info.get("connected_slaves").and_then(|count| count.parse().ok()).unwrap_or(0_u32);
    if replicas > 0 && wait_replicas == 0 {
        out.add_finding(Finding::breaks(
            "redis.async-replicas",
            format!(
                "{replicas} replica(s) follow asynchronously: a fail-over can forget a lock that was granted, and grant it again"
            ),
            "write wait_replicas=1 in the URL to make it unlikely, and check the fence where the data lives to make it harmless",
        ));
    }
    if wait_replicas > replicas {
        out.add_finding(Finding::breaks(
            "redis.wait-replicas",
            format!("wait_replicas={wait_replicas}, but {replicas} replica(s) are connected: no lock can be granted"),
            "connect replicas, or lower wait_replicas",
        ).fatal());
    }
}

fn check_clients(info: &Info<'_>, out: &mut Examination) {
    let number = |key: &str| info.get(key).and_then(|value| value.parse::<f64>().ok());
    if let (Some(now), Some(most)) = (number("connected_clients"), number("maxclients"))
        && most > 0.0
        && now / most > CLIENT_COUNT_RISK_RATIO
    {
        out.add_finding(Finding::risk(
            "redis.clients",
            format!("{now} of at most {most} clients are connected: soon new ones are turned away, and holders cannot renew"),
            "raise maxclients (and the open-file limit), or find who leaks connections",
        ));
    }
}

/// The server's clock is wrong (hazard R10).
fn check_clock(time: &Value, clock: &dyn Clock, round_trip: Duration, out: &mut Examination) {
    let Value::Array(parts) = time else { return };
    let number = |at: usize| parts.get(at).and_then(as_text)?.parse::<u64>().ok();
    let (Some(seconds), Some(micros)) = (number(0), number(1)) else {
        return;
    };
    let theirs = Duration::from_secs(seconds) + Duration::from_micros(micros);
    let ours = clock.wall().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let (off, way) = if theirs > ours { (theirs - ours, "ahead of") } else { (ours - theirs, "behind") };
    let ahead = if way == "behind" { "-" } else { "+" };
    out.add_fact("clock", format!("{ahead}{:.3}s", off.as_secs_f64()));
    // The round trip is a measuring error: the server read its clock somewhere within it.
    if off > MAX_CLOCK_OFFSET + round_trip {
        out.add_finding(Finding::breaks(
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

/// Findings that need `CONFIG`. Most users may not run it and need not, so a refusal is no finding.
async fn check_fsync(client: &mut ExamineConnection<'_>, out: &mut Examination) -> Result<(), StoreError> {
    let answer = client.query(redis::cmd("CONFIG").arg("GET").arg("appendfsync")).await?;
    let fsync = match &answer {
        Value::Map(pairs) => pairs.first().and_then(|(_, value)| as_text(value)),
        Value::Array(parts) => parts.get(1).and_then(as_text),
        _ => None,
    };
    let logged = out
        .promised
        .as_ref()
        .is_some_and(|promised| promised.promise >= leasehold_core::store::Promise::Durable);
    match fsync {
        Some("no") if logged => out.add_finding(Finding::risk(
            "redis.fsync",
            "appendfsync is no: a power loss can forget locks of the last half minute",
            "set `appendfsync everysec`, or `always` for locks that must survive a power loss",
        )),
        Some("everysec") if logged => out.add_finding(Finding::note(
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

    /// Codes of the findings, and whether one of them is fatal.
    fn examined(info: &str, wait: &str) -> (Vec<&'static str>, bool) {
        let options = RedisOptions::parse(&format!("redis://h?wait_replicas={wait}")).unwrap();
        let mut out = Examination::default();
        read_info(&parse_info(info), &options, &mut out);
        let codes = out.findings.iter().map(|finding| finding.code).collect();
        (codes, out.findings.iter().any(|finding| finding.fatal))
    }

    const GOOD: &str = "redis_version:7.2.4\nrole:master\naof_enabled:1\nmaxmemory_policy:noeviction\nmaxmemory:0\n\
                        connected_slaves:0\nconnected_clients:3\nmaxclients:10000\n";

    #[test]
    fn a_good_server_has_no_findings() {
        assert_eq!(examined(GOOD, "0"), (vec![], false));
    }

    #[test]
    fn each_hazard_has_its_finding() {
        for (from, to, wait, code) in [
            ("noeviction", "volatile-lru", "0", "redis.eviction"),
            ("aof_enabled:1", "aof_enabled:0", "0", "redis.persistence"),
            ("connected_slaves:0", "connected_slaves:2", "0", "redis.async-replicas"),
            ("connected_slaves:0", "connected_slaves:0", "1", "redis.wait-replicas"),
            ("role:master", "role:slave", "0", "redis.replica"),
            ("7.2.4", "5.0.7", "0", "redis.version"),
            ("7.2.4", "6.2.1", "0", "redis.version"),
            ("connected_clients:3", "connected_clients:9000", "0", "redis.clients"),
            ("maxmemory:0", "maxmemory:100\nused_memory:99", "0", "redis.memory"),
            ("role:master", "role:master\nloading:1", "0", "redis.loading"),
            ("role:master", "role:master\ncluster_enabled:1", "0", "redis.cluster"),
            ("role:master", "role:master\nredis_mode:sentinel", "0", "redis.sentinel"),
            ("role:master", "role:master\naof_last_write_status:err", "0", "redis.persistence"),
            ("role:master", "role:master\nrdb_last_bgsave_status:err", "0", "redis.snapshot"),
        ] {
            // Without a lock to grant, `doctor` must not try one.
            let fatal = ["redis.wait-replicas", "redis.replica", "redis.loading", "redis.sentinel"];
            let found = examined(&GOOD.replace(from, to), wait);
            assert_eq!(found, (vec![code], fatal.contains(&code)), "{to}");
        }
    }
}

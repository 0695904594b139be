//! Redis servers under test: throw-away ones, and external ones that their operator has marked.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use async_trait::async_trait;
use leasehold_core::clock::{BootClock, Clock, ClockExt, run_until};
use leasehold_core::rng::{Random, RandomExt};
use leasehold_core::store::redact;
use leasehold_core::testbed::{
    DRILLABLE_MARK, NetworkEndpoint, ProcessWrapper, StoreFault, Testbed, TestbedAbility, TestbedError,
    TestbedFactory, TestbedInfo, TestbedSetup, WireProtocol, random_share,
};
use redis::aio::MultiplexedConnection;
use redis::{FromRedisValue, RedisError};
use tokio::sync::Mutex;
use url::Url;

use super::RedisServer;
use crate::{RESERVED_PREFIX, RedisOptions};

const ATTACH_TIMEOUT: Duration = Duration::from_secs(5);

const FAULTS: &[StoreFault] = &[
    StoreFault::new("script-flush", "the server forgets its scripts"),
    StoreFault::losing_leases("flush", "the server forgets everything"),
    StoreFault::losing_leases("restart", "the server is killed and comes back empty"),
    StoreFault::new("freeze", "the server is stopped for a while"),
    StoreFault::new("connection-limit", "the server takes no more connections"),
    StoreFault::new("client-kill", "the server closes all connections"),
];

const ABILITIES: &[TestbedAbility] = &[
    TestbedAbility::Network,
    TestbedAbility::Commands,
    TestbedAbility::Restart,
    TestbedAbility::ServerClock,
    TestbedAbility::Evict,
    TestbedAbility::FailOver,
    TestbedAbility::FenceCounters,
];

/// Makes testbeds of Redis servers.
#[derive(Debug)]
pub struct RedisTestbeds;

#[async_trait]
impl TestbedFactory for RedisTestbeds {
    fn info(&self) -> TestbedInfo {
        TestbedInfo::new("redis", "A redis-server on a free port, behind the fault proxy")
            .with_faults(FAULTS)
            .with_abilities(ABILITIES)
            .with_seed_share(2)
    }

    async fn start(&self, setup: TestbedSetup) -> Result<Box<dyn Testbed>, TestbedError> {
        let durable = ["--appendonly", "yes", "--appendfsync", "always"];
        let args = if setup.durable { &durable[..] } else { &[] };
        Ok(Box::new(RedisTestbed::start(&setup.wrapper, args).await?))
    }

    async fn attach(&self, url: &str) -> Result<Box<dyn Testbed>, TestbedError> {
        let shown = redact(url);
        if RedisOptions::parse(url).map_err(TestbedError::store)?.tls {
            let why = "cannot be drilled: the faults need a Redis without TLS";
            return Err(TestbedError::NotDrillable(format!("{shown} {why}")));
        }
        let address = resolve_address(url).await?;
        let testbed = RedisTestbed { own: None, url: url.to_owned(), address };
        let marked = testbed.command::<bool>(&["EXISTS", DRILLABLE_MARK]);
        let marked = match run_until(&BootClock, BootClock.now() + ATTACH_TIMEOUT, marked).await {
            Some(answer) => answer.map_err(|error| TestbedError::Store(format!("{shown}: {error}")))?,
            None => return Err(TestbedError::Store(format!("{shown}: no answer"))),
        };
        if !marked {
            return Err(TestbedError::not_marked(&shown, &format!("redis-cli SET {DRILLABLE_MARK} yes")));
        }
        Ok(Box::new(testbed))
    }
}

/// A server of our own, or an external one.
#[derive(Debug)]
struct RedisTestbed {
    /// A server that this testbed started, so that its data may be lost.
    own: Option<OwnServer>,
    url: String,
    address: SocketAddr,
}

#[derive(Debug)]
struct OwnServer {
    server: Mutex<RedisServer>,
    /// Replicas are started in the same way.
    wrapper: ProcessWrapper,
}

impl RedisTestbed {
    async fn start(wrapper: &ProcessWrapper, args: &[&str]) -> Result<Self, TestbedError> {
        let started = RedisServer::start_wrapped(wrapper.clone(), args).await;
        let server = started.map_err(TestbedError::io("cannot start redis-server (is it installed?)"))?;
        Ok(Self {
            url: server.url(),
            address: SocketAddr::from((Ipv4Addr::LOCALHOST, server.port())),
            own: Some(OwnServer { server: Mutex::new(server), wrapper: wrapper.clone() }),
        })
    }

    fn own(&self) -> Result<&OwnServer, TestbedError> {
        let refused = || TestbedError::Store("only a server of our own is broken on purpose".to_owned());
        self.own.as_ref().ok_or_else(refused)
    }

    /// Sends commands to our own server and ignores what they return.
    async fn commands(&self, all: &[&[&str]]) -> Result<(), TestbedError> {
        self.own()?;
        let mut connection = connect(&self.url).await?;
        for words in all {
            query::<redis::Value>(&mut connection, words).await?;
        }
        Ok(())
    }

    async fn command<T: FromRedisValue>(&self, words: &[&str]) -> Result<T, TestbedError> {
        query(&mut connect(&self.url).await?, words).await
    }

    /// Lets the server accept one connection only, which is our own.
    async fn exhaust_connections(&self, lasts: Duration) -> Result<(), TestbedError> {
        self.own()?;
        // Opened before the limit is set: the command that lifts the limit needs a connection.
        let mut connection = connect(&self.url).await?;
        for words in [
            &["CONFIG", "SET", "maxclients", "1"][..],
            &["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"],
        ] {
            query::<redis::Value>(&mut connection, words).await?;
        }
        BootClock.sleep(lasts).await;
        query::<redis::Value>(&mut connection, &["CONFIG", "SET", "maxclients", "10000"]).await.map(drop)
    }
}

#[async_trait]
impl Testbed for RedisTestbed {
    fn url(&self) -> String {
        self.url.clone()
    }

    fn endpoint(&self) -> Option<NetworkEndpoint> {
        // Every lock operation is a script, called by its hash.
        let protocol = WireProtocol::Resp { lock_command: "EVALSHA" };
        Some(NetworkEndpoint::new(self.address, protocol))
    }

    fn url_through(&self, proxy: SocketAddr) -> Result<String, TestbedError> {
        let wrong = |()| TestbedError::Store(format!("{}: has no host", redact(&self.url)));
        let mut url = Url::parse(&self.url).map_err(TestbedError::store)?;
        url.set_ip_host(proxy.ip()).map_err(wrong)?;
        url.set_port(Some(proxy.port())).map_err(wrong)?;
        Ok(url.into())
    }

    async fn stop(&self) -> Result<(), TestbedError> {
        self.own()?.server.lock().await.stop();
        Ok(())
    }

    async fn restart(&self) -> Result<(), TestbedError> {
        let restarted = self.own()?.server.lock().await.restart().await;
        restarted.map_err(TestbedError::io("cannot start redis-server again"))
    }

    async fn inject(&self, fault: &str, ttl: Duration, random: &dyn Random) -> Result<(), TestbedError> {
        match fault {
            "script-flush" => {
                for _ in 0..=random.below(10) {
                    self.commands(&[&["SCRIPT", "FLUSH"]]).await?;
                    BootClock.sleep(random_share(ttl, random, 0, 15)).await;
                }
                Ok(())
            }
            "flush" => self.commands(&[&["FLUSHALL"]]).await,
            "restart" => self.restart().await,
            "freeze" => {
                let own = self.own()?;
                own.server.lock().await.pause();
                BootClock.sleep(random_share(ttl, random, 20, 200)).await;
                own.server.lock().await.resume();
                Ok(())
            }
            "connection-limit" => self.exhaust_connections(random_share(ttl, random, 30, 200)).await,
            // Two commands: wake-up subscriptions are of type pubsub, which `normal` does not
            // include.
            "client-kill" => {
                self.commands(&[&["CLIENT", "KILL", "TYPE", "normal"]]).await?;
                self.commands(&[&["CLIENT", "KILL", "TYPE", "pubsub"]]).await
            }
            other => Err(TestbedError::unsupported(&format!("inject {other}"))),
        }
    }

    async fn evict(&self) -> Result<bool, TestbedError> {
        self.commands(&[
            &["CONFIG", "SET", "maxmemory-policy", "allkeys-random"],
            &["CONFIG", "SET", "maxmemory", "1"],
        ])
        .await?;
        // The server evicts before a command that needs memory. With `maxmemory` 1 it still refuses
        // the command afterwards.
        let refused = self.commands(&[&["SET", "drill:filler", "x"]]).await.is_err();
        self.commands(&[
            &["CONFIG", "SET", "maxmemory", "0"],
            &["CONFIG", "SET", "maxmemory-policy", "noeviction"],
        ])
        .await?;
        Ok(refused)
    }

    async fn start_replica(&self, primary: SocketAddr) -> Result<Box<dyn Testbed>, TestbedError> {
        let (host, port) = (primary.ip().to_string(), primary.port().to_string());
        let args = ["--replicaof", &host, &port];
        Ok(Box::new(Self::start(&self.own()?.wrapper, &args).await?))
    }

    async fn is_following(&self) -> Result<bool, TestbedError> {
        let info: String = self.command(&["INFO", "replication"]).await?;
        Ok(info.lines().any(|line| line == "master_link_status:up"))
    }

    async fn promote(&self) -> Result<(), TestbedError> {
        self.commands(&[&["REPLICAOF", "NO", "ONE"]]).await
    }

    async fn expiring_fence_counters(&self) -> Result<u64, TestbedError> {
        self.own()?;
        let mut connection = connect(&self.url).await?;
        let pattern = format!("{RESERVED_PREFIX}fence:*");
        let keys: Vec<String> = query(&mut connection, &["KEYS", &pattern]).await?;
        let mut expiring = 0;
        for key in &keys {
            expiring += u64::from(query::<i64>(&mut connection, &["PTTL", key]).await? != -1);
        }
        Ok(expiring)
    }

    async fn remove_leases(&self, name_prefixes: &[String]) -> Result<usize, TestbedError> {
        let mut connection = connect(&self.url).await?;
        let pattern = format!("*{}*", common_prefix(name_prefixes));
        let (mut cursor, mut removed) = (0_u64, 0);
        loop {
            let scan = ["SCAN", &cursor.to_string(), "MATCH", &pattern, "COUNT", "1000"];
            let (next, keys): (u64, Vec<String>) = query(&mut connection, &scan).await?;
            for key in keys {
                if name_prefixes.iter().any(|prefix| key.contains(prefix)) {
                    removed += query::<usize>(&mut connection, &["UNLINK", &key]).await?;
                }
            }
            cursor = next;
            if cursor == 0 {
                return Ok(removed);
            }
        }
    }
}

/// What all of these begin with: one scan of the keys finds the names of all runs.
fn common_prefix(all: &[String]) -> String {
    let common = |first: String, other: &String| {
        first.chars().zip(other.chars()).take_while(|(a, b)| a == b).map(|(a, _)| a).collect()
    };
    let (first, others) =
        all.split_first().map_or((String::new(), &[][..]), |(one, rest)| (one.clone(), rest));
    others.iter().fold(first, common)
}

/// Resolves the server address of this URL.
async fn resolve_address(url: &str) -> Result<SocketAddr, TestbedError> {
    let options = RedisOptions::parse(url).map_err(TestbedError::store)?;
    let wrong = |why: String| TestbedError::Store(format!("{}: {why}", redact(url)));
    let found = tokio::net::lookup_host((options.host, options.port)).await;
    let mut found = found.map_err(|error| wrong(error.to_string()))?;
    found.next().ok_or_else(|| wrong("its host has no address".to_owned()))
}

/// Opens a connection that bypasses every proxy.
async fn connect(url: &str) -> Result<MultiplexedConnection, TestbedError> {
    let options = RedisOptions::parse(url).map_err(TestbedError::store)?;
    let mut plain = Url::parse(&options.describe()).map_err(TestbedError::store)?;
    if let Some(password) = options.password().map_err(TestbedError::store)? {
        let refused = |()| TestbedError::Store("a URL without a host cannot have a password".to_owned());
        plain.set_password(Some(&password)).map_err(refused)?;
    }
    let open = async { redis::Client::open(plain)?.get_multiplexed_async_connection().await };
    open.await.map_err(server_error)
}

async fn query<T: FromRedisValue>(
    connection: &mut MultiplexedConnection,
    words: &[&str],
) -> Result<T, TestbedError> {
    let mut command = redis::Cmd::new();
    for word in words {
        command.arg(*word);
    }
    command.query_async(connection).await.map_err(server_error)
}

fn server_error(error: RedisError) -> TestbedError {
    TestbedError::Store(format!("the server: {error}"))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_address_may_be_of_either_kind() {
        for url in ["redis://[::1]:7001", "redis://127.0.0.1:7001"] {
            assert_eq!(resolve_address(url).await.unwrap().port(), 7001, "{url}");
        }
    }

    #[test]
    fn one_pattern_finds_the_names_of_all_runs() {
        let runs = ["drill:a1:".to_owned(), "drill:b2:".to_owned()];
        assert_eq!(common_prefix(&runs), "drill:");
        assert_eq!(common_prefix(&runs[..1]), "drill:a1:");
        assert_eq!(common_prefix(&[]), "");
    }
}

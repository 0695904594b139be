//! Our own Redis servers: bound to this process, with replicas, and with a direct connection for
//! commands.

use std::ffi::OsString;
use std::net::SocketAddr;

use leasehold_redis::testkit::RedisServer;

use super::Error;
use crate::proxy::{Proxy, ProxyConfig};

/// A replica of another server. Dropping it stops the server.
#[derive(Debug)]
pub struct Replica {
    server: RedisServer,
    replication_proxy: Proxy,
}

impl Replica {
    /// Starts a replica that reaches the server through its own proxy, so that replication alone
    /// can be cut off.
    pub(super) async fn replicate(server: &RedisServer, binding: &[OsString]) -> Result<Self, Error> {
        let way = Proxy::start(ProxyConfig::raw(local_address(server))).await?;
        let (host, port) = (way.address().ip().to_string(), way.address().port().to_string());
        let server = start_server(binding, &["--replicaof", &host, &port], None).await?;
        Ok(Self { server, replication_proxy: way })
    }

    pub(super) fn address(&self) -> SocketAddr {
        local_address(&self.server)
    }

    pub(super) fn url(&self) -> String {
        self.server.url()
    }

    /// Sends a command to the replica.
    ///
    /// # Errors
    /// The replica returns an error.
    pub async fn command(&self, words: &[&str]) -> Result<redis::Value, Error> {
        send_command(&self.server.url(), words).await
    }

    /// Cuts the replica off from its primary.
    ///
    /// # Errors
    /// The proxy has been stopped.
    pub async fn cut_off(&self) -> Result<(), Error> {
        Ok(self.replication_proxy.disable().await?)
    }
}

pub(super) fn not_our_server() -> Error {
    Error::Store("only a server of our own is broken on purpose".to_owned())
}

/// Starts a Redis server. `gone` is called with the process id of each of its processes that has
/// ended.
pub(super) async fn start_server(
    before: &[OsString],
    args: &[&str],
    gone: Option<fn(u32)>,
) -> Result<RedisServer, Error> {
    let started = RedisServer::start_watched(before, args, gone).await;
    started.map_err(Error::io("cannot start redis-server (is it installed?)"))
}

pub(super) fn local_address(server: &RedisServer) -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], server.port()))
}

pub(super) async fn send_command(url: &str, words: &[&str]) -> Result<redis::Value, Error> {
    RedisSession::open(url).await?.command(words).await
}

/// A connection that bypasses the proxy and stays open between commands.
#[derive(Debug)]
pub struct RedisSession {
    connection: redis::aio::MultiplexedConnection,
}

impl RedisSession {
    pub(super) async fn open(url: &str) -> Result<Self, Error> {
        let open = async { redis::Client::open(url)?.get_multiplexed_async_connection().await };
        let connection = open.await.map_err(server_error)?;
        Ok(Self { connection })
    }

    /// Sends a command.
    ///
    /// # Errors
    /// The server returns an error.
    pub async fn command(&mut self, words: &[&str]) -> Result<redis::Value, Error> {
        let mut command = redis::cmd(words.first().copied().unwrap_or("PING"));
        for word in words.iter().skip(1) {
            command.arg(*word);
        }
        command.query_async(&mut self.connection).await.map_err(server_error)
    }
}

fn server_error(error: redis::RedisError) -> Error {
    Error::Store(format!("the server: {error}"))
}

//! Servers of our own: bound to this process, copied, told what to do.

use std::ffi::OsString;
use std::net::SocketAddr;

use leasehold_redis::testkit::RedisServer;

use super::Error;
use crate::proxy::{Config, Proxy};

/// A server that copies another one. Gone when it is dropped.
#[derive(Debug)]
pub struct Replica {
    server: RedisServer,
    way: Proxy,
}

impl Replica {
    /// Copies this server over a way of its own that can be cut.
    pub(super) async fn of(server: &RedisServer, binding: &[OsString]) -> Result<Self, Error> {
        let way = Proxy::start(Config::raw(local(server))).await?;
        let (host, port) = (way.address().ip().to_string(), way.address().port().to_string());
        let server = start(binding, &["--replicaof", &host, &port], None).await?;
        Ok(Self { server, way })
    }

    /// Where it listens.
    pub(super) fn address(&self) -> SocketAddr {
        local(&self.server)
    }

    /// How it is reached.
    pub(super) fn url(&self) -> String {
        self.server.url()
    }

    /// Sends it a command.
    ///
    /// # Errors
    /// It refuses.
    pub async fn command(&self, words: &[&str]) -> Result<redis::Value, Error> {
        command(&self.server.url(), words).await
    }

    /// Nothing reaches it from the first server any more.
    ///
    /// # Errors
    /// The proxy is gone.
    pub async fn cut(&self) -> Result<(), Error> {
        Ok(self.way.disable().await?)
    }
}

pub(super) fn not_ours() -> Error {
    Error::Store("only a server of our own is broken on purpose".to_owned())
}

/// `gone` hears of each process of it that has ended.
pub(super) async fn start(
    before: &[OsString],
    args: &[&str],
    gone: Option<fn(u32)>,
) -> Result<RedisServer, Error> {
    let started = RedisServer::watched(before, args, gone).await;
    started.map_err(Error::io("cannot start redis-server (is it installed?)"))
}

pub(super) fn local(server: &RedisServer) -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], server.port()))
}

pub(super) async fn command(url: &str, words: &[&str]) -> Result<redis::Value, Error> {
    Session::open(url).await?.command(words).await
}

/// A connection past the proxy that stays open between two commands.
#[derive(Debug)]
pub struct Session {
    connection: redis::aio::MultiplexedConnection,
}

impl Session {
    pub(super) async fn open(url: &str) -> Result<Self, Error> {
        let open = async { redis::Client::open(url)?.get_multiplexed_async_connection().await };
        let connection = open.await.map_err(refused)?;
        Ok(Self { connection })
    }

    /// Sends a command.
    ///
    /// # Errors
    /// The server refuses.
    pub async fn command(&mut self, words: &[&str]) -> Result<redis::Value, Error> {
        let mut command = redis::cmd(words.first().copied().unwrap_or("PING"));
        for word in words.iter().skip(1) {
            command.arg(*word);
        }
        command.query_async(&mut self.connection).await.map_err(refused)
    }
}

fn refused(error: redis::RedisError) -> Error {
    Error::Store(format!("the server: {error}"))
}

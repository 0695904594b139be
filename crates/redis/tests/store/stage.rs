//! What every test needs: a server, a store on it, somebody who asks, and a raw connection to look behind the scenes.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use leasehold_core::clock::{BootClock, Clock, ClockExt};
use leasehold_core::rng::OsRandom;
use leasehold_core::store::{Answer, Ask, Busy, Given, Giving, Grant, Renewal, Renewed, Store};
use leasehold_core::word::{Holder, Name, Token, Ttl};
use leasehold_redis::testkit::RedisServer;
use leasehold_redis::{RedisOptions, RedisStore};
use redis::FromRedisValue;
use redis::aio::MultiplexedConnection;

/// Long enough for a loaded machine; no test waits for it unless it fails.
pub(crate) const WITHIN: Duration = Duration::from_secs(20);
pub(crate) const TTL: Duration = Duration::from_secs(30);

pub(crate) async fn server() -> RedisServer {
    RedisServer::start()
        .await
        .expect("redis-server must be installed")
}

pub(crate) async fn server_with(args: &[&str]) -> RedisServer {
    RedisServer::with(args).await.expect("redis-server must start")
}

pub(crate) fn open(url: &str) -> Arc<RedisStore> {
    Arc::new(RedisStore::open(RedisOptions::parse(url).unwrap()).unwrap())
}

pub(crate) fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

pub(crate) fn token() -> Token {
    Token::fresh(&Holder::new("web-1:7").unwrap(), "scheduler", &OsRandom)
}

pub(crate) fn ttl(duration: Duration) -> Ttl {
    Ttl::new(duration).unwrap()
}

pub(crate) fn ask(text: &str, token: &Token) -> Ask {
    Ask::new(name(text), token.clone(), ttl(TTL))
}

pub(crate) fn queued(text: &str, token: &Token) -> Ask {
    let mut ask = ask(text, token);
    ask.queue = Some(Duration::from_secs(60));
    ask
}

pub(crate) async fn grant(store: &RedisStore, ask: &Ask) -> Grant {
    match store.acquire(ask, WITHIN).await.unwrap() {
        Answer::Granted(grant) => grant,
        other => panic!("granted expected, not {other:?}"),
    }
}

pub(crate) async fn busy(store: &RedisStore, ask: &Ask) -> Busy {
    match store.acquire(ask, WITHIN).await.unwrap() {
        Answer::Busy(busy) => busy,
        other => panic!("busy expected, not {other:?}"),
    }
}

pub(crate) async fn give(store: &RedisStore, text: &str, token: &Token) -> Given {
    store
        .release(&Giving::owned(name(text), token.clone()), WITHIN)
        .await
        .unwrap()
}

pub(crate) fn renewal(text: &str, token: &Token, grant: Grant) -> Renewal {
    Renewal {
        name: name(text),
        token: token.clone(),
        fence: grant.fence,
        ttl: ttl(TTL),
        lock_delay: Duration::ZERO,
    }
}

pub(crate) async fn renew(store: &RedisStore, renewal: Renewal) -> Renewed {
    store.renew(&[renewal], WITHIN).await.pop().unwrap().unwrap()
}

/// A connection of another client altogether.
pub(crate) async fn raw(server: &RedisServer) -> MultiplexedConnection {
    let client = redis::Client::open(server.url()).unwrap();
    let config = redis::AsyncConnectionConfig::new()
        .set_response_timeout(Some(WITHIN))
        .set_connection_timeout(Some(WITHIN));
    client
        .get_multiplexed_async_connection_with_config(&config)
        .await
        .unwrap()
}

/// Runs a command written as in `redis-cli`.
pub(crate) async fn run<T: FromRedisValue>(connection: &mut MultiplexedConnection, words: &str) -> T {
    let mut words = words.split_ascii_whitespace();
    let mut command = redis::cmd(words.next().unwrap());
    for word in words {
        command.arg(word);
    }
    command.query_async(connection).await.unwrap()
}

/// Waits until a condition holds; fails loudly if it never does.
pub(crate) async fn eventually<F: Future<Output = bool>>(what: &str, mut holds: impl FnMut() -> F) {
    let clock = BootClock;
    let end = clock.now() + WITHIN;
    while !holds().await {
        assert!(clock.now() < end, "never happened: {what}");
        clock.sleep(Duration::from_millis(5)).await;
    }
}

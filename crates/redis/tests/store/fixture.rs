//! Helpers for all tests: a server, a store, requests, and a raw connection
//! that bypasses the store.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use leasehold_core::clock::{BootClock, Clock, ClockExt};
use leasehold_core::rng::OsRandom;
use leasehold_core::store::{
    AcquireRequest, AcquireResponse, BusyLease, DocumentOutcome, DocumentQuery, DocumentWrite,
    ExpectedVersion, Grant, ReleaseRequest, ReleaseResponse, RenewRequest, RenewResponse, Store,
};
use leasehold_core::types::{Holder, Name, Token, Ttl};
use leasehold_redis::testkit::RedisServer;
use leasehold_redis::{RedisOptions, RedisStore};
use redis::FromRedisValue;
use redis::aio::MultiplexedConnection;

/// Long enough for a loaded machine; a test only waits for it if it fails.
pub(crate) const CALL_TIMEOUT: Duration = Duration::from_secs(20);
pub(crate) const TEST_TTL: Duration = Duration::from_secs(30);

pub(crate) async fn server() -> RedisServer {
    RedisServer::start().await.expect("redis-server must be installed")
}

pub(crate) async fn server_with(args: &[&str]) -> RedisServer {
    RedisServer::start_with(args).await.expect("redis-server must start")
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

pub(crate) fn acquire_request(text: &str, token: &Token) -> AcquireRequest {
    AcquireRequest::new(name(text), token.clone(), ttl(TEST_TTL))
}

pub(crate) fn queue_request(text: &str, token: &Token) -> AcquireRequest {
    let mut ask = acquire_request(text, token);
    ask.queue = Some(Duration::from_secs(60));
    ask
}

pub(crate) async fn expect_granted(store: &RedisStore, ask: &AcquireRequest) -> Grant {
    match store.acquire(ask, CALL_TIMEOUT).await.unwrap() {
        AcquireResponse::Granted(grant) => grant,
        other => panic!("granted expected, not {other:?}"),
    }
}

pub(crate) async fn expect_busy(store: &RedisStore, ask: &AcquireRequest) -> BusyLease {
    match store.acquire(ask, CALL_TIMEOUT).await.unwrap() {
        AcquireResponse::Busy(busy) => busy,
        other => panic!("busy expected, not {other:?}"),
    }
}

pub(crate) async fn release(store: &RedisStore, text: &str, token: &Token) -> ReleaseResponse {
    store.release(&ReleaseRequest::by_owner(name(text), token.clone()), CALL_TIMEOUT).await.unwrap()
}

pub(crate) fn renew_request(text: &str, token: &Token, grant: Grant) -> RenewRequest {
    RenewRequest::new(name(text), token.clone(), grant.fence, ttl(TEST_TTL))
}

pub(crate) async fn renew(store: &RedisStore, renewal: RenewRequest) -> RenewResponse {
    store.renew(&[renewal], CALL_TIMEOUT).await.pop().unwrap().unwrap()
}

/// Every operation on documents, successful and refused.
pub(crate) async fn use_all_of_documents(store: &RedisStore, at: &str) {
    let (documents, at) = (store.documents().unwrap(), name(at));
    let follower = documents.watch(&at);
    let request = DocumentWrite::new(at.clone(), "x").with_ttl(TEST_TTL);
    for request in [request, DocumentWrite::new(at.clone(), "y")] {
        let written = documents.write(&request, CALL_TIMEOUT).await.unwrap();
        assert!(matches!(written, DocumentOutcome::Changed(_)), "{written:?}");
        follower.notified().await;
    }
    assert!(documents.read(&at, CALL_TIMEOUT).await.unwrap().document.is_some());
    assert_eq!(documents.list(&DocumentQuery::new("", 9), CALL_TIMEOUT).await.unwrap().documents.len(), 1);
    let refused = documents.delete(&at, ExpectedVersion::Absent, CALL_TIMEOUT).await.unwrap();
    assert!(matches!(refused, DocumentOutcome::Conflict(Some(_))), "{refused:?}");
    let deleted = documents.delete(&at, ExpectedVersion::Any, CALL_TIMEOUT).await.unwrap();
    assert!(matches!(deleted, DocumentOutcome::Changed(1..)), "{deleted:?}");
}

/// A connection that does not belong to the store.
pub(crate) async fn raw_connection(server: &RedisServer) -> MultiplexedConnection {
    let client = redis::Client::open(server.url()).unwrap();
    let config = redis::AsyncConnectionConfig::new()
        .set_response_timeout(Some(CALL_TIMEOUT))
        .set_connection_timeout(Some(CALL_TIMEOUT));
    client.get_multiplexed_async_connection_with_config(&config).await.unwrap()
}

/// Runs a command written as in `redis-cli`.
pub(crate) async fn run_command<T: FromRedisValue>(connection: &mut MultiplexedConnection, words: &str) -> T {
    let mut words = words.split_ascii_whitespace();
    let mut command = redis::cmd(words.next().unwrap());
    for word in words {
        command.arg(word);
    }
    command.query_async(connection).await.unwrap()
}

/// Waits until a condition holds; panics if it never does.
pub(crate) async fn eventually<F: Future<Output = bool>>(what: &str, mut holds: impl FnMut() -> F) {
    let clock = BootClock;
    let end = clock.now() + CALL_TIMEOUT;
    while !holds().await {
        assert!(clock.now() < end, "never happened: {what}");
        clock.sleep(Duration::from_millis(5)).await;
    }
}

//! The Redis store, a real client with scripts and RESP3, through the proxy.

use std::net::SocketAddr;
use std::time::Duration;

use leasehold_core::rng::OsRandom;
use leasehold_core::store::{AcquireRequest, AcquireResponse, Store};
use leasehold_core::types::{Holder, Name, Token, Ttl};
use leasehold_redis::{RedisOptions, RedisStore};

use super::fixture::redis_proxy;

const STORE_CALL_TIMEOUT: Duration = Duration::from_secs(20);

fn open(address: SocketAddr) -> RedisStore {
    RedisStore::open(RedisOptions::parse(&format!("redis://{address}")).unwrap()).unwrap()
}

fn acquire_request(name: &str) -> AcquireRequest {
    let token = Token::fresh(&Holder::new("web-1:7").unwrap(), "scheduler", &OsRandom);
    AcquireRequest::new(Name::new(name).unwrap(), token, Ttl::new(Duration::from_secs(60)).unwrap())
}

#[tokio::test]
async fn repeated_commands_change_no_response() {
    let (_redis, proxy) = redis_proxy(1).await;
    let store = open(proxy.address());
    proxy.add("repeat".parse().unwrap()).unwrap();
    let mut fences = Vec::new();
    for n in 0..10 {
        let request = acquire_request(&format!("job:{n}"));
        match store.acquire(&request, STORE_CALL_TIMEOUT).await.unwrap() {
            AcquireResponse::Granted(grant) => fences.push(grant.fence),
            other => panic!("granted expected, not {other:?}"),
        }
        assert_eq!(store.inspect(request.names.first(), STORE_CALL_TIMEOUT).await.unwrap().leases.len(), 1);
        let mut other = request;
        other.token = acquire_request("other").token;
        assert!(matches!(store.acquire(&other, STORE_CALL_TIMEOUT).await.unwrap(), AcquireResponse::Busy(_)));
    }
    assert_eq!(fences.len(), 10);
    assert!(proxy.stats().swallowed >= 30, "{:?}", proxy.stats());
    assert_eq!(proxy.stats().unframed, 0);
}

/// The reply is lost, but the lease exists: the error is *unknown*, and a retry returns the same
/// grant (I7).
#[tokio::test]
async fn an_acquire_with_a_lost_reply_is_unknown_and_retryable() {
    let (_redis, proxy) = redis_proxy(1).await;
    let store = open(proxy.address());
    // Connects and loads the script, so that the next command is the acquire itself.
    store.acquire(&acquire_request("warm"), STORE_CALL_TIMEOUT).await.unwrap();
    proxy.add("cut_after_forward times=1".parse().unwrap()).unwrap();
    let request = acquire_request("job:1");
    let failure = store.acquire(&request, STORE_CALL_TIMEOUT).await.unwrap_err();
    assert!(failure.unknown, "{failure:?}");
    let held = store.inspect(request.names.first(), STORE_CALL_TIMEOUT).await.unwrap();
    let held = held.into_first().expect("the acquire was applied");
    match store.acquire(&request, STORE_CALL_TIMEOUT).await.unwrap() {
        AcquireResponse::Granted(grant) => assert_eq!(Some(grant.fence), held.fence),
        other => panic!("granted expected, not {other:?}"),
    }
}

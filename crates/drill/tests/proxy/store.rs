//! The Redis store, a real client with scripts and RESP3, through the proxy.

use std::net::SocketAddr;
use std::time::Duration;

use leasehold_core::rng::OsRandom;
use leasehold_core::store::{Answer, Ask, Store};
use leasehold_core::word::{Holder, Name, Token, Ttl};
use leasehold_redis::{RedisOptions, RedisStore};

use super::stage::redis_proxy;

const WITHIN: Duration = Duration::from_secs(20);

fn open(address: SocketAddr) -> RedisStore {
    RedisStore::open(RedisOptions::parse(&format!("redis://{address}")).unwrap()).unwrap()
}

fn ask(name: &str) -> Ask {
    let token = Token::fresh(&Holder::new("web-1:7").unwrap(), "scheduler", &OsRandom);
    Ask::new(
        Name::new(name).unwrap(),
        token,
        Ttl::new(Duration::from_secs(60)).unwrap(),
    )
}

#[tokio::test]
async fn every_command_repeated_changes_no_answer() {
    let (_redis, proxy) = redis_proxy(1).await;
    let store = open(proxy.address());
    proxy.add("repeat".parse().unwrap()).unwrap();
    let mut fences = Vec::new();
    for n in 0..10 {
        let ask = ask(&format!("job:{n}"));
        match store.acquire(&ask, WITHIN).await.unwrap() {
            Answer::Granted(grant) => fences.push(grant.fence),
            other => panic!("granted expected, not {other:?}"),
        }
        assert!(store.inspect(&ask.name, WITHIN).await.unwrap().is_some());
        let other = Ask {
            token: self::ask("other").token,
            ..ask
        };
        assert!(matches!(
            store.acquire(&other, WITHIN).await.unwrap(),
            Answer::Busy(_)
        ));
    }
    assert_eq!(fences.len(), 10);
    assert!(proxy.stats().swallowed >= 30, "{:?}", proxy.stats());
    assert_eq!(proxy.stats().unframed, 0);
}

/// The reply is lost, the lease is there: the failure says *unknown*, and asking again finds the same grant (I7).
#[tokio::test]
async fn an_acquire_whose_reply_is_lost_is_unknown_and_found_again() {
    let (_redis, proxy) = redis_proxy(1).await;
    let store = open(proxy.address());
    // Connected, and its script is loaded.
    store.acquire(&ask("warm"), WITHIN).await.unwrap();
    proxy.add("cut_after_forward times=1".parse().unwrap()).unwrap();
    let ask = ask("job:1");
    let failure = store.acquire(&ask, WITHIN).await.unwrap_err();
    assert!(failure.unknown, "{failure:?}");
    let held = store
        .inspect(&ask.name, WITHIN)
        .await
        .unwrap()
        .expect("the acquire was applied");
    match store.acquire(&ask, WITHIN).await.unwrap() {
        Answer::Granted(grant) => assert_eq!(Some(grant.fence), held.fence),
        other => panic!("granted expected, not {other:?}"),
    }
}

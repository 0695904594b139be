//! Other clients on the same keys: the documented recipe and Leasehold exclude each other.

use std::time::Duration;

use leasehold_core::store::{ReleaseRequest, ReleaseResponse, RenewResponse, Store};
use leasehold_redis::RedisOptions;

use crate::fixture::{
    CALL_TIMEOUT, acquire_request, expect_busy, expect_granted, name, open, queue_request, raw_connection,
    release, renew, renew_request, run_command, server, token,
};

const RECIPE_RELEASE: &str =
    "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) else return 0 end";

#[tokio::test]
async fn plain_key_shows_holder_and_remaining_time() {
    let server = server().await;
    let (store, mut cli) = (open(&server.url()), raw_connection(&server).await);
    let token = token();
    let granted = expect_granted(&store, &acquire_request("job:42", &token)).await;
    let value: String = run_command(&mut cli, "GET lock:job:42").await;
    assert_eq!(value, format!("{}|{}", token.expose(), granted.fence));
    assert!(value.starts_with("web-1:7|scheduler|"));
    let left: i64 = run_command(&mut cli, "PTTL lock:job:42").await;
    assert!((1..=30_000).contains(&left), "{left}");
}

#[tokio::test]
async fn foreign_set_nx_px_and_leasehold_exclude_each_other() {
    let server = server().await;
    let (store, mut cli) = (open(&server.url()), raw_connection(&server).await);

    // The foreign client holds the lock.
    let _: () = run_command(&mut cli, "SET lock:a their-secret NX PX 60000").await;
    let token = token();
    let seen = expect_busy(&store, &acquire_request("a", &token)).await;
    assert!(seen.holder.starts_with("foreign#") && !seen.holder.contains("secret"), "{seen:?}");
    assert_eq!((seen.class, seen.fence), (None, None));
    assert!(seen.remaining.unwrap() <= Duration::from_secs(60));
    assert_eq!(release(&store, "a", &token).await, ReleaseResponse::NotOwned);
    let lease = store.inspect(&name("a"), CALL_TIMEOUT).await.unwrap().into_first().unwrap();
    assert!(lease.holder.starts_with("foreign#"));

    // It releases by compare-and-delete; we acquire, and it is refused.
    let script = redis::Script::new(RECIPE_RELEASE);
    let gone: i64 = script.key("lock:a").arg("their-secret").invoke_async(&mut cli).await.unwrap();
    assert_eq!(gone, 1);
    expect_granted(&store, &acquire_request("a", &token)).await;
    let refused: Option<String> = run_command(&mut cli, "SET lock:a their-secret NX PX 60000").await;
    assert_eq!(refused, None);
    let gone: i64 = script.key("lock:a").arg("their-secret").invoke_async(&mut cli).await.unwrap();
    assert_eq!(gone, 0);

    // After our release it can acquire again.
    assert_eq!(release(&store, "a", &token).await, ReleaseResponse::Released);
    let taken: Option<String> = run_command(&mut cli, "SET lock:a their-secret NX PX 60000").await;
    assert_eq!(taken.as_deref(), Some("OK"));
}

#[tokio::test]
async fn a_foreign_key_without_expiry_is_busy_for_ever() {
    let server = server().await;
    let (store, mut cli) = (open(&server.url()), raw_connection(&server).await);
    let _: () = run_command(&mut cli, "SET lock:a x").await;
    assert_eq!(expect_busy(&store, &acquire_request("a", &token())).await.remaining, None);
    assert_eq!(store.inspect(&name("a"), CALL_TIMEOUT).await.unwrap().into_first().unwrap().remaining, None);
}

#[tokio::test]
async fn a_key_of_another_type_is_busy_and_untouched() {
    let server = server().await;
    let (store, mut cli) = (open(&server.url()), raw_connection(&server).await);
    let _: i64 = run_command(&mut cli, "RPUSH lock:a one two").await;
    let mine = token();
    let granted = expect_granted(&store, &acquire_request("b", &mine)).await;
    assert!(expect_busy(&store, &queue_request("a", &mine)).await.holder.starts_with("foreign#"));
    assert_eq!(renew(&store, renew_request("a", &mine, granted)).await, RenewResponse::NotOwned);
    assert_eq!(release(&store, "a", &mine).await, ReleaseResponse::NotOwned);
    assert!(store.inspect(&name("a"), CALL_TIMEOUT).await.unwrap().into_first().is_some());
    let length: i64 = run_command(&mut cli, "LLEN lock:a").await;
    assert_eq!(length, 2);
}

#[tokio::test]
async fn operator_breaks_only_the_inspected_grant() {
    let server = server().await;
    let (store, mut cli) = (open(&server.url()), raw_connection(&server).await);
    let first = expect_granted(&store, &acquire_request("a", &token())).await.fence;
    let breaking = |fence| ReleaseRequest::by_operator(name("a"), fence);
    assert_eq!(store.release(&breaking(first), CALL_TIMEOUT).await.unwrap(), ReleaseResponse::Released);
    let second = expect_granted(&store, &acquire_request("a", &token())).await.fence;
    assert!(second > first);
    assert_eq!(store.release(&breaking(first), CALL_TIMEOUT).await.unwrap(), ReleaseResponse::NotOwned);
    // A foreign value that happens to end in a number was never shown with a fence.
    let _: () = run_command(&mut cli, &format!("SET lock:b x|{first}")).await;
    let foreign = ReleaseRequest::by_operator(name("b"), first);
    assert_eq!(store.release(&foreign, CALL_TIMEOUT).await.unwrap(), ReleaseResponse::NotOwned);
}

/// A waiter that cannot be queued must not be told that it is queued: it polls soon
/// instead of waiting for a wake-up.
#[tokio::test]
async fn queue_key_of_another_type_queues_no_waiter() {
    let server = server().await;
    let (store, mut cli) = (open(&server.url()), raw_connection(&server).await);
    for (lock, key) in [("a", "lh1:queue:{lock:a}"), ("b", "lh1:place:{lock:b}")] {
        let _: () = run_command(&mut cli, &format!("SET {key} something")).await;
        let holder = token();
        expect_granted(&store, &acquire_request(lock, &holder)).await;
        assert!(!expect_busy(&store, &queue_request(lock, &token())).await.queued, "{key}");
        assert_eq!(release(&store, lock, &token()).await, ReleaseResponse::NotOwned, "{key}");
        let kept: String = run_command(&mut cli, &format!("GET {key}")).await;
        assert_eq!(kept, "something");
    }
}

#[tokio::test]
async fn two_maps_meet_on_one_key() {
    let server = server().await;
    let plane = open(&format!("{}?map=job:=cordum:scheduler:job:", server.url()));
    let other = open(&format!("{}?prefix=cordum:scheduler:job:", server.url()));
    expect_granted(&plane, &acquire_request("job:7", &token())).await;
    assert_eq!(expect_busy(&other, &acquire_request("7", &token())).await.holder, "web-1:7");
    assert!(RedisOptions::parse(&format!("{}?prefix=lh1:", server.url())).is_err());
}

//! Other clients on the same keys: the documented recipe excludes us and is excluded by us.

use std::time::Duration;

use leasehold_core::store::{Claim, Given, Giving, Renewed, Store};
use leasehold_redis::RedisOptions;

use crate::stage::{
    WITHIN, ask, busy, give, grant, name, open, queued, raw, renew, renewal, run, server, token,
};

const RECIPE_RELEASE: &str =
    "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) else return 0 end";

#[tokio::test]
async fn an_operator_reads_who_and_how_long_from_the_plain_key() {
    let server = server().await;
    let (store, mut cli) = (open(&server.url()), raw(&server).await);
    let token = token();
    let granted = grant(&store, &ask("job:42", &token)).await;
    let value: String = run(&mut cli, "GET lock:job:42").await;
    assert_eq!(value, format!("{}|{}", token.expose(), granted.fence));
    assert!(value.starts_with("web-1:7|scheduler|"));
    let left: i64 = run(&mut cli, "PTTL lock:job:42").await;
    assert!((1..=30_000).contains(&left), "{left}");
}

#[tokio::test]
async fn a_foreign_set_nx_px_keeps_us_out_and_we_keep_it_out() {
    let server = server().await;
    let (store, mut cli) = (open(&server.url()), raw(&server).await);

    // They have it.
    let _: () = run(&mut cli, "SET lock:a their-secret NX PX 60000").await;
    let token = token();
    let seen = busy(&store, &ask("a", &token)).await;
    assert!(
        seen.holder.starts_with("foreign#") && !seen.holder.contains("secret"),
        "{seen:?}"
    );
    assert_eq!((seen.class, seen.fence), (None, None));
    assert!(seen.remaining.unwrap() <= Duration::from_secs(60));
    assert_eq!(give(&store, "a", &token).await, Given::NotOwned);
    let lease = store.inspect(&name("a"), WITHIN).await.unwrap().unwrap();
    assert!(lease.holder.starts_with("foreign#"));

    // They give it back by compare-and-delete; we take it, they do not get it.
    let script = redis::Script::new(RECIPE_RELEASE);
    let gone: i64 = script
        .key("lock:a")
        .arg("their-secret")
        .invoke_async(&mut cli)
        .await
        .unwrap();
    assert_eq!(gone, 1);
    grant(&store, &ask("a", &token)).await;
    let refused: Option<String> = run(&mut cli, "SET lock:a their-secret NX PX 60000").await;
    assert_eq!(refused, None);
    let gone: i64 = script
        .key("lock:a")
        .arg("their-secret")
        .invoke_async(&mut cli)
        .await
        .unwrap();
    assert_eq!(gone, 0);

    // And after our release they do.
    assert_eq!(give(&store, "a", &token).await, Given::Released);
    let taken: Option<String> = run(&mut cli, "SET lock:a their-secret NX PX 60000").await;
    assert_eq!(taken.as_deref(), Some("OK"));
}

#[tokio::test]
async fn a_foreign_key_without_expiry_is_busy_for_ever() {
    let server = server().await;
    let (store, mut cli) = (open(&server.url()), raw(&server).await);
    let _: () = run(&mut cli, "SET lock:a x").await;
    assert_eq!(busy(&store, &ask("a", &token())).await.remaining, None);
    assert_eq!(
        store
            .inspect(&name("a"), WITHIN)
            .await
            .unwrap()
            .unwrap()
            .remaining,
        None
    );
}

#[tokio::test]
async fn a_key_of_another_type_is_busy_and_untouched() {
    let server = server().await;
    let (store, mut cli) = (open(&server.url()), raw(&server).await);
    let _: i64 = run(&mut cli, "RPUSH lock:a one two").await;
    let mine = token();
    let granted = grant(&store, &ask("b", &mine)).await;
    assert!(
        busy(&store, &queued("a", &mine))
            .await
            .holder
            .starts_with("foreign#")
    );
    assert_eq!(
        renew(&store, renewal("a", &mine, granted)).await,
        Renewed::NotOwned
    );
    assert_eq!(give(&store, "a", &mine).await, Given::NotOwned);
    assert!(store.inspect(&name("a"), WITHIN).await.unwrap().is_some());
    let length: i64 = run(&mut cli, "LLEN lock:a").await;
    assert_eq!(length, 2);
}

#[tokio::test]
async fn an_operator_breaks_the_grant_that_was_seen_and_no_other() {
    let server = server().await;
    let (store, mut cli) = (open(&server.url()), raw(&server).await);
    let first = grant(&store, &ask("a", &token())).await.fence;
    let breaking = |fence| Giving {
        name: name("a"),
        claim: Claim::Seen(fence),
        tombstone: None,
    };
    assert_eq!(
        store.release(&breaking(first), WITHIN).await.unwrap(),
        Given::Released
    );
    let second = grant(&store, &ask("a", &token())).await.fence;
    assert!(second > first);
    assert_eq!(
        store.release(&breaking(first), WITHIN).await.unwrap(),
        Given::NotOwned
    );
    // A foreign value that happens to end in a number was never shown with a fence.
    let _: () = run(&mut cli, &format!("SET lock:b x|{first}")).await;
    let foreign = Giving {
        name: name("b"),
        claim: Claim::Seen(first),
        tombstone: None,
    };
    assert_eq!(store.release(&foreign, WITHIN).await.unwrap(), Given::NotOwned);
}

/// Whoever cannot be queued is not told that it is: it asks again soon, instead of waiting to be woken.
#[tokio::test]
async fn a_queue_of_another_type_keeps_nobody_in_line() {
    let server = server().await;
    let (store, mut cli) = (open(&server.url()), raw(&server).await);
    for (lock, key) in [("a", "lh1:queue:{lock:a}"), ("b", "lh1:place:{lock:b}")] {
        let _: () = run(&mut cli, &format!("SET {key} something")).await;
        let holder = token();
        grant(&store, &ask(lock, &holder)).await;
        assert!(!busy(&store, &queued(lock, &token())).await.queued, "{key}");
        assert_eq!(give(&store, lock, &token()).await, Given::NotOwned, "{key}");
        let kept: String = run(&mut cli, &format!("GET {key}")).await;
        assert_eq!(kept, "something");
    }
}

#[tokio::test]
async fn two_maps_meet_on_one_key() {
    let server = server().await;
    let plane = open(&format!("{}?map=job:=cordum:scheduler:job:", server.url()));
    let other = open(&format!("{}?prefix=cordum:scheduler:job:", server.url()));
    grant(&plane, &ask("job:7", &token())).await;
    assert_eq!(busy(&other, &ask("7", &token())).await.holder, "web-1:7");
    assert!(RedisOptions::parse(&format!("{}?prefix=lh1:", server.url())).is_err());
}

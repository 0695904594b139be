//! More connections and requests than there is room for: what keeps a lock is served all the same.

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::stage::{PATIENCE, Plan, Reply, eventually, within};

#[tokio::test]
async fn one_connection_too_many() {
    let mut plan = Plan::new();
    plan.config.connections = 3;
    plan.config.body_timeout = PATIENCE;
    let daemon = plan.start().await;
    let mut open = Vec::new();
    for _ in 0..3 {
        let mut stream = daemon.connect().await;
        // Not answered before its body has come.
        let ask = format!(
            "POST /v1/locks/job:1/acquire HTTP/1.1\r\nhost: {}\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n",
            daemon.address
        );
        stream.write_all(ask.as_bytes()).await.unwrap();
        open.push(stream);
    }
    let refused = daemon.raw("").await;
    assert_eq!(
        (refused.status, refused.code().as_str()),
        (503, "overloaded"),
        "{refused:?}"
    );
    assert_eq!(
        refused.header("content-length").unwrap().parse(),
        Ok(refused.text.len())
    );
    open.clear();
    eventually("room again", async || daemon.get("/healthz").await.status == 200).await;
}

/// A flood of acquires uses its own budget up, and not that of renewals.
#[tokio::test]
async fn a_flood_does_not_cost_a_renewal() {
    let mut plan = Plan::new();
    plan.config.asking = leasehold_server::auth::Rate {
        per_second: 0.001,
        burst: 20.0,
    };
    let daemon = plan.start().await;
    let mine = daemon.post("/v1/locks/job:1/acquire", json!({})).await.ok();
    let mut refused = 0;
    for _ in 0..60 {
        let reply = daemon.post("/v1/locks/job:1/acquire", json!({})).await;
        if reply.status == 429 {
            assert_eq!(reply.code(), "rate_limited");
            assert!(reply.header("retry-after").is_some());
            refused += 1;
        }
        let renew = json!({"token": mine["token"], "fence": mine["fence"]});
        assert_eq!(daemon.post("/v1/locks/job:1/renew", renew).await.status, 200);
    }
    assert!(refused >= 40, "{refused}");
    daemon
        .post("/v1/locks/job:1/release", json!({"token": mine["token"]}))
        .await
        .ok();
}

/// A flood of one identity's acquires, with every budget of its own used up, costs another identity neither an acquire nor a
/// renewal.
#[tokio::test]
async fn a_flood_does_not_cost_another_identity() {
    let mut plan = Plan::new();
    let few = leasehold_server::auth::Rate {
        per_second: 0.001,
        burst: 20.0,
    };
    (plan.config.asking, plan.config.keeping) = (few, few);
    let tokens = plan.identities(&[("flood", &["hold:team"]), ("calm", &["hold:team"])]);
    let daemon = plan.start().await;
    let (flood, calm) = (Some(tokens[0].as_str()), Some(tokens[1].as_str()));
    let call = |who, verb: &str, body| {
        let path = format!("/v1/locks/team:1/{verb}");
        let daemon = &daemon;
        async move { daemon.call("POST", &path, who, Some(body)).await }
    };
    let mine = call(calm, "acquire", json!({})).await.ok();
    let owned = json!({"token": mine["token"], "fence": mine["fence"]});
    for verb in ["acquire", "renew"] {
        let body = if verb == "acquire" {
            json!({})
        } else {
            owned.clone()
        };
        let mut refused = 0;
        for _ in 0..40 {
            refused += u32::from(call(flood, verb, body.clone()).await.status == 429);
        }
        assert!(refused >= 15, "{verb}: {refused}");
    }
    for _ in 0..10 {
        assert_eq!(call(calm, "renew", owned.clone()).await.status, 200);
        assert_eq!(call(calm, "acquire", json!({})).await.code(), "busy");
    }
    call(calm, "release", json!({"token": mine["token"]})).await.ok();
    // Nobody can use up what belongs to those who say nothing.
    assert_eq!(daemon.get("/healthz").await.status, 200);
}

/// Connections that say nothing, or nothing more, leave room for those that keep a lock.
#[tokio::test]
async fn idle_connections_leave_room_for_renewals() {
    let mut plan = Plan::new();
    plan.config.connections = 8;
    // Nothing here waits for that.
    plan.config.head_timeout = 10 * PATIENCE;
    let daemon = plan.start().await;
    let mine = daemon.post("/v1/locks/job:1/acquire", json!({})).await.ok();
    let renew = json!({"token": mine["token"], "fence": mine["fence"]}).to_string();
    let renew = format!(
        "POST /v1/locks/job:1/renew HTTP/1.1\r\nhost: {}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{renew}",
        daemon.address,
        renew.len()
    );
    // Every connection is taken by someone who says nothing; the last of them are given up soon.
    let mut silent = Vec::new();
    for _ in 0..8 {
        silent.push(daemon.connect().await);
    }
    let mut kept = Vec::new();
    eventually("a renewal", async || {
        let mut stream = daemon.connect().await;
        let _ = stream.write_all(renew.as_bytes()).await;
        let mut first = [0; 12];
        let read = stream.read_exact(&mut first).await;
        kept.push(stream);
        read.is_ok() && &first == b"HTTP/1.1 200"
    })
    .await;
    // Nor does it cost the next one its place that those before would have kept theirs.
    for _ in 0..8 {
        let mut stream = daemon.connect().await;
        stream.write_all(renew.as_bytes()).await.unwrap();
        let mut said = Vec::new();
        within("the end", stream.read_to_end(&mut said)).await.unwrap();
        assert_eq!(Reply::parse(&said).status, 200);
        kept.push(stream);
    }
}

/// Requests that wait leave room for those that keep a lock, and those of one identity for another's: whoever must renew finds a
/// connection.
#[tokio::test]
async fn requests_that_wait_leave_room_for_renewals() {
    let mut plan = Plan::new();
    plan.config.connections = 8;
    let tokens = plan.identities(&[("flood", &["hold:team"]), ("calm", &["hold:team"])]);
    let daemon = plan.start().await;
    let calm = async |verb: &str, body| {
        let path = format!("/v1/locks/team:1/{verb}");
        let asking = daemon.call("POST", &path, Some(&tokens[1]), Some(body));
        within("an answer", asking).await
    };
    let mine = calm("acquire", json!({})).await.ok();

    // Over connections that they would keep.
    let body = r#"{"wait_ms":60000}"#;
    let ask = format!(
        "POST /v1/locks/team:1/acquire HTTP/1.1\r\nhost: {}\r\nauthorization: Bearer {}\r\ncontent-type: application/json\r\n\
         content-length: {}\r\n\r\n{body}",
        daemon.address,
        tokens[0],
        body.len()
    );
    let mut waiting = FuturesUnordered::new();
    for _ in 0..8 {
        let mut stream = daemon.connect().await;
        stream.write_all(ask.as_bytes()).await.unwrap();
        waiting.push(async move {
            let mut said = Vec::new();
            stream.read_to_end(&mut said).await.unwrap();
            Reply::parse(&said)
        });
    }
    // Half of three quarters of the connections may wait. The others are told, and keep no connection.
    for _ in 3..8 {
        let told = within("one to be told", waiting.next()).await.unwrap();
        assert_eq!((told.status, told.code().as_str()), (429, "too_many_waiters"));
    }
    let renew = json!({"token": mine["token"], "fence": mine["fence"]});
    assert_eq!(calm("renew", renew).await.status, 200);
    let waited = calm("acquire", json!({"wait_ms": 50})).await;
    assert_eq!((waited.status, waited.code().as_str()), (409, "busy"));
}

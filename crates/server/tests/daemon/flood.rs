//! More connections and requests than the daemon has room for: renewals are served all the same.

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::fixture::{Daemon, DaemonPlan, Reply, STEP_TIMEOUT, eventually, within};

/// The text of a request that keeps its connection open.
fn request(daemon: &Daemon, path: &str, token: Option<&str>, body: &Value) -> String {
    let body = body.to_string();
    let token = token.map(|token| format!("authorization: Bearer {token}\r\n"));
    format!(
        "POST {path} HTTP/1.1\r\nhost: {}\r\n{}content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        daemon.address,
        token.unwrap_or_default(),
        body.len()
    )
}

/// Reads until the daemon closes the connection. The reply is empty if it closed with unread data.
async fn read_to_close(mut stream: TcpStream) -> Reply {
    let mut message = Vec::new();
    let _ = stream.read_to_end(&mut message).await;
    Reply::parse(&message)
}

/// Sends a request over `count` connections, and returns the reply of each.
async fn send_many(
    daemon: &Daemon,
    count: usize,
    request: &str,
) -> FuturesUnordered<impl Future<Output = Reply>> {
    let waiting = FuturesUnordered::new();
    for _ in 0..count {
        let mut stream = daemon.connect().await;
        // The daemon may answer and close before it has read everything.
        let _ = stream.write_all(request.as_bytes()).await;
        waiting.push(read_to_close(stream));
    }
    waiting
}

/// The first reply on a new connection, and the connection, which stays open on this side.
async fn first_reply(daemon: &Daemon, request: &str) -> (Reply, TcpStream) {
    let mut stream = daemon.connect().await;
    // The daemon may answer and close before it has read everything.
    let _ = stream.write_all(request.as_bytes()).await;
    let mut message = vec![0; 4096];
    let read = within("an answer", stream.read(&mut message)).await;
    (Reply::parse(&message[..read.unwrap_or(0)]), stream)
}

/// A request whose body never arrives, so it gets no reply either.
async fn open_without_body(daemon: &Daemon) -> TcpStream {
    let whole = request(daemon, "/v1/locks/job:1/acquire", None, &json!({}));
    let mut stream = daemon.connect().await;
    let _ = stream.write_all(whole.trim_end_matches("{}").as_bytes()).await;
    stream
}

/// Opens `count` connections that got a reply and then stay idle.
async fn open_idle(daemon: &Daemon, count: usize) -> Vec<TcpStream> {
    let request = format!("GET /healthz HTTP/1.1\r\nhost: {}\r\n\r\n", daemon.address);
    let mut idle = Vec::new();
    eventually("connections that are kept", async || {
        let (reply, stream) = first_reply(daemon, &request).await;
        if reply.status == 200 && reply.header("connection").is_none() {
            idle.push(stream);
        }
        idle.len() == count
    })
    .await;
    idle
}

#[tokio::test]
async fn connections_beyond_the_limit_are_refused() {
    let mut plan = DaemonPlan::new();
    plan.config.max_connections = 3;
    plan.config.body_timeout = STEP_TIMEOUT;
    let daemon = plan.start().await;
    let mut open = Vec::new();
    for _ in 0..3 {
        open.push(open_without_body(&daemon).await);
    }
    let mut refused = None;
    eventually("one too many", async || {
        let reply = daemon.raw("").await;
        // The daemon soon closes the reserved ones among them.
        open.push(open_without_body(&daemon).await);
        let full = reply.status == 503;
        refused = Some(reply);
        full
    })
    .await;
    let refused = refused.unwrap();
    assert_eq!(refused.code(), "overloaded", "{refused:?}");
    assert_eq!(refused.header("content-length").unwrap().parse(), Ok(refused.text.len()));
    open.clear();
    eventually("room again", async || daemon.get("/healthz").await.status == 200).await;
}

/// A flood of acquires uses up its own budget, not that of renewals.
#[tokio::test]
async fn a_flood_does_not_cost_a_renewal() {
    let mut plan = DaemonPlan::new();
    plan.config.request_rate = leasehold_server::auth::Rate { per_second: 0.001, burst: 20.0 };
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
    daemon.post("/v1/locks/job:1/release", json!({"token": mine["token"]})).await.ok();
}

/// A flood of one identity, with all its budgets used up, costs another identity neither an acquire
/// nor a renewal.
#[tokio::test]
async fn a_flood_does_not_cost_another_identity() {
    let mut plan = DaemonPlan::new();
    let few = leasehold_server::auth::Rate { per_second: 0.001, burst: 20.0 };
    (plan.config.request_rate, plan.config.renewal_rate) = (few, few);
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
        let body = if verb == "acquire" { json!({}) } else { owned.clone() };
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
    // Routes without an identity have a budget of their own.
    assert_eq!(daemon.get("/healthz").await.status, 200);
}

/// Silent and idle connections leave room for renewals.
#[tokio::test]
async fn idle_connections_leave_room_for_renewals() {
    let mut plan = DaemonPlan::new();
    plan.config.max_connections = 8;
    // The test must not pass because of this timeout.
    plan.config.head_timeout = 10 * STEP_TIMEOUT;
    let daemon = plan.start().await;
    // Nor because the lease expires.
    let want = json!({"ttl_ms": 3_600_000});
    let mine = daemon.post("/v1/locks/job:1/acquire", want).await.ok();
    let renew = json!({"token": mine["token"], "fence": mine["fence"]});
    let renew = request(&daemon, "/v1/locks/job:1/renew", None, &renew);
    // Every connection is taken by an idle or silent client; the daemon soon closes the reserved
    // ones.
    let _idle = open_idle(&daemon, 6).await;
    let _silent = (daemon.connect().await, daemon.connect().await);
    let mut kept = Vec::new();
    for _ in 0..9 {
        let mut reply = None;
        // On a stalled machine the daemon may close one of these too, so each is retried until
        // served.
        eventually("a renewal", async || {
            let (message, stream) = first_reply(&daemon, &renew).await;
            kept.push(stream);
            let done = message.status == 200;
            reply = Some(message);
            done
        })
        .await;
        // The reply closes the connection, so that it does not take the next request's place.
        assert_eq!(reply.unwrap().header("connection"), Some("close"));
    }
}

/// Idle connections have taken all but the reserved ones: no request waits there, and each must be
/// complete soon.
#[tokio::test]
async fn reserved_connections_are_for_immediate_requests() {
    let mut plan = DaemonPlan::new();
    plan.config.max_connections = 8;
    // The test must not pass because of this timeout.
    (plan.config.head_timeout, plan.config.body_timeout) = (10 * STEP_TIMEOUT, 10 * STEP_TIMEOUT);
    let daemon = plan.start().await;
    // Nor because the lease expires.
    let want = json!({"ttl_ms": 3_600_000});
    let mine = daemon.post("/v1/locks/job:1/acquire", want).await.ok();
    let renew = json!({"token": mine["token"], "fence": mine["fence"]});
    let renew = request(&daemon, "/v1/locks/job:1/renew", None, &renew);
    let _idle = open_idle(&daemon, 6).await;
    for (path, want) in [
        ("/v1/locks/job:1/acquire", json!({"wait_ms": 60_000})),
        ("/v1/locks/job:1/wait", json!({"token": mine["token"], "wait_ms": 60_000})),
        ("/v1/holds", json!({"name": "job:1", "wait_ms": 60_000})),
    ] {
        let waits = request(&daemon, path, None, &want);
        eventually("whoever would wait to be told", async || {
            let told = send_many(&daemon, 1, &waits).await.next().await.unwrap();
            told.status == 429 && told.code() == "too_many_waiters"
        })
        .await;
    }
    let _slow = (open_without_body(&daemon).await, open_without_body(&daemon).await);
    eventually("a renewal beside those who do not come to the point", async || {
        first_reply(&daemon, &renew).await.0.status == 200
    })
    .await;
}

/// Waiting requests leave room for renewals, and those of one identity leave room for another's.
#[tokio::test]
async fn waiting_requests_leave_room_for_renewals() {
    let mut plan = DaemonPlan::new();
    plan.config.max_connections = 8;
    let tokens = plan.identities(&[("flood", &["hold:team"]), ("calm", &["hold:team"])]);
    let daemon = plan.start().await;
    let calm = async |verb: &str, body| {
        let path = format!("/v1/locks/team:1/{verb}");
        let acquire = daemon.call("POST", &path, Some(&tokens[1]), Some(body));
        within("an answer", acquire).await
    };
    let mine = calm("acquire", json!({})).await.ok();

    let request = request(&daemon, "/v1/locks/team:1/acquire", Some(&tokens[0]), &json!({"wait_ms": 60_000}));
    let mut waiting = send_many(&daemon, 8, &request).await;
    // One identity may use half of the wait slots, which are three quarters of the connections.
    // Further requests are refused and their connections closed.
    for _ in 3..8 {
        let told = within("one to be told", waiting.next()).await.unwrap();
        assert_eq!((told.status, told.code().as_str()), (429, "too_many_waiters"));
    }
    let renew = json!({"token": mine["token"], "fence": mine["fence"]});
    assert_eq!(calm("renew", renew).await.status, 200);
    let waited = calm("acquire", json!({"wait_ms": 50})).await;
    assert_eq!((waited.status, waited.code().as_str()), (409, "busy"));
}

/// A request for a daemon-kept hold counts as waiting, and against the same share.
#[tokio::test]
async fn hold_requests_count_against_their_callers_share() {
    let mut plan = DaemonPlan::new();
    plan.config.max_connections = 16;
    let tokens = plan.identities(&[("flood", &["hold:team"]), ("calm", &["hold:team"])]);
    let daemon = plan.start().await;
    let calm = async |path: &str, body| {
        let acquire = daemon.call("POST", path, Some(&tokens[1]), Some(body));
        within("an answer", acquire).await
    };
    calm("/v1/locks/team:1/acquire", json!({})).await.ok();

    // All requests use unreserved connections. One identity may use half of the wait slots, which
    // are three quarters of the connections.
    let want = json!({"name": "team:1", "wait_ms": 60_000});
    let request = request(&daemon, "/v1/holds", Some(&tokens[0]), &want);
    let mut waiting = send_many(&daemon, 9, &request).await;
    for _ in 6..9 {
        let told = within("one to be told", waiting.next()).await.unwrap();
        assert_eq!((told.status, told.code().as_str()), (429, "too_many_waiters"));
    }
    let waited = calm("/v1/holds", json!({"name": "team:1", "wait_ms": 50})).await;
    assert_eq!((waited.status, waited.code().as_str()), (409, "busy"));
}

/// Finding 14 of the security review: a request that was refused because of its path, method or token cost a
/// stranger nothing.
#[tokio::test]
async fn finding_14_refusals_of_strangers_take_from_the_budget_of_their_address() {
    let strangers: [(&str, &str, Option<&str>, u16); 6] = [
        ("GET", "/nothing", None, 404),
        ("GET", "/v1/nothing", Some("lk_ci_0"), 404),
        ("GET", "/v1/locks", None, 401),
        ("POST", "/v1/locks/team:1/renew", Some("lk_ci_0"), 401),
        ("DELETE", "/v1/locks", None, 405),
        ("POST", "/healthz", None, 405),
    ];
    for (method, path, token, status) in strangers {
        let mut plan = DaemonPlan::new();
        plan.config.request_rate = leasehold_server::auth::Rate { per_second: 0.001, burst: 20.0 };
        let tokens = plan.identities(&[("calm", &["hold:team"])]);
        let daemon = plan.start().await;
        let calm = Some(tokens[0].as_str());
        let mine = daemon.call("POST", "/v1/locks/team:1/acquire", calm, Some(json!({}))).await.ok();
        let mut refused = Vec::new();
        for _ in 0..25 {
            let reply = daemon.call(method, path, token, None).await;
            if reply.status != status {
                refused.push(reply);
            }
        }
        assert_eq!(refused.len(), 5, "{method} {path}: {refused:?}");
        // Open routes share this budget.
        refused.push(daemon.get("/").await);
        for reply in refused {
            assert_eq!((reply.status, reply.code().as_str()), (429, "rate_limited"), "{method} {path}");
            assert!(reply.header("retry-after").is_some(), "{reply:?}");
            assert_eq!(reply.header("connection"), Some("close"), "{reply:?}");
        }
        // Identified callers of the same address, and probes, do not.
        let renew = json!({"token": mine["token"], "fence": mine["fence"]});
        for _ in 0..25 {
            let renewed = daemon.call("POST", "/v1/locks/team:1/renew", calm, Some(renew.clone())).await;
            assert_eq!(renewed.status, 200, "{renewed:?}");
        }
        assert_eq!(daemon.call("GET", "/v1/locks", calm, None).await.status, 200);
        assert_eq!(daemon.get("/healthz").await.status, 200);
    }
}

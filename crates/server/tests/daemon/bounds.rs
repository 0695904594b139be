//! Regression tests of the security review's findings about bounds: whatever a caller can make grow.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use leasehold::Ttl;
use leasehold::clock::{BootClock, Clock, ClockExt};
use leasehold::store::AcquireRequest;
use leasehold_core::Token;
use leasehold_core::adapter::{FaultyStore, StoreOp};
use leasehold_server::auth::Rate;
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::fixture::{Daemon, DaemonPlan, Reply, STEP_TIMEOUT, eventually, within};

/// Sends the head of a request that announces a body of `length` bytes, and the first `sent` of them.
async fn send_part(daemon: &Daemon, path: &str, token: &str, length: usize, sent: usize) -> TcpStream {
    let mut stream = daemon.connect().await;
    let head = format!(
        "POST {path} HTTP/1.1\r\nhost: {}\r\nauthorization: Bearer {token}\r\n\
         content-type: application/json\r\ncontent-length: {length}\r\n\r\n",
        daemon.address
    );
    // The daemon may answer and close before it has read everything.
    let _ = stream.write_all(format!("{head}{}", " ".repeat(sent)).as_bytes()).await;
    stream
}

/// The reply on this connection; status 0 if the daemon closed it without one.
async fn reply(stream: &mut TcpStream) -> Reply {
    let mut message = vec![0; 4096];
    let read = within("an answer", stream.read(&mut message)).await;
    Reply::parse(&message[..read.unwrap_or(0)])
}

/// Finding 1 of the security review: the class of a refused renewal was a metric label.
#[tokio::test]
async fn finding_01_invented_classes_add_a_constant_number_of_series() {
    let mut plan = DaemonPlan::new();
    let tokens = plan.identities(&[("flood", &["hold:a"]), ("ops", &["read:*"])]);
    let daemon = plan.start().await;
    let renew = async |class: &str| {
        let token = format!("h|{class}|{:032x}", 7);
        let body = json!({"token": token, "fence": "1", "ttl_ms": 1000});
        daemon.call("POST", "/v1/locks/a:1/renew", Some(&tokens[0]), Some(body)).await
    };
    let series = async || {
        let text = daemon.call("GET", "/metrics", Some(&tokens[1]), None).await.text;
        assert!(text.contains("class=\"other\""), "{text}");
        text.lines().count()
    };
    assert_eq!(renew("invented").await.code(), "not_owned");
    let before = series().await;
    for number in 0..150 {
        assert_eq!(renew(&format!("c{number}")).await.code(), "not_owned");
    }
    assert_eq!(series().await, before);
}

/// Finding 1 of the security review: refused requests used up the namespaces that have series.
#[tokio::test]
async fn finding_01_refused_requests_take_no_namespace_label() {
    let mut plan = DaemonPlan::new();
    let tokens = plan.identities(&[("flood", &["hold:*"]), ("ops", &["read:*"])]);
    let daemon = plan.start().await;
    let call = async |path: &str, body| daemon.call("POST", path, Some(&tokens[0]), Some(body)).await;
    for number in 0..150 {
        let token = format!("h|scheduler|{:032x}", 7);
        let body = json!({"token": token, "fence": "1", "ttl_ms": 1000});
        assert_eq!(call(&format!("/v1/locks/n{number}:1/renew"), body).await.code(), "not_owned");
    }
    call("/v1/locks/late:1/acquire", json!({})).await.ok();
    let text = daemon.call("GET", "/metrics", Some(&tokens[1]), None).await.text;
    assert!(text.contains("namespace=\"late\"") && !text.contains("namespace=\"n1\""), "{text}");
}

/// Finding 23 of the security review: one identity could have all connections.
#[tokio::test]
async fn finding_23_one_identity_keeps_half_of_the_connections() {
    let mut plan = DaemonPlan::new();
    plan.config.max_connections = 8;
    plan.config.head_timeout = 10 * STEP_TIMEOUT;
    let tokens = plan.identities(&[("flood", &["hold:a"]), ("calm", &["hold:a"])]);
    let daemon = plan.start().await;
    let open = async |token: &str, path: &str| {
        let mut stream = daemon.connect().await;
        let request = format!(
            "GET {path} HTTP/1.1\r\nhost: {}\r\nauthorization: Bearer {token}\r\n\r\n",
            daemon.address
        );
        stream.write_all(request.as_bytes()).await.unwrap();
        (reply(&mut stream).await, stream)
    };
    let mut kept = Vec::new();
    for _ in 0..3 {
        let (reply, stream) = open(&tokens[0], "/v1/me").await;
        assert_eq!((reply.status, reply.header("connection")), (200, None));
        kept.push(stream);
    }
    // Further ones serve one request that does not wait.
    let (extra, _stream) = open(&tokens[0], "/v1/me").await;
    assert_eq!((extra.status, extra.header("connection")), (200, Some("close")));
    let (extra, _stream) = open(&tokens[0], "/v1/events").await;
    assert_eq!((extra.status, extra.code().as_str()), (429, "too_many_waiters"));
    let (calm, _stream) = open(&tokens[1], "/v1/me").await;
    assert_eq!((calm.status, calm.header("connection")), (200, None));
    kept.pop();
    eventually("room again", async || open(&tokens[0], "/v1/me").await.0.header("connection").is_none())
        .await;
}

/// Finding 17 of the security review: bodies were read before rights were checked.
#[tokio::test]
async fn finding_17_rights_are_checked_before_the_body_is_read() {
    let mut plan = DaemonPlan::with_plane();
    plan.config.body_timeout = STEP_TIMEOUT;
    let tokens = plan.identities(&[("reader", &["read:zzz"]), ("holder", &["hold:zzz"])]);
    let daemon = plan.start().await;
    for (path, token) in [
        // The target is in the head.
        ("/v1/locks/a:1/acquire", &tokens[1]),
        ("/v1/namespaces/a/renew", &tokens[1]),
        // The target is in the body, and the caller has this right nowhere.
        ("/v1/jobs", &tokens[0]),
        ("/v1/holds", &tokens[0]),
    ] {
        let mut stream = send_part(&daemon, path, token, 16_000, 1).await;
        assert_eq!(reply(&mut stream).await.code(), "forbidden", "{path}");
    }
}

/// Finding 17 of the security review: unfinished bodies took memory without a bound in sum.
#[tokio::test]
async fn finding_17_the_sum_of_bodies_is_bounded_per_identity() {
    let mut plan = DaemonPlan::with_plane();
    plan.config.body_timeout = 10 * STEP_TIMEOUT;
    let tokens = plan.identities(&[("flood", &["submit:*"]), ("calm", &["submit:*"])]);
    let daemon = plan.start().await;
    let mut open = Vec::new();
    eventually("a body too many", async || {
        let stream = send_part(&daemon, "/v1/jobs", &tokens[0], 270_000, 269_000).await;
        let mut byte = [0];
        // A refused request is answered; the others wait for the rest of their bodies.
        let answered = tokio::select! {
            biased;
            read = stream.peek(&mut byte) => read.is_ok(),
            () = tokio::task::yield_now() => false,
        };
        open.push(stream);
        assert!(open.len() < 1000, "nothing was refused");
        answered
    })
    .await;
    let mut codes = Vec::new();
    for stream in &mut open {
        let mut byte = [0];
        if let Some(Ok(1)) = futures_util::FutureExt::now_or_never(stream.peek(&mut byte)) {
            codes.push(reply(stream).await.code());
        }
    }
    assert!(!codes.is_empty() && codes.iter().all(|code| code == "too_many_bodies"), "{codes:?}");
    let job = json!({"work": "pull", "topic": "t", "payload": "x".repeat(200_000)});
    let calm = daemon.call("POST", "/v1/jobs", Some(&tokens[1]), Some(job)).await;
    assert!(matches!(calm.status, 200 | 201), "{calm:?}");
}

/// Finding 13 of the security review: silent connections of callers without a token took the memory.
#[tokio::test]
async fn finding_13_unidentified_connections_displace_each_other() {
    let mut plan = DaemonPlan::new();
    plan.config.max_unidentified_connections = 4;
    (plan.config.unidentified_timeout, plan.config.head_timeout) = (10 * STEP_TIMEOUT, 10 * STEP_TIMEOUT);
    let tokens = plan.identities(&[("calm", &["hold:a"])]);
    let daemon = plan.start().await;
    let request = format!(
        "GET /v1/me HTTP/1.1\r\nhost: {}\r\nauthorization: Bearer {}\r\n\r\n",
        daemon.address, tokens[0]
    );
    let mut calm = daemon.connect().await;
    calm.write_all(request.as_bytes()).await.unwrap();
    assert_eq!(reply(&mut calm).await.status, 200);
    let mut silent = Vec::new();
    for _ in 0..20 {
        silent.push(daemon.connect().await);
    }
    // The daemon cuts the older ones; 0 bytes are the end of the stream.
    for stream in &mut silent[..16] {
        assert_eq!(within("the cut", stream.read(&mut [0])).await.unwrap_or(0), 0);
    }
    // A caller with a token finds a place, and keeps the one it has.
    assert_eq!(daemon.call("GET", "/v1/me", Some(&tokens[0]), None).await.status, 200);
    calm.write_all(request.as_bytes()).await.unwrap();
    assert_eq!(reply(&mut calm).await.status, 200);
}

/// Finding 13 of the security review: a connection without a token could stay as long as it sent heads.
#[tokio::test]
async fn finding_13_unidentified_connections_are_cut_after_their_time() {
    let mut plan = DaemonPlan::new();
    plan.config.unidentified_timeout = Duration::from_millis(300);
    plan.config.head_timeout = 10 * STEP_TIMEOUT;
    let tokens = plan.identities(&[("calm", &["hold:a"])]);
    let daemon = plan.start().await;
    let request = format!(
        "GET /v1/me HTTP/1.1\r\nhost: {}\r\nauthorization: Bearer {}\r\n\r\n",
        daemon.address, tokens[0]
    );
    let mut calm = daemon.connect().await;
    calm.write_all(request.as_bytes()).await.unwrap();
    assert_eq!(reply(&mut calm).await.status, 200);
    let mut silent = daemon.connect().await;
    assert_eq!(within("the cut", silent.read(&mut [0])).await.unwrap_or(0), 0);
    // The identified connection is older and stays.
    calm.write_all(request.as_bytes()).await.unwrap();
    assert_eq!(reply(&mut calm).await.status, 200);
}

/// Finding 14 of the security review: callers of other open routes used up the budget of the probes.
#[tokio::test]
async fn finding_14_probes_are_answered_beside_a_flood_of_open_routes() {
    let mut plan = DaemonPlan::new();
    plan.config.request_rate = Rate { per_second: 0.001, burst: 3.0 };
    let daemon = plan.start().await;
    eventually("the open routes' budget to be used up", async || {
        daemon.get("/assets/icon.svg").await.status == 429
    })
    .await;
    for path in ["/healthz", "/readyz", "/healthz", "/healthz", "/healthz"] {
        assert_eq!(daemon.get(path).await.status, 200, "{path}");
    }
    assert_eq!(daemon.get("/openapi.json").await.code(), "rate_limited");
}

/// Finding 28 of the security review: each readiness probe was a store call of its own.
#[tokio::test]
async fn finding_28_readiness_probes_share_a_store_call() {
    let mut plan = DaemonPlan::new();
    let store = Arc::new(FaultyStore::new(Arc::clone(&plan.store), BootClock::shared()));
    plan.store = Arc::clone(&store) as _;
    let daemon = plan.start().await;
    store.for_ops(&[StoreOp::Inspect]).hang(true);
    let probes = join_all((0..30).map(|_| daemon.get("/readyz"))).await;
    assert!(probes.iter().all(|probe| probe.status == 503), "{probes:?}");
    assert!(store.calls(StoreOp::Inspect) < 4, "{}", store.calls(StoreOp::Inspect));
    store.for_ops(&[StoreOp::Inspect]).hang(false);
    eventually("the daemon to be ready again", async || daemon.get("/readyz").await.status == 200).await;
}

/// Finding 22 of the security review: hold ids were shared by all identities.
#[tokio::test]
async fn finding_22_hold_ids_belong_to_their_owner() {
    let mut plan = DaemonPlan::new();
    let tokens = plan.identities(&[("a", &["hold:team"]), ("b", &["hold:team"])]);
    let daemon = plan.start().await;
    let hold = async |who: usize, name: &str| {
        let body = json!({"id": "nightly", "name": name, "heartbeat_ms": 600_000});
        daemon.call("POST", "/v1/holds", Some(&tokens[who]), Some(body)).await
    };
    assert_eq!(hold(0, "team:1").await.status, 201);
    for (method, path) in [
        ("GET", "/v1/holds/nightly"),
        ("POST", "/v1/holds/nightly/heartbeat"),
        ("DELETE", "/v1/holds/nightly"),
    ] {
        let foreign = daemon.call(method, path, Some(&tokens[1]), None).await;
        assert_eq!((foreign.status, foreign.code().as_str()), (404, "not_found"), "{method} {path}");
    }
    assert_eq!(hold(1, "team:2").await.status, 201);
    for (who, name) in [(0, "team:1"), (1, "team:2")] {
        let shown = daemon.call("GET", "/v1/holds/nightly", Some(&tokens[who]), None).await.ok();
        assert_eq!(shown["name"], name);
    }
    // Each ends its own.
    daemon.call("DELETE", "/v1/holds/nightly", Some(&tokens[0]), None).await.ok();
    assert_eq!(hold(0, "team:1").await.code(), "lost");
    assert_eq!(hold(1, "team:2").await.status, 200);
}

/// Finding 21 of the security review: one identity could fill the store.
#[tokio::test]
async fn finding_21_quotas_bound_what_one_identity_has() {
    let mut plan = DaemonPlan::new();
    let quotas = &mut plan.config.quotas;
    (quotas.locks, quotas.waiters, quotas.kept_holds, quotas.tombstones) = (2, 1, 1, 1);
    let tokens = plan.identities(&[("flood", &["hold:a"]), ("calm", &["hold:a"]), ("root", &["admin:*"])]);
    let daemon = plan.start().await;
    let call =
        async |who: usize, path: &str, body| daemon.call("POST", path, Some(&tokens[who]), Some(body)).await;
    let refused = async |path: &str, body: serde_json::Value, quota: &str| {
        let reply = call(0, path, body.clone()).await;
        assert_eq!((reply.status, reply.code().as_str()), (429, "quota_reached"), "{quota}");
        assert!(reply.text.contains(quota), "{reply:?}");
        // Neither another identity nor an administrator is limited by it.
        assert_ne!(call(1, path, body.clone()).await.status, 429, "{quota}");
        assert_ne!(call(2, path, body).await.status, 429, "{quota}");
    };
    let first = call(0, "/v1/locks/a:1/acquire", json!({"id": "1"})).await.ok();
    call(0, "/v1/locks/a:2/acquire", json!({})).await.ok();
    // A repeated request is no new lock.
    call(0, "/v1/locks/a:1/acquire", json!({"id": "1"})).await.ok();
    refused("/v1/locks/a:3/acquire", json!({}), "2 locks").await;
    let owned = json!({"token": first["token"]});
    call(0, "/v1/locks/a:1/release", owned).await.ok();
    call(0, "/v1/locks/a:4/acquire", json!({})).await.ok();
    call(0, "/v1/holds", json!({"name": "a:k1"})).await.ok();
    refused("/v1/holds", json!({"name": "a:k2", "wait_ms": 0}), "1 kept holds").await;
    let wait = |number: u32| json!({"token": format!("x|y|{number:032x}"), "wait_ms": 1});
    call(0, "/v1/locks/a:2/wait", wait(11)).await.ok();
    refused("/v1/locks/a:2/wait", wait(12), "1 waiters").await;
}

/// Finding 21 of the security review: the quota of tombstones refused releases of real leases.
#[tokio::test]
async fn finding_21_a_release_is_never_refused() {
    let mut plan = DaemonPlan::new();
    plan.config.quotas.tombstones = 1;
    let tokens = plan.identities(&[("busy", &["hold:a"])]);
    let daemon = plan.start().await;
    let call = async |path: &str, number: u32| {
        let body = json!({"token": format!("x|scheduler|{number:032x}")});
        daemon.call("POST", path, Some(&tokens[0]), Some(body)).await
    };
    // Tokens that hold nothing: the first one leaves a tombstone, the second one is beyond the quota.
    for (number, late_acquire) in [(1, 410), (2, 200)] {
        for _retry in 0..2 {
            assert_eq!(call("/v1/locks/a:1/release", number).await.code(), "not_owned", "{number}");
        }
        assert_eq!(call("/v1/locks/a:1/acquire", number).await.status, late_acquire, "{number}");
    }
    // Leases that this daemon has not granted, as after a restart or beside another daemon.
    for number in 11..14 {
        let name = leasehold::Name::new(&format!("a:{number}")).unwrap();
        let token = Token::parse(&format!("x|scheduler|{number:032x}")).unwrap();
        let ttl = Ttl::new(Duration::from_secs(600)).unwrap();
        let request = AcquireRequest::new(name, token, ttl);
        daemon.store.acquire(&request, STEP_TIMEOUT).await.unwrap();
    }
    for number in 11..14 {
        call(&format!("/v1/locks/a:{number}/release"), number).await.ok();
    }
}

/// Finding 17 of the security review: a body counted only while it was read, and a handler keeps it.
#[tokio::test]
async fn finding_17_bodies_count_until_their_requests_are_answered() {
    let mut plan = DaemonPlan::new();
    let store = Arc::new(FaultyStore::new(Arc::clone(&plan.store), BootClock::shared()));
    plan.store = Arc::clone(&store) as _;
    let tokens = plan.identities(&[("flood", &["hold:a"]), ("calm", &["hold:a"])]);
    let daemon = plan.start().await;
    store.renew().hang(true);
    let item = json!({"name": "a:1", "token": format!("x|y|{:032x}", 1), "fence": "1", "ttl_ms": 1000});
    let body = json!({"items": [item], "within_ms": 30_000}).to_string();
    let body = format!("{body}{}", " ".repeat(440_000));
    let renew = |token: &str| {
        format!(
            "POST /v1/namespaces/a/renew HTTP/1.1\r\nhost: {}\r\nauthorization: Bearer {token}\r\n\
             content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
            daemon.address,
            body.len()
        )
    };
    let mut open = Vec::new();
    // 8 MiB for one identity are 19 of these.
    for number in 1..=19 {
        let mut stream = daemon.connect().await;
        stream.write_all(renew(&tokens[0]).as_bytes()).await.unwrap();
        within("the store call", store.wait_for_calls(StoreOp::Renew, number)).await;
        open.push(stream);
    }
    let mut stream = daemon.connect().await;
    let _ = stream.write_all(renew(&tokens[0]).as_bytes()).await;
    assert_eq!(reply(&mut stream).await.code(), "too_many_bodies");
    let mut calm = daemon.connect().await;
    calm.write_all(renew(&tokens[1]).as_bytes()).await.unwrap();
    within("the store call", store.wait_for_calls(StoreOp::Renew, 20)).await;
}

/// Finding 28 of the security review: a probe whose caller had gone left no result for the next one.
#[tokio::test]
async fn finding_28_probes_of_disconnecting_callers_share_a_store_call() {
    let mut plan = DaemonPlan::new();
    let store = Arc::new(FaultyStore::new(Arc::clone(&plan.store), BootClock::shared()));
    plan.store = Arc::clone(&store) as _;
    let daemon = plan.start().await;
    store.for_ops(&[StoreOp::Inspect]).hang(true);
    let request = format!("GET /readyz HTTP/1.1\r\nhost: {}\r\n\r\n", daemon.address);
    let began = BootClock.now();
    let mut probes = 0;
    // The store call ends after two seconds.
    while BootClock.now().since(began) < Duration::from_secs(1) {
        let mut stream = daemon.connect().await;
        stream.write_all(request.as_bytes()).await.unwrap();
        probes += 1;
        // Long enough for the daemon to begin, and to notice that the caller is gone.
        BootClock.sleep(Duration::from_millis(20)).await;
        drop(stream);
    }
    assert!(probes > 5, "{probes}");
    assert!(store.calls(StoreOp::Inspect) <= 2, "{} of {probes}", store.calls(StoreOp::Inspect));
}

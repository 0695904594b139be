//! Hostile bodies, names, methods and connections do no harm.

use std::time::Duration;

use leasehold::clock::{BootClock, Clock};
use leasehold::store::AcquireRequest;
use leasehold::{Fence, Ttl};
use leasehold_core::Token;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::fixture::{Daemon, DaemonPlan, eventually, within};

async fn assert_still_serving(daemon: &Daemon) {
    assert_eq!(daemon.get("/readyz").await.status, 200);
    let granted = daemon.post("/v1/locks/after/acquire", json!({})).await.ok();
    daemon.post("/v1/locks/after/release", json!({"token": granted["token"]})).await.ok();
}

#[tokio::test]
async fn bodies() {
    let daemon = Daemon::start().await;
    let deep = format!("{}{}", "[".repeat(4000), "]".repeat(4000));
    for (body, kind, status) in [
        ("", "application/json", 400),
        ("{", "application/json", 400),
        ("null", "application/json", 422),
        ("[]", "application/json", 422),
        ("{}{}", "application/json", 400),
        ("{} x", "application/json", 400),
        ("{\"ttl_ms\":1e400}", "application/json", 400),
        ("{\"ttl_ms\":-1}", "application/json", 422),
        ("{\"ttl_ms\":99}", "application/json", 422),
        ("{\"ttl_ms\":18446744073709551615}", "application/json", 422),
        ("{\"nonsense\":1}", "application/json", 422),
        ("{\"ttl_ms\":1000,\"ttl_ms\":2000}", "application/json", 422),
        ("{\"holder\":\"a|b\"}", "application/json", 422),
        ("{\"class\":\"no-such\"}", "application/json", 422),
        ("{\"wait_ms\":60001}", "application/json", 422),
        ("{\"permits\":0,\"mode\":\"permits\"}", "application/json", 422),
        ("\u{0}\u{1}", "application/json", 400),
        (&deep, "application/json", 422),
        ("{}", "text/plain", 415),
        ("{}", "application/x-www-form-urlencoded", 415),
        ("a=b", "multipart/form-data; boundary=x", 415),
    ] {
        let reply = daemon
            .raw(&format!(
                "POST /v1/locks/job:1/acquire HTTP/1.1\r\nhost: {}\r\nconnection: close\r\ncontent-type: {kind}\r\n\
                 content-length: {}\r\n\r\n{body}",
                daemon.address,
                body.len()
            ))
            .await;
        let short: String = body.chars().take(40).collect();
        assert_eq!(reply.status, status, "{short}: {reply:?}");
        reply.code();
    }
    let large = "x".repeat(16 * 1024);
    let reply = daemon.post("/v1/locks/job:1/acquire", json!({"holder": large})).await;
    assert_eq!((reply.status, reply.code().as_str()), (413, "too_large"));
    assert_still_serving(&daemon).await;
}

#[tokio::test]
async fn names_methods_and_paths() {
    let daemon = Daemon::start().await;
    for (path, status) in [
        (format!("/v1/locks/{}", "x".repeat(512)), 200),
        (format!("/v1/locks/{}", "x".repeat(513)), 422),
        ("/v1/locks/a%20b".into(), 422),
        ("/v1/locks/a%00b".into(), 422),
        ("/v1/locks/%7Bx%7D".into(), 422),
        ("/v1/locks/%ff%fe".into(), 400),
        ("/v1/locks/a%2Fb%2F..%2Fc".into(), 200),
        ("/v1/locks/%2e%2e".into(), 200),
        ("/v1/locks/%3Cscript%3E".into(), 200),
        ("/v1/locks/".into(), 404),
        ("/v1/locks/a/b".into(), 404),
        ("/../../etc/passwd".into(), 404),
        ("/v1/locks?limit=0".into(), 422),
        ("/v1/locks?limit=a".into(), 422),
        ("/v1/locks?limit=1&limit=2".into(), 422),
        ("/v1/locks?what=1".into(), 422),
        ("/v1/locks?prefix=%ff".into(), 422),
        ("/v1/history?before=-1".into(), 422),
    ] {
        let reply = daemon.get(&path).await;
        let short: String = path.chars().take(60).collect();
        assert_eq!(reply.status, status, "{short}: {reply:?}");
        if status >= 400 {
            reply.code();
        }
    }
    for method in ["PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "BREW"] {
        let reply = daemon.call(method, "/v1/locks/job:1", None, None).await;
        assert_eq!((reply.status, reply.header("allow")), (405, Some("get")), "{method}: {reply:?}");
        reply.code();
    }
    assert_eq!(daemon.call("HEAD", "/healthz", None, None).await.status, 200);
    assert_still_serving(&daemon).await;
}

/// A page of another origin, and a host name that hostile DNS has pointed here.
#[tokio::test]
async fn browsers() {
    let daemon = Daemon::start().await;
    for (host, extra, status) in [
        ("evil.example".to_owned(), "", 421),
        (daemon.address.to_string(), "origin: http://evil.example\r\n", 403),
        (daemon.address.to_string(), "sec-fetch-site: cross-site\r\n", 403),
        (daemon.address.to_string(), "", 200),
    ] {
        let body = "{}";
        let reply = daemon
            .raw(&format!(
                "POST /v1/locks/job:{status}/acquire HTTP/1.1\r\nhost: {host}\r\n{extra}connection: close\r\n\
                 content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
                body.len()
            ))
            .await;
        assert_eq!(reply.status, status, "{host} {extra}: {reply:?}");
    }
    let page = daemon.get("/").await;
    assert!(page.header("content-security-policy").unwrap().contains("default-src 'none'"));
    assert!(page.header("x-frame-options").is_some());
}

/// Slow heads, slow bodies and silent peers are disconnected, and delay no other client.
#[tokio::test]
async fn slow_clients() {
    let mut plan = DaemonPlan::new();
    plan.config.head_timeout = Duration::from_millis(500);
    plan.config.body_timeout = Duration::from_millis(500);
    let daemon = plan.start().await;
    let mut slow = Vec::new();
    for _ in 0..200 {
        let mut head = daemon.connect().await;
        head.write_all(b"POST /v1/locks/job:1/acquire HTTP/1.1\r\nhost: x\r\nx-slow: ").await.unwrap();
        slow.push(head);
    }
    let mut body = daemon.connect().await;
    let begun = format!(
        "POST /v1/locks/job:1/acquire HTTP/1.1\r\nhost: {}\r\ncontent-type: application/json\r\ncontent-length: 100\r\n\r\n{{",
        daemon.address
    );
    body.write_all(begun.as_bytes()).await.unwrap();
    let idle = daemon.connect().await;
    // Meanwhile other clients are served.
    let before = BootClock.now();
    assert_still_serving(&daemon).await;
    assert!(BootClock.now().since(before) < Duration::from_secs(30));
    let mut message = Vec::new();
    within("the slow body to be refused", body.read_to_end(&mut message)).await.unwrap();
    let message = String::from_utf8_lossy(&message);
    assert!(message.starts_with("HTTP/1.1 408") && message.contains("request_timeout"), "{message}");
    for mut stream in slow.into_iter().chain([idle]) {
        let mut message = Vec::new();
        // The connection is closed, with or without a reply.
        let _ = within("a slow client to be closed", stream.read_to_end(&mut message)).await;
    }
    assert_still_serving(&daemon).await;
}

/// All tenants share the fence counters: a floor near the largest fence would use one up for good.
#[tokio::test]
async fn a_high_floor_does_not_block_other_tenants() {
    let mut plan = DaemonPlan::new();
    let tokens = plan.identities(&[("a", &["hold:a"]), ("b", &["hold:b"])]);
    let daemon = plan.start().await;
    let acquire = |who: usize, name: String, body| {
        let (daemon, token) = (&daemon, Some(tokens[who].as_str()));
        async move {
            let path = format!("/v1/locks/{name}/acquire");
            daemon.call("POST", &path, token, Some(body)).await
        }
    };
    let largest = Fence::MAX.get();
    for number in 0..300 {
        let floor = json!({"floor": (largest - 1).to_string()});
        let refused = acquire(0, format!("a:{number}"), floor).await;
        assert_eq!((refused.status, refused.code().as_str()), (422, "invalid"));
        assert_eq!(refused.json()["field"], "floor");
    }
    // Some of these names share a fence counter with the ones above.
    for number in 0..300 {
        acquire(1, format!("b:{number}"), json!({})).await.ok();
    }
    // A fence from a store whose clock is ahead is accepted: by hours at once, by days once the
    // daemon has seen it.
    let fence = |reply: Value| reply["fence"].as_str().unwrap().parse::<u64>().unwrap();
    let hours = fence(acquire(1, "b:now".into(), json!({})).await.ok()) + 23 * 3_600_000_000;
    let token = Token::parse(&format!("x|scheduler|{}", "0".repeat(32))).unwrap();
    let ttl = Ttl::new(Duration::from_secs(3600)).unwrap();
    let mut ahead = AcquireRequest::new(leasehold::Name::new("b:days").unwrap(), token, ttl);
    ahead.floor = Fence::new(hours + 48 * 3_600_000_000);
    daemon.store.acquire(&ahead, Duration::from_secs(60)).await.unwrap();
    let busy = acquire(1, "b:days".into(), json!({})).await;
    let days = fence(busy.json());
    assert!(days > hours, "{busy:?}");
    for (name, floor) in [("b:after-hours", hours), ("b:after-days", days)] {
        let next = acquire(1, name.into(), json!({"floor": floor.to_string()})).await;
        assert!(fence(next.clone().ok()) > floor, "{next:?}");
    }
}

/// Invalid or oversized HTTP is answered or cut off (status 0), and other clients do not notice.
#[tokio::test]
async fn garbage_and_endless_heads() {
    let daemon = Daemon::start().await;
    let host = daemon.address;
    let long = "x".repeat(32 * 1024);
    let many: String = (0..200).map(|number| format!("x-{number}: y\r\n")).collect();
    for (what, bytes, statuses) in [
        ("noise", (0..=255u8).cycle().take(4096).collect::<Vec<u8>>(), &[400][..]),
        ("TLS", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03".repeat(20), &[400]),
        ("another protocol", b"*1\r\n$4\r\nPING\r\n".to_vec(), &[400]),
        ("HTTP/2", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec(), &[0, 400, 505]),
        ("a long line", format!("GET /{long} HTTP/1.1\r\nhost: {host}\r\n\r\n").into_bytes(), &[414, 431]),
        ("a long header", format!("GET / HTTP/1.1\r\nhost: {host}\r\nx: {long}\r\n\r\n").into_bytes(), &[431]),
        ("many headers", format!("GET / HTTP/1.1\r\nhost: {host}\r\n{many}\r\n").into_bytes(), &[431]),
        ("two lengths", format!("POST /v1/locks/x/acquire HTTP/1.1\r\nhost: {host}\r\ncontent-length: 2\r\ncontent-length: 3\r\n\r\n{{}}").into_bytes(), &[400]),
        ("a bad chunk", format!("POST /v1/locks/x/acquire HTTP/1.1\r\nhost: {host}\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n").into_bytes(), &[400]),
        ("no host", b"GET /v1/locks HTTP/1.1\r\nconnection: close\r\n\r\n".to_vec(), &[400, 421]),
        ("a foreign URL", b"GET http://evil.example/v1/locks HTTP/1.1\r\nhost: evil.example\r\nconnection: close\r\n\r\n".to_vec(), &[400, 421]),
    ] {
        let reply = daemon.bytes(&bytes).await;
        assert!(statuses.contains(&reply.status), "{what}: {reply:?}");
        assert!(reply.text.len() < 1024, "{what}: nothing of it is repeated");
    }
    // A body that is too large by its announced length is not read.
    let reply = daemon
        .raw(&format!(
            "POST /v1/locks/x/acquire HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\ncontent-type: application/json\r\n\
             content-length: 99999999\r\n\r\n{{"
        ))
        .await;
    assert_eq!((reply.status, reply.code().as_str()), (413, "too_large"));
    assert_still_serving(&daemon).await;
}

/// A client that half-closes or resets its connection is not waited for, and leaves no waiter
/// behind.
#[tokio::test]
async fn half_closed_and_reset_connections() {
    let daemon = Daemon::start().await;
    let mine = daemon.post("/v1/locks/job:1/acquire", json!({})).await.ok();
    let waiters = async || daemon.get("/v1/locks/job:1").await.ok()["waiters"].clone();
    let body = r#"{"wait_ms":60000}"#;
    let request = format!(
        "POST /v1/locks/job:1/acquire HTTP/1.1\r\nhost: {}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        daemon.address,
        body.len()
    );
    for reset in [false, true] {
        let mut gone = Vec::new();
        for _ in 0..20 {
            let mut stream = daemon.connect().await;
            stream.write_all(request.as_bytes()).await.unwrap();
            gone.push(stream);
        }
        eventually("waiters", async || waiters().await == 20).await;
        for stream in &mut gone {
            if reset {
                stream.set_zero_linger().unwrap();
            } else {
                stream.shutdown().await.unwrap();
            }
        }
        if reset {
            gone.clear();
        }
        eventually("them to be forgotten", async || waiters().await == 0).await;
    }
    daemon.post("/v1/locks/job:1/release", json!({"token": mine["token"]})).await.ok();
    assert_eq!(daemon.get("/v1/locks/job:1").await.ok()["held"], false);
    assert_still_serving(&daemon).await;
}

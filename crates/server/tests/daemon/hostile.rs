//! Bodies, names, methods and connections that mean harm, and do none.

use std::time::Duration;

use leasehold::clock::{BootClock, Clock};
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::stage::{Daemon, Plan, within};

async fn unharmed(daemon: &Daemon) {
    assert_eq!(daemon.get("/readyz").await.status, 200);
    let granted = daemon.post("/v1/locks/after/acquire", json!({})).await.ok();
    daemon
        .post("/v1/locks/after/release", json!({"token": granted["token"]}))
        .await
        .ok();
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
    let reply = daemon
        .post("/v1/locks/job:1/acquire", json!({"holder": large}))
        .await;
    assert_eq!((reply.status, reply.code().as_str()), (413, "too_large"));
    unharmed(&daemon).await;
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
        assert_eq!(
            (reply.status, reply.header("allow")),
            (405, Some("get")),
            "{method}: {reply:?}"
        );
        reply.code();
    }
    assert_eq!(daemon.call("HEAD", "/healthz", None, None).await.status, 200);
    unharmed(&daemon).await;
}

/// A browser's page of elsewhere, and a name that someone's DNS has pointed here.
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
    assert!(
        page.header("content-security-policy")
            .unwrap()
            .contains("default-src 'none'")
    );
    assert!(page.header("x-frame-options").is_some());
}

/// Slow heads, slow bodies and silent peers are given up on, and hold nobody else up.
#[tokio::test]
async fn slow_clients() {
    let mut plan = Plan::new();
    plan.config.head_timeout = Duration::from_millis(500);
    plan.config.body_timeout = Duration::from_millis(500);
    let daemon = plan.start().await;
    let mut slow = Vec::new();
    for _ in 0..200 {
        let mut head = daemon.connect().await;
        head.write_all(b"POST /v1/locks/job:1/acquire HTTP/1.1\r\nhost: x\r\nx-slow: ")
            .await
            .unwrap();
        slow.push(head);
    }
    let mut body = daemon.connect().await;
    let begun = format!(
        "POST /v1/locks/job:1/acquire HTTP/1.1\r\nhost: {}\r\ncontent-type: application/json\r\ncontent-length: 100\r\n\r\n{{",
        daemon.address
    );
    body.write_all(begun.as_bytes()).await.unwrap();
    let idle = daemon.connect().await;
    // Meanwhile everybody else is served.
    let before = BootClock.now();
    unharmed(&daemon).await;
    assert!(BootClock.now().since(before) < Duration::from_secs(30));
    let mut said = Vec::new();
    within("the slow body to be refused", body.read_to_end(&mut said))
        .await
        .unwrap();
    let said = String::from_utf8_lossy(&said);
    assert!(
        said.starts_with("HTTP/1.1 408") && said.contains("request_timeout"),
        "{said}"
    );
    for mut stream in slow.into_iter().chain([idle]) {
        let mut said = Vec::new();
        // Closed, with or without a word.
        let _ = within("a slow client to be closed", stream.read_to_end(&mut said)).await;
    }
    unharmed(&daemon).await;
}

#[tokio::test]
async fn one_connection_too_many() {
    let mut plan = Plan::new();
    plan.config.connections = 3;
    let daemon = plan.start().await;
    let mut open = Vec::new();
    for _ in 0..3 {
        let mut stream = daemon.connect().await;
        let ask = format!("GET /healthz HTTP/1.1\r\nhost: {}\r\n\r\n", daemon.address);
        stream.write_all(ask.as_bytes()).await.unwrap();
        let mut first = [0; 1];
        stream.read_exact(&mut first).await.unwrap();
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
    crate::stage::eventually("room again", async || daemon.get("/healthz").await.status == 200).await;
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

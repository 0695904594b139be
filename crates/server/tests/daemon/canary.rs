//! Sends known secrets and searches every output for them.

use std::io::Write;
use std::sync::{Arc, Mutex};

use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tracing_subscriber::fmt::MakeWriter;

use crate::fixture::{DaemonPlan, eventually, within};

#[derive(Clone, Default)]
struct CapturedLog(Arc<Mutex<Vec<u8>>>);

impl Write for CapturedLog {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for CapturedLog {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}

async fn read_until(stream: &mut TcpStream, text: &mut String, end: &str) {
    let mut piece = [0; 4096];
    within(end, async {
        while !text.contains(end) {
            let read = stream.read(&mut piece).await.unwrap();
            assert!(read > 0, "ended before {end}: {text}");
            text.push_str(&String::from_utf8_lossy(&piece[..read]));
        }
    })
    .await;
}

#[tokio::test]
async fn no_output_has_a_secret() {
    let log = CapturedLog::default();
    let subscriber =
        tracing_subscriber::fmt().with_writer(log.clone()).with_max_level(tracing::Level::TRACE).finish();
    let _guard = tracing::subscriber::set_default(subscriber);
    let mut plan = DaemonPlan::new();
    let tokens = plan.identities(&[("root", &["admin:*"])]);
    let api = tokens[0].rsplit_once('_').unwrap().1.to_owned();
    let root = Some(tokens[0].as_str());
    let daemon = plan.start().await;
    let nonce = "c0ffee00c0ffee00c0ffee00c0ffee00";
    let token = format!("canary|scheduler|{nonce}");
    let secrets = [api.as_str(), nonce, "hunter2-id", "hunter2-body"];
    let mut shown = String::new();
    // `Debug` output of the request types and of the daemon.
    let secret = || leasehold_wire::Secret::new(token.as_str());
    shown.push_str(&format!(
        "{:?} {:?} {:?} {:?}\n",
        leasehold_wire::Acquire {
            token: Some(secret()),
            id: Some(leasehold_wire::Secret::new("hunter2-id")),
            ..Default::default()
        },
        leasehold_wire::Release { token: secret(), tombstone_ms: None, within_ms: None, place_only: false },
        leasehold_core::Token::parse(&token).unwrap(),
        daemon.store,
    ));
    // An event stream that stays open during the whole test.
    let mut follower = daemon.connect().await;
    let follow = format!(
        "GET /v1/events HTTP/1.1\r\nhost: {}\r\nauthorization: Bearer {}\r\n\r\n",
        daemon.address, tokens[0]
    );
    follower.write_all(follow.as_bytes()).await.unwrap();
    let mut followed = String::new();
    read_until(&mut follower, &mut followed, "retry: 1000").await;
    let mut see = |reply: crate::fixture::Reply| shown.push_str(&format!("{}\n{}\n", reply.head, reply.text));
    let acquire = json!({"token": token, "ttl_ms": 60_000});
    let granted = daemon.call("POST", "/v1/locks/job:1/acquire", root, Some(acquire.clone())).await;
    let fence = granted.json()["fence"].clone();
    see(granted);
    // The token made from an id is returned to its owner; the id is not.
    let by_id = daemon.call("POST", "/v1/locks/job:2/acquire", root, Some(json!({"id": "hunter2-id"}))).await;
    let made = by_id.json()["token"].as_str().unwrap().rsplit_once('|').unwrap().1.to_owned();
    see(daemon
        .call("POST", "/v1/locks/job:1/renew", root, Some(json!({"token": token, "fence": fence})))
        .await);
    see(daemon.call("POST", "/v1/locks/job:1/wait", root, Some(json!({"token": token, "wait_ms": 1}))).await);
    // Invalid requests of every kind, each with a secret in it.
    for (path, bad) in [
        ("/v1/locks/job:1/renew", json!({"token": token, "fence": "hunter2-body"})),
        ("/v1/locks/job:1/renew", json!({"token": format!("{token}x"), "fence": "1"})),
        ("/v1/locks/job:1/release", json!({"token": {"hunter2-body": token}})),
        ("/v1/locks/job:1/release", json!({"hunter2-body": token, "token": token})),
        ("/v1/locks/job:1/acquire", json!({"token": token, "mode": "hunter2-body"})),
        ("/v1/locks/job:1/acquire", json!({"token": token, "id": "hunter2-id"})),
        ("/v1/locks/job:1/acquire", json!({"token": [token]})),
        ("/v1/holds", json!({"name": "job:3", "wait_ms": "hunter2-body"})),
    ] {
        let reply = daemon.call("POST", path, root, Some(bad)).await;
        assert_eq!(reply.status, 422, "{reply:?}");
        see(reply);
    }
    see(daemon.call("GET", "/v1/locks", Some("lk_root_hunter2-body"), None).await);
    for path in [
        "/v1/locks",
        "/v1/locks/job:1",
        "/v1/history",
        "/v1/policies",
        "/metrics",
        "/openapi.json",
        "/v1/store",
        "/",
    ] {
        see(daemon.call("GET", path, root, None).await);
    }
    see(daemon.call("POST", "/v1/locks/job:1/release", root, Some(json!({"token": token}))).await);
    see(daemon.call("POST", "/v1/locks/job:1/release", root, Some(json!({"token": token}))).await);
    see(daemon.call("POST", "/v1/locks/job:1/acquire", root, Some(acquire)).await);
    let audit = daemon.state().join("audit.jsonl");
    eventually("the audit log", async || std::fs::read_to_string(&audit).unwrap().contains("release")).await;
    read_until(&mut follower, &mut followed, "event: released").await;
    shown.push_str(&followed);
    let log = String::from_utf8(log.0.lock().unwrap().clone()).unwrap();
    assert!(log.contains("request") && log.contains("/v1/locks/{name}/renew"), "the log was on: {log}");
    let outputs = [
        ("answers", shown),
        ("the log", log),
        ("the audit log", std::fs::read_to_string(&audit).unwrap()),
        ("the tokens file", std::fs::read_to_string(daemon.folder.path().join("tokens.toml")).unwrap()),
    ];
    for (what, text) in outputs {
        for secret in secrets.iter().copied().chain([made.as_str()]) {
            assert!(!text.contains(secret), "{what} has {secret}: {text}");
        }
    }
    // The daemon's own database contains no token and no nonce.
    let file = std::fs::read(daemon.state().join("daemon.db")).unwrap();
    let wal = std::fs::read(daemon.state().join("daemon.db-wal")).unwrap_or_default();
    for secret in secrets.iter().copied().chain([made.as_str()]) {
        let there = |bytes: &[u8]| bytes.windows(secret.len()).any(|window| window == secret.as_bytes());
        assert!(!there(&file) && !there(&wal), "the daemon's file has {secret}");
    }
}

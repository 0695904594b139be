//! Daemon-kept holds: create, show, heartbeat, delete, and silent clients.

use std::time::Duration;

use leasehold::clock::{BootClock, Clock};
use serde_json::json;

use crate::fixture::{Daemon, eventually};

#[tokio::test]
async fn create_show_heartbeat_delete() {
    let daemon = Daemon::start().await;
    let request = json!({"id": "a1", "name": "job:1", "holder": "w1", "heartbeat_ms": 30_000});
    let begun = daemon.post("/v1/holds", request.clone()).await;
    assert_eq!(begun.status, 201, "{begun:?}");
    let hold = begun.json();
    assert_eq!((&hold["id"], &hold["standing"]), (&json!("a1"), &json!("proven")));
    assert!((20_000..=30_000).contains(&hold["valid_ms"].as_u64().unwrap()), "{hold}");
    // A repeated request returns the same hold.
    let again = daemon.post("/v1/holds", request).await;
    assert_eq!((again.status, &again.json()["fence"]), (200, &hold["fence"]));
    // Other clients see the holder.
    let shown = daemon.get("/v1/locks/job:1").await.ok();
    assert_eq!((&shown["holder"], &shown["fence"]), (&json!("w1"), &hold["fence"]));
    let busy = daemon.post("/v1/holds", json!({"name": "job:1", "wait_ms": 0})).await;
    assert_eq!((busy.status, busy.code().as_str()), (409, "busy"));
    // An id stands for one hold.
    let other = daemon.post("/v1/holds", json!({"id": "a1", "name": "job:2"})).await;
    assert_eq!((other.status, other.code().as_str()), (409, "id_taken"));
    let beat = daemon.call("POST", "/v1/holds/a1/heartbeat", None, None).await.ok();
    assert_eq!(beat["fence"], hold["fence"]);
    assert_eq!(daemon.get("/v1/holds/a1").await.ok()["name"], "job:1");
    assert_eq!(daemon.call("DELETE", "/v1/holds/a1", None, None).await.ok()["released"], true);
    for method in ["GET", "DELETE"] {
        let over = daemon.call(method, "/v1/holds/a1", None, None).await;
        assert_eq!((over.status, over.code().as_str()), (410, "lost"), "{over:?}");
    }
    assert_eq!(daemon.get("/v1/holds/nobody").await.status, 404);
    assert_eq!(daemon.get("/v1/locks/job:1").await.ok()["held"], false);
}

/// The hold of a silent client ends, and not before the client's time is over.
#[tokio::test]
async fn the_hold_of_a_silent_client_ends() {
    let daemon = Daemon::start().await;
    let ask = |class: &str| json!({"id": class, "name": format!("job:{class}"), "class": class, "heartbeat_ms": 500});
    daemon.post("/v1/holds", ask("workflow")).await.ok();
    let sent = BootClock.now();
    let begun = daemon.post("/v1/holds", ask("scheduler")).await.ok();
    eventually("the hold to end", async || daemon.get("/v1/locks/job:scheduler").await.ok()["held"] == false)
        .await;
    let (kept, told) = (BootClock.now().since(sent), begun["valid_ms"].as_u64().unwrap());
    assert!(kept >= Duration::from_millis(told), "given up after {kept:?}, told {told} ms");
    let over = daemon.call("POST", "/v1/holds/scheduler/heartbeat", None, None).await;
    assert_eq!((over.status, &over.json()["reason"]), (410, &json!("client_gone")));
    // A `continue` class leaves the lease to work that may go on, and its client may come back.
    assert_eq!(daemon.get("/v1/locks/job:workflow").await.ok()["held"], true);
    daemon.call("POST", "/v1/holds/workflow/heartbeat", None, None).await.ok();
    eventually("the history", async || {
        let past = daemon.get("/v1/history?prefix=job:scheduler").await.ok();
        past["holds"][0]["ended"] == "client_gone"
    })
    .await;
}

/// The daemon must not promise more than the lease has left, in case the store stops answering.
#[tokio::test]
async fn promised_time_never_exceeds_the_lease() {
    let daemon = Daemon::start().await;
    let request = json!({"id": "h", "name": "job:1", "ttl_ms": 20_000, "heartbeat_ms": 60_000});
    for (method, path, body) in [
        ("POST", "/v1/holds", Some(&request)),
        ("POST", "/v1/holds/h/heartbeat", None),
        ("GET", "/v1/holds/h", None),
        // The same request repeated.
        ("POST", "/v1/holds", Some(&request)),
    ] {
        let told = daemon.call(method, path, None, body.cloned()).await.ok();
        let valid = told["valid_ms"].as_u64().unwrap();
        assert!((1..=20_000).contains(&valid), "{method} {path}: {told}");
        let proven = told["proven_ms"].as_u64().unwrap();
        assert!((1..=valid).contains(&proven), "{method} {path}: {told}");
    }
}

/// Work of a continuing class may go on while its client sends heartbeats; it is alone only while
/// the lease lasts.
#[tokio::test]
async fn a_continuing_client_learns_how_long_it_is_alone() {
    let daemon = Daemon::start().await;
    let request =
        json!({"id": "h", "class": "workflow", "name": "run:1", "ttl_ms": 20_000, "heartbeat_ms": 60_000});
    for (method, path, body) in [
        ("POST", "/v1/holds", Some(&request)),
        ("POST", "/v1/holds/h/heartbeat", None),
        ("GET", "/v1/holds/h", None),
        ("POST", "/v1/holds", Some(&request)),
    ] {
        let told = daemon.call(method, path, None, body.cloned()).await.ok();
        let (valid, proven) = (told["valid_ms"].as_u64().unwrap(), told["proven_ms"].as_u64().unwrap());
        assert!((20_001..=60_000).contains(&valid), "{method} {path}: {told}");
        assert!((1..=20_000).contains(&proven), "{method} {path}: {told}");
    }
}

#[tokio::test]
async fn a_client_learns_of_a_broken_hold_at_once() {
    let daemon = Daemon::start().await;
    daemon.post("/v1/holds", json!({"id": "h", "name": "job:1"})).await.ok();
    let asked = daemon.post("/v1/locks/job:1/break", json!({"reason": "stuck", "wait_ms": 100})).await;
    assert_eq!(asked.code(), "holder_alive");
    let beat = daemon.call("POST", "/v1/holds/h/heartbeat", None, None).await.ok();
    assert_eq!(beat["asked_to_release"], "local: stuck");
    daemon.post("/v1/locks/job:1/break", json!({"reason": "stuck", "force": true})).await.ok();
    let over = daemon.call("POST", "/v1/holds/h/heartbeat", None, None).await;
    assert_eq!((over.status, &over.json()["reason"]), (410, &json!("broken")));
}

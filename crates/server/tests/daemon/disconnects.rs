//! Callers that disconnect: their acquires are undone unless they can repeat them.

use std::sync::Arc;
use std::time::Duration;

use leasehold::clock::BootClock;
use leasehold_core::adapter::{FaultyStore, StoreOp};
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

use crate::fixture::{Daemon, DaemonPlan, STEP_TIMEOUT, eventually};

/// Sends an acquire and does not read the response.
async fn send_acquire(daemon: &Daemon, want: &Value) -> TcpStream {
    let body = want.to_string();
    let request = format!(
        "POST /v1/locks/demo/acquire HTTP/1.1\r\nhost: {}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        daemon.address,
        body.len()
    );
    let mut stream = daemon.connect().await;
    stream.write_all(request.as_bytes()).await.unwrap();
    stream
}

/// A first request is delayed. Its caller gives up, retries with the same id and is granted. Then
/// the first request arrives, followed by the end of its connection: the lease stays.
#[tokio::test]
async fn a_late_request_does_not_undo_its_own_retry() {
    let mut plan = DaemonPlan::new();
    let chaos = FaultyStore::new(Arc::clone(&plan.store), BootClock::shared());
    plan.store = chaos.store();
    let daemon = plan.start().await;
    let want = json!({"id": "mine", "wait_ms": 60_000});
    let granted = daemon.post("/v1/locks/demo/acquire", want.clone()).await.ok();

    let asked = chaos.calls(StoreOp::Acquire);
    chaos.acquire().hang_next(1);
    let late = send_acquire(&daemon, &want).await;
    eventually("the late request is being answered", async || chaos.calls(StoreOp::Acquire) > asked).await;
    drop(late);
    eventually("the daemon noticed", async || chaos.calls(StoreOp::Release) > 0).await;

    let renew = json!({"token": granted["token"], "fence": granted["fence"]});
    let renewed = daemon.post("/v1/locks/demo/renew", renew).await;
    assert_eq!(renewed.status, 200, "{renewed:?}");
}

/// The store's response was lost, and only the daemon has the token it made: what may have been
/// granted is undone.
#[tokio::test]
async fn an_unknown_response_leaves_no_unowned_lease() {
    let mut plan = DaemonPlan::new();
    let chaos = FaultyStore::new(Arc::clone(&plan.store), BootClock::shared());
    plan.store = chaos.store();
    let daemon = plan.start().await;
    chaos.acquire().lose_reply(1);
    let lost = daemon.post("/v1/locks/demo/acquire", json!({})).await;
    assert_eq!((lost.status, &lost.json()["unknown"]), (503, &json!(true)));
    eventually("the name is free", async || daemon.get("/v1/locks/demo").await.ok()["held"] == false).await;

    // With an id the lease is kept for a retry.
    let want = json!({"id": "mine"});
    chaos.acquire().lose_reply(1);
    let lost = daemon.post("/v1/locks/demo/acquire", want.clone()).await;
    assert_eq!((lost.status, &lost.json()["unknown"]), (503, &json!(true)));
    let released = chaos.calls(StoreOp::Release);
    daemon.post("/v1/locks/demo/acquire", want).await.ok();
    assert_eq!(chaos.calls(StoreOp::Release), released);
}

/// A wait that ends because the daemon stops is *unknown* if a store call of it went unanswered:
/// with an id it may still be granted.
#[tokio::test]
async fn stopping_keeps_an_unknown_outcome_unknown() {
    let mut plan = DaemonPlan::new();
    let chaos = FaultyStore::new(Arc::clone(&plan.store), BootClock::shared());
    plan.store = chaos.store();
    let mut daemon = plan.start().await;
    daemon.post("/v1/locks/demo/acquire", json!({})).await.ok();
    let asked = chaos.calls(StoreOp::Acquire);
    chaos.acquire().lose_reply(1);
    let waiting = daemon.post("/v1/locks/demo/acquire", json!({"id": "mine", "wait_ms": 60_000}));
    let stopping = async {
        chaos.wait_for_calls(StoreOp::Acquire, asked + 2).await;
        daemon.signal();
    };
    let (told, ()) = tokio::join!(waiting, stopping);
    assert_eq!((told.status, &told.json()["unknown"]), (503, &json!(true)), "{told:?}");
    daemon.stop().await;
}

/// A caller that disconnects while it waits leaves no waiter in the queue, whether it could retry
/// or not.
#[tokio::test]
async fn a_disconnected_caller_leaves_no_waiter() {
    let daemon = Daemon::start().await;
    daemon.post("/v1/locks/demo/acquire", json!({})).await.ok();
    let waits = async |number| daemon.get("/v1/locks/demo").await.ok()["waiters"] == number;
    for want in [json!({"wait_ms": 60_000}), json!({"id": "mine", "wait_ms": 60_000})] {
        let waiter = send_acquire(&daemon, &want).await;
        eventually("a waiter", async || waits(1).await).await;
        drop(waiter);
        eventually("no waiter", async || waits(0).await).await;
    }
}

/// The undo is retried while the store does not answer, for an unowned lease and for a queue place
/// alike.
#[tokio::test]
async fn undos_are_retried_until_the_store_answers() {
    let mut plan = DaemonPlan::new();
    let chaos = FaultyStore::new(Arc::clone(&plan.store), BootClock::shared());
    plan.store = chaos.store();
    let daemon = plan.start().await;
    chaos.acquire().lose_reply(1);
    chaos.release().fail_next(2);
    // So long that the test cannot pass because the lease expires.
    let lost = daemon.post("/v1/locks/demo/acquire", json!({"ttl_ms": 3_600_000}));
    assert_eq!(lost.await.status, 503);
    eventually("the name is free", async || daemon.get("/v1/locks/demo").await.ok()["held"] == false).await;

    daemon.post("/v1/locks/demo/acquire", json!({})).await.ok();
    let waiter = send_acquire(&daemon, &json!({"id": "mine", "wait_ms": 60_000})).await;
    eventually("a waiter", async || daemon.get("/v1/locks/demo").await.ok()["waiters"] == 1).await;
    let told = chaos.applied(StoreOp::Release);
    chaos.release().fail_next(2);
    drop(waiter);
    // A queue place expires soon by itself, so only the release call shows that it was given up.
    eventually("the place is given up", async || chaos.applied(StoreOp::Release) > told).await;
}

/// Requests that wait when the daemon stops leave no waiter behind: the store is told before the
/// daemon is gone.
#[tokio::test]
async fn a_stopping_daemon_leaves_no_waiter() {
    let mut plan = DaemonPlan::new();
    let chaos = FaultyStore::new(Arc::clone(&plan.store), BootClock::shared());
    plan.store = chaos.store();
    plan.config.drain_timeout = STEP_TIMEOUT;
    let mut daemon = plan.start().await;
    daemon.post("/v1/locks/demo/acquire", json!({})).await.ok();
    let waiter = send_acquire(&daemon, &json!({"id": "mine", "wait_ms": 60_000})).await;
    eventually("a waiter", async || daemon.get("/v1/locks/demo").await.ok()["waiters"] == 1).await;
    chaos.release().delay(Duration::from_millis(200));
    daemon.stop().await;
    assert_eq!(chaos.applied(StoreOp::Release), 1);
    drop(waiter);
}

/// Whatever the daemon may have acquired for a daemon-kept hold is undone before it is gone.
#[tokio::test]
async fn a_stopping_daemon_undoes_its_own_acquires() {
    let mut plan = DaemonPlan::new();
    let chaos = FaultyStore::new(Arc::clone(&plan.store), BootClock::shared());
    plan.store = chaos.store();
    plan.config.drain_timeout = STEP_TIMEOUT;
    let mut daemon = plan.start().await;
    chaos.acquire().lose_reply(100);
    chaos.release().fail_next(2);
    let request =
        json!({"id": "h1", "name": "job:1", "class": "approval", "wait_ms": 0, "heartbeat_ms": 30_000});
    let lost = daemon.post("/v1/holds", request).await;
    assert_eq!(lost.status, 503, "{lost:?}");
    daemon.stop().await;
    assert_eq!(chaos.applied(StoreOp::Release), 1);
}

/// Leaving the queue changes nothing else, and takes no tombstone.
#[tokio::test]
async fn place_only_release_keeps_the_lease() {
    let daemon = Daemon::start().await;
    let mine = daemon.post("/v1/locks/demo/acquire", json!({})).await.ok();
    let place = json!({"token": mine["token"], "place_only": true});
    let left = daemon.post("/v1/locks/demo/release", place).await.ok();
    assert_eq!(left["released"], false);
    let renew = json!({"token": mine["token"], "fence": mine["fence"]});
    daemon.post("/v1/locks/demo/renew", renew).await.ok();

    let both = json!({"token": mine["token"], "place_only": true, "tombstone_ms": 1});
    let refused = daemon.post("/v1/locks/demo/release", both).await;
    assert_eq!((refused.status, refused.code().as_str()), (422, "invalid"));
}

/// Finding 15 of the security review: what the store did for a caller that had gone was not in the log.
#[tokio::test]
async fn finding_15_what_is_done_for_a_disconnected_caller_is_audited() {
    let mut plan = DaemonPlan::new();
    let chaos = FaultyStore::new(Arc::clone(&plan.store), BootClock::shared());
    plan.store = chaos.store();
    let daemon = plan.start().await;
    let logged = |action: &str| {
        let log = std::fs::read_to_string(daemon.state().join("audit.jsonl")).unwrap_or_default();
        log.matches(&format!("\"action\":\"{action}\"")).count()
    };
    chaos.acquire().delay(Duration::from_millis(500));
    chaos.release().delay(Duration::from_millis(500));
    let token = format!("x|scheduler|{:032x}", 1);
    let steps = [("acquire", StoreOp::Acquire), ("release", StoreOp::Release)];
    for (action, op) in steps {
        let body = json!({"token": token}).to_string();
        let request = format!(
            "POST /v1/locks/demo/{action} HTTP/1.1\r\nhost: {}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
            daemon.address,
            body.len()
        );
        let mut stream = daemon.connect().await;
        stream.write_all(request.as_bytes()).await.unwrap();
        chaos.wait_for_calls(op, 1).await;
        drop(stream);
        eventually("the line", async || logged(action) == 1).await;
    }
    // A caller that cannot repeat its request is undone as before, and its lease is not followed on.
    drop(send_acquire(&daemon, &json!({})).await);
    eventually("the undo", async || chaos.applied(StoreOp::Release) >= 2).await;
    assert_eq!(daemon.get("/v1/locks/demo").await.ok()["held"], false);
}

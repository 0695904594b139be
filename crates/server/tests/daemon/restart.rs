//! The daemon restarts: client-kept leases continue, daemon-kept holds are resumed, lost ones are
//! reported.

use std::sync::Arc;
use std::time::Duration;

use leasehold::clock::{BootClock, Clock};
use leasehold::store::{ReleaseRequest, SharedStore};
use leasehold_core::adapter::FaultyStore;

use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;

use crate::fixture::{Daemon, DaemonPlan, eventually};

async fn restart(daemon: &mut Daemon, between: impl AsyncFnOnce()) -> Daemon {
    daemon.stop().await;
    between().await;
    next_run(daemon).start().await
}

/// A plan for the next run of this daemon, on the same store and directory.
fn next_run(daemon: &Daemon) -> DaemonPlan {
    let mut plan = DaemonPlan::new();
    plan.config.state_dir = Some(daemon.state());
    plan.store = Arc::clone(&daemon.store);
    plan.folder = Arc::clone(&daemon.folder);
    plan
}

fn plan() -> DaemonPlan {
    let mut plan = DaemonPlan::new();
    plan.config.drain_timeout = Duration::from_millis(100);
    plan
}

#[tokio::test]
async fn both_kinds_of_holds_survive_a_restart() {
    let mut first = plan().start().await;
    let mine = first.post("/v1/locks/job:1/acquire", json!({"id": "x", "holder": "me"})).await.ok();
    let request = json!({"id": "h1", "name": "job:2", "holder": "w", "heartbeat_ms": 30_000});
    let held = first.post("/v1/holds", request.clone()).await.ok();
    let second = restart(&mut first, async || {}).await;
    // The client-kept lease: the same token renews it, and the same id returns it.
    let renew = json!({"token": mine["token"], "fence": mine["fence"]});
    second.post("/v1/locks/job:1/renew", renew).await.ok();
    let same = second.post("/v1/locks/job:1/acquire", json!({"id": "x", "holder": "me"})).await.ok();
    assert_eq!(same, mine);
    // The daemon-kept hold continues with the same fence.
    let beat = second.call("POST", "/v1/holds/h1/heartbeat", None, None).await.ok();
    assert_eq!(beat["fence"], held["fence"]);
    assert_eq!(second.post("/v1/holds", request).await.ok()["fence"], held["fence"]);
    second.call("DELETE", "/v1/holds/h1", None, None).await.ok();
    // One hold is one history row across both runs.
    eventually("the history", async || {
        let past = second.get("/v1/history?prefix=job:2").await.ok();
        let rows = past["holds"].as_array().unwrap().clone();
        rows.len() == 1 && rows[0]["ended"] == "released"
    })
    .await;
}

/// A hold that began local-only and got a lease since is resumed with that lease.
#[tokio::test]
async fn a_healed_hold_survives_a_restart() {
    let mut plan = plan();
    let chaos = FaultyStore::new(Arc::clone(&plan.store), BootClock::shared());
    plan.store = chaos.store();
    let mut first = plan.start().await;
    chaos.acquire().down(true);
    let request = json!({"id": "h1", "name": "run:1", "class": "workflow", "heartbeat_ms": 30_000});
    let alone = first.post("/v1/holds", request).await.ok();
    assert_eq!(alone["standing"], "local_only");
    chaos.acquire().down(false);
    assert_survives_restart(&mut first, |seen| seen["standing"] == "proven").await;
}

/// The same for a hold that lost its lease and re-acquired the name.
#[tokio::test]
async fn a_reacquired_hold_survives_a_restart() {
    let mut first = plan().start().await;
    let request =
        json!({"id": "h1", "name": "run:1", "class": "workflow", "ttl_ms": 6_000, "heartbeat_ms": 30_000});
    let held = first.post("/v1/holds", request).await.ok();
    for _ in 0..2 {
        let seen = first.get("/v1/holds/h1").await.ok();
        release_in_store(&first.store, "run:1", &seen["fence"]).await;
        assert_survives_restart(&mut first, |now| {
            now["fence"] != seen["fence"] && now["standing"] == "proven"
        })
        .await;
    }
    assert_ne!(first.get("/v1/holds/h1").await.ok()["fence"], held["fence"]);
}

/// Waits until the daemon's only hold matches `like`, restarts the daemon, and checks that the hold
/// is unchanged.
async fn assert_survives_restart(daemon: &mut Daemon, like: impl Fn(&Value) -> bool) {
    let mut seen = Value::Null;
    eventually("the hold to be so", async || {
        seen = daemon.get("/v1/holds/h1").await.ok();
        like(&seen)
    })
    .await;
    *daemon = restart(daemon, async || {}).await;
    let beat = daemon.call("POST", "/v1/holds/h1/heartbeat", None, None).await;
    assert_eq!((beat.status, &beat.json()["fence"]), (200, &seen["fence"]), "{beat:?}");
}

/// Releases this lease in the store, without the daemon.
async fn release_in_store(store: &SharedStore, name: &str, fence: &Value) {
    let fence = fence.as_str().unwrap().parse().unwrap();
    let request = ReleaseRequest::by_operator(leasehold::Name::new(name).unwrap(), fence);
    store.release(&request, Duration::from_secs(1)).await.unwrap();
}

/// The store does not answer when the daemon starts: the fate of its holds is unknown, and the
/// daemon must not call them lost.
#[tokio::test]
async fn a_hold_not_yet_resumed_is_not_reported_lost() {
    let mut plan = plan();
    let chaos = FaultyStore::new(Arc::clone(&plan.store), BootClock::shared());
    plan.store = chaos.store();
    let mut first = plan.start().await;
    let request = json!({"id": "h1", "name": "job:2", "heartbeat_ms": 30_000});
    let held = first.post("/v1/holds", request.clone()).await.ok();
    chaos.renew().down(true);
    let second = restart(&mut first, async || {}).await;
    for (method, path) in [("GET", ""), ("POST", "/heartbeat"), ("DELETE", "")] {
        let path = format!("/v1/holds/h1{path}");
        let later = second.call(method, &path, None, None).await;
        assert_eq!((later.status, later.header("retry-after")), (503, Some("1")), "{method} {path}");
    }
    assert_eq!(second.post("/v1/holds", request).await.code(), "in_progress");
    chaos.renew().down(false);
    eventually("the hold to be there", async || {
        let seen = second.get("/v1/holds/h1").await;
        seen.status == 200 && seen.json()["fence"] == held["fence"]
    })
    .await;
}

#[tokio::test]
async fn a_hold_lost_during_the_restart_is_reported() {
    let mut first = plan().start().await;
    let held = first.post("/v1/holds", json!({"id": "h1", "name": "job:2"})).await.ok();
    let store = Arc::clone(&first.store);
    let second = restart(&mut first, async || {
        release_in_store(&store, "job:2", &held["fence"]).await;
    })
    .await;
    let over = second.call("POST", "/v1/holds/h1/heartbeat", None, None).await;
    assert_eq!((over.status, &over.json()["reason"]), (410, &json!("daemon_down")));
    // The same id must not silently become another grant.
    let late = second.post("/v1/holds", json!({"id": "h1", "name": "job:2"})).await;
    assert_eq!(late.status, 410, "{late:?}");
}

/// The next run reserves more time for stopping, so it promises its clients less. A client that has
/// not contacted it relies on the previous run's promise.
#[tokio::test]
async fn promises_of_the_previous_run_are_kept() {
    let mut first = plan().start().await;
    let sent = BootClock.now();
    let request = json!({"id": "h1", "name": "job:2", "heartbeat_ms": 4_000});
    let told = first.post("/v1/holds", request).await.ok()["valid_ms"].as_u64().unwrap();
    first.stop().await;
    let mut stricter = next_run(&first);
    stricter.policies =
        "[class.scheduler]\nstop_grace = \"57s\"\nrenew = { every = \"200ms\", timeout = \"200ms\" }";
    let second = stricter.start().await;
    // A read shows no more than what is left now.
    let seen = second.get("/v1/holds/h1").await.ok();
    assert!(seen["valid_ms"].as_u64() < Some(3_000), "{seen}");
    eventually("the hold to end", async || second.get("/v1/holds/h1").await.status == 410).await;
    let kept = BootClock.now().since(sent);
    let held = second.get("/v1/locks/job:2").await.ok()["held"] == true;
    assert!(held || kept >= Duration::from_millis(told), "given up after {kept:?}, told {told} ms");
}

/// A caller disconnects while its grant is being stored: the lease is released and the row deleted.
/// Otherwise the next run would reserve the id for a hold that is over.
#[tokio::test]
async fn an_abandoned_grant_is_not_in_the_file() {
    let mut first = plan().start().await;
    let disk = rusqlite::Connection::open(first.state().join("daemon.db")).unwrap();
    disk.execute_batch("BEGIN IMMEDIATE").unwrap();
    let mut stream = first.connect().await;
    let body = json!({"id": "h1", "name": "job:2"}).to_string();
    let request = format!(
        "POST /v1/holds HTTP/1.1\r\nhost: {}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        first.address,
        body.len()
    );
    stream.write_all(request.as_bytes()).await.unwrap();
    let held = async || first.get("/v1/locks/job:2").await.ok()["held"] == true;
    eventually("the grant", held).await;
    drop(stream);
    eventually("its end", async || !held().await).await;
    disk.execute_batch("ROLLBACK").unwrap();
    let second = restart(&mut first, async || {}).await;
    let ask = json!({"id": "h1", "name": "job:2"});
    assert_eq!(second.post("/v1/holds", ask).await.status, 201);
}

/// On the first signal waiting requests return, streams end, and holds may be released; then the
/// daemon exits.
#[tokio::test]
async fn stopping_notifies_all_clients() {
    let mut plan = DaemonPlan::new();
    plan.config.drain_timeout = Duration::from_secs(60);
    let mut daemon = plan.start().await;
    let mine = daemon.post("/v1/locks/job:1/acquire", json!({})).await.ok();
    daemon.post("/v1/holds", json!({"id": "h", "name": "job:2", "heartbeat_ms": 60_000})).await.ok();
    let waiting = daemon.post("/v1/locks/job:1/acquire", json!({"wait_ms": 60_000}));
    let stream = daemon.get("/v1/events");
    let stopping = async {
        eventually("a waiter", async || daemon.get("/v1/locks/job:1").await.ok()["waiters"] == 1).await;
        daemon.signal();
    };
    let (waited, _, streamed) = tokio::join!(waiting, stopping, stream);
    assert_eq!((waited.status, waited.header("retry-after")), (503, Some("1")), "{waited:?}");
    assert_eq!(streamed.status, 200);
    assert_eq!(daemon.get("/readyz").await.status, 503);
    let late = daemon.post("/v1/holds", json!({"name": "job:3"})).await;
    assert_eq!((late.status, late.code().as_str()), (503, "stopping"), "{late:?}");
    // The client of a hold is asked to release, and can. With the last hold the daemon exits.
    let beat = daemon.call("POST", "/v1/holds/h/heartbeat", None, None).await.ok();
    assert_eq!(beat["asked_to_release"], "the daemon is stopping");
    daemon.call("DELETE", "/v1/holds/h", None, None).await.ok();
    daemon.stop().await;
    let name = leasehold::Name::new("job:1").unwrap();
    let lease = daemon.store.inspect(&name, Duration::from_secs(1)).await.unwrap().into_first().unwrap();
    assert_eq!(
        Some(lease.fence.unwrap().to_string().as_str()),
        mine["fence"].as_str(),
        "the client's own lives on"
    );
}

/// Two daemons on one directory would overwrite each other's state.
#[tokio::test]
async fn one_daemon_per_state_directory() {
    let daemon = Daemon::start().await;
    let mut config = leasehold_server::Config::new("127.0.0.1:0".parse().unwrap());
    config.state_dir = Some(daemon.state());
    config.unauthenticated = true;
    let store = Arc::clone(&daemon.store);
    let second = leasehold_server::Server::bind(config, store, |locks| locks, Vec::new()).await;
    assert!(second.unwrap_err().to_string().contains("another daemon"));
}

//! The daemon stops and starts: what clients keep goes on, what it keeps is taken up, what is gone is said.

use std::sync::Arc;
use std::time::Duration;

use leasehold::clock::{BootClock, Clock};
use leasehold::leasehold_core::adapter::Chaos;
use leasehold::leasehold_core::store::Claim;
use leasehold::store::{Giving, SharedStore};
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;

use crate::stage::{Daemon, Plan, eventually};

async fn again(daemon: &mut Daemon, between: impl AsyncFnOnce()) -> Daemon {
    daemon.stop().await;
    between().await;
    next(daemon).start().await
}

/// The next life of this daemon.
fn next(daemon: &Daemon) -> Plan {
    let mut plan = Plan::new();
    plan.config.state = Some(daemon.state());
    plan.store = Arc::clone(&daemon.store);
    plan.folder = Arc::clone(&daemon.folder);
    plan
}

fn plan() -> Plan {
    let mut plan = Plan::new();
    plan.config.drain = Duration::from_millis(100);
    plan
}

#[tokio::test]
async fn holds_of_both_kinds_outlive_the_daemon() {
    let mut first = plan().start().await;
    let mine = first
        .post("/v1/locks/job:1/acquire", json!({"id": "x", "holder": "me"}))
        .await
        .ok();
    let ask = json!({"id": "h1", "name": "job:2", "holder": "w", "heartbeat_ms": 30_000});
    let held = first.post("/v1/holds", ask.clone()).await.ok();
    let second = again(&mut first, async || {}).await;
    // The client's own: the same token renews, and the same id asks for it again.
    let renew = json!({"token": mine["token"], "fence": mine["fence"]});
    second.post("/v1/locks/job:1/renew", renew).await.ok();
    let same = second
        .post("/v1/locks/job:1/acquire", json!({"id": "x", "holder": "me"}))
        .await
        .ok();
    assert_eq!(same, mine);
    // The daemon's: it goes on with the same fence.
    let beat = second
        .call("POST", "/v1/holds/h1/heartbeat", None, None)
        .await
        .ok();
    assert_eq!(beat["fence"], held["fence"]);
    assert_eq!(second.post("/v1/holds", ask).await.ok()["fence"], held["fence"]);
    second.call("DELETE", "/v1/holds/h1", None, None).await.ok();
    // One hold, one row, over both lives.
    eventually("the history", async || {
        let past = second.get("/v1/history?prefix=job:2").await.ok();
        let rows = past["holds"].as_array().unwrap().clone();
        rows.len() == 1 && rows[0]["ended"] == "released"
    })
    .await;
}

/// A hold that began without a lease has got one since: it goes on with that one.
#[tokio::test]
async fn a_hold_that_has_healed_outlives_the_daemon() {
    let mut plan = plan();
    let chaos = Chaos::new(Arc::clone(&plan.store), BootClock::shared());
    plan.store = chaos.store();
    let mut first = plan.start().await;
    chaos.acquire().down(true);
    let ask = json!({"id": "h1", "name": "run:1", "class": "workflow", "heartbeat_ms": 30_000});
    let alone = first.post("/v1/holds", ask).await.ok();
    assert_eq!(alone["standing"], "local_only");
    chaos.acquire().down(false);
    goes_on(&mut first, |seen| seen["standing"] == "proven").await;
}

/// The same for one that has lost its lease and taken the name anew.
#[tokio::test]
async fn a_hold_that_was_retaken_outlives_the_daemon() {
    let mut first = plan().start().await;
    let ask =
        json!({"id": "h1", "name": "run:1", "class": "workflow", "ttl_ms": 6_000, "heartbeat_ms": 30_000});
    let held = first.post("/v1/holds", ask).await.ok();
    for _ in 0..2 {
        let seen = first.get("/v1/holds/h1").await.ok();
        take_away(&first.store, "run:1", &seen["fence"]).await;
        goes_on(&mut first, |now| {
            now["fence"] != seen["fence"] && now["standing"] == "proven"
        })
        .await;
    }
    assert_ne!(first.get("/v1/holds/h1").await.ok()["fence"], held["fence"]);
}

/// Once its only hold is like this, the daemon is followed by another, which has the hold as it was.
async fn goes_on(daemon: &mut Daemon, like: impl Fn(&Value) -> bool) {
    let mut seen = Value::Null;
    eventually("the hold to be so", async || {
        seen = daemon.get("/v1/holds/h1").await.ok();
        like(&seen)
    })
    .await;
    *daemon = again(daemon, async || {}).await;
    let beat = daemon.call("POST", "/v1/holds/h1/heartbeat", None, None).await;
    assert_eq!(
        (beat.status, &beat.json()["fence"]),
        (200, &seen["fence"]),
        "{beat:?}"
    );
}

/// Ends this lease behind the daemon's back.
async fn take_away(store: &SharedStore, name: &str, fence: &Value) {
    let giving = Giving {
        name: leasehold::Name::new(name).unwrap(),
        claim: Claim::Seen(fence.as_str().unwrap().parse().unwrap()),
        tombstone: None,
    };
    store.release(&giving, Duration::from_secs(1)).await.unwrap();
}

/// The store does not answer when the daemon starts: nobody can say yet what became of its holds, and nobody does.
#[tokio::test]
async fn a_hold_that_is_not_taken_up_yet_is_not_said_to_be_gone() {
    let mut plan = plan();
    let chaos = Chaos::new(Arc::clone(&plan.store), BootClock::shared());
    plan.store = chaos.store();
    let mut first = plan.start().await;
    let ask = json!({"id": "h1", "name": "job:2", "heartbeat_ms": 30_000});
    let held = first.post("/v1/holds", ask.clone()).await.ok();
    chaos.renew().down(true);
    let second = again(&mut first, async || {}).await;
    for (method, path) in [("GET", ""), ("POST", "/heartbeat"), ("DELETE", "")] {
        let path = format!("/v1/holds/h1{path}");
        let later = second.call(method, &path, None, None).await;
        assert_eq!(
            (later.status, later.header("retry-after")),
            (503, Some("1")),
            "{method} {path}"
        );
    }
    assert_eq!(second.post("/v1/holds", ask).await.code(), "in_progress");
    chaos.renew().down(false);
    eventually("the hold to be there", async || {
        let seen = second.get("/v1/holds/h1").await;
        seen.status == 200 && seen.json()["fence"] == held["fence"]
    })
    .await;
}

#[tokio::test]
async fn a_hold_that_was_lost_meanwhile_is_said_to_be() {
    let mut first = plan().start().await;
    let held = first
        .post("/v1/holds", json!({"id": "h1", "name": "job:2"}))
        .await
        .ok();
    let store = Arc::clone(&first.store);
    let second = again(&mut first, async || {
        take_away(&store, "job:2", &held["fence"]).await;
    })
    .await;
    let over = second.call("POST", "/v1/holds/h1/heartbeat", None, None).await;
    assert_eq!(
        (over.status, &over.json()["reason"]),
        (410, &json!("daemon_down"))
    );
    // And the same id does not silently become another grant.
    let late = second
        .post("/v1/holds", json!({"id": "h1", "name": "job:2"}))
        .await;
    assert_eq!(late.status, 410, "{late:?}");
}

/// The next life wants more time to stop, so it tells its clients less. One that it does not hear of counts on what the last
/// life has told it.
#[tokio::test]
async fn a_client_has_the_time_that_the_last_life_told_it() {
    let mut first = plan().start().await;
    let sent = BootClock.now();
    let ask = json!({"id": "h1", "name": "job:2", "heartbeat_ms": 4_000});
    let told = first.post("/v1/holds", ask).await.ok()["valid_ms"]
        .as_u64()
        .unwrap();
    first.stop().await;
    let mut stricter = next(&first);
    stricter.policies =
        "[class.scheduler]\nstop_grace = \"57s\"\nrenew = { every = \"200ms\", timeout = \"200ms\" }";
    let second = stricter.start().await;
    // Whoever only looks is not told more than there is now.
    let seen = second.get("/v1/holds/h1").await.ok();
    assert!(seen["valid_ms"].as_u64() < Some(3_000), "{seen}");
    eventually("the hold to end", async || {
        second.get("/v1/holds/h1").await.status == 410
    })
    .await;
    let kept = BootClock.now().since(sent);
    let held = second.get("/v1/locks/job:2").await.ok()["held"] == true;
    assert!(
        held || kept >= Duration::from_millis(told),
        "given up after {kept:?}, told {told} ms"
    );
}

/// A caller hangs up while its grant is being written down: what it was granted is given back, and not known to the next life
/// either, where its id would be taken by something that is over.
#[tokio::test]
async fn what_nobody_waited_for_is_not_in_the_file() {
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
    let second = again(&mut first, async || {}).await;
    let ask = json!({"id": "h1", "name": "job:2"});
    assert_eq!(second.post("/v1/holds", ask).await.status, 201);
}

/// The first signal: waiters are told, streams end, holds may be let go, then it is over.
#[tokio::test]
async fn stopping_tells_everybody() {
    let mut plan = Plan::new();
    plan.config.drain = Duration::from_secs(60);
    let mut daemon = plan.start().await;
    let mine = daemon.post("/v1/locks/job:1/acquire", json!({})).await.ok();
    daemon
        .post(
            "/v1/holds",
            json!({"id": "h", "name": "job:2", "heartbeat_ms": 60_000}),
        )
        .await
        .ok();
    let waiting = daemon.post("/v1/locks/job:1/acquire", json!({"wait_ms": 60_000}));
    let stream = daemon.get("/v1/events");
    let stopping = async {
        eventually("a waiter", async || {
            daemon.get("/v1/locks/job:1").await.ok()["waiters"] == 1
        })
        .await;
        daemon.signal();
    };
    let (waited, _, streamed) = tokio::join!(waiting, stopping, stream);
    assert_eq!(
        (waited.status, waited.header("retry-after")),
        (503, Some("1")),
        "{waited:?}"
    );
    assert_eq!(streamed.status, 200);
    assert_eq!(daemon.get("/readyz").await.status, 503);
    let late = daemon.post("/v1/holds", json!({"name": "job:3"})).await;
    assert_eq!((late.status, late.code().as_str()), (503, "stopping"), "{late:?}");
    // The client of a hold is asked to let go, and can; with the last one the daemon is gone.
    let beat = daemon
        .call("POST", "/v1/holds/h/heartbeat", None, None)
        .await
        .ok();
    assert_eq!(beat["asked_to_release"], "the daemon is stopping");
    daemon.call("DELETE", "/v1/holds/h", None, None).await.ok();
    daemon.stop().await;
    let name = leasehold::Name::new("job:1").unwrap();
    let lease = daemon
        .store
        .inspect(&name, Duration::from_secs(1))
        .await
        .unwrap()
        .unwrap();
    assert_eq!(
        Some(lease.fence.unwrap().to_string().as_str()),
        mine["fence"].as_str(),
        "the client's own lives on"
    );
}

/// Two daemons on one folder would undo each other's work.
#[tokio::test]
async fn one_daemon_a_folder() {
    let daemon = Daemon::start().await;
    let mut config = leasehold_server::Config::new("127.0.0.1:0".parse().unwrap());
    config.state = Some(daemon.state());
    let store = Arc::clone(&daemon.store);
    let second = leasehold_server::Server::bind(config, store, |locks| locks, Vec::new()).await;
    assert!(second.unwrap_err().to_string().contains("another daemon"));
}

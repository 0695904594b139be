//! Callers that hang up: what they asked for, and what they asked for again.

use std::sync::Arc;
use std::time::Duration;

use leasehold::clock::BootClock;
use leasehold::leasehold_core::adapter::{Chaos, Verb};
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

use crate::stage::{Daemon, PATIENCE, Plan, eventually};

/// Sends an acquire and does not read the answer.
async fn begin(daemon: &Daemon, want: &Value) -> TcpStream {
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

/// A first request is held up on its way. Its caller gives it up, asks again with the same id and is granted. Then the first
/// one arrives after all, with the end of its connection behind it: the lease stays.
#[tokio::test]
async fn a_late_request_takes_nothing_back_from_one_who_asked_again() {
    let mut plan = Plan::new();
    let chaos = Chaos::new(Arc::clone(&plan.store), BootClock::shared());
    plan.store = chaos.store();
    let daemon = plan.start().await;
    let want = json!({"id": "mine", "wait_ms": 60_000});
    let granted = daemon.post("/v1/locks/demo/acquire", want.clone()).await.ok();

    let asked = chaos.calls(Verb::Acquire);
    chaos.acquire().hang_next(1);
    let late = begin(&daemon, &want).await;
    eventually("the late request is being answered", async || {
        chaos.calls(Verb::Acquire) > asked
    })
    .await;
    drop(late);
    eventually("the daemon noticed", async || chaos.calls(Verb::Release) > 0).await;

    let renew = json!({"token": granted["token"], "fence": granted["fence"]});
    let renewed = daemon.post("/v1/locks/demo/renew", renew).await;
    assert_eq!(renewed.status, 200, "{renewed:?}");
}

/// Nobody has the token that the daemon made for a request whose answer from the store was lost: what may have been granted is
/// taken back.
#[tokio::test]
async fn an_unknown_answer_leaves_no_lease_that_nobody_could_give_back() {
    let mut plan = Plan::new();
    let chaos = Chaos::new(Arc::clone(&plan.store), BootClock::shared());
    plan.store = chaos.store();
    let daemon = plan.start().await;
    chaos.acquire().lose_reply(1);
    let lost = daemon.post("/v1/locks/demo/acquire", json!({})).await;
    assert_eq!((lost.status, &lost.json()["unknown"]), (503, &json!(true)));
    eventually("the name is free", async || {
        daemon.get("/v1/locks/demo").await.ok()["held"] == false
    })
    .await;

    // With an id it is kept for whoever asks again.
    let want = json!({"id": "mine"});
    chaos.acquire().lose_reply(1);
    let lost = daemon.post("/v1/locks/demo/acquire", want.clone()).await;
    assert_eq!((lost.status, &lost.json()["unknown"]), (503, &json!(true)));
    let released = chaos.calls(Verb::Release);
    daemon.post("/v1/locks/demo/acquire", want).await.ok();
    assert_eq!(chaos.calls(Verb::Release), released);
}

/// A wait that the daemon's end cuts short is no definite no if the store did not answer one of its questions: with an id it
/// may still be granted.
#[tokio::test]
async fn stopping_does_not_make_an_unknown_answer_a_no() {
    let mut plan = Plan::new();
    let chaos = Chaos::new(Arc::clone(&plan.store), BootClock::shared());
    plan.store = chaos.store();
    let mut daemon = plan.start().await;
    daemon.post("/v1/locks/demo/acquire", json!({})).await.ok();
    let asked = chaos.calls(Verb::Acquire);
    chaos.acquire().lose_reply(1);
    let waiting = daemon.post("/v1/locks/demo/acquire", json!({"id": "mine", "wait_ms": 60_000}));
    let stopping = async {
        chaos.reached(Verb::Acquire, asked + 2).await;
        daemon.signal();
    };
    let (told, ()) = tokio::join!(waiting, stopping);
    assert_eq!(
        (told.status, &told.json()["unknown"]),
        (503, &json!(true)),
        "{told:?}"
    );
    daemon.stop().await;
}

/// Whoever hangs up while it waits leaves no place behind, whether it could ask again or not.
#[tokio::test]
async fn a_caller_that_goes_leaves_no_waiter() {
    let daemon = Daemon::start().await;
    daemon.post("/v1/locks/demo/acquire", json!({})).await.ok();
    let waits = async |number| daemon.get("/v1/locks/demo").await.ok()["waiters"] == number;
    for want in [
        json!({"wait_ms": 60_000}),
        json!({"id": "mine", "wait_ms": 60_000}),
    ] {
        let waiter = begin(&daemon, &want).await;
        eventually("a waiter", async || waits(1).await).await;
        drop(waiter);
        eventually("no waiter", async || waits(0).await).await;
    }
}

/// A store that does not answer for a while is told again, of a lease that nobody knows and of a place alike.
#[tokio::test]
async fn what_is_left_behind_is_taken_back_once_the_store_answers() {
    let mut plan = Plan::new();
    let chaos = Chaos::new(Arc::clone(&plan.store), BootClock::shared());
    plan.store = chaos.store();
    let daemon = plan.start().await;
    chaos.acquire().lose_reply(1);
    chaos.release().fail_next(2);
    // Nobody waits for its end.
    let lost = daemon.post("/v1/locks/demo/acquire", json!({"ttl_ms": 3_600_000}));
    assert_eq!(lost.await.status, 503);
    eventually("the name is free", async || {
        daemon.get("/v1/locks/demo").await.ok()["held"] == false
    })
    .await;

    daemon.post("/v1/locks/demo/acquire", json!({})).await.ok();
    let waiter = begin(&daemon, &json!({"id": "mine", "wait_ms": 60_000})).await;
    eventually("a waiter", async || {
        daemon.get("/v1/locks/demo").await.ok()["waiters"] == 1
    })
    .await;
    let told = chaos.applied(Verb::Release);
    chaos.release().fail_next(2);
    drop(waiter);
    // A place runs out by itself, and soon: that the store was told shows only there.
    eventually("the place is given up", async || {
        chaos.applied(Verb::Release) > told
    })
    .await;
}

/// Those who wait when the daemon stops leave no place behind either: the store hears of it before the daemon is gone.
#[tokio::test]
async fn a_daemon_that_stops_leaves_no_waiter() {
    let mut plan = Plan::new();
    let chaos = Chaos::new(Arc::clone(&plan.store), BootClock::shared());
    plan.store = chaos.store();
    plan.config.drain = PATIENCE;
    let mut daemon = plan.start().await;
    daemon.post("/v1/locks/demo/acquire", json!({})).await.ok();
    let waiter = begin(&daemon, &json!({"id": "mine", "wait_ms": 60_000})).await;
    eventually("a waiter", async || {
        daemon.get("/v1/locks/demo").await.ok()["waiters"] == 1
    })
    .await;
    chaos.release().delay(Duration::from_millis(200));
    daemon.stop().await;
    assert_eq!(chaos.applied(Verb::Release), 1);
    drop(waiter);
}

/// What the daemon itself may have got for a hold that it was to keep is undone before it is gone.
#[tokio::test]
async fn a_daemon_that_stops_undoes_what_it_has_asked_for() {
    let mut plan = Plan::new();
    let chaos = Chaos::new(Arc::clone(&plan.store), BootClock::shared());
    plan.store = chaos.store();
    plan.config.drain = PATIENCE;
    let mut daemon = plan.start().await;
    chaos.acquire().lose_reply(100);
    chaos.release().fail_next(2);
    let ask = json!({"id": "h1", "name": "job:1", "class": "approval", "wait_ms": 0, "heartbeat_ms": 30_000});
    let lost = daemon.post("/v1/holds", ask).await;
    assert_eq!(lost.status, 503, "{lost:?}");
    daemon.stop().await;
    assert_eq!(chaos.applied(Verb::Release), 1);
}

/// Leaving the queue by request changes nothing else, and goes with no tombstone.
#[tokio::test]
async fn a_place_is_given_up_and_a_lease_is_not() {
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

//! Client-kept locks: the basic routes.

use std::time::Duration;

use leasehold::clock::{BootClock, Clock};
use leasehold::store::AcquireRequest;
use leasehold::{Fence, Name, StoreUrl, Ttl};
use leasehold_core::Token;
use serde_json::{Value, json};

use crate::fixture::{Daemon, DaemonPlan, eventually};

#[tokio::test]
async fn acquire_busy_renew_release() {
    let daemon = Daemon::start().await;
    let mine = daemon.post("/v1/locks/demo/acquire", json!({"holder": "me"})).await.ok();
    let (token, fence) = (mine["token"].as_str().unwrap(), mine["fence"].as_str().unwrap());
    assert_eq!((mine["holder"].as_str(), mine["ttl_ms"].as_u64()), (Some("me"), Some(60_000)));

    let busy = daemon.post("/v1/locks/demo/acquire", json!({"holder": "you"})).await;
    assert_eq!((busy.status, busy.code().as_str()), (409, "busy"));
    assert_eq!(busy.json()["holder"], "me");
    let after: u64 = busy.header("retry-after").unwrap().parse().unwrap();
    assert!((1..=60).contains(&after), "{after}");

    let renewed = daemon.post("/v1/locks/demo/renew", json!({"token": token, "fence": fence})).await.ok();
    assert_eq!(renewed["status"], "extended");
    let released = daemon.post("/v1/locks/demo/release", json!({"token": token})).await.ok();
    assert_eq!(released["released"], true);
    let next = daemon.post("/v1/locks/demo/acquire", json!({"holder": "you"})).await.ok();
    assert!(next["fence"].as_str().unwrap().parse::<u64>().unwrap() > fence.parse().unwrap());
}

#[tokio::test]
async fn a_wrong_token_gets_410_and_changes_nothing() {
    let daemon = Daemon::start().await;
    let mine = daemon.post("/v1/locks/demo/acquire", json!({"holder": "me"})).await.ok();
    let fence = mine["fence"].as_str().unwrap();
    let wrong = format!("me|scheduler|{}", "0".repeat(32));
    let renewed = daemon.post("/v1/locks/demo/renew", json!({"token": wrong, "fence": fence})).await;
    assert_eq!((renewed.status, renewed.code().as_str()), (410, "not_owned"));
    let released = daemon.post("/v1/locks/demo/release", json!({"token": wrong})).await;
    assert_eq!((released.status, released.code().as_str()), (410, "not_owned"));
    // The right token with another grant's fence.
    let stale = json!({"token": mine["token"], "fence": "1"});
    assert_eq!(daemon.post("/v1/locks/demo/renew", stale).await.status, 410);
    let shown = daemon.get("/v1/locks/demo").await.ok();
    assert_eq!((&shown["held"], &shown["fence"]), (&json!(true), &mine["fence"]));
    assert!(shown.get("token").is_none());
}

#[tokio::test]
async fn a_repeated_acquire_with_an_id_returns_the_same_grant() {
    let daemon = Daemon::start().await;
    let request = json!({"id": "3f0c", "holder": "me"});
    let first = daemon.post("/v1/locks/demo/acquire", request.clone()).await.ok();
    assert_eq!(daemon.post("/v1/locks/demo/acquire", request.clone()).await.ok(), first);
    // Another id counts as another caller.
    let other = json!({"id": "3f0d", "holder": "me"});
    assert_eq!(daemon.post("/v1/locks/demo/acquire", other).await.code(), "busy");
    daemon.post("/v1/locks/demo/release", json!({"token": first["token"]})).await.ok();
    // A late repetition must not re-acquire what was released.
    let late = daemon.post("/v1/locks/demo/acquire", request).await;
    assert_eq!((late.status, late.code().as_str()), (410, "void"));
    assert_eq!(daemon.get("/v1/locks/demo").await.ok()["held"], false);
}

#[tokio::test]
async fn a_waiter_is_granted_when_the_holder_releases() {
    let daemon = Daemon::start().await;
    let mine = daemon.post("/v1/locks/demo/acquire", json!({})).await.ok();
    let wait = json!({"holder": "you", "wait_ms": 60_000});
    let waiting = daemon.post("/v1/locks/demo/acquire", wait);
    let release = async {
        eventually("a waiter", async || daemon.get("/v1/locks/demo").await.ok()["waiters"] == 1).await;
        daemon.post("/v1/locks/demo/release", json!({"token": mine["token"]})).await.ok();
        BootClock.now()
    };
    let (granted, released) = tokio::join!(waiting, release);
    assert_eq!(granted.ok()["holder"], "you");
    assert!(BootClock.now().since(released) < Duration::from_secs(20));
    // A waiter that times out leaves no queue entry behind.
    let late = daemon.post("/v1/locks/demo/acquire", json!({"wait_ms": 50})).await;
    assert_eq!(late.code(), "busy");
    eventually("no waiter", async || daemon.get("/v1/locks/demo").await.ok()["waiters"] == 0).await;
}

#[tokio::test]
async fn a_break_requests_waits_refuses_and_is_recorded() {
    let daemon = Daemon::start().await;
    assert_eq!(daemon.post("/v1/locks/demo/break", json!({"reason": "x"})).await.code(), "not_held");
    let mine = daemon.post("/v1/locks/demo/acquire", json!({"holder": "me"})).await.ok();
    assert_eq!(daemon.post("/v1/locks/demo/break", json!({"reason": " "})).await.code(), "invalid");
    let stale = json!({"reason": "stuck", "fence": "1"});
    let stale = daemon.post("/v1/locks/demo/break", stale).await;
    assert_eq!((stale.status, stale.code().as_str()), (412, "stale_fence"));
    let asked = daemon.post("/v1/locks/demo/break", json!({"reason": "stuck", "wait_ms": 200})).await;
    assert_eq!((asked.status, asked.code().as_str()), (409, "holder_alive"));
    // The holder was asked to release, and learns so when it renews.
    let renew = json!({"token": mine["token"], "fence": mine["fence"]});
    let renewed = daemon.post("/v1/locks/demo/renew", renew.clone()).await.ok();
    assert_eq!(renewed["asked_to_release"], "local: stuck");
    let forced = json!({"reason": "stuck", "force": true});
    assert_eq!(daemon.post("/v1/locks/demo/break", forced).await.ok()["how"], "broken");
    assert_eq!(daemon.post("/v1/locks/demo/renew", renew).await.status, 410);
    let audit = std::fs::read_to_string(daemon.state().join("audit.jsonl")).unwrap();
    let line = audit.lines().find(|line| line.contains("\"break\"")).unwrap();
    assert!(line.contains("\"local\"") && line.contains("stuck"), "{line}");
    // The audit log says that the break was forced, and that an earlier one was refused.
    assert!(line.contains("\"forced\":true"), "{line}");
    let refused = audit.lines().find(|line| line.contains("\"break-refused\"")).unwrap();
    assert!(refused.contains("stuck") && !refused.contains("forced"), "{refused}");
    assert!(leasehold_server::verify_audit(&daemon.state(), None).is_ok());
    eventually("the history to say so", async || {
        daemon.get("/v1/history").await.ok()["holds"][0]["ended"] == "broken"
    })
    .await;
}

/// A holder that releases when asked is not broken. A dead one is, once its silence shows.
#[tokio::test]
async fn only_a_silent_holder_is_broken() {
    let daemon = Daemon::start().await;
    let mine = daemon.post("/v1/locks/demo/acquire", json!({})).await.ok();
    let breaking = daemon.post("/v1/locks/demo/break", json!({"reason": "x", "wait_ms": 60_000}));
    let letting_go = async {
        let renew = json!({"token": mine["token"], "fence": mine["fence"]});
        eventually("being asked", async || {
            let renewed = daemon.post("/v1/locks/demo/renew", renew.clone()).await.ok();
            renewed.get("asked_to_release").is_some()
        })
        .await;
        daemon.post("/v1/locks/demo/release", json!({"token": mine["token"]})).await.ok();
    };
    let (how, ()) = tokio::join!(breaking, letting_go);
    // The renewal that learned of the request may have shown just before that the holder is alive.
    assert!(matches!(how.status, 200 | 409), "{how:?}");
    daemon.post("/v1/locks/dead/acquire", json!({"ttl_ms": 3000})).await.ok();
    let dead = daemon.post("/v1/locks/dead/break", json!({"reason": "x", "wait_ms": 60_000})).await.ok();
    assert!(matches!(dead["how"].as_str(), Some("broken" | "released")), "{dead}");
    // A caller that watched the holder itself says so, and the break does not count as forced.
    daemon.post("/v1/locks/gone/acquire", json!({})).await.ok();
    let watched = json!({"reason": "its host is gone", "force": true, "alive": false});
    daemon.post("/v1/locks/gone/break", watched).await.ok();
    let audit = std::fs::read_to_string(daemon.state().join("audit.jsonl")).unwrap();
    let line = audit.lines().find(|line| line.contains("its host is gone")).unwrap();
    assert!(line.contains("\"forced\":false"), "{line}");
}

/// The silence of a holder that renews never or rarely proves nothing: it is not broken while its
/// lease lasts.
#[tokio::test]
async fn silence_of_a_rarely_renewing_holder_proves_nothing() {
    let daemon = Daemon::start().await;
    let unknown = format!("me|no-such-class|{}", "0".repeat(32));
    for who in [json!({"class": "admission"}), json!({"token": unknown})] {
        let mut want = who.clone();
        want["ttl_ms"] = json!(3000);
        daemon.post("/v1/locks/demo/acquire", want).await.ok();
        let ended = daemon.post("/v1/locks/demo/break", json!({"reason": "x", "wait_ms": 60_000})).await.ok();
        // The lease expired.
        assert_eq!(ended["how"], "released", "{who}");
    }
}

/// The API documents batches of 200, and names of up to 512 bytes.
#[tokio::test]
async fn the_largest_documented_batch_of_renewals_fits_a_request() {
    let daemon = Daemon::start().await;
    // Some clients escape every letter outside of ASCII.
    let name = |at: usize| format!("big:{at:03}{}", "é".repeat(252));
    let holder = "h".repeat(128);
    let mut items = Vec::new();
    for at in 0..200 {
        let request = json!({"holder": holder, "ttl_ms": 600_000});
        let path = format!("/v1/locks/{}/acquire", name(at).replace('é', "%C3%A9"));
        let granted = daemon.post(&path, request).await.ok();
        items.push(json!({
            "name": name(at), "token": granted["token"], "fence": granted["fence"],
            "ttl_ms": 600_000, "lock_delay_ms": 86_400_000,
        }));
    }
    let renewed = daemon.post("/v1/namespaces/big/renew", json!({"items": items})).await.ok();
    let results = renewed["results"].as_array().unwrap();
    assert_eq!(results.len(), 200);
    assert!(results.iter().all(|one| one["status"] == "extended"), "{renewed}");
    items.push(items[0].clone());
    let refused = daemon.post("/v1/namespaces/big/renew", json!({"items": items})).await;
    assert_eq!((refused.status, refused.code().as_str()), (422, "invalid"), "{refused:?}");
}

/// A store that lost its data cannot repeat a fence that the daemon has seen, with a wait or without.
#[tokio::test]
async fn fences_grow_although_the_store_lost_its_counter() {
    let mut plan = DaemonPlan::new();
    let file = plan.folder.path().join("locks.db").display().to_string();
    plan.store = StoreUrl::parse(&format!("sqlite:{file}")).unwrap().open().unwrap();
    let daemon = plan.start().await;
    let fence = |reply: &Value| reply["fence"].as_str().unwrap().parse::<u64>().unwrap();
    let first = fence(&daemon.post("/v1/locks/first/acquire", json!({})).await.ok());
    let requests = [("once", json!({})), ("waits", json!({"wait_ms": 50}))];
    let mut seen = Vec::new();
    for (name, request) in &requests {
        // Two days ahead of the clock, which alone would give such a fence only then.
        let token = Token::parse(&format!("x|scheduler|{}", "0".repeat(32))).unwrap();
        let ttl = Ttl::new(Duration::from_secs(3600)).unwrap();
        let mut ahead = AcquireRequest::new(Name::new(name).unwrap(), token, ttl);
        ahead.floor = Fence::new(first + 48 * 3_600_000_000);
        daemon.store.acquire(&ahead, Duration::from_secs(60)).await.unwrap();
        let busy = daemon.post(&format!("/v1/locks/{name}/acquire"), request.clone()).await;
        assert_eq!(busy.code(), "busy");
        seen.push(fence(&busy.json()));
    }
    for ending in ["", "-wal", "-shm"] {
        let _ = std::fs::remove_file(format!("{file}{ending}"));
    }
    for ((name, request), seen) in requests.into_iter().zip(seen) {
        let next = daemon.post(&format!("/v1/locks/{name}/acquire"), request).await.ok();
        assert!(fence(&next) > seen, "{next} after {seen}");
    }
}

#[tokio::test]
async fn finding_26_invisible_characters_are_refused_at_acquire() {
    let daemon = Daemon::start().await;
    for (route, body) in [
        ("/v1/locks/job:1%EF%B8%8F/acquire", json!({"holder": "me"})),
        ("/v1/locks/job:1/acquire", json!({"holder": "m\u{202e}e"})),
        ("/v1/holds", json!({"name": "job:1\u{fe0f}", "id": "x"})),
        ("/v1/holds", json!({"name": "job:1", "id": "x", "holder": "m\u{202e}e"})),
    ] {
        let refused = daemon.post(route, body).await;
        assert_eq!(refused.status, 422, "{route}: {}", refused.json());
        assert!(refused.json()["detail"].as_str().unwrap().contains("U+"), "{route}: {}", refused.json());
    }
    // A lease from before the rule can be looked at, released and broken.
    let free = daemon.get("/v1/locks/job:1%EF%B8%8F").await.ok();
    assert_eq!(free["held"], false);
    let token = format!("me|scheduler|{}", "0".repeat(32));
    let released = daemon.post("/v1/locks/job:1%EF%B8%8F/release", json!({ "token": token })).await;
    assert_eq!(released.status, 410, "{}", released.json());
}

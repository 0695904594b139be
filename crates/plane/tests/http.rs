//! The plane's routes, as a client sees them: real status codes and headers.

// A stage that cannot be set is a failed test.
#![allow(clippy::unwrap_used)]
#![cfg(feature = "http")]

mod bed;

use std::collections::BTreeMap;

use axum::Router;
use axum::body::Body;
use axum::http::{Request, Response};
use bed::{Bed, Hand};
use leasehold_plane::http::{ROUTES, router};
use leasehold_plane::work::Works;
use serde_json::{Value, json};
use tower::ServiceExt;

fn served(hand: &Hand) -> Router {
    router(hand.plane.clone(), hand.scheduler.clone())
}

async fn ask(router: &Router, method: &str, path: &str, body: Value) -> (u16, Response<()>, Value) {
    let body = if body.is_null() {
        Body::empty()
    } else {
        Body::from(body.to_string())
    };
    let request = Request::builder().method(method).uri(path).body(body).unwrap();
    let (parts, body) = router.clone().oneshot(request).await.unwrap().into_parts();
    let bytes = axum::body::to_bytes(body, 1 << 20).await.unwrap();
    let value = serde_json::from_slice(&bytes).unwrap_or_default();
    (parts.status.as_u16(), Response::from_parts(parts, ()), value)
}

#[tokio::test(start_paused = true)]
async fn ten_clients_approve_at_once() {
    let bed = Bed::new();
    let hands: Vec<_> = (0..10)
        .map(|number| bed.hand(&format!("gateway-{number}"), Works::default()))
        .collect();
    let job = json!({"id": "j", "work": "pull", "topic": "t", "requires_approval": true});
    assert_eq!(ask(&served(&hands[0]), "POST", "/v1/jobs", job).await.0, 201);
    let asking: Vec<_> = hands
        .iter()
        .enumerate()
        .map(|(number, hand)| {
            let router = served(hand);
            let body = json!({"by": format!("person-{number}"), "reason": "looked at it"});
            tokio::spawn(async move { ask(&router, "POST", "/v1/approvals/j/approve", body).await })
        })
        .collect();
    let mut answers = BTreeMap::new();
    for answer in asking {
        let (status, head, body) = answer.await.unwrap();
        if status != 200 {
            assert_eq!(head.headers()["content-type"], "application/problem+json");
        }
        *answers
            .entry((status, body["code"].as_str().unwrap_or("-").to_owned()))
            .or_insert(0) += 1;
    }
    let wanted = BTreeMap::from([
        ((200, "-".to_owned()), 1),
        ((409, "already_approved".to_owned()), 9),
    ]);
    assert_eq!(answers, wanted);
}

#[tokio::test(start_paused = true)]
async fn busy_and_down_say_when_to_come_again() {
    let bed = Bed::new();
    let (hand, other) = (bed.hand("a", Works::default()), bed.hand("b", Works::default()));
    let router = served(&hand);
    let job = json!({"id": "j", "work": "pull", "requires_approval": true});
    ask(&router, "POST", "/v1/jobs", job).await;
    let held = other
        .plane
        .locks()
        .class("scheduler")
        .acquire("job:j")
        .await
        .unwrap();
    let yes = json!({"by": "ann", "reason": "fine"});
    let (status, head, body) = ask(&router, "POST", "/v1/approvals/j/approve", yes.clone()).await;
    assert_eq!((status, &body["code"]), (409, &json!("approval_retryable_lock")));
    assert_eq!(head.headers()["retry-after"], "1");
    assert_eq!(body["holder"], "b");
    drop(held);
    bed.chaos.all().down(true);
    let (status, head, _) = ask(&router, "POST", "/v1/approvals/j/approve", yes).await;
    assert_eq!(status, 503);
    assert!(head.headers().contains_key("retry-after"));
}

#[tokio::test(start_paused = true)]
async fn a_worker_in_any_language() {
    let bed = Bed::new();
    let hand = bed.hand("a", Works::default());
    let router = served(&hand);
    let job = json!({"id": "j", "work": "pull", "topic": "render", "payload": {"scene": 7}});
    assert_eq!(ask(&router, "POST", "/v1/jobs", job.clone()).await.0, 201);
    assert_eq!(
        ask(&router, "POST", "/v1/jobs", job).await.0,
        200,
        "the same again"
    );
    let claim = json!({"worker": "w1"});
    assert_eq!(
        ask(&router, "POST", "/v1/topics/render/claim", claim.clone())
            .await
            .2["claim"],
        Value::Null
    );
    hand.deliver_due().await;
    let (_, _, claimed) = ask(&router, "POST", "/v1/topics/render/claim", claim).await;
    assert_eq!(claimed["job"]["spec"]["payload"]["scene"], 7);
    assert!(
        claimed["claim"]["fence"].is_string(),
        "fences are strings in JSON"
    );
    let shown = json!({"attempt": claimed["claim"]["attempt"], "fence": claimed["claim"]["fence"]});
    assert_eq!(
        ask(&router, "POST", "/v1/jobs/j/heartbeat", shown.clone())
            .await
            .0,
        200
    );
    let mut wrong = shown.clone();
    wrong["attempt"] = json!(9);
    let (status, _, body) = ask(&router, "POST", "/v1/jobs/j/heartbeat", wrong).await;
    assert_eq!((status, &body["code"]), (409, &json!("stale_claim")));
    let mut done = shown;
    done["done"] = json!({"frames": 24});
    assert_eq!(
        ask(&router, "POST", "/v1/jobs/j/result", done.clone()).await.2["state"],
        "SUCCEEDED"
    );
    assert_eq!(
        ask(&router, "POST", "/v1/jobs/j/result", done).await.2["repeated"],
        true
    );
    let (_, _, history) = ask(&router, "GET", "/v1/jobs/j/history", Value::Null).await;
    assert_eq!(history["events"].as_array().unwrap().len(), 6);
    let (_, _, list) = ask(
        &router,
        "GET",
        "/v1/jobs?state=succeeded&topic=render",
        Value::Null,
    )
    .await;
    assert_eq!(list["jobs"][0]["id"], "j");
}

#[tokio::test(start_paused = true)]
async fn commands_are_not_for_everybody_and_bad_input_is_named() {
    let bed = Bed::new();
    let router = served(&bed.hand("a", Works::default()));
    let exec = json!({"work": {"exec": ["true"]}});
    let (status, _, body) = ask(&router, "POST", "/v1/jobs", exec.clone()).await;
    assert_eq!((status, &body["code"]), (409, &json!("commands_need_admin")));
    assert_eq!(ask(&router, "POST", "/v1/jobs/commands", exec).await.0, 201);
    for (path, body, field) in [
        ("/v1/jobs", json!({"work": "pull", "topics": "x"}), "topics"),
        (
            "/v1/jobs",
            json!({"work": "pull", "deadline": "5"}),
            "has no unit",
        ),
        ("/v1/jobs", json!({"work": "pull", "class": "nope"}), "nope"),
        ("/v1/jobs", json!({"work": "pull", "attempts": 0}), "attempts"),
        ("/v1/runs", json!({}), "workflow"),
    ] {
        let (status, _, problem) = ask(&router, "POST", path, body).await;
        assert_eq!(status, 400, "{problem}");
        assert!(problem["detail"].as_str().unwrap().contains(field), "{problem}");
    }
    assert_eq!(ask(&router, "GET", "/v1/jobs/nobody", Value::Null).await.0, 404);
    assert_eq!(ask(&router, "GET", "/v1/jobs?limit=0", Value::Null).await.0, 400);
}

#[tokio::test(start_paused = true)]
async fn runs_are_started_looked_at_and_cancelled() {
    let bed = Bed::new();
    let hand = bed.hand("a", Works::default());
    let router = served(&hand);
    let text = "name = \"w\"\n[[step]]\nid = \"ask\"\napproval = \"well?\"\n";
    let request = Request::builder()
        .method("PUT")
        .uri("/v1/workflows")
        .body(Body::from(text))
        .unwrap();
    assert_eq!(router.clone().oneshot(request).await.unwrap().status(), 200);
    let start = json!({"workflow": "w", "id": "r"});
    assert_eq!(ask(&router, "POST", "/v1/runs", start.clone()).await.0, 201);
    assert_eq!(ask(&router, "POST", "/v1/runs", start).await.0, 200);
    hand.deliver_due().await;
    assert_eq!(
        ask(&router, "GET", "/v1/approvals", Value::Null).await.2["approvals"][0]["id"],
        "r.ask.1"
    );
    assert_eq!(
        ask(&router, "POST", "/v1/runs/r/rerun", json!({"from": "ask"}))
            .await
            .2["code"],
        "still_running"
    );
    assert_eq!(
        ask(&router, "POST", "/v1/runs/r/cancel", Value::Null).await.0,
        202
    );
    hand.deliver_due().await;
    assert_eq!(
        ask(&router, "GET", "/v1/runs/r", Value::Null).await.2["state"],
        "CANCELLED"
    );
    assert_eq!(
        ask(&router, "POST", "/v1/runs/r/cancel", Value::Null).await.0,
        409
    );
    assert_eq!(
        ask(&router, "GET", "/v1/runs/r/timeline", Value::Null).await.2["events"]
            .as_array()
            .unwrap()
            .len(),
        3
    );
}

/// Whoever mounts the router goes by the list: a route that is not on it would be forgotten.
#[tokio::test(start_paused = true)]
async fn every_route_is_on_the_list() {
    let bed = Bed::new();
    let router = served(&bed.hand("a", Works::default()));
    for (method, path, _, _) in ROUTES {
        let path = path.replace("{id}", "x").replace("{topic}", "x");
        let (status, _, body) = ask(&router, method, &path, Value::Null).await;
        assert_ne!(status, 405, "{method} {path}");
        // The router's own 404 has no body; ours names what is missing.
        assert!(
            status != 404 || body["code"] == "not_found",
            "{method} {path}: {status}"
        );
    }
    let source = include_str!("../src/http/mod.rs");
    let routes =
        source.matches("get(").count() + source.matches("post(").count() + source.matches("put(").count();
    assert_eq!(routes, ROUTES.len());
}

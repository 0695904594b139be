//! The control plane's routes, as a client sees them: real sockets, status codes and headers.

use std::collections::BTreeMap;
use std::sync::Arc;

use leasehold::clock::BootClock;
use leasehold::{Holder, Locks};
use leasehold_core::adapter::FaultyStore;
use leasehold_core::memory::MemoryStore;
use serde_json::{Value, json};

use crate::fixture::{Daemon, DaemonPlan, Reply, eventually};

async fn daemon_with_plane() -> Daemon {
    DaemonPlan::with_plane().start().await
}

impl Daemon {
    async fn wait_for_state(&self, path: &str, wanted: &str) -> Value {
        let mut last = Value::Null;
        eventually(&format!("{path} to be {wanted}"), async || {
            last = self.get(path).await.json();
            last["state"] == wanted
        })
        .await;
        last
    }

    async fn apply(&self, text: &str) -> Reply {
        self.apply_as(None, text).await
    }
}

/// The error tells a missing job from a plane that is not served.
#[tokio::test]
async fn a_daemon_without_a_plane_says_so() {
    let without = DaemonPlan::new().start().await;
    for path in ["/v1/jobs", "/v1/jobs/x", "/v1/runs/x/timeline", "/v1/approvals", "/v1/workflows/w"] {
        let reply = without.get(path).await;
        assert_eq!((reply.status, &reply.json()["code"]), (404, &json!("no_plane")), "{path}");
    }
    assert_eq!(without.get("/v1/jobsx").await.json()["code"], "not_found");
    assert_eq!(daemon_with_plane().await.get("/v1/jobs/x").await.json()["code"], "not_found");
    assert_eq!(daemon_with_plane().await.get("/v1/runs/x/nothing").await.json()["code"], "not_found");
}

#[tokio::test]
async fn ten_clients_approve_at_once_and_one_decides() {
    let daemon = Arc::new(daemon_with_plane().await);
    let job = json!({"id": "j", "work": "pull", "topic": "t", "requires_approval": true});
    let job = daemon.post("/v1/jobs", job).await.ok();
    let acquire: Vec<_> = (0..10)
        .map(|number| {
            let daemon = Arc::clone(&daemon);
            let body = json!({
                "by": format!("person-{number}"), "reason": "looked at it", "snapshot": job["snapshot"],
            });
            tokio::spawn(async move { daemon.post("/v1/approvals/j/approve", body).await })
        })
        .collect();
    let (mut winner, mut others) = (None, BTreeMap::new());
    for answer in acquire {
        let reply = answer.await.unwrap();
        if reply.status == 200 {
            let by = reply.json()["decision"]["by"].clone();
            assert!(winner.replace(by).is_none(), "two decided");
        } else {
            assert_eq!(reply.status, 409, "{reply:?}");
            *others.entry(reply.json()["by"].to_string()).or_insert(0) += 1;
            assert_eq!(reply.code(), "already_approved");
        }
    }
    let winner = winner.unwrap().to_string();
    assert_eq!(others, BTreeMap::from([(winner, 9)]), "each is told who decided");
}

#[tokio::test]
async fn busy_and_unavailable_set_retry_after() {
    let mut plan = DaemonPlan::with_plane();
    let memory = MemoryStore::new(BootClock::shared());
    let chaos = FaultyStore::new(Arc::new(memory.clone()), BootClock::shared());
    plan.store = chaos.store();
    let daemon = plan.start().await;
    let job = json!({"id": "j", "work": "pull", "requires_approval": true});
    let job = daemon.post("/v1/jobs", job).await.ok();
    let other =
        Locks::builder(Arc::new(memory)).holder(Holder::new("b").unwrap()).without_log().build().unwrap();
    let held = other.class("scheduler").acquire("job:j").await.unwrap();
    let yes = json!({"by": "ann", "reason": "fine", "snapshot": job["snapshot"]});
    let reply = daemon.post("/v1/approvals/j/approve", yes.clone()).await;
    assert_eq!((reply.status, reply.code().as_str()), (409, "approval_retryable_lock"));
    assert_eq!(reply.header("retry-after"), Some("1"));
    assert_eq!(reply.json()["holder"], "b");
    drop(held);
    chaos.all().down(true);
    let reply = daemon.post("/v1/approvals/j/approve", yes).await;
    assert_eq!((reply.status, reply.code().as_str()), (503, "lock_unavailable"));
    assert!(reply.header("retry-after").is_some());
}

#[tokio::test]
async fn a_worker_in_any_language() {
    let daemon = daemon_with_plane().await;
    let job = json!({"id": "j", "work": "pull", "topic": "render", "payload": {"scene": 7}});
    assert_eq!(daemon.post("/v1/jobs", job.clone()).await.status, 201);
    assert_eq!(daemon.post("/v1/jobs", job).await.status, 200, "the same again");
    let none = daemon.post("/v1/topics/other/claim", json!({"worker": "w1"})).await.ok();
    assert_eq!(none["claim"], Value::Null);
    daemon.wait_for_state("/v1/jobs/j", "DISPATCHED").await;
    let claimed = daemon.post("/v1/topics/render/claim", json!({"worker": "w1"})).await.ok();
    assert_eq!(claimed["job"]["spec"]["payload"]["scene"], 7);
    assert!(claimed["claim"]["fence"].is_string(), "fences are strings in JSON");
    let shown = json!({
        "attempt": claimed["claim"]["attempt"],
        "fence": claimed["claim"]["fence"],
        "secret": claimed["claim"]["secret"],
    });
    daemon.post("/v1/jobs/j/heartbeat", shown.clone()).await.ok();
    for (field, wrong) in [("attempt", json!(9)), ("fence", json!("999")), ("secret", json!("00"))] {
        let mut stale = shown.clone();
        stale[field] = wrong;
        let reply = daemon.post("/v1/jobs/j/heartbeat", stale).await;
        assert_eq!((reply.status, reply.code().as_str()), (409, "stale_claim"));
    }
    let mut done = shown;
    done["done"] = json!({"frames": 24});
    assert_eq!(daemon.post("/v1/jobs/j/result", done.clone()).await.ok()["state"], "SUCCEEDED");
    assert_eq!(daemon.post("/v1/jobs/j/result", done).await.ok()["repeated"], true);
    let history = daemon.get("/v1/jobs/j/history").await.ok();
    let ends: Vec<_> =
        history["events"].as_array().unwrap().iter().filter(|event| event["to"] == "SUCCEEDED").collect();
    assert_eq!(ends.len(), 1, "{history}");
    assert!(ends[0]["fence"].is_string() && ends[0]["by"].is_string(), "{history}");
    let list = daemon.get("/v1/jobs?state=succeeded,failed&topic=render").await.ok();
    assert_eq!(list["jobs"][0]["id"], "j");
}

#[tokio::test]
async fn commands_have_a_route_of_their_own_and_errors_name_the_field() {
    let daemon = daemon_with_plane().await;
    let exec = json!({"id": "x", "work": {"exec": ["true"]}});
    let reply = daemon.post("/v1/jobs", exec.clone()).await;
    assert_eq!((reply.status, reply.code().as_str()), (403, "command_right_required"));
    assert_eq!(daemon.get("/v1/jobs/x").await.status, 404, "nothing was submitted");
    assert_eq!(daemon.post("/v1/jobs/commands", exec).await.status, 201);
    daemon.wait_for_state("/v1/jobs/x", "SUCCEEDED").await;
    for (path, body, field, message) in [
        ("/v1/jobs", json!({"work": "pull", "topics": "x"}), "body", "topic"),
        ("/v1/jobs", json!({"work": "pull", "class": "nope"}), "class", "nope"),
        ("/v1/jobs", json!({"work": "pull", "attempts": 0}), "attempts", "1 to 100"),
        ("/v1/jobs", json!({"work": "pull", "id": "a b"}), "id", "must not contain"),
        ("/v1/jobs/commands", json!({"work": {"exec": []}}), "work.exec", "command"),
        ("/v1/runs", json!({}), "body", "workflow"),
        ("/v1/jobs/x/cancel", json!({"reason": ""}), "reason", "1 to 512"),
        ("/v1/approvals/x/approve", json!({"reason": "r", "snapshot": "0"}), "by", "who"),
        ("/v1/approvals/x/approve", json!({"by": "b", "reason": "r"}), "body", "snapshot"),
        ("/v1/jobs/x/result", json!({"attempt": 1, "done": 1, "failed": "x"}), "done", "one or the other"),
    ] {
        let reply = daemon.post(path, body).await;
        assert_eq!((reply.status, reply.code().as_str()), (422, "invalid"), "{path} {reply:?}");
        let problem = reply.json();
        assert_eq!(problem["field"], field, "{problem}");
        assert!(problem["detail"].as_str().unwrap().contains(message), "{problem}");
    }
    let span = daemon.post("/v1/jobs", json!({"work": "pull", "deadline": "5"})).await;
    assert_eq!((span.status, &span.json()["field"]), (422, &json!("deadline")));
    assert_eq!(daemon.get("/v1/jobs/nobody").await.code(), "not_found");
    assert_eq!(daemon.get("/v1/jobs?limit=0").await.json()["field"], "limit");
    assert_eq!(daemon.get("/v1/jobs?state=WELL").await.json()["field"], "state");
    assert_eq!(daemon.get("/v1/jobs?states=RUNNING").await.status, 422);
    let broken = daemon.apply("name = \"w\"\n[[step]]\nid = \"a\"\nneeds = [\"b\"]\ndelay = \"1s\"\n").await;
    assert_eq!((broken.status, broken.code().as_str()), (422, "invalid"));
    assert!(broken.text.contains("body:4"), "with its line: {}", broken.text);
    // The largest allowed payload, and one byte more.
    let long = |bytes: usize| json!({"work": "pull", "payload": "x".repeat(bytes)});
    assert_eq!(daemon.post("/v1/jobs", long(200 * 1024)).await.status, 201);
    assert_eq!(daemon.post("/v1/jobs", long(260 * 1024)).await.json()["field"], "payload");
    assert_eq!(daemon.post("/v1/jobs", long(300 * 1024)).await.code(), "too_large");
    assert_eq!(
        daemon.post("/v1/topics/t/claim", json!({"worker": "w".repeat(20_000)})).await.code(),
        "too_large"
    );
}

#[tokio::test]
async fn runs_are_started_watched_decided_cancelled_and_run_again() {
    let daemon = daemon_with_plane().await;
    let text = "name = \"w\"\n[[step]]\nid = \"ask\"\napproval = \"well?\"\n[[step]]\nid = \"after\"\nneeds = [\"ask\"]\ndelay = \"1ms\"\n";
    assert_eq!(daemon.apply(text).await.ok()["version"], 1);
    assert_eq!(daemon.apply(text).await.ok()["version"], 1, "nothing was changed");
    assert_eq!(daemon.get("/v1/workflows/w").await.ok()["steps"][0]["id"], "ask");
    let start = json!({"workflow": "w", "id": "r"});
    assert_eq!(daemon.post("/v1/runs", start.clone()).await.status, 201);
    assert_eq!(daemon.post("/v1/runs", start).await.status, 200);
    let mut waiting = Value::Null;
    eventually("the question", async || {
        waiting = daemon.get("/v1/approvals").await.ok()["approvals"][0].clone();
        waiting["id"] == "r.ask.1"
    })
    .await;
    let early = daemon.post("/v1/runs/r/rerun", json!({"from": "ask"})).await;
    assert_eq!(early.code(), "still_running");
    // A long poll is answered when the run changes.
    let seen = daemon.get("/v1/runs/r").await.ok()["version"].as_u64().unwrap();
    let watching = format!("/v1/runs/r?after={seen}&wait_ms=60000");
    let yes = json!({"by": "ann", "reason": "well", "snapshot": waiting["snapshot"]});
    let (changed, approved) =
        tokio::join!(daemon.get(&watching), daemon.post("/v1/approvals/r.ask.1/approve", yes));
    assert_eq!(approved.status, 200, "{approved:?}");
    assert!(changed.ok()["version"].as_u64().unwrap() > seen);
    daemon.wait_for_state("/v1/runs/r", "SUCCEEDED").await;
    assert_eq!(daemon.post("/v1/runs/r/cancel", json!({"reason": "late"})).await.code(), "terminal");
    let again = daemon.post("/v1/runs/r/rerun", json!({"from": "nowhere"})).await;
    assert_eq!(again.code(), "no_such_step");
    assert_eq!(daemon.post("/v1/runs/r/rerun", json!({"from": "ask"})).await.status, 202);
    daemon.wait_for_state("/v1/runs/r", "RUNNING").await;
    assert_eq!(daemon.post("/v1/runs/r/cancel", json!({"reason": "enough"})).await.status, 202);
    daemon.wait_for_state("/v1/runs/r", "CANCELLED").await;
    let list = daemon.get("/v1/runs?state=CANCELLED").await.ok();
    assert_eq!(list["runs"][0]["id"], "r");
    assert!(daemon.get("/v1/runs/r/timeline").await.ok()["events"].as_array().unwrap().len() > 4);
    // Without a newer version the response comes when the time is over, with the current state.
    let same = daemon.get("/v1/runs/r?after=999&wait_ms=1").await.ok();
    assert_eq!(same["state"], "CANCELLED");
}

/// The plane's activity is in the daemon's metrics, under the names of the catalogue.
#[tokio::test]
async fn plane_activity_is_counted() {
    let daemon = daemon_with_plane().await;
    daemon.post("/v1/jobs/commands", json!({"id": "x", "work": {"exec": ["true"]}})).await.ok();
    daemon.post("/v1/jobs", json!({"id": "q", "work": "pull", "requires_approval": true})).await.ok();
    daemon.wait_for_state("/v1/jobs/x", "SUCCEEDED").await;
    let text = daemon.get("/metrics").await.text;
    let count = |line: &str| {
        let found = text.lines().find_map(|told| told.strip_prefix(line));
        found.and_then(|value| value.trim().parse::<f64>().ok())
    };
    for (line, wanted) in [
        (
            "leasehold_plane_job_transitions_total{store=\"memory\",class=\"scheduler\",state=\"DISPATCHED\"}",
            1.0,
        ),
        (
            "leasehold_plane_job_transitions_total{store=\"memory\",class=\"scheduler\",state=\"SUCCEEDED\"}",
            1.0,
        ),
        ("leasehold_plane_jobs{store=\"memory\",state=\"SUCCEEDED\"}", 1.0),
        ("leasehold_plane_jobs{store=\"memory\",state=\"APPROVAL_REQUIRED\"}", 1.0),
        ("leasehold_plane_jobs{store=\"memory\",state=\"FAILED\"}", 0.0),
    ] {
        assert_eq!(count(line), Some(wanted), "{line}\n{text}");
    }
    // A second result is refused and counted, both in the metric of the duplicate-end alert and in
    // the plane's own.
    daemon.post("/v1/jobs", json!({"id": "j", "work": "pull", "topic": "t"})).await.ok();
    daemon.wait_for_state("/v1/jobs/j", "DISPATCHED").await;
    let claimed = daemon.post("/v1/topics/t/claim", json!({"worker": "w"})).await.ok();
    let mut done = claimed["claim"].clone();
    done.as_object_mut().unwrap().remove("job");
    done["done"] = json!(1);
    daemon.post("/v1/jobs/j/result", done.clone()).await.ok();
    daemon.post("/v1/jobs/j/result", done).await.ok();
    let text = daemon.get("/metrics").await.text;
    for line in [
        "leasehold_plane_duplicate_terminal_total{store=\"memory\"} 1",
        "leasehold_duplicate_terminal_total{store=\"memory\",class=\"scheduler\",namespace=\"job\"} 1",
    ] {
        assert!(text.lines().any(|told| told.starts_with(line)), "{line}\n{text}");
    }
    let from_the_start = |metric: &&leasehold_plane::metrics::PlaneMetric| metric.labels.is_empty();
    for metric in leasehold_plane::metrics::METRICS.iter().filter(from_the_start) {
        let family = metric.name.trim_end_matches("_total");
        assert!(text.contains(&format!("# TYPE leasehold_{family} ")), "{family}");
    }
}

/// `rate()` does not see the event that creates a series, so every series of an alert rule must
/// exist at zero from the start.
#[tokio::test]
async fn series_of_alert_rules_exist_from_the_start() {
    let alerts = include_str!("../../../../ops/prometheus/alerts.yml");
    let alerts = alerts.replace("increase(", "rate(");
    let ruled: Vec<(&str, Option<&str>)> = alerts
        .split("rate(")
        .skip(1)
        .filter_map(|rest| {
            let selector = rest.split('[').next()?;
            Some(match selector.split_once('{') {
                // Only `=` matchers; `!~` and `=~` are checked by name.
                Some((name, labels)) => {
                    (name, labels.strip_suffix('}').filter(|labels| labels.contains("=\"")))
                }
                None => (selector, None),
            })
        })
        .collect();
    assert!(ruled.len() > 10, "{ruled:?}");
    for plan in [DaemonPlan::new(), DaemonPlan::with_plane()] {
        let text = plan.start().await.get("/metrics").await.text;
        for (name, labels) in &ruled {
            let there = text.lines().any(|line| {
                line.starts_with(&format!("{name}{{")) && labels.is_none_or(|labels| line.contains(labels))
            });
            assert!(there, "{name} {labels:?} is not in\n{text}");
        }
    }
    let text = DaemonPlan::with_plane().start().await.get("/metrics").await.text;
    for line in [
        "leasehold_duplicate_terminal_total{store=\"memory\",class=\"scheduler\",namespace=\"job\"} 0",
        "leasehold_overlap_confirmed_total{store=\"memory\",class=\"workflow\",namespace=\"run\"} 0",
        "leasehold_plane_job_transitions_total{store=\"memory\",class=\"workflow\",state=\"QUARANTINED\"} 0",
    ] {
        assert!(text.lines().any(|told| told.starts_with(line)), "{line}\n{text}");
    }
}

//! Findings of the security review about the control plane, over real connections with identities.

use leasehold_plane::Settings;
use serde_json::{Value, json};

use crate::fixture::{Daemon, DaemonPlan, Reply, eventually};

struct Callers {
    daemon: Daemon,
    tokens: Vec<String>,
}

impl Callers {
    /// Two callers that may do everything, so that only the plane's own rules tell them apart.
    async fn start() -> Self {
        let mut plan = DaemonPlan::with_plane();
        plan.plane = Some(Settings::default());
        let tokens = plan.identities(&[("ann", &["admin:*"]), ("bob", &["admin:*"])]);
        Self { daemon: plan.start().await, tokens }
    }

    async fn post(&self, who: usize, path: &str, body: Value) -> Reply {
        self.daemon.call("POST", path, Some(&self.tokens[who]), Some(body)).await
    }

    async fn get(&self, path: &str) -> Value {
        self.daemon.call("GET", path, Some(&self.tokens[0]), None).await.ok()
    }

    fn audit_log(&self) -> String {
        std::fs::read_to_string(self.daemon.state().join("audit.jsonl")).unwrap_or_default()
    }
}

const ANN: usize = 0;
const BOB: usize = 1;

#[tokio::test]
async fn finding_03_a_foreign_key_shows_and_stops_nothing() {
    let callers = Callers::start().await;
    let job = |id: &str| json!({"id": id, "work": "pull", "topic": "pay", "key": "pay-11", "payload": id});
    assert_eq!(callers.post(ANN, "/v1/jobs", job("victim:pay")).await.status, 201);
    let evil = callers.post(BOB, "/v1/jobs", job("evil:x")).await;
    assert_eq!((evil.status, &evil.json()["id"]), (201, &json!("evil:x")));
    let other = json!({"id": "evil2:x", "work": "pull", "topic": "other", "key": "pay-11"});
    assert_eq!(callers.post(BOB, "/v1/jobs", other).await.status, 201);
    assert_eq!(callers.post(ANN, "/v1/jobs", job("victim:pay")).await.status, 200);
    let tenant = json!({"id": "x", "tenant": "acme", "work": "pull"});
    let refused = callers.post(ANN, "/v1/jobs", tenant).await;
    assert_eq!((refused.status, &refused.json()["field"]), (422, &json!("id")));
    let step = callers.post(ANN, "/v1/jobs", json!({"id": "r.build.1", "work": "pull"})).await;
    assert_eq!((step.status, &step.json()["field"]), (422, &json!("id")));
}

#[tokio::test]
async fn finding_05_results_need_the_secret_of_the_claim() {
    let callers = Callers::start().await;
    let job = json!({"id": "j", "work": "pull", "topic": "t"});
    callers.post(ANN, "/v1/jobs", job).await.ok();
    let mut claimed = Value::Null;
    eventually("the claim", async || {
        let reply = callers.post(ANN, "/v1/topics/t/claim", json!({"worker": "w1"})).await;
        claimed = if reply.status == 200 { reply.json() } else { Value::Null };
        claimed["claim"]["secret"].is_string()
    })
    .await;
    let claim = &claimed["claim"];
    let end =
        |secret: &Value| json!({"attempt": claim["attempt"], "fence": claim["fence"], "secret": secret});
    let wrong = json!("0".repeat(32));
    for (who, secret) in [(ANN, &Value::Null), (ANN, &wrong), (BOB, &claim["secret"])] {
        for path in ["/v1/jobs/j/heartbeat", "/v1/jobs/j/result"] {
            let reply = callers.post(who, path, end(secret)).await;
            assert_eq!((reply.status, reply.code().as_str()), (409, "stale_claim"), "{who} {path}");
        }
    }
    let secret = claim["secret"].as_str().unwrap();
    for path in ["/v1/jobs/j", "/v1/jobs/j/history", "/v1/jobs"] {
        let shown = callers.get(path).await.to_string();
        assert!(!shown.contains(secret) && !shown.contains("sha256"), "{path}: {shown}");
    }
    assert_eq!(callers.post(ANN, "/v1/jobs/j/heartbeat", end(&claim["secret"])).await.status, 200);
    let done = callers.post(ANN, "/v1/jobs/j/result", end(&claim["secret"])).await.ok();
    assert_eq!(done["state"], "SUCCEEDED");
    assert_eq!(callers.post(BOB, "/v1/jobs/j/result", end(&claim["secret"])).await.code(), "stale_claim");
}

#[tokio::test]
async fn finding_05_refused_decisions_are_not_audited_and_made_ones_are() {
    let callers = Callers::start().await;
    let job = json!({"id": "j", "work": "pull", "requires_approval": true});
    let seen = callers.post(ANN, "/v1/jobs", job).await.ok()["snapshot"].clone();
    let body = json!({"reason": "fine", "snapshot": seen});
    let own = callers.post(ANN, "/v1/approvals/j/approve", body.clone()).await;
    assert_eq!((own.status, own.code().as_str()), (403, "self_approval"));
    let missing = callers.post(BOB, "/v1/approvals/none/approve", body.clone()).await;
    assert_eq!(missing.status, 404);
    let stale = callers.post(BOB, "/v1/approvals/j/reject", json!({"reason": "no", "snapshot": "0"})).await;
    assert_eq!(stale.code(), "stale_snapshot");
    let unseen = callers.post(BOB, "/v1/approvals/j/approve", json!({"reason": "fine"})).await;
    assert_eq!(unseen.status, 422);
    let large = json!({"reason": "x", "snapshot": seen, "payload": "x".repeat(263 * 1024)});
    assert_eq!(callers.post(BOB, "/v1/approvals/j/repair", large).await.json()["field"], "payload");
    assert_eq!(callers.audit_log().matches("approval.").count(), 0, "{}", callers.audit_log());
    callers.post(BOB, "/v1/approvals/j/approve", body).await.ok();
    assert_eq!(callers.audit_log().matches("\"action\":\"approval.approve\"").count(), 1);
    let events = callers.get("/v1/jobs/j/history").await;
    assert_eq!(
        (&events["events"][0]["principal"], &events["events"][1]["principal"]),
        (&json!("ann"), &json!("bob"))
    );
}

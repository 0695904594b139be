//! Findings 3, 5 and 11 of the security review, as a tenant could try them: keys, approvals, topics,
//! workflows and organisations of others.

use serde_json::{Value, json};

use crate::fixture::{Daemon, DaemonPlan, Reply, eventually};

/// A daemon with the plane, and a way to act as one of its identities.
struct RightsFixture {
    daemon: Daemon,
    tokens: Vec<(String, String)>,
}

impl RightsFixture {
    async fn new(who: &[(&str, &[&str])]) -> Self {
        let mut plan = DaemonPlan::with_plane();
        let who: Vec<_> = who.iter().copied().chain([("root", &["admin:*"][..])]).collect();
        let tokens = plan.identities(&who);
        let tokens = who.iter().map(|(id, _)| (*id).to_owned()).zip(tokens).collect();
        Self { daemon: plan.start().await, tokens }
    }

    fn token(&self, who: &str) -> Option<&str> {
        let found = self.tokens.iter().find(|(id, _)| id == who);
        Some(found.unwrap_or_else(|| panic!("{who} is no identity")).1.as_str())
    }

    async fn get(&self, who: &str, path: &str) -> Reply {
        self.daemon.call("GET", path, self.token(who), None).await
    }

    async fn post(&self, who: &str, path: &str, body: Value) -> Reply {
        self.daemon.call("POST", path, self.token(who), Some(body)).await
    }

    async fn apply(&self, who: &str, text: &str) -> Reply {
        self.daemon.apply_as(self.token(who), text).await
    }

    /// Waits until a job can be claimed.
    async fn dispatched(&self, id: &str) {
        eventually("a dispatched job", async || {
            self.get("root", &format!("/v1/jobs/{id}")).await.ok()["state"] == "DISPATCHED"
        })
        .await;
    }

    fn audit_log(&self) -> String {
        std::fs::read_to_string(self.daemon.state().join("audit.jsonl")).unwrap()
    }
}

#[track_caller]
fn assert_forbidden(reply: &Reply, grant: &str) {
    assert_eq!((reply.status, reply.code().as_str()), (403, "forbidden"), "{reply:?}");
    assert_eq!(reply.json()["grant"], json!(grant), "{reply:?}");
}

/// A key that a foreign job has reveals nothing of it, neither by its answer nor by its text.
#[tokio::test]
async fn finding_03_a_foreign_key_reveals_nothing() {
    let stage = RightsFixture::new(&[(
        "evil",
        &["submit:job:evil", "submit:topic:pay", "submit:run:evil", "submit:workflow", "submit:org"],
    )])
    .await;
    let secret = json!({
        "id": "victim:pay", "work": "pull", "topic": "pay", "key": "pay-2026-11", "payload": {"iban": "DE00 SECRET"},
    });
    assert_eq!(stage.post("root", "/v1/jobs", secret.clone()).await.status, 201);
    stage.apply("root", "name = \"w\"\n[[step]]\nid = \"a\"\ndelay = \"1h\"\n").await.ok();
    let run = json!({"id": "victim:run", "workflow": "w", "key": "pay-2026-11", "input": "SECRET"});
    assert_eq!(stage.post("root", "/v1/runs", run).await.status, 201);
    let nothing = |reply: &Reply| {
        assert!(!reply.text.contains("victim") && !reply.text.contains("SECRET"), "{reply:?}");
        assert_ne!(reply.status, 200, "{reply:?}");
    };
    // The same work, other work, and a run: as if nothing else had the key.
    for (path, request) in [
        ("/v1/jobs", json!({"id": "evil:x", "work": "pull", "topic": "pay", "key": "pay-2026-11"})),
        ("/v1/jobs", json!({"id": "evil:y", "work": "handler", "topic": "pay", "key": "pay-2026-12"})),
        ("/v1/runs", json!({"id": "evil:r", "workflow": "w", "key": "pay-2026-11"})),
    ] {
        let reply = stage.post("evil", path, request).await;
        assert_eq!(reply.status, 201, "{reply:?}");
        nothing(&reply);
    }
    // A key that was taken first does not keep the victim's job from being submitted.
    let mut later = secret.clone();
    (later["id"], later["key"]) = (json!("victim:later"), json!("pay-2026-12"));
    assert_eq!(stage.post("root", "/v1/jobs", later).await.status, 201);
    // One tenant can limit its members to names: the key would be the same, and the job is not readable.
    let stage = RightsFixture::new(&[("part", &["submit:job:acme:b", "submit:topic:pay"])]).await;
    let mut other = secret;
    other["id"] = json!("acme:victim");
    assert_eq!(stage.post("root", "/v1/jobs", other).await.status, 201);
    for work in ["pull", "handler"] {
        let job = json!({"id": "acme:b:x", "work": work, "topic": "pay", "key": "pay-2026-11"});
        let reply = stage.post("part", "/v1/jobs", job).await;
        assert_eq!((reply.status, &reply.json()["grant"]), (403, &json!("submit:job:acme")), "{reply:?}");
        nothing(&reply);
    }
}

/// The token of a worker cannot decide, whatever else it may do with the job.
#[tokio::test]
async fn finding_05_working_submitting_and_holding_never_approve() {
    let stage = RightsFixture::new(&[
        ("worker", &["work:topic", "work:job", "hold:job", "submit:job", "submit:topic", "read:*"]),
        ("ann", &["approve:job:team"]),
    ])
    .await;
    let job = |id: &str| json!({"id": id, "work": "pull", "topic": "t", "requires_approval": true});
    for id in ["team:a", "other:a"] {
        assert_eq!(stage.post("root", "/v1/jobs", job(id)).await.status, 201);
    }
    let shown = stage.get("root", "/v1/jobs/team:a").await.ok();
    let mut decision = json!({"by": "ann", "reason": "seen"});
    if let Some(snapshot) = shown.get("snapshot") {
        decision["snapshot"] = snapshot.clone();
    }
    let mut repair = decision.clone();
    repair["payload"] = json!(1);
    for (verb, body) in [("approve", &decision), ("reject", &decision), ("repair", &repair)] {
        let path = format!("/v1/approvals/team:a/{verb}");
        let reply = stage.post("worker", &path, body.clone()).await;
        assert_eq!((reply.status, reply.code().as_str()), (403, "forbidden"), "{verb}: {reply:?}");
        let path = format!("/v1/approvals/other:a/{verb}");
        assert_eq!(stage.post("ann", &path, body.clone()).await.status, 403, "{verb}");
    }
    assert_eq!(stage.get("root", "/v1/jobs/team:a").await.ok()["state"], "APPROVAL_REQUIRED");
    assert!(!stage.audit_log().contains("approval."), "a refused decision leaves no line");
    assert_eq!(stage.post("ann", "/v1/approvals/team:a/approve", decision).await.status, 200);
    // To approve is not to read, work, submit or hold.
    assert_eq!(stage.get("ann", "/v1/jobs/team:a").await.status, 403);
    assert_eq!(stage.get("ann", "/v1/approvals").await.status, 403);
    assert_eq!(stage.post("ann", "/v1/topics/t/claim", json!({"worker": "w"})).await.status, 403);
    assert_eq!(stage.post("ann", "/v1/jobs/team:a/cancel", json!({"reason": "x"})).await.status, 403);
    assert_eq!(stage.post("ann", "/v1/locks/job:team:a/acquire", json!({})).await.status, 403);
}

/// Submitting takes the topic, too; commands take a right of their own, also when a job is submitted again.
#[tokio::test]
async fn finding_11_submits_need_the_topic_and_commands_their_right() {
    let stage = RightsFixture::new(&[
        ("evil", &["submit:job:evil", "submit:topic:mail", "hold:res:evil"]),
        ("ops", &["submit:job:evil", "submit:topic", "command:job:evil", "hold:res:evil"]),
        ("tenant", &["submit:job:acme", "submit:topic"]),
    ])
    .await;
    let job = |topic: &str| json!({"id": format!("evil:{topic}"), "work": "pull", "topic": topic});
    assert_forbidden(&stage.post("evil", "/v1/jobs", job("pay")).await, "submit:topic:pay");
    assert_forbidden(
        &stage.post("evil", "/v1/jobs", json!({"id": "evil:d", "work": "pull"})).await,
        "submit:topic:default",
    );
    assert_eq!(stage.get("root", "/v1/jobs/evil:pay").await.status, 404, "nothing was submitted");
    assert_eq!(stage.post("evil", "/v1/jobs", job("mail")).await.status, 201);
    let command = json!({"id": "evil:c", "work": {"exec": ["false"]}, "attempts": 1, "tenant": "evil", "resources": ["gpu"]});
    assert_eq!(stage.post("evil", "/v1/jobs/commands", command.clone()).await.status, 403);
    assert_eq!(stage.post("ops", "/v1/jobs/commands", command).await.status, 201);
    eventually("a dead letter", async || stage.get("ops", "/v1/jobs/evil:c").await.ok()["dead"].is_object())
        .await;
    let retry =
        async |who: &str| stage.daemon.call("POST", "/v1/jobs/evil:c/retry", stage.token(who), None).await;
    assert_forbidden(&retry("evil").await, "submit:topic:default");
    assert!(!stage.audit_log().contains("job.retry"));
    // Without an id, the tenant's jobs are enough; without a tenant, all jobs are needed.
    let anonymous = |tenant: &str| json!({"work": "pull", "tenant": tenant});
    assert_eq!(stage.post("tenant", "/v1/jobs", anonymous("acme")).await.status, 201);
    for other in ["evil", "default", "acm"] {
        assert_eq!(stage.post("tenant", "/v1/jobs", anonymous(other)).await.status, 403, "{other}");
    }
}

/// A worker gets the jobs of its topic, or of its tenant, and no others.
#[tokio::test]
async fn finding_11_workers_and_readers_can_be_limited_to_a_topic_or_tenant() {
    let stage = RightsFixture::new(&[
        ("of-topic", &["work:topic:pay"]),
        ("of-tenant", &["work:job:acme"]),
        ("reader", &["read:topic:pay"]),
        ("submitter", &["submit:topic:pay", "submit:job:acme"]),
    ])
    .await;
    for (id, topic) in [("other:1", "pay"), ("acme:1", "pay"), ("acme:2", "mail")] {
        let job = json!({"id": id, "work": "pull", "topic": topic, "payload": format!("of {id}")});
        assert_eq!(stage.post("root", "/v1/jobs", job).await.status, 201);
        stage.dispatched(id).await;
    }
    let listed = async |who: &str, path: &str| -> Vec<String> {
        let list = stage.get(who, path).await.ok();
        let mut ids: Vec<_> = list["jobs"]
            .as_array()
            .unwrap()
            .iter()
            .map(|job| job["id"].as_str().unwrap().to_owned())
            .collect();
        ids.sort();
        ids
    };
    for (who, sees) in [
        ("of-topic", &["acme:1", "other:1"][..]),
        ("reader", &["acme:1", "other:1"]),
        ("of-tenant", &["acme:1", "acme:2"]),
        ("submitter", &["acme:1", "acme:2"]),
    ] {
        assert_eq!(listed(who, "/v1/jobs").await, sees, "{who}");
        for id in ["acme:1", "acme:2", "other:1"] {
            let seen = sees.contains(&id);
            for path in [format!("/v1/jobs/{id}"), format!("/v1/jobs/{id}/history")] {
                assert_eq!(stage.get(who, &path).await.status == 200, seen, "{who} {path}");
            }
        }
        // Foreign jobs do not use up the limit.
        assert_eq!(listed(who, "/v1/jobs?limit=2").await, sees, "{who}");
    }
    // Read on a topic is not work on it.
    assert_eq!(stage.post("reader", "/v1/topics/pay/claim", json!({"worker": "w"})).await.status, 403);
    assert_eq!(stage.post("of-topic", "/v1/topics/mail/claim", json!({"worker": "w"})).await.status, 403);
    let first = stage.post("of-tenant", "/v1/topics/pay/claim", json!({"worker": "w"})).await.ok();
    assert_eq!(first["job"]["id"], "acme:1", "{first}");
    let none = stage.post("of-tenant", "/v1/topics/pay/claim", json!({"worker": "w"})).await.ok();
    assert_eq!(none["claim"], Value::Null, "{none}");
    let second = stage.post("of-topic", "/v1/topics/pay/claim", json!({"worker": "w"})).await.ok();
    assert_eq!(second["job"]["id"], "other:1", "{second}");
    let mut claim = second["claim"].clone();
    let id = claim.as_object_mut().unwrap().remove("job");
    assert_eq!(id, Some(json!("other:1")));
    for (who, status) in [("of-tenant", 403), ("reader", 403), ("of-topic", 200)] {
        let beat = stage.post(who, "/v1/jobs/other:1/heartbeat", claim.clone()).await;
        assert_eq!(beat.status, status, "{who}: {beat:?}");
        let absent = stage.post(who, "/v1/jobs/other:none/heartbeat", claim.clone()).await;
        assert_eq!(absent.status, 403, "{who}: {absent:?}");
    }
}

/// Workflows, organisations, topics and resources each need their right, when a run starts and again.
#[tokio::test]
async fn finding_11_runs_need_the_workflow_the_organisation_and_what_the_steps_touch() {
    let full =
        ["submit:run:team", "submit:workflow:flow", "submit:org:team", "submit:topic:t", "hold:res:team:gpu"];
    let mut who: Vec<(String, Vec<&str>)> = vec![("all".to_owned(), full.to_vec())];
    // One identity for each missing grant.
    for missing in full {
        let rest = full.iter().copied().filter(|grant| *grant != missing).collect();
        who.push((missing.replace(':', "-"), rest));
    }
    let who: Vec<_> = who.iter().map(|(id, grants)| (id.as_str(), grants.as_slice())).collect();
    let stage = RightsFixture::new(&who).await;
    let text =
        "name = \"flow\"\n[[step]]\nid = \"a\"\nhandler = \"t\"\nattempts = 1\nresources = [\"gpu\"]\n";
    stage.apply("root", text).await.ok();
    let start = |id: &str| json!({"id": format!("team:{id}"), "workflow": "flow", "org": "team"});
    assert_eq!(stage.post("all", "/v1/runs", start("r")).await.status, 201);
    // No replica has a handler for the topic, so the run ends.
    stage.post("all", "/v1/runs/team:r/cancel", json!({"reason": "test"})).await;
    eventually("the end of the run", async || {
        let state = stage.get("all", "/v1/runs/team:r").await.ok()["state"].clone();
        state == "CANCELLED" || state == "FAILED"
    })
    .await;
    for missing in full {
        let who = missing.replace(':', "-");
        for (path, body) in [("/v1/runs", start("x")), ("/v1/runs/team:r/rerun", json!({"from": "a"}))] {
            let reply = stage.post(&who, path, body).await;
            if missing == "submit:run:team" {
                assert_eq!(reply.code(), "forbidden", "{reply:?}");
            } else {
                assert_forbidden(&reply, missing);
            }
        }
        // A workflow that does not exist gives the same answer as a foreign one.
        let absent = json!({"id": "team:x", "workflow": "none", "org": "team"});
        assert_eq!(stage.post(&who, "/v1/runs", absent).await.status, 403, "{who}");
    }
    assert!(!stage.audit_log().contains("run.rerun"));
    assert_eq!(stage.post("all", "/v1/runs/team:r/rerun", json!({"from": "a"})).await.status, 202);
    assert!(stage.audit_log().contains("\"action\":\"run.rerun\""), "a rerun is in the audit log");
}

/// Defining a workflow takes its name, the topics of its steps, and commands.
#[tokio::test]
async fn finding_11_definitions_need_the_name_the_topics_and_commands() {
    let stage = RightsFixture::new(&[
        ("definer", &["define:workflow:mine", "submit:topic:t"]),
        ("commander", &["define:workflow:mine", "command:workflow:mine", "command:workflow:theirs"]),
    ])
    .await;
    let text = |name: &str, step: &str| format!("name = \"{name}\"\n[[step]]\nid = \"a\"\n{step}\n");
    for (who, name, step, missing) in [
        ("definer", "mine", "pull = \"t\"", None),
        ("definer", "mine", "pull = \"pay\"", Some("submit:topic:pay")),
        ("definer", "mine", "exec = [\"true\"]", Some("command:workflow:mine")),
        ("commander", "mine", "exec = [\"true\"]", None),
        ("commander", "mine", "handler = \"t\"", Some("submit:topic:t")),
    ] {
        let reply = stage.apply(who, &text(name, step)).await;
        match missing {
            None => assert_eq!(reply.status, 200, "{who} {step}: {reply:?}"),
            Some(grant) => assert_forbidden(&reply, grant),
        }
    }
    for who in ["definer", "commander"] {
        assert_eq!(stage.apply(who, &text("theirs", "delay = \"1s\"")).await.code(), "forbidden");
        assert_eq!(stage.get(who, "/v1/workflows/theirs").await.code(), "forbidden");
    }
}

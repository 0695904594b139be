//! Findings of the security review about scopes of the plane: keys, topics, decisions, lists and quotas.

use serde_json::{Value, json};

use crate::events::Stream;
use crate::fixture::{Daemon, DaemonPlan, Reply, eventually};

struct ScopesFixture {
    daemon: Daemon,
    tokens: Vec<(String, String)>,
}

impl ScopesFixture {
    async fn new(mut plan: DaemonPlan, who: &[(&str, &[&str])]) -> Self {
        let who: Vec<_> = who.iter().copied().chain([("root", &["admin:*"][..])]).collect();
        let tokens = plan.identities(&who);
        let tokens = who.iter().map(|(id, _)| (*id).to_owned()).zip(tokens).collect();
        Self { daemon: plan.start().await, tokens }
    }

    fn token(&self, who: &str) -> Option<&str> {
        self.tokens.iter().find(|(id, _)| id == who).map(|(_, token)| token.as_str())
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

    /// Waits until a job is dead.
    async fn dead(&self, id: &str) {
        eventually("a dead letter", async || {
            self.get("root", &format!("/v1/jobs/{id}")).await.ok()["dead"].is_object()
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

fn workflow(name: &str, step: &str) -> String {
    format!("name = \"{name}\"\n[[step]]\nid = \"a\"\n{step}\n")
}

const DELAY: &str = "delay = \"1h\"";

/// An id without a namespace is in the scope of all others without one. A caller with a right on that one id
/// must not reach their keys.
#[tokio::test]
async fn finding_03_a_key_of_the_default_scope_needs_the_right_on_all_of_it() {
    let evil = [
        "submit:job:evil",
        "command:job:evil",
        "submit:topic",
        "submit:run:evil",
        "submit:workflow",
        "submit:org",
    ];
    let stage = ScopesFixture::new(DaemonPlan::with_plane(), &[("evil", &evil)]).await;
    stage.apply("root", &workflow("w", DELAY)).await.ok();
    let victim = json!({"work": "pull", "key": "nightly"});
    let first = stage.post("root", "/v1/jobs", victim.clone()).await.ok();
    let run = json!({"workflow": "w", "key": "nightly"});
    let first_run = stage.post("root", "/v1/runs", run.clone()).await.ok();
    for key in ["nightly", "other"] {
        let job = json!({"id": "evil", "work": "pull", "key": key});
        assert_forbidden(&stage.post("evil", "/v1/jobs", job).await, "submit:job");
        let command = json!({"id": "evil", "work": {"exec": ["true"]}, "key": key});
        assert_forbidden(&stage.post("evil", "/v1/jobs/commands", command).await, "submit:job");
        let run = json!({"id": "evil", "workflow": "w", "key": key});
        assert_forbidden(&stage.post("evil", "/v1/runs", run).await, "submit:run");
    }
    assert_eq!(stage.post("root", "/v1/jobs", victim).await.ok()["id"], first["id"]);
    assert_eq!(stage.post("root", "/v1/runs", run).await.ok()["id"], first_run["id"]);
    assert_eq!(stage.get("root", "/v1/jobs/evil").await.status, 404);
    // In its own scope the key is free, and without a key the id is enough.
    let own = json!({"id": "evil:x", "work": "pull", "key": "nightly"});
    assert_eq!(stage.post("evil", "/v1/jobs", own).await.status, 201);
    // A retry makes a job with another id of the same scope.
    let dying = json!({"id": "evil", "work": {"exec": ["false"]}, "attempts": 1});
    assert_eq!(stage.post("evil", "/v1/jobs/commands", dying).await.status, 201);
    stage.dead("evil").await;
    let retry = stage.post("evil", "/v1/jobs/evil/retry", json!({})).await;
    assert_forbidden(&retry, "submit:job");
}

/// A key belongs to its tenant: a caller with a right on some ids of the tenant must not reach the keys of the
/// others, nor take their place.
#[tokio::test]
async fn finding_03_a_key_of_a_tenant_needs_the_right_on_all_of_it() {
    let narrow = [
        "submit:job:acme:web",
        "command:job:acme:web",
        "submit:topic:default",
        "submit:run:acme:web",
        "submit:workflow",
        "submit:org",
    ];
    let whole = ["submit:job:acme", "command:job:acme", "submit:topic:default", "submit:run:acme"];
    let whole: Vec<_> = whole.into_iter().chain(["submit:workflow", "submit:org"]).collect();
    let stage = ScopesFixture::new(DaemonPlan::with_plane(), &[("narrow", &narrow), ("whole", &whole)]).await;
    stage.apply("root", &workflow("w", DELAY)).await.ok();
    let job = |id: &str, key: &str| json!({"id": id, "work": "pull", "key": key});
    let first = stage.post("whole", "/v1/jobs", job("acme:a", "nightly")).await.ok();
    for key in ["nightly", "other"] {
        for tenant in ["default", "acme"] {
            let mut job = job("acme:web:1", key);
            job["tenant"] = json!(tenant);
            assert_forbidden(&stage.post("narrow", "/v1/jobs", job.clone()).await, "submit:job:acme");
            job["work"] = json!({"exec": ["true"]});
            assert_forbidden(&stage.post("narrow", "/v1/jobs/commands", job).await, "submit:job:acme");
            let run = json!({"id": "acme:web:1", "workflow": "w", "org": tenant, "key": key});
            assert_forbidden(&stage.post("narrow", "/v1/runs", run.clone()).await, "submit:run:acme");
            if tenant == "acme" && key == "other" {
                assert_eq!(stage.post("whole", "/v1/runs", run).await.status, 201);
            }
        }
    }
    assert_eq!(stage.post("whole", "/v1/jobs", job("acme:b", "nightly")).await.ok()["id"], first["id"]);
    assert_eq!(stage.get("root", "/v1/jobs/acme:web:1").await.status, 404);
    // Without a key the id is enough; a retry makes another id, and has a key.
    let dying = json!({"id": "acme:web:1", "work": {"exec": ["false"]}, "attempts": 1});
    assert_eq!(stage.post("narrow", "/v1/jobs/commands", dying).await.status, 201);
    stage.dead("acme:web:1").await;
    let retry = async |who: &str| stage.post(who, "/v1/jobs/acme:web:1/retry", json!({})).await;
    assert_forbidden(&retry("narrow").await, "submit:job:acme");
    assert_eq!(retry("whole").await.status, 201);
}

/// A refused retry or rerun leaves no audit line; a start that runs commands leaves one.
#[tokio::test]
async fn finding_15_retries_and_reruns_are_audited_after_their_checks_and_starts_of_commands_too() {
    let stage = ScopesFixture::new(DaemonPlan::with_plane(), &[]).await;
    stage.post("root", "/v1/jobs", json!({"id": "j", "work": "pull"})).await.ok();
    assert_eq!(stage.post("root", "/v1/jobs/j/retry", json!({})).await.code(), "not_dead");
    for (name, step) in [("c", "exec = [\"true\"]"), ("d", DELAY)] {
        stage.apply("root", &workflow(name, step)).await.ok();
        stage.post("root", "/v1/runs", json!({"id": format!("r:{name}"), "workflow": name})).await.ok();
    }
    let rerun = async |from: &str| stage.post("root", "/v1/runs/r:d/rerun", json!({"from": from})).await;
    assert_eq!(rerun("a").await.code(), "still_running");
    assert_eq!(rerun("none").await.code(), "no_such_step");
    let log = stage.audit_log();
    assert!(!log.contains("job.retry") && !log.contains("run.rerun"), "{log}");
    assert_eq!(log.matches("\"action\":\"run.command\"").count(), 1, "{log}");
}

/// A submit, start or definition that is refused, or that changes nothing, leaves no audit line.
#[tokio::test]
async fn finding_15_what_changes_nothing_leaves_no_audit_line() {
    let mut plan = DaemonPlan::with_plane();
    let quotas = &mut plan.config.quotas;
    (quotas.jobs, quotas.runs, quotas.workflows) = (1, 1, 1);
    let stage = ScopesFixture::new(plan, &[("ci", &["submit:*", "define:*", "command:*"])]).await;
    let lines = |action: &str| stage.audit_log().matches(&format!("\"action\":\"{action}\"")).count();
    let command =
        |id: &str| json!({"id": id, "work": {"exec": ["true"]}, "key": id, "requires_approval": true});
    let submit = async |job: Value| stage.post("ci", "/v1/jobs/commands", job).await;
    assert_eq!(submit(command("c:1")).await.status, 201);
    assert_eq!(submit(command("c:1")).await.status, 200);
    let mut same_key = command("c:2");
    same_key["key"] = json!("c:1");
    assert_eq!(submit(same_key.clone()).await.ok()["id"], "c:1");
    same_key["topic"] = json!("other");
    assert_eq!(submit(same_key).await.code(), "different_job");
    assert_eq!(submit(command("c:2")).await.code(), "quota_reached");
    for (field, bad) in [("class", json!("none")), ("attempts", json!(0)), ("id", json!("r.a.1"))] {
        let mut job = command("c:3");
        job[field] = bad;
        assert_eq!(submit(job).await.code(), "invalid", "{field}");
    }
    assert_eq!(lines("job.command"), 1, "{}", stage.audit_log());

    let text = workflow("w", DELAY) + "[[step]]\nid = \"b\"\nneeds = [\"a\"]\nexec = [\"true\"]\n";
    assert_eq!(stage.apply("ci", &text).await.ok()["version"], 1);
    assert_eq!(stage.apply("ci", &text).await.ok()["version"], 1);
    let other = stage.apply("ci", &workflow("v", DELAY)).await;
    assert_eq!(other.code(), "quota_reached");
    assert_eq!(lines("workflow.apply"), 1, "{}", stage.audit_log());

    let run = |id: &str, key: &str| json!({"id": id, "workflow": "w", "key": key});
    let start = async |run: Value| stage.post("ci", "/v1/runs", run).await;
    assert_eq!(start(run("r:1", "k")).await.status, 201);
    assert_eq!(start(run("r:1", "k")).await.status, 200);
    assert_eq!(start(run("r:2", "k")).await.ok()["id"], "r:1");
    assert_eq!(start(run("r:2", "other")).await.code(), "quota_reached");
    assert_eq!(start(run("r 2", "other")).await.code(), "invalid");
    assert_eq!(lines("run.command"), 1, "{}", stage.audit_log());
    // Another definition is a change.
    assert_eq!(stage.apply("ci", &workflow("w", DELAY)).await.ok()["version"], 2);
    assert_eq!(lines("workflow.apply"), 2, "{}", stage.audit_log());
}

/// Commands and questions of all tenants are in topics that nobody chose: a worker of such a topic sees none.
#[tokio::test]
async fn finding_11_a_topic_shows_only_the_jobs_that_its_workers_do() {
    let worker = ["work:topic:default", "work:topic:approval", "read:topic:default"];
    let stage = ScopesFixture::new(DaemonPlan::with_plane(), &[("worker", &worker)]).await;
    let text = workflow("w", "exec = [\"echo\", \"victim-secret\"]")
        + "[[step]]\nid = \"ask\"\napproval = \"victim-question\"\n";
    stage.apply("root", &text).await.ok();
    stage.post("root", "/v1/runs", json!({"id": "victim:r", "workflow": "w"})).await.ok();
    stage.post("root", "/v1/jobs", json!({"id": "shared:1", "work": "pull"})).await.ok();
    eventually("the steps", async || {
        stage.get("root", "/v1/jobs/victim:r.a.1").await.json()["state"] == "SUCCEEDED"
            && stage.get("root", "/v1/jobs/victim:r.ask.1").await.status == 200
    })
    .await;
    for id in ["victim:r.a.1", "victim:r.ask.1"] {
        for path in [format!("/v1/jobs/{id}"), format!("/v1/jobs/{id}/history")] {
            assert_eq!(stage.get("worker", &path).await.status, 403, "{path}");
        }
        let end = json!({"attempt": 1, "done": 1});
        assert_eq!(stage.post("worker", &format!("/v1/jobs/{id}/result"), end).await.status, 403);
    }
    for path in ["/v1/jobs", "/v1/approvals"] {
        let list = stage.get("worker", path).await;
        assert!(list.status == 200 && !list.text.contains("victim"), "{list:?}");
    }
    let own = stage.get("worker", "/v1/jobs").await.ok();
    assert_eq!(own["jobs"][0]["id"], "shared:1");
}

/// Whoever may only decide learns nothing of the job but that.
#[tokio::test]
async fn finding_05_to_decide_shows_nothing_of_the_job() {
    let who: [(&str, &[&str]); 2] =
        [("ann", &["approve:job:team"]), ("eve", &["approve:job:team", "read:job:team"])];
    let stage = ScopesFixture::new(DaemonPlan::with_plane(), &who).await;
    for (id, decides, shown) in [("team:a", "ann", false), ("team:b", "eve", true)] {
        let job = json!({
            "id": id, "work": "pull", "requires_approval": true, "payload": "victim-payload",
            "labels": {"l": "victim-label"}, "topic": "victim-topic",
        });
        let snapshot = stage.post("root", "/v1/jobs", job).await.ok()["snapshot"].clone();
        let snapshot = snapshot.as_str().unwrap();
        let decide = |seen: &str| json!({"by": decides, "reason": "seen", "snapshot": seen});
        let stale = stage.post(decides, &format!("/v1/approvals/{id}/approve"), decide("0")).await;
        assert_eq!(stale.code(), "stale_snapshot");
        assert!(!stale.text.contains(snapshot), "{stale:?}");
        let decided = stage.post(decides, &format!("/v1/approvals/{id}/approve"), decide(snapshot)).await;
        assert_eq!((decided.status, decided.text.contains("victim")), (200, shown), "{decided:?}");
        let decided = decided.ok();
        assert_eq!((&decided["id"], &decided["decision"]["approved"]), (&json!(id), &json!(true)));
    }
}

/// A list says when it may lack something, and a reader of some names gets all of those.
#[tokio::test]
async fn finding_11_lists_say_when_there_may_be_more() {
    let stage =
        ScopesFixture::new(DaemonPlan::with_plane(), &[("ours", &["read:job:ours", "read:run:ours"])]).await;
    for id in ["theirs:1", "ours:1", "ours:2", "theirs:2"] {
        stage.post("root", "/v1/jobs", json!({"id": id, "work": "pull"})).await.ok();
    }
    let list = async |query: &str| stage.get("ours", &format!("/v1/jobs{query}")).await.ok();
    let cut = list("?limit=1").await;
    assert_eq!((cut["jobs"].as_array().unwrap().len(), &cut["truncated"]), (1, &json!(true)));
    for query in ["", "?limit=2"] {
        let all = list(query).await;
        assert_eq!((all["jobs"].as_array().unwrap().len(), &all["truncated"]), (2, &Value::Null), "{all}");
    }
}

/// What one identity may have in the plane is counted in the store, apart from what others have.
#[tokio::test]
async fn finding_21_quotas_bound_jobs_runs_and_workflows_of_one_identity() {
    let mut plan = DaemonPlan::with_plane();
    let quotas = &mut plan.config.quotas;
    (quotas.jobs, quotas.runs, quotas.workflows) = (2, 1, 1);
    let grants = ["submit:*", "define:*"];
    let stage = ScopesFixture::new(plan, &[("flood", &grants), ("calm", &grants)]).await;
    let refused = async |path: &str, body: Value, what: &str| {
        let reply = stage.post("flood", path, body.clone()).await;
        assert_eq!((reply.status, reply.code().as_str()), (429, "quota_reached"), "{reply:?}");
        assert!(reply.text.contains(what), "{reply:?}");
        // Neither another identity nor an administrator is limited by it.
        for (who, id) in [("calm", "of:calm"), ("root", "of:root")] {
            let mut body = body.clone();
            (body["id"], body["key"]) = (json!(id), json!(id));
            assert_eq!(stage.post(who, path, body).await.status, 201, "{who}");
        }
    };
    let job = |id: &str| json!({"id": id, "work": "pull", "topic": "t", "key": id});
    for id in ["f:1", "f:2"] {
        stage.post("flood", "/v1/jobs", job(id)).await.ok();
    }
    refused("/v1/jobs", job("f:3"), "2 jobs").await;
    // A repeated submit is no new job.
    assert_eq!(stage.post("flood", "/v1/jobs", job("f:1")).await.status, 200);
    stage.post("flood", "/v1/jobs/f:1/cancel", json!({"reason": "test"})).await;
    eventually("room for another job", async || {
        matches!(stage.post("flood", "/v1/jobs", job("f:4")).await.status, 200 | 201)
    })
    .await;
    stage.apply("flood", &workflow("w", DELAY)).await.ok();
    let second = stage.apply("flood", &workflow("x", DELAY)).await;
    assert_eq!((second.status, second.code().as_str()), (429, "quota_reached"), "{second:?}");
    stage.apply("flood", &workflow("w", "delay = \"2h\"")).await.ok();
    let run = |id: &str| json!({"id": id, "workflow": "w"});
    stage.post("flood", "/v1/runs", run("f:1")).await.ok();
    refused("/v1/runs", run("f:2"), "1 runs").await;
    assert_eq!(stage.post("flood", "/v1/runs", run("f:1")).await.status, 200);
}

/// One request cannot make the daemon compare or copy without bound.
#[tokio::test]
async fn finding_21_a_definition_and_the_input_of_a_run_are_bounded() {
    let stage = ScopesFixture::new(DaemonPlan::with_plane(), &[]).await;
    let file = |steps: usize| {
        let step = |at| format!("[[step]]\nid = \"s{at}\"\npull = \"t\"\n");
        (0..steps).map(step).fold("name = \"w\"\n".to_owned(), |file, step| file + &step)
    };
    let refused = |reply: &Reply, parts: &[&str]| {
        assert_eq!((reply.status, reply.code().as_str()), (422, "invalid"), "{reply:?}");
        assert!(parts.iter().all(|part| reply.text.contains(part)), "{reply:?}");
    };
    refused(&stage.apply("root", &file(201)).await, &["step: there are 201; at most 200"]);
    stage.apply("root", &file(200)).await.ok();
    let start = |bytes: usize| json!({"id": "r", "workflow": "w", "input": "x".repeat(bytes)});
    let reply = stage.post("root", "/v1/runs", start(100_000)).await;
    refused(&reply, &["input", "200 steps", "at most 16777216 bytes"]);
    assert_eq!(stage.get("root", "/v1/runs/r").await.status, 404);
    assert_eq!(stage.post("root", "/v1/runs", start(50_000)).await.status, 201);
}

/// Classes are the daemon's, and every reader sees their values; only readers of all see who changed them and why.
#[tokio::test]
async fn finding_11_reasons_of_policy_changes_are_for_readers_of_everything() {
    let who: [(&str, &[&str]); 2] = [("some", &["read:evil"]), ("all", &["read:*"])];
    let stage = ScopesFixture::new(DaemonPlan::new(), &who).await;
    let mut streams = Vec::new();
    for (who, shown) in [("some", false), ("all", true)] {
        streams.push((Stream::open(&stage.daemon, None, stage.token(who)).await, shown));
    }
    let change = json!({"field": "ttl", "value": "50s", "reason": "secret (set: x)", "lasting_ms": 600_000});
    stage.post("root", "/v1/policies/scheduler/overrides", change).await.ok();
    eventually("the change in the history", async || {
        stage.get("all", "/v1/policy-history").await.text.contains("secret")
    })
    .await;
    for path in ["/v1/policies", "/v1/policies/scheduler", "/v1/policy-history"] {
        for (who, shown) in [("some", false), ("all", true)] {
            let reply = stage.get(who, path).await;
            assert_eq!((reply.status, reply.text.contains("secret")), (200, shown), "{who}: {reply:?}");
            assert_eq!(reply.text.contains("root: "), shown, "{who}: {reply:?}");
            assert!(reply.text.contains("50s"), "{who}: {reply:?}");
        }
    }
    // The event stream too: the ones that were open, and one that resumes before the change.
    for (mut live, shown) in streams {
        live.until("event: policy_changed").await;
        live.until("50s").await;
        live.until("}\n\n").await;
        assert_eq!(live.text.contains("secret"), shown, "{}", live.text);
        assert_eq!(live.text.contains("root: "), shown, "{}", live.text);
    }
    let mut resumed = Stream::open(&stage.daemon, Some("0-0"), stage.token("some")).await;
    resumed.until("event: policy_changed").await;
    resumed.until("}\n\n").await;
    assert!(resumed.text.contains("(set)") && !resumed.text.contains("secret"), "{}", resumed.text);
}

/// The audit line comes first: without it, a decision, a retry or a command does not happen.
#[tokio::test]
async fn finding_05_a_decision_that_cannot_be_audited_is_not_made() {
    let mut plan = DaemonPlan::with_plane();
    // Each line begins a segment, which takes the name of the newest one.
    plan.config.audit_segment_bytes = 1;
    let stage = ScopesFixture::new(plan, &[]).await;
    let asking = json!({"id": "j", "work": "pull", "requires_approval": true});
    let snapshot = stage.post("root", "/v1/jobs", asking).await.ok()["snapshot"].clone();
    let dying = json!({"id": "d", "work": {"exec": ["false"]}, "attempts": 1});
    stage.post("root", "/v1/jobs/commands", dying).await.ok();
    stage.dead("d").await;
    let newest = stage.daemon.state().join("audit.jsonl");
    eventually("the audit log to fail", async || {
        // The segment may just have been begun.
        let _ = std::fs::remove_file(&newest);
        stage.post("root", "/v1/jobs/d/retry", json!({})).await.status == 503
    })
    .await;
    let jobs = stage.get("root", "/v1/jobs").await.ok()["jobs"].as_array().unwrap().len();
    let decision = json!({"by": "x", "reason": "seen", "snapshot": snapshot});
    let command = json!({"id": "c", "work": {"exec": ["true"]}});
    for (path, body) in [
        ("/v1/approvals/j/approve", &decision),
        ("/v1/approvals/j/reject", &decision),
        ("/v1/jobs/d/retry", &json!({})),
        ("/v1/jobs/commands", &command),
    ] {
        let reply = stage.post("root", path, body.clone()).await;
        assert_eq!((reply.status, reply.code().as_str()), (503, "overloaded"), "{path}: {reply:?}");
    }
    assert_eq!(stage.get("root", "/v1/jobs/j").await.ok()["state"], "APPROVAL_REQUIRED");
    assert_eq!(stage.get("root", "/v1/jobs").await.ok()["jobs"].as_array().unwrap().len(), jobs);
}

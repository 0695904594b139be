//! Rights on jobs and runs: every route of the control plane, every right, by namespace and by name.

use serde_json::{Value, json};

use crate::fixture::{Daemon, DaemonPlan};

const RIGHTS: [&str; 8] = ["read", "hold", "submit", "work", "approve", "define", "command", "admin"];
const KINDS: [&str; 6] = ["job", "run", "topic", "workflow", "org", "res"];

/// The routes of the plane, and the rights of which one alone suffices. Not generated from the routes,
/// since they are under test.
const EXPECTED: &[(&str, &[&str])] = &[
    ("GET /v1/jobs", READERS),
    ("POST /v1/jobs", &["submit", "admin"]),
    // Needs `submit` and `command`, so none but `admin` suffices alone.
    ("POST /v1/jobs/commands", &["admin"]),
    ("GET /v1/jobs/{id}", READERS),
    ("GET /v1/jobs/{id}/history", READERS),
    ("POST /v1/jobs/{id}/cancel", &["submit", "admin"]),
    ("POST /v1/jobs/{id}/retry", &["submit", "admin"]),
    ("POST /v1/topics/{topic}/claim", &["work", "admin"]),
    ("POST /v1/jobs/{id}/heartbeat", &["work", "admin"]),
    ("POST /v1/jobs/{id}/result", &["work", "admin"]),
    ("GET /v1/approvals", READERS),
    ("POST /v1/approvals/{id}/approve", &["approve", "admin"]),
    ("POST /v1/approvals/{id}/reject", &["approve", "admin"]),
    ("POST /v1/approvals/{id}/repair", &["approve", "admin"]),
    ("PUT /v1/workflows", &["define", "admin"]),
    ("GET /v1/workflows/{name}", READERS),
    ("GET /v1/runs", READERS),
    ("POST /v1/runs", &["submit", "admin"]),
    ("GET /v1/runs/{id}", READERS),
    ("GET /v1/runs/{id}/timeline", READERS),
    ("POST /v1/runs/{id}/cancel", &["submit", "admin"]),
    ("POST /v1/runs/{id}/rerun", &["submit", "admin"]),
];
const READERS: &[&str] = &["read", "hold", "submit", "work", "define", "admin"];

/// A body for each route that takes one.
fn body(path: &str, id: &str) -> Option<Value> {
    Some(match path.rsplit('/').next().unwrap() {
        "jobs" => json!({"id": id, "work": "pull", "topic": "ours"}),
        "commands" => json!({"id": id, "work": {"exec": ["true"]}, "topic": "ours"}),
        "runs" => json!({"id": id, "workflow": "ours:none", "org": "ours"}),
        "cancel" => json!({"reason": "test"}),
        "rerun" => json!({"from": "a"}),
        "claim" => json!({"worker": "w"}),
        "heartbeat" | "result" => json!({"attempt": 1}),
        "approve" | "reject" => json!({"by": "x", "reason": "test", "snapshot": "none"}),
        "repair" => json!({"by": "x", "reason": "test", "payload": 1, "snapshot": "none"}),
        _ => return None,
    })
}

/// The routes that exist only because the plane is served.
async fn plane_routes(daemon: &Daemon) -> Vec<(String, String)> {
    let without = Daemon::start().await.rules.clone();
    let rules = daemon.rules.iter().filter(|rule| !without.contains(rule));
    rules.map(|(method, path, _)| (method.clone(), path.clone())).collect()
}

/// Every route by every right: on the whole kind, on one team's names, on others.
#[tokio::test]
async fn every_route_of_the_plane_by_every_right() {
    let mut plan = DaemonPlan::with_plane();
    let mut who = Vec::new();
    for scope in ["KIND", "KIND:ours", "KIND:others", "deploy", "*"] {
        who.extend(RIGHTS.map(|right| (scope, right)));
    }
    let grants =
        |(scope, right): &(&str, &str)| KINDS.map(|kind| format!("{right}:{}", scope.replace("KIND", kind)));
    let tokens = plan.numbered_identities(who.iter().map(grants));
    let daemon = plan.start().await;
    let routes = plane_routes(&daemon).await;
    let mut tried = 0;
    for (method, path) in &routes {
        let row = EXPECTED.iter().find(|(route, _)| *route == format!("{method} {path}"));
        let (_, sufficient) = row.unwrap_or_else(|| panic!("add {method} {path} to EXPECTED"));
        for (at, (scope, has)) in who.iter().enumerate() {
            tried += 1;
            let id = format!("ours:{tried}");
            let url = path.replace("{id}", &id).replace("{name}", &id).replace("{topic}", "ours");
            let reply = if method == "PUT" {
                daemon
                    .apply_as(
                        Some(&tokens[at]),
                        &format!("name = \"{id}\"\n[[step]]\nid = \"a\"\ndelay = \"1s\"\n"),
                    )
                    .await
            } else {
                daemon.call(method, &url, Some(&tokens[at]), body(path, &id)).await
            };
            // Lists and claims are limited to what the caller's grants cover, and refused only if they
            // cover nothing of the kind.
            let list = (method == "GET" && !path.contains('{')) || path.ends_with("/claim");
            let covers = matches!(*scope, "KIND" | "KIND:ours" | "*") || (list && *scope == "KIND:others");
            let may = covers && sufficient.contains(has);
            let told = format!("{has} on {scope}: {method} {url}: {reply:?}");
            assert_ne!(reply.status, 401, "{told}");
            assert_eq!(reply.status != 403, may, "{told}");
            if !may {
                assert_eq!(reply.code(), "forbidden", "{told}");
            }
        }
        let url = path.replace("{id}", "x").replace("{name}", "x").replace("{topic}", "t");
        let unknown = daemon.call(method, &url, None, body(path, "x")).await;
        assert_eq!(unknown.code(), "unauthorized", "{method} {url}");
    }
    assert_eq!((tried, routes.len()), (EXPECTED.len() * who.len(), EXPECTED.len()));
}

/// A job must not bypass grants: its submitter must be allowed to lock what the job locks.
#[tokio::test]
async fn jobs_lock_only_what_their_submitter_may() {
    let mut plan = DaemonPlan::with_plane();
    let tokens = plan.identities(&[
        (
            "worker",
            &["submit:job", "submit:run", "submit:topic", "submit:workflow", "submit:org", "hold:res:ours"],
        ),
        ("root", &["admin:*"]),
    ]);
    let daemon = plan.start().await;
    let (worker, root) = (Some(tokens[0].as_str()), Some(tokens[1].as_str()));
    let job = |tenant: &str| Some(json!({"work": "pull", "tenant": tenant, "resources": ["gpu"]}));
    let refused = daemon.call("POST", "/v1/jobs", worker, job("theirs")).await;
    assert_eq!((refused.status, refused.code().as_str()), (403, "forbidden"));
    assert_eq!(daemon.call("POST", "/v1/jobs", worker, job("ours")).await.status, 201);
    assert_eq!(daemon.call("POST", "/v1/jobs", root, job("theirs")).await.status, 201);
    let text = "name = \"w\"\n[[step]]\nid = \"a\"\npull = \"t\"\nresources = [\"gpu\"]\n";
    let applied = daemon.apply_as(root, text).await;
    assert_eq!(applied.status, 200, "{applied:?}");
    let run = |org: &str| Some(json!({"workflow": "w", "org": org}));
    assert_eq!(daemon.call("POST", "/v1/runs", worker, run("theirs")).await.status, 403);
    assert_eq!(daemon.call("POST", "/v1/runs", worker, run("ours")).await.status, 201);
}

/// A decision names the person and the caller that sent it; the audit log records it first.
#[tokio::test]
async fn a_decision_names_its_caller() {
    let mut plan = DaemonPlan::with_plane();
    let tokens = plan.identities(&[("page", &["submit:job", "submit:topic", "approve:job"])]);
    let daemon = plan.start().await;
    let page = Some(tokens[0].as_str());
    for (id, by, wanted) in
        [("a", None, "page"), ("b", Some("page"), "page"), ("c", Some("ann"), "ann (through page)")]
    {
        let job = json!({"id": id, "work": "pull", "requires_approval": true});
        let job = daemon.call("POST", "/v1/jobs", page, Some(job)).await.ok();
        let decide = json!({"by": by, "reason": "seen", "snapshot": job["snapshot"]});
        let path = format!("/v1/approvals/{id}/approve");
        let decided = daemon.call("POST", &path, page, Some(decide)).await.ok();
        assert_eq!(decided["decision"]["by"], wanted, "{decided}");
    }
    let log = std::fs::read_to_string(daemon.state().join("audit.jsonl")).unwrap();
    assert_eq!(log.matches("\"action\":\"approval.approve\"").count(), 3, "{log}");
    assert!(log.contains("ann (through page): seen") && log.contains("\"actor\":\"page\""), "{log}");
}

//! Rights on jobs and runs: every route of the control plane, every role, by namespace and by name.

use serde_json::{Value, json};

use crate::fixture::{Daemon, DaemonPlan};

const ROLES: [&str; 3] = ["read", "hold", "admin"];

fn body(path: &str, id: &str) -> Option<Value> {
    Some(match path.rsplit('/').next().unwrap() {
        "jobs" => json!({"id": id, "work": "pull"}),
        "commands" => json!({"id": id, "work": {"exec": ["true"]}}),
        "runs" => json!({"id": id, "workflow": "none"}),
        "cancel" => json!({"reason": "test"}),
        "rerun" => json!({"from": "a"}),
        "claim" => json!({"worker": "w"}),
        "heartbeat" | "result" => json!({"attempt": 1}),
        "approve" | "reject" => json!({"by": "x", "reason": "test"}),
        "repair" => json!({"by": "x", "reason": "test", "payload": 1}),
        _ => return None,
    })
}

fn namespace(path: &str) -> &'static str {
    match path.split('/').nth(2).unwrap() {
        "runs" => "run",
        "workflows" => "workflow",
        _ => "job",
    }
}

/// The routes that exist only because the plane is served.
async fn plane_routes(daemon: &Daemon) -> Vec<(String, String, String)> {
    let without = Daemon::start().await.rules.clone();
    let only = |rule: &&(String, String, Option<String>)| !without.contains(rule);
    let rules = daemon.rules.iter().filter(only);
    rules.map(|(method, path, role)| (method.clone(), path.clone(), role.clone().unwrap())).collect()
}

/// Every route by every role: on the whole namespace, on one team's names, on another namespace.
#[tokio::test]
async fn every_route_of_the_plane_by_every_role() {
    let mut plan = DaemonPlan::with_plane();
    let mut who = Vec::new();
    for scope in ["NS", "NS:ours", "NS:others", "res", "*"] {
        for role in ROLES {
            who.push((scope, role));
        }
    }
    let grants: Vec<Vec<String>> = who
        .iter()
        .map(|(scope, role)| {
            ["job", "run", "workflow"]
                .iter()
                .map(|namespace| format!("{role}:{}", scope.replace("NS", namespace)))
                .collect()
        })
        .collect();
    let named: Vec<(String, Vec<&str>)> = grants
        .iter()
        .enumerate()
        .map(|(at, grants)| (format!("p{at}"), grants.iter().map(String::as_str).collect()))
        .collect();
    let named: Vec<(&str, &[&str])> =
        named.iter().map(|(id, grants)| (id.as_str(), grants.as_slice())).collect();
    let tokens = plan.identities(&named);
    let daemon = plan.start().await;
    let routes = plane_routes(&daemon).await;
    assert!(routes.len() >= 22, "{routes:?}");
    let mut tried = 0;
    for (method, path, role) in &routes {
        for (at, (scope, has)) in who.iter().enumerate() {
            tried += 1;
            let id = format!("ours:{tried}");
            let url = path.replace("{id}", &id).replace("{name}", &id).replace("{topic}", "t");
            let reply = daemon.call(method, &url, Some(&tokens[at]), body(path, &id)).await;
            let rank = |role: &str| ROLES.iter().position(|known| *known == role);
            // Lists, claims and workflow files need the whole namespace; the other routes need one
            // name.
            let about_one = path.contains("{id}")
                || path.contains("{name}")
                || method == "POST" && body(path, &id).is_some_and(|body| body.get("id").is_some());
            let covers = match *scope {
                "NS" | "*" => true,
                "NS:ours" => about_one,
                _ => false,
            };
            let may = covers && rank(has) >= rank(role);
            let told =
                format!("{has} on {scope}: {method} {url} needs {role} on {}: {reply:?}", namespace(path));
            assert_ne!(reply.status, 401, "{told}");
            assert_eq!(reply.status != 403, may, "{told}");
            if !may {
                assert_eq!(reply.code(), "forbidden", "{told}");
            }
        }
        let url = path.replace("{id}", "x").replace("{name}", "x").replace("{topic}", "t");
        assert_eq!(
            daemon.call(method, &url, None, body(path, "x")).await.code(),
            "unauthorized",
            "{method} {url}"
        );
    }
    assert_eq!(tried, routes.len() * who.len());
}

/// A job must not bypass grants: its submitter must be allowed to lock what the job locks.
#[tokio::test]
async fn jobs_lock_only_what_their_submitter_may() {
    let mut plan = DaemonPlan::with_plane();
    let tokens =
        plan.identities(&[("worker", &["hold:job", "hold:run", "hold:res:ours"]), ("root", &["admin:*"])]);
    let daemon = plan.start().await;
    let (worker, root) = (Some(tokens[0].as_str()), Some(tokens[1].as_str()));
    let job = |tenant: &str| Some(json!({"work": "pull", "tenant": tenant, "resources": ["gpu"]}));
    let refused = daemon.call("POST", "/v1/jobs", worker, job("theirs")).await;
    assert_eq!((refused.status, refused.code().as_str()), (403, "forbidden"));
    assert_eq!(daemon.call("POST", "/v1/jobs", worker, job("ours")).await.status, 201);
    assert_eq!(daemon.call("POST", "/v1/jobs", root, job("theirs")).await.status, 201);
    let text = "name = \"w\"\n[[step]]\nid = \"a\"\npull = \"t\"\nresources = [\"gpu\"]\n";
    let applied = daemon
        .raw(&format!(
            "PUT /v1/workflows HTTP/1.1\r\nhost: {}\r\nconnection: close\r\nauthorization: Bearer {}\r\ncontent-type: application/toml\r\ncontent-length: {}\r\n\r\n{text}",
            daemon.address, tokens[1], text.len()
        ))
        .await;
    assert_eq!(applied.status, 200, "{applied:?}");
    let run = |org: &str| Some(json!({"workflow": "w", "org": org}));
    assert_eq!(daemon.call("POST", "/v1/runs", worker, run("theirs")).await.status, 403);
    assert_eq!(daemon.call("POST", "/v1/runs", worker, run("ours")).await.status, 201);
}

/// A decision names the person and the caller that sent it; the audit log records it first.
#[tokio::test]
async fn a_decision_names_its_caller() {
    let mut plan = DaemonPlan::with_plane();
    let tokens = plan.identities(&[("page", &["hold:job"])]);
    let daemon = plan.start().await;
    let page = Some(tokens[0].as_str());
    for (id, by, wanted) in
        [("a", None, "page"), ("b", Some("page"), "page"), ("c", Some("ann"), "ann (through page)")]
    {
        let job = json!({"id": id, "work": "pull", "requires_approval": true});
        daemon.call("POST", "/v1/jobs", page, Some(job)).await.ok();
        let decide = json!({"by": by, "reason": "seen"});
        let path = format!("/v1/approvals/{id}/approve");
        let decided = daemon.call("POST", &path, page, Some(decide)).await.ok();
        assert_eq!(decided["decision"]["by"], wanted, "{decided}");
    }
    let log = std::fs::read_to_string(daemon.state().join("audit.jsonl")).unwrap();
    assert_eq!(log.matches("\"action\":\"approval.approve\"").count(), 3, "{log}");
    assert!(log.contains("ann (through page): seen") && log.contains("\"actor\":\"page\""), "{log}");
}

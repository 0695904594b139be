//! Every route, every role, every namespace: made from the routes that are registered, so that a new one is tried too.

use serde_json::{Value, json};

use crate::stage::{Daemon, Plan};

/// What a foreign name looks like: nothing that is shown may have it.
const FOREIGN: &str = "theirs";

fn body(path: &str, name: &str) -> Option<Value> {
    let token = format!("x|scheduler|{}", "0".repeat(32));
    Some(match path.rsplit('/').next().unwrap() {
        "acquire" => json!({"ttl_ms": 60_000}),
        "wait" => json!({"token": token, "wait_ms": 0}),
        "renew" if path.contains("namespaces") => json!({"items": []}),
        "renew" => json!({"token": token, "fence": "1"}),
        "release" => json!({"token": token}),
        "break" => json!({"reason": "test", "force": true}),
        "holds" => json!({"name": name, "wait_ms": 0}),
        "overrides" => json!({"field": "ttl", "value": "50s", "reason": "test", "lasting_ms": 1000}),
        _ => return None,
    })
}

async fn stage() -> (Daemon, Vec<String>) {
    let mut plan = Plan::new();
    let tokens = plan.identities(&[
        ("root", &["admin:*"]),
        ("reader", &["read:team"]),
        ("locker", &["hold:team"]),
        ("boss", &["admin:team"]),
        ("nobody-special", &[]),
        ("auditor", &["read:*"]),
    ]);
    (plan.start().await, tokens)
}

/// The least role that each route demands, as the answers show it.
#[tokio::test]
async fn every_route_by_every_role_on_every_namespace() {
    let (daemon, tokens) = stage().await;
    let root = Some(tokens[0].as_str());
    let mut tried = 0;
    for (namespace, own) in [
        ("team", true),
        ("team2", false),
        (FOREIGN, false),
        ("default", false),
    ] {
        for (method, path, role) in daemon.rules.clone() {
            let name = if namespace == "default" {
                "plain".to_owned()
            } else {
                format!("{namespace}:1")
            };
            // A hold of that namespace, for the routes that are about one.
            let id = format!("{namespace}-{tried}");
            if path.contains("{id}") {
                let ask = json!({"id": id, "name": format!("{name}:{tried}"), "heartbeat_ms": 60_000});
                daemon.call("POST", "/v1/holds", root, Some(ask)).await.ok();
            }
            let url = path
                .replace("{name}", &name)
                .replace("{namespace}", namespace)
                .replace("{id}", &id)
                .replace("{class}", "scheduler")
                .replace("{field}", "ttl");
            if path == "/v1/events" {
                continue; // does not end; tried in events.rs
            }
            for (at, who) in ["reader", "locker", "boss", "nobody-special", "auditor", "-"]
                .iter()
                .enumerate()
            {
                let token = tokens.get(at + 1).map(String::as_str).filter(|_| *who != "-");
                let reply = daemon.call(&method, &url, token, body(&path, &name)).await;
                tried += 1;
                let told = format!(
                    "{who}: {method} {url} ({role:?}): {} {}",
                    reply.status, reply.text
                );
                let Some(role) = role.as_deref() else {
                    assert!(!matches!(reply.status, 401 | 403), "{told}");
                    continue;
                };
                if *who == "-" {
                    assert_eq!(
                        (reply.status, reply.code().as_str()),
                        (401, "unauthorized"),
                        "{told}"
                    );
                    continue;
                }
                let rank = |role: &str| ["read", "hold", "admin"].iter().position(|known| *known == role);
                let has = match *who {
                    "reader" => Some(("read", false)),
                    "locker" => Some(("hold", false)),
                    "boss" => Some(("admin", false)),
                    "auditor" => Some(("read", true)),
                    _ => None,
                };
                let about_all =
                    matches!(path.as_str(), "/metrics" | "/v1/drills") || path.contains("/overrides");
                // What shows only one's own is open to whoever has anything of their own.
                let shows_own = matches!(
                    path.as_str(),
                    "/v1/store"
                        | "/v1/me"
                        | "/v1/locks"
                        | "/v1/history"
                        | "/v1/policies"
                        | "/v1/policies/{class}"
                        | "/v1/policy-history"
                );
                // Only its owner says that a hold goes on, or ends it; here that is root.
                let owners = path.contains("{id}") && method != "GET";
                let may = !owners
                    && has.is_some_and(|(mine, everywhere)| {
                        rank(mine) >= rank(role) && (everywhere || shows_own || (own && !about_all))
                    });
                let refused =
                    matches!(reply.status, 401 | 403) || (path.contains("{id}") && reply.status == 404);
                assert_eq!(!refused, may, "{told}");
                if !own && !may && namespace == FOREIGN && !url.contains(FOREIGN) {
                    assert!(!reply.text.contains(FOREIGN), "{told}");
                }
            }
        }
    }
    assert!(tried > 300, "{tried}");
}

/// Lists, history, events and refusals show one's own names only; metrics are refused.
#[tokio::test]
async fn foreign_names_are_never_shown() {
    let (daemon, tokens) = stage().await;
    let root = Some(tokens[0].as_str());
    for name in [
        FOREIGN.to_owned() + ":secret",
        "team:1".into(),
        "team2:secret".into(),
        "plain".into(),
    ] {
        let path = format!("/v1/locks/{name}/acquire");
        let granted = daemon.call("POST", &path, root, Some(json!({}))).await.ok();
        let release = json!({"token": granted["token"]});
        if name.starts_with("team2") {
            daemon
                .call("POST", &format!("/v1/locks/{name}/release"), root, Some(release))
                .await
                .ok();
        }
    }
    let reader = Some(tokens[1].as_str());
    let listed = daemon.call("GET", "/v1/locks", reader, None).await.ok();
    assert_eq!(listed["locks"].as_array().unwrap().len(), 1, "{listed}");
    assert_eq!(listed["locks"][0]["name"], "team:1");
    crate::stage::eventually("the history", async || {
        let past = daemon.call("GET", "/v1/history", root, None).await.ok();
        past["holds"].as_array().unwrap().len() == 4
    })
    .await;
    let past = daemon.call("GET", "/v1/history", reader, None).await;
    assert_eq!(past.json()["holds"].as_array().unwrap().len(), 1, "{past:?}");
    for path in [
        "/v1/locks",
        "/v1/locks?prefix=the",
        "/v1/locks?prefix=team2",
        "/v1/history",
        "/v1/history?prefix=theirs",
        "/metrics",
        "/v1/policy-history",
        "/v1/store",
        "/healthz",
    ] {
        let reply = daemon.call("GET", path, reader, None).await;
        assert!(
            !reply.text.contains("secret") && !reply.text.contains("plain"),
            "{path}: {reply:?}"
        );
    }
    assert_eq!(daemon.call("GET", "/metrics", reader, None).await.status, 403);
    // Names without a namespace are in `default`, and nowhere else.
    let all = daemon.call("GET", "/v1/locks", root, None).await.ok();
    assert_eq!(all["locks"].as_array().unwrap().len(), 3, "{all}");
}

/// Holds are their owner's: another with the same rights can look, and that is all.
#[tokio::test]
async fn a_hold_is_its_owners() {
    let mut plan = Plan::new();
    let tokens = plan.identities(&[("a", &["hold:team"]), ("b", &["hold:team"])]);
    let daemon = plan.start().await;
    let (a, b) = (Some(tokens[0].as_str()), Some(tokens[1].as_str()));
    daemon
        .call("POST", "/v1/holds", a, Some(json!({"id": "h", "name": "team:1"})))
        .await
        .ok();
    assert_eq!(daemon.call("GET", "/v1/holds/h", b, None).await.status, 200);
    for (method, path) in [("POST", "/v1/holds/h/heartbeat"), ("DELETE", "/v1/holds/h")] {
        assert_eq!(daemon.call(method, path, b, None).await.status, 404);
    }
    let taken = daemon
        .call("POST", "/v1/holds", b, Some(json!({"id": "h", "name": "team:1"})))
        .await;
    assert_eq!(taken.code(), "id_taken");
    daemon.call("POST", "/v1/holds/h/heartbeat", a, None).await.ok();
    // An id of one's own stands for nothing of someone else's.
    let ask = json!({"id": "same", "holder": "x"});
    let mine = daemon
        .call("POST", "/v1/locks/team:2/acquire", a, Some(ask.clone()))
        .await
        .ok();
    let theirs = daemon
        .call("POST", "/v1/locks/team:2/acquire", b, Some(ask))
        .await;
    assert_eq!(theirs.code(), "busy", "{mine}");
}

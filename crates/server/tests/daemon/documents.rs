//! Documents over HTTP: who may read and change which, what is refused, and what is recorded.

use serde_json::{Value, json};

use crate::fixture::{Daemon, DaemonPlan};

async fn stage() -> (Daemon, Vec<String>) {
    let mut plan = DaemonPlan::new();
    let tokens = plan.identities(&[
        ("root", &["admin:*"]),
        ("reader", &["read:doc:team"]),
        ("writer", &["admin:doc:team"]),
        ("locker", &["hold:team"]),
    ]);
    (plan.start().await, tokens)
}

async fn put(daemon: &Daemon, token: &str, name: &str, body: Value) -> Value {
    daemon.call("PUT", &format!("/v1/documents/{name}"), Some(token), Some(body)).await.ok()
}

#[tokio::test]
async fn a_document_is_written_read_and_deleted_by_version() {
    let (daemon, tokens) = stage().await;
    let root = tokens[0].as_str();
    let url = "/v1/documents/policy";
    let nothing = daemon.call("GET", url, Some(root), None).await.ok();
    assert!(nothing["document"].is_null() && nothing["store_time_ms"].as_u64() > Some(0), "{nothing}");
    let first = put(&daemon, root, "policy", json!({"value": "a", "if_absent": true})).await;
    assert_eq!(first["changed"], true);
    let again = put(&daemon, root, "policy", json!({"value": "b", "if_absent": true})).await;
    assert_eq!((&again["changed"], &again["current"]["value"]), (&json!(false), &json!("a")), "{again}");
    let second =
        put(&daemon, root, "policy", json!({"value": "b", "if_version": first["version"], "ttl_ms": 60_000}))
            .await;
    let found = daemon.call("GET", url, Some(root), None).await.ok();
    assert_eq!(found["document"]["value"], "b");
    assert_eq!(found["document"]["version"], second["version"]);
    assert!(found["document"]["remaining_ms"].as_u64() <= Some(60_000), "{found}");
    let stale = format!("{url}?if_version={}", first["version"]);
    let refused = daemon.call("DELETE", &stale, Some(root), None).await.ok();
    assert_eq!((&refused["changed"], &refused["current"]["value"]), (&json!(false), &json!("b")));
    let deleted = daemon.call("DELETE", url, Some(root), None).await.ok();
    assert_eq!((&deleted["changed"], &deleted["version"]), (&json!(true), &second["version"]));
}

#[tokio::test]
async fn documents_of_others_are_neither_listed_nor_counted() {
    let (daemon, tokens) = stage().await;
    let [root, reader, writer, locker] = [0, 1, 2, 3].map(|at: usize| tokens[at].as_str());
    // More foreign ones than one page of the store, before and after those of the team.
    for at in 0..120 {
        put(&daemon, root, &format!("secret:{at:03}"), json!({"value": "hunter2"})).await;
    }
    for name in ["a", "team2:1", "team:1", "team:2", "team:3", "zoo"] {
        put(&daemon, root, name, json!({"value": name})).await;
    }
    for (query, names, truncated) in [
        ("", &["team:1", "team:2", "team:3"][..], false),
        ("?limit=2", &["team:1", "team:2"], true),
        ("?limit=2&after=team:2", &["team:3"], false),
        ("?prefix=secret", &[], false),
        ("?prefix=team:2", &["team:2"], false),
    ] {
        let reply = daemon.call("GET", &format!("/v1/documents{query}"), Some(reader), None).await;
        assert!(!reply.text.contains("hunter2") && !reply.text.contains("team2"), "{reply:?}");
        let listed = reply.ok();
        let found: Vec<_> =
            listed["documents"].as_array().unwrap().iter().map(|one| one["name"].as_str().unwrap()).collect();
        assert_eq!((found.as_slice(), &listed["truncated"]), (names, &json!(truncated)), "{query}");
    }
    let write = json!({"value": "x"});
    for (method, name, token, allowed) in [
        ("GET", "team:1", reader, true),
        ("GET", "team2:1", reader, false),
        ("GET", "team", reader, true),
        ("PUT", "team:1", reader, false),
        ("DELETE", "team:1", reader, false),
        ("PUT", "team:1", writer, true),
        ("PUT", "secret:1", writer, false),
        ("DELETE", "secret:1", writer, false),
        ("DELETE", "team:1", writer, true),
        // The right to hold the locks of a namespace gives nothing on documents of that name.
        ("GET", "team:2", locker, false),
        ("PUT", "team:2", locker, false),
    ] {
        let body = (method == "PUT").then(|| write.clone());
        let reply = daemon.call(method, &format!("/v1/documents/{name}"), Some(token), body).await;
        assert_eq!(reply.status, if allowed { 200 } else { 403 }, "{method} {name}: {reply:?}");
        assert!(allowed || !reply.text.contains("hunter2"), "{reply:?}");
    }
    let all = daemon.call("GET", "/v1/documents?prefix=secret&limit=1000", Some(root), None).await.ok();
    assert_eq!(all["documents"].as_array().unwrap().len(), 120, "a refused change was made");
}

#[tokio::test]
async fn a_list_is_cut_by_its_bytes() {
    let (daemon, tokens) = stage().await;
    let root = tokens[0].as_str();
    let longest = "x".repeat(64 * 1024);
    for at in 0..20 {
        put(&daemon, root, &format!("big:{at:02}"), json!({"value": longest})).await;
    }
    let (mut names, mut after) = (Vec::new(), String::new());
    for _ in 0..20 {
        let url = format!("/v1/documents?limit=1000{after}");
        let reply = daemon.call("GET", &url, Some(root), None).await;
        assert!(reply.text.len() < 1200 * 1024, "{} bytes", reply.text.len());
        let page = reply.ok();
        let listed = page["documents"].as_array().unwrap();
        names.extend(listed.iter().map(|one| one["name"].as_str().unwrap().to_owned()));
        if page["truncated"] == false {
            break;
        }
        assert_eq!(listed.len(), 16, "as many as fit into 1 MiB");
        after = format!("&after={}", names.last().unwrap());
    }
    let all: Vec<_> = (0..20).map(|at| format!("big:{at:02}")).collect();
    assert_eq!(names, all);
}

#[tokio::test]
async fn mistakes_are_refused_with_the_field() {
    let (daemon, tokens) = stage().await;
    let root = Some(tokens[0].as_str());
    let url = "/v1/documents/policy";
    for (body, field) in [
        (json!({"value": "x".repeat(64 * 1024 + 1)}), "value"),
        (json!({"value": "x", "ttl_ms": 0}), "ttl_ms"),
        (json!({"value": "x", "ttl_ms": 31_622_400_001_u64}), "ttl_ms"),
        (json!({"value": "x", "if_version": 1, "if_absent": true}), "if_version"),
        (json!({"value": "x", "if_version": 1_u64 << 53}), "if_version"),
        (json!({"value": 7}), "value"),
        (json!({}), "value"),
        // The name of an unknown field may be a secret in the wrong place: it is not repeated.
        (json!({"value": "x", "values": "y"}), "body"),
    ] {
        let reply = daemon.call("PUT", url, root, Some(body)).await;
        assert!(matches!(reply.status, 400 | 422), "{field}: {reply:?}");
        assert!(reply.text.contains(field), "{field}: {reply:?}");
    }
    for (method, path, field) in [
        ("GET", "/v1/documents?limit=0", "limit"),
        ("GET", "/v1/documents?limit=1001", "limit"),
        ("GET", "/v1/documents?after=a%20b", "name"),
        ("DELETE", "/v1/documents/policy?if_version=x", "if_version"),
        ("DELETE", "/v1/documents/policy?if_version=9007199254740992", "if_version"),
        ("DELETE", "/v1/documents/policy?if_absent=1", "if_absent"),
    ] {
        let reply = daemon.call(method, path, root, None).await;
        assert_eq!((reply.status, reply.text.contains(field)), (422, true), "{path}: {reply:?}");
    }
    let kept = daemon.call("GET", "/v1/documents", root, None).await.ok();
    assert_eq!(kept["documents"], json!([]), "a refused write made a document");
}

#[tokio::test]
async fn changes_are_recorded_and_refused_ones_are_not_made() {
    let (daemon, tokens) = stage().await;
    put(&daemon, &tokens[2], "team:1", json!({"value": "content-of-it"})).await;
    daemon.call("DELETE", "/v1/documents/team:1", Some(&tokens[2]), None).await.ok();
    let log = std::fs::read_to_string(daemon.state().join("audit.jsonl")).unwrap();
    for action in ["document.write", "document.delete"] {
        let line =
            log.lines().find(|line| line.contains(action)).unwrap_or_else(|| panic!("{action}: {log}"));
        assert!(line.contains("doc:team:1") && line.contains("writer"), "{line}");
    }
    assert!(!log.contains("content-of-it"), "the audit log has the content");
}

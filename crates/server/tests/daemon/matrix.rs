//! Every route, right and namespace against a table written by hand. It fails on a route without a
//! row, a row without a route, and a route that requires less than its row says.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::fixture::{Daemon, DaemonPlan, Reply, within};

/// The target of a route.
#[derive(Debug, Clone, Copy, PartialEq)]
enum RouteTarget {
    /// No target; the route is open.
    Nothing,
    /// The daemon as a whole.
    Whole,
    /// Whatever the caller may read.
    Own,
    /// One name or namespace, in the path or in the body.
    Name,
    /// A hold: other callers with the right may read it, only its owner may change it.
    Hold,
    /// A document, or those that the caller may read: grants name them with the kind `doc`.
    Document,
}
use RouteTarget::{Document, Hold, Name, Nothing, Own, Whole};

/// Method and path, the right, and the target. Not generated from the routes, since they are
/// under test.
const EXPECTED_ROUTES: &[(&str, Option<&str>, RouteTarget)] = &[
    ("GET /", None, Nothing),
    ("GET /assets/app.js", None, Nothing),
    ("GET /assets/app.css", None, Nothing),
    ("GET /assets/icon.svg", None, Nothing),
    ("GET /healthz", None, Nothing),
    ("GET /readyz", None, Nothing),
    ("GET /openapi.json", None, Nothing),
    ("POST /v1/dashboard/session", None, Nothing),
    ("POST /v1/dashboard/codes", Some("read"), Own),
    ("GET /metrics", Some("read"), Whole),
    ("GET /v1/drills", Some("read"), Whole),
    ("GET /v1/me", Some("read"), Own),
    ("GET /v1/store", Some("read"), Own),
    ("GET /v1/locks", Some("read"), Own),
    ("GET /v1/locks/{name}", Some("read"), Name),
    ("POST /v1/locks/{name}/acquire", Some("hold"), Name),
    ("POST /v1/locks/{name}/wait", Some("hold"), Name),
    ("POST /v1/locks/{name}/renew", Some("hold"), Name),
    ("POST /v1/locks/{name}/release", Some("hold"), Name),
    ("POST /v1/locks/{name}/break", Some("admin"), Name),
    ("POST /v1/namespaces/{namespace}/renew", Some("hold"), Name),
    ("POST /v1/holds", Some("hold"), Name),
    ("GET /v1/holds/{id}", Some("read"), Hold),
    ("POST /v1/holds/{id}/heartbeat", Some("hold"), Hold),
    ("DELETE /v1/holds/{id}", Some("hold"), Hold),
    ("GET /v1/documents", Some("read"), Document),
    ("GET /v1/documents/{name}", Some("read"), Document),
    ("PUT /v1/documents/{name}", Some("admin"), Document),
    ("DELETE /v1/documents/{name}", Some("admin"), Document),
    ("GET /v1/events", Some("read"), Own),
    ("GET /v1/history", Some("read"), Own),
    ("GET /v1/policies", Some("read"), Own),
    ("GET /v1/policies/{class}", Some("read"), Own),
    ("POST /v1/policies/{class}/overrides", Some("admin"), Whole),
    ("DELETE /v1/policies/{class}/overrides/{field}", Some("admin"), Whole),
    ("GET /v1/policy-history", Some("read"), Own),
];

/// The table has exactly the routes of the served document and of the gate.
#[tokio::test]
async fn the_table_has_every_route() {
    let daemon = Daemon::start().await;
    let document: Value = daemon.get("/openapi.json").await.ok();
    // The dashboard is for browsers, and the document does not describe itself.
    let page = ["", "assets/app.js", "assets/app.css", "assets/icon.svg", "openapi.json"];
    let mut routes: BTreeSet<String> = page.iter().map(|path| format!("GET /{path}")).collect();
    for (path, item) in document["paths"].as_object().unwrap() {
        let methods = item.as_object().unwrap().keys();
        routes.extend(methods.map(|method| format!("{} {path}", method.to_uppercase())));
    }
    let ruled = daemon.rules.iter().map(|(method, path, _)| format!("{method} {path}"));
    let table: BTreeSet<String> = EXPECTED_ROUTES.iter().map(|(route, ..)| (*route).to_owned()).collect();
    assert_eq!(table, routes, "add the new route to TABLE, with what it should demand");
    assert_eq!(table, ruled.collect());
    assert_eq!(table.len(), EXPECTED_ROUTES.len(), "no route twice");
}

/// The head of a response that does not end.
async fn response_head(daemon: &Daemon, path: &str, token: Option<&str>) -> Reply {
    let token = token.map_or_else(String::new, |token| format!("authorization: Bearer {token}\r\n"));
    let mut stream = daemon.connect().await;
    let request = format!("GET {path} HTTP/1.1\r\nhost: {}\r\n{token}\r\n", daemon.address);
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut all = Vec::new();
    let end = b"\r\n\r\n";
    within("a head", async {
        while !all.windows(4).any(|four| four == end) {
            all.push(stream.read_u8().await.unwrap());
        }
    })
    .await;
    let head = String::from_utf8_lossy(&all).to_lowercase();
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
    if let Some(length) = length {
        let mut body = vec![0; length.parse().unwrap()];
        stream.read_exact(&mut body).await.unwrap();
        all.extend(body);
    }
    Reply::parse(&all)
}

/// Part of every foreign name: no response may contain it.
const FOREIGN_MARKER: &str = "theirs";

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

/// The callers of the matrix, in the order of their tokens after root's; the last one has none.
const CALLERS: [&str; 11] = [
    "reader",
    "locker",
    "boss",
    "nobody-special",
    "auditor",
    "submitter",
    "worker",
    "definer",
    "approver",
    "commander",
    "-",
];

async fn stage() -> (Daemon, Vec<String>) {
    let mut plan = DaemonPlan::new();
    let tokens = plan.identities(&[
        ("root", &["admin:*"]),
        ("reader", &["read:team"]),
        ("locker", &["hold:team"]),
        ("boss", &["admin:team"]),
        ("nobody-special", &[]),
        ("auditor", &["read:*"]),
        ("submitter", &["submit:team"]),
        ("worker", &["work:team"]),
        ("definer", &["define:team"]),
        ("approver", &["approve:team"]),
        ("commander", &["command:team"]),
    ]);
    (plan.start().await, tokens)
}

/// The right that each route requires, as the responses show it.
#[tokio::test]
async fn every_route_by_every_right_on_every_namespace() {
    let (daemon, tokens) = stage().await;
    let root = Some(tokens[0].as_str());
    let mut tried = 0;
    for (namespace, own) in [("team", true), ("team2", false), (FOREIGN_MARKER, false), ("default", false)] {
        for (route, right, about) in EXPECTED_ROUTES.iter().copied() {
            let (method, path) = route.split_once(' ').unwrap();
            let name = if namespace == "default" { "plain".to_owned() } else { format!("{namespace}:1") };
            // A hold in that namespace, for the routes whose target is a hold.
            let id = format!("{namespace}-{tried}");
            if path.contains("{id}") {
                let request = json!({"id": id, "name": format!("{name}:{tried}"), "heartbeat_ms": 60_000});
                daemon.call("POST", "/v1/holds", root, Some(request)).await.ok();
            }
            let url = path
                .replace("{name}", &name)
                .replace("{namespace}", namespace)
                .replace("{id}", &id)
                .replace("{class}", "scheduler")
                .replace("{field}", "ttl");
            for (at, who) in CALLERS.iter().enumerate() {
                let token = tokens.get(at + 1).map(String::as_str).filter(|_| *who != "-");
                let reply = if path == "/v1/events" {
                    response_head(&daemon, &url, token).await
                } else {
                    daemon.call(method, &url, token, body(path, &name)).await
                };
                tried += 1;
                let told = format!("{who}: {method} {url} ({right:?}): {} {}", reply.status, reply.text);
                let Some(right) = right else {
                    assert!(!matches!(reply.status, 401 | 403), "{told}");
                    continue;
                };
                if *who == "-" {
                    assert_eq!((reply.status, reply.code().as_str()), (401, "unauthorized"), "{told}");
                    continue;
                }
                let gives: (&[&str], bool) = match *who {
                    "reader" | "submitter" | "worker" | "definer" => (&["read"], false),
                    "locker" => (&["read", "hold"], false),
                    "boss" => (&["read", "hold", "admin"], false),
                    "auditor" => (&["read"], true),
                    _ => (&[], false),
                };
                // A filtered route is open to every caller that has any grant. The ids of holds
                // belong to their owner; here that is root.
                let (rights, everywhere) = gives;
                let may = rights.contains(&right)
                    && match about {
                        Nothing | Own => true,
                        Whole | Document => everywhere,
                        Name => everywhere || own,
                        Hold => false,
                    };
                let refused = matches!(reply.status, 401 | 403) || (about == Hold && reply.status == 404);
                assert_eq!(!refused, may, "{told}");
                if !own && !may && namespace == FOREIGN_MARKER && !url.contains(FOREIGN_MARKER) {
                    assert!(!reply.text.contains(FOREIGN_MARKER), "{told}");
                }
            }
        }
    }
    assert!(tried > 300, "{tried}");
}

/// The limit of a list counts the caller's own names, not those that share their first letters.
#[tokio::test]
async fn foreign_names_do_not_use_up_the_limit_of_a_list() {
    let (daemon, tokens) = stage().await;
    let (root, reader) = (Some(tokens[0].as_str()), Some(tokens[1].as_str()));
    // `team-` is listed before `team:`.
    let foreign = (0..20).map(|at| format!("team-{at:02}:x"));
    for name in foreign.chain((1..=3).map(|at| format!("team:{at}"))) {
        daemon.call("POST", &format!("/v1/locks/{name}/acquire"), root, Some(json!({}))).await.ok();
    }
    for (limit, names, truncated) in
        [(3, &["team:1", "team:2", "team:3"][..], false), (2, &["team:1", "team:2"], true)]
    {
        let listed = daemon.call("GET", &format!("/v1/locks?limit={limit}"), reader, None).await.ok();
        let found: Vec<_> =
            listed["locks"].as_array().unwrap().iter().map(|one| one["name"].as_str().unwrap()).collect();
        assert_eq!((found.as_slice(), &listed["truncated"]), (names, &json!(truncated)), "{listed}");
    }
}

/// Lists, history, events and errors show only names the caller may read; metrics are refused.
#[tokio::test]
async fn foreign_names_are_never_shown() {
    let (daemon, tokens) = stage().await;
    let root = Some(tokens[0].as_str());
    for name in
        [FOREIGN_MARKER.to_owned() + ":secret", "team:1".into(), "team2:secret".into(), "plain".into()]
    {
        let path = format!("/v1/locks/{name}/acquire");
        let granted = daemon.call("POST", &path, root, Some(json!({}))).await.ok();
        let release = json!({"token": granted["token"]});
        if name.starts_with("team2") {
            daemon.call("POST", &format!("/v1/locks/{name}/release"), root, Some(release)).await.ok();
        }
    }
    let reader = Some(tokens[1].as_str());
    let listed = daemon.call("GET", "/v1/locks", reader, None).await.ok();
    assert_eq!(listed["locks"].as_array().unwrap().len(), 1, "{listed}");
    assert_eq!(listed["locks"][0]["name"], "team:1");
    crate::fixture::eventually("the history", async || {
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
        assert!(!reply.text.contains("secret") && !reply.text.contains("plain"), "{path}: {reply:?}");
    }
    assert_eq!(daemon.call("GET", "/metrics", reader, None).await.status, 403);
    // Names without a namespace belong to `default` only.
    let all = daemon.call("GET", "/v1/locks", root, None).await.ok();
    assert_eq!(all["locks"].as_array().unwrap().len(), 3, "{all}");
}

/// Ids of holds belong to their owner: another caller with the same rights does not even see them.
#[tokio::test]
async fn only_the_owner_changes_a_hold() {
    let mut plan = DaemonPlan::new();
    let tokens = plan.identities(&[("a", &["hold:team"]), ("b", &["hold:team"])]);
    let daemon = plan.start().await;
    let (a, b) = (Some(tokens[0].as_str()), Some(tokens[1].as_str()));
    daemon.call("POST", "/v1/holds", a, Some(json!({"id": "h", "name": "team:1"}))).await.ok();
    for (method, path) in
        [("GET", "/v1/holds/h"), ("POST", "/v1/holds/h/heartbeat"), ("DELETE", "/v1/holds/h")]
    {
        assert_eq!(daemon.call(method, path, b, None).await.status, 404);
    }
    let taken = daemon.call("POST", "/v1/holds", b, Some(json!({"id": "h", "name": "team:1"}))).await;
    assert_eq!(taken.code(), "busy");
    daemon.call("POST", "/v1/holds/h/heartbeat", a, None).await.ok();
    // The same id of another caller stands for another grant.
    let request = json!({"id": "same", "holder": "x"});
    let mine = daemon.call("POST", "/v1/locks/team:2/acquire", a, Some(request.clone())).await.ok();
    let theirs = daemon.call("POST", "/v1/locks/team:2/acquire", b, Some(request)).await;
    assert_eq!(theirs.code(), "busy", "{mine}");
}

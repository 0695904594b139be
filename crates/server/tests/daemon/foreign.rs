//! Foreign things are never shown: every route of the gate, with every right on other names.
//!
//! The requests are made from the gate's rules, so a new route is tried without a change here. A caller has
//! rights on the names of `evil` only; everything of `victim` has `victim` in its name or content.

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::fixture::{Daemon, DaemonPlan, Reply, eventually, within};

const RIGHTS: [&str; 8] = ["read", "hold", "submit", "work", "approve", "define", "command", "admin"];

/// What of a body can name a foreign thing, one at a time.
const SLOTS: [&str; 7] = ["id", "topic", "tenant", "workflow", "org", "key", "resources"];

/// Namespaces of others: one with something in every place, and two whose names only look like `evil`.
const FOREIGN: [&str; 3] = ["victim", "evil2", "evil-x"];

/// Routes with a body, or without a name in their path, that are about nothing of a tenant.
const NAMELESS: [&str; 2] = ["/v1/dashboard/codes", "/v1/dashboard/session"];

/// The tokens of the operator, and of the caller with all rights on `evil`'s names.
const ROOT: usize = RIGHTS.len();
const ALL_RIGHTS: usize = ROOT + 1;

/// All rights that a caller with `right` has, written down independently of the daemon.
fn gives(right: &str, needed: &str) -> bool {
    right == needed || right == "admin" || (needed == "read" && !matches!(right, "approve" | "command"))
}

fn grants(right: &str) -> Vec<String> {
    let kinds = [
        "job:evil",
        "run:evil",
        "topic:evil-topic",
        "workflow:evil-flow",
        "org:evil",
        "res:evil:evil-gpu",
        "doc:evil",
    ];
    ["evil"].iter().chain(&kinds).map(|scope| format!("{right}:{scope}")).collect()
}

/// A request as it is sent.
struct ForeignRequest {
    url: String,
    body: Option<String>,
}

/// The path with the names of `whose`. A parameter that is not known here gets a job's id.
fn url(path: &str, whose: &str) -> String {
    let parts = path.split('/').map(|part| match part {
        "{name}" if path.starts_with("/v1/workflows") => format!("{whose}-flow"),
        "{name}" => format!("{whose}:{whose}-lock"),
        "{namespace}" => whose.to_owned(),
        "{topic}" => format!("{whose}-topic"),
        "{class}" => "scheduler".to_owned(),
        "{field}" => "ttl".to_owned(),
        "{id}" if path.starts_with("/v1/runs") => format!("{whose}:{whose}-run"),
        "{id}" if path.starts_with("/v1/holds") => format!("{whose}-hold"),
        part if part.starts_with('{') => format!("{whose}:{whose}-job"),
        part => part.to_owned(),
    });
    parts.collect::<Vec<_>>().join("/")
}

/// The body of a route; `of` says whose name a slot has.
fn body(method: &str, path: &str, of: &dyn Fn(&str) -> &'static str) -> Option<String> {
    if matches!(method, "GET" | "DELETE") {
        return None;
    }
    let token = format!("x|scheduler|{}", "0".repeat(32));
    let id = |what: &str| format!("{0}:{0}-{what}", of("id"));
    let job = |work: Value| {
        json!({
            "id": id("job"), "work": work, "topic": format!("{}-topic", of("topic")), "tenant": of("tenant"),
            "resources": [format!("{}-gpu", of("resources"))], "key": format!("{}-key", of("key")),
        })
    };
    let body = match path.rsplit('/').next()? {
        "{name}" if path.starts_with("/v1/documents") => json!({"value": "new"}),
        "acquire" => json!({"ttl_ms": 60_000}),
        "wait" => json!({"token": token, "wait_ms": 0}),
        "renew" if path.contains("namespaces") => {
            json!({"items": [{"name": format!("{}:{}-lock", of("id"), of("id")), "token": token, "fence": "1", "ttl_ms": 60_000}]})
        }
        "renew" => json!({"token": token, "fence": "1"}),
        "release" => json!({"token": token}),
        "break" => json!({"reason": "test", "force": true}),
        "holds" => json!({"id": "evil-new", "name": id("kept"), "wait_ms": 0}),
        "overrides" => json!({"field": "ttl", "value": "50s", "reason": "test", "lasting_ms": 1000}),
        "jobs" => job(json!("pull")),
        "commands" => job(json!({"exec": ["true"]})),
        "runs" => json!({
            "id": id("run"), "workflow": format!("{}-flow", of("workflow")), "org": of("org"),
            "key": format!("{}-key", of("key")),
        }),
        "cancel" => json!({"reason": "test"}),
        "rerun" => json!({"from": "a"}),
        "claim" => json!({"worker": "w"}),
        "heartbeat" if path.contains("jobs") => json!({"attempt": 1, "fence": "1"}),
        "result" => json!({"attempt": 1, "fence": "1"}),
        "approve" | "reject" => json!({"by": "x", "reason": "test", "snapshot": "none"}),
        "repair" => json!({"by": "x", "reason": "test", "payload": 1, "snapshot": "none"}),
        "workflows" => {
            let name = format!("{}-flow", of("workflow"));
            let topic = format!("{}-topic", of("topic"));
            return Some(format!("name = \"{name}\"\n[[step]]\nid = \"a\"\npull = \"{topic}\"\n"));
        }
        _ => return None,
    };
    Some(body.to_string())
}

/// A request that names only `evil`'s own.
fn own_request(method: &str, path: &str) -> ForeignRequest {
    ForeignRequest { url: url(path, "evil"), body: body(method, path, &|_| "evil") }
}

/// Every request to a route that names something of `whose`, and otherwise only `evil`'s own. `number` is part
/// of the ids of those that submit something.
fn requests(method: &str, path: &str, whose: &'static str, number: usize) -> Vec<ForeignRequest> {
    let mut all = Vec::new();
    if path.contains('{') {
        all.push(ForeignRequest { url: url(path, whose), body: body(method, path, &|_| "evil") });
    }
    for slot in SLOTS {
        let named = body(method, path, &|asked| if asked == slot { whose } else { "evil" });
        // A new id each time: an own job of that id would answer before the key does.
        let fresh = |text: String| {
            text.replace("evil:evil-job", &format!("evil:evil-job-{number}"))
                .replace("evil:evil-run", &format!("evil:evil-run-{number}"))
        };
        let named = if slot == "key" { named.map(fresh) } else { named };
        if named.as_ref().is_some_and(|body| body.contains(whose)) {
            all.push(ForeignRequest { url: url(path, "evil"), body: named });
        }
    }
    all
}

async fn send(daemon: &Daemon, method: &str, sent: &ForeignRequest, token: &str) -> Reply {
    let body = sent.body.clone().unwrap_or_default();
    let kind = if sent.url == "/v1/workflows" { "toml" } else { "json" };
    let kind = if body.is_empty() { String::new() } else { format!("content-type: application/{kind}\r\n") };
    daemon
        .raw(&format!(
            "{method} {} HTTP/1.1\r\nhost: {}\r\nconnection: close\r\nauthorization: Bearer {token}\r\n{kind}content-length: {}\r\n\r\n{body}",
            sent.url, daemon.address, body.len()
        ))
        .await
}

/// Fails if a reply has a word of the victim's that the request did not have.
fn assert_shows_nothing(reply: &Reply, sent: &ForeignRequest, told: &str) {
    let of_a_segment = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '-' | '.' | '_');
    for (at, _) in reply.text.match_indices("victim") {
        let rest = &reply.text[at..];
        let word = &rest[..rest.find(|letter| !of_a_segment(letter)).unwrap_or(rest.len())];
        let word = word.trim_end_matches('.');
        let named = sent.url.contains(word) || sent.body.as_ref().is_some_and(|body| body.contains(word));
        assert!(named, "{word} is shown: {told}");
    }
}

/// A daemon with only a workflow of `evil`'s.
async fn empty_stage() -> (Daemon, Vec<String>) {
    let mut plan = DaemonPlan::with_plane();
    // One right each; all of them; the pairs that only a combination could make dangerous; and the operator.
    let all: Vec<String> = RIGHTS.iter().flat_map(|right| grants(right)).collect();
    let pairs = [["submit", "approve"], ["work", "approve"], ["command", "submit"], ["define", "submit"]];
    let pairs = pairs.iter().map(|pair| pair.iter().flat_map(|right| grants(right)).collect());
    let callers =
        RIGHTS.iter().map(|right| grants(right)).chain([vec!["admin:*".to_owned()], all]).chain(pairs);
    let tokens = plan.numbered_identities(callers);
    let daemon = plan.start().await;
    // So that the checks after the workflow's own are reached.
    let own =
        "name = \"evil-flow\"\n[[step]]\nid = \"a\"\npull = \"evil-topic\"\nresources = [\"evil-gpu\"]\n";
    daemon.apply_as(Some(&tokens[ROOT]), own).await.ok();
    // Its lock is in the history.
    eventually("the history of that", async || {
        let history = daemon.call("GET", "/v1/history", Some(&tokens[ROOT]), None).await;
        history.text.contains("workflow:evil-flow")
    })
    .await;
    (daemon, tokens)
}

/// A daemon with something of the victim's in every place.
async fn stage() -> (Daemon, Vec<String>) {
    let (daemon, tokens) = empty_stage().await;
    let root = tokens[ROOT].as_str();
    let document = json!({"value": "victim-content"});
    daemon.call("PUT", "/v1/documents/victim:victim-lock", Some(root), Some(document)).await.ok();
    let post = async |path: &str, body: Value| daemon.call("POST", path, Some(root), Some(body)).await;
    for name in ["victim:victim-lock", "res:victim:victim-res", "victim"] {
        post(&format!("/v1/locks/{name}/acquire"), json!({"holder": "victim-holder"})).await.ok();
    }
    post("/v1/holds", json!({"id": "victim-hold", "name": "victim:victim-kept", "heartbeat_ms": 600_000}))
        .await
        .ok();
    let job = |id: &str| {
        json!({
            "id": format!("victim:{id}"), "work": "pull", "topic": "victim-topic", "key": format!("{id}-key"),
            "payload": "victim-payload", "labels": {"victim-label": "victim-value"},
        })
    };
    post("/v1/jobs", job("victim-job")).await.ok();
    let mut asking = job("victim-ask");
    asking["requires_approval"] = json!(true);
    post("/v1/jobs", asking).await.ok();
    // One of the keys that the requests below use.
    let mut keyed = job("victim-keyed");
    keyed["key"] = json!("victim-key");
    post("/v1/jobs", keyed).await.ok();
    let text = "name = \"victim-flow\"\n[[step]]\nid = \"victim-step\"\npull = \"victim-topic\"\n";
    daemon.apply_as(Some(root), text).await.ok();
    let run = json!({"id": "victim:victim-run", "workflow": "victim-flow", "input": "victim-input", "key": "victim-key"});
    post("/v1/runs", run).await.ok();
    eventually("the victim's step", async || {
        let list = daemon.call("GET", "/v1/jobs?topic=victim-topic", Some(root), None).await.ok();
        let jobs = list["jobs"].as_array().unwrap();
        // Those that can be claimed: otherwise a claim would find nothing anyway.
        jobs.len() == 4 && jobs.iter().filter(|job| job["state"] == "DISPATCHED").count() == 3
    })
    .await;
    (daemon, tokens)
}

/// Whether a request that names something foreign was still answered rightly.
fn is_harmless(path: &str, sent: &ForeignRequest, reply: &Reply, whose: &str) -> bool {
    let in_body = !sent.url.contains(whose);
    match path {
        // Classes are the daemon's, not a tenant's.
        path if path.starts_with("/v1/policies") => true,
        // A key is nothing that a caller must have a right on: a foreign one is only not seen.
        "/v1/jobs" | "/v1/jobs/commands" | "/v1/runs" if in_body => {
            let body = sent.body.as_deref().unwrap_or_default();
            let only_key = body.contains(&format!("\"{whose}-key\"")) && body.matches(whose).count() == 1;
            // Another caller of the namespace may have used the key in it before.
            let own = || reply.json()["id"].as_str().is_some_and(|id| id.starts_with("evil:evil-"));
            only_key && (!matches!(reply.status, 200 | 201) || own())
        }
        // The right is on the namespace in the path, and a batch has names of that one only.
        "/v1/namespaces/{namespace}/renew" if in_body => {
            reply.text.contains("not of the namespace in the path")
        }
        // The gate lets a worker of some jobs ask every topic; it gets none of the others.
        "/v1/topics/{topic}/claim" => reply.status == 200 && reply.json()["claim"].is_null(),
        _ => false,
    }
}

/// Every route, right and named thing: a foreign one is refused, with the same answer whether it exists or
/// not, and nothing of it is shown.
#[tokio::test]
async fn finding_11_foreign_things_are_refused_and_never_shown() {
    let (daemon, tokens) = stage().await;
    let mut tried = 0;
    for (method, path, needed) in &daemon.rules {
        let named = path.contains('{') || !matches!(method.as_str(), "GET" | "HEAD" | "DELETE");
        let requests_of = |whose, number| requests(method, path, whose, number);
        assert!(
            !named || NAMELESS.contains(&path.as_str()) || !requests_of("victim", 0).is_empty(),
            "{method} {path} is not tried: say in `body` what its requests are"
        );
        if needed.is_none() {
            continue;
        }
        for (caller, token) in tokens.iter().enumerate().filter(|(caller, _)| *caller != ROOT) {
            // All rights on the look-alikes' neighbour are the strongest; single rights are tried on the victim.
            for whose in FOREIGN.iter().take(if caller == ALL_RIGHTS { FOREIGN.len() } else { 1 }) {
                let absent = requests_of("absent", tried);
                for (sent, absent) in requests_of(whose, tried).iter().zip(absent) {
                    let reply = send(&daemon, method, sent, token).await;
                    let told = format!("caller {caller}: {method} {} {:?}: {reply:?}", sent.url, sent.body);
                    tried += 1;
                    assert_shows_nothing(&reply, sent, &told);
                    let without = send(&daemon, method, &absent, token).await;
                    let renamed = without.text.replace("absent", whose);
                    // A job of one's own has another id and time each time.
                    if !matches!(reply.status, 200 | 201) {
                        assert_eq!((reply.status, &reply.text), (without.status, &renamed), "{told}");
                    }
                    let refused = matches!(reply.status, 403 | 404);
                    assert!(refused || is_harmless(path, sent, &reply, whose), "{told}");
                }
            }
        }
    }
    assert!(tried > 500, "{tried}");
}

/// The refusals above come from the one foreign name in each request: with all rights on its names, `evil`
/// may do the same with its own.
#[tokio::test]
async fn finding_11_the_same_requests_about_ones_own_names_are_allowed() {
    let (daemon, tokens) = stage().await;
    for (method, path, needed) in &daemon.rules {
        // Those of the daemon as a whole, and its stream of events, which does not end.
        let whole = ["/v1/policies/", "/metrics", "/v1/drills", "/v1/events", "/v1/policy-history"];
        if needed.is_none() || whole.iter().any(|prefix| path.starts_with(prefix)) {
            continue;
        }
        let sent = own_request(method, path);
        let reply = send(&daemon, method, &sent, &tokens[ALL_RIGHTS]).await;
        assert_ne!(reply.status, 403, "{method} {} {:?}: {reply:?}", sent.url, sent.body);
    }
}

/// How many entries all lists in a document have.
fn count_entries(document: &Value) -> usize {
    match document {
        Value::Array(items) => items.len() + items.iter().map(count_entries).sum::<usize>(),
        Value::Object(fields) => fields.values().map(count_entries).sum(),
        _ => 0,
    }
}

/// Lists do not even tell how much others have: they are the same without it.
#[tokio::test]
async fn finding_11_lists_have_as_many_entries_as_without_the_others() {
    let ((full, tokens), (empty, same_tokens)) = (stage().await, empty_stage().await);
    let mut compared = 0;
    for (method, path, needed) in &full.rules {
        // Its stream does not end; it has a test of its own.
        if method != "GET" || path.contains('{') || path == "/v1/events" || needed.is_none() {
            continue;
        }
        for caller in (0..tokens.len()).filter(|caller| *caller != ROOT) {
            let sent = own_request(method, path);
            let reply = send(&full, method, &sent, &tokens[caller]).await;
            let without = send(&empty, method, &sent, &same_tokens[caller]).await;
            assert_eq!(reply.status, without.status, "{path}: {reply:?}");
            if reply.status == 200 {
                compared += 1;
                assert_eq!(count_entries(&reply.json()), count_entries(&without.json()), "{path}: {reply:?}");
            }
            assert!(path != "/v1/store" || reply.text == without.text, "{reply:?}");
        }
    }
    assert!(compared > 50, "{compared}");
}

/// Every route and right on one's own names: a caller without the needed right is refused, and no list or
/// error shows anything foreign.
#[tokio::test]
async fn finding_11_every_route_needs_its_right_and_shows_only_the_callers_own() {
    let (daemon, tokens) = stage().await;
    for (method, path, needed) in &daemon.rules {
        let Some(needed) = needed else { continue };
        for (right, token) in RIGHTS.iter().zip(&tokens) {
            // Its stream does not end; it has a test of its own.
            if path == "/v1/events" {
                continue;
            }
            for query in ["", "?prefix=v", "?topic=victim-topic", "?limit=1"] {
                if !query.is_empty() && method != "GET" {
                    continue;
                }
                let url = format!("{}{query}", url(path, "evil"));
                let sent = ForeignRequest { url, body: body(method, path, &|_| "evil") };
                let reply = send(&daemon, method, &sent, token).await;
                let told = format!("{right}: {method} {} {:?}: {reply:?}", sent.url, sent.body);
                assert_shows_nothing(&reply, &sent, &told);
                if !gives(right, needed) {
                    assert!(matches!(reply.status, 403 | 404), "{needed} is needed: {told}");
                }
            }
        }
    }
}

/// The stream of events from the first one on shows only the caller's own.
#[tokio::test]
async fn finding_11_the_events_show_only_the_callers_own() {
    let (daemon, tokens) = stage().await;
    for (right, token) in RIGHTS.iter().zip(&tokens) {
        let mut stream = daemon.connect().await;
        let request = format!(
            "GET /v1/events HTTP/1.1\r\nhost: {}\r\nlast-event-id: before\r\nauthorization: Bearer {token}\r\n\r\n",
            daemon.address
        );
        stream.write_all(request.as_bytes()).await.unwrap();
        let name = format!("evil:{right}");
        let root = tokens[ROOT].as_str();
        daemon.call("POST", &format!("/v1/locks/{name}/acquire"), Some(root), Some(json!({}))).await.ok();
        let mut text = String::new();
        within("an event of one's own", async {
            let mut buffer = [0; 4096];
            while !text.contains(&name) && !text.contains("\"forbidden\"") {
                let read = stream.read(&mut buffer).await.unwrap();
                assert!(read > 0, "{right}: {text}");
                text.push_str(&String::from_utf8_lossy(&buffer[..read]));
            }
        })
        .await;
        assert!(!text.contains("victim"), "{right}: {text}");
        assert_eq!(text.contains(&name), gives(right, "read"), "{right}: {text}");
    }
}

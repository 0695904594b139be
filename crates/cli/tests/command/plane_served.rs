//! The control plane through real daemons and sockets: submit, watch, decide, cancel, replay, run, restart.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::io::{Read, Write};
use std::net::TcpStream;
use std::thread;

use crate::fixture::{Fixture, RunningProcess, eventually, is_running, owner_header};
use rustix::process::Signal;
use serde_json::{Value, json};

/// Leases that are short enough for a test.
const POLICY: &str = "
[class.scheduler]
ttl = \"1500ms\"
renew = { timeout = \"250ms\" }
acquire = { timeout = \"700ms\" }
";

/// A daemon's address; each call opens its own connection.
#[derive(Clone)]
struct DaemonClient(String);

struct Reply {
    status: u16,
    head: String,
    text: String,
}

impl Reply {
    fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|_| panic!("{} {}", self.status, self.text))
    }
}

impl DaemonClient {
    /// Starts `leasehold` with these arguments and waits for its address.
    fn start(fixture: &Fixture, words: &[&str]) -> (RunningProcess, Self) {
        fixture.write("policy.toml", POLICY);
        let running = fixture.start(&[&["--policies", "policy.toml"], words].concat());
        let mut address = None;
        eventually("the daemon's address", || {
            let message = running.stdout() + &running.stderr();
            let url = message.split_whitespace().find_map(|word| word.strip_prefix("http://"));
            address = url.map(|url| url.trim_end_matches(['.', ',']).to_owned());
            address.is_some()
        });
        (running, Self(address.unwrap()))
    }

    fn send(&self, method: &str, path: &str, kind: &str, body: &str) -> Reply {
        let mut stream = TcpStream::connect(&self.0).unwrap();
        let request = format!(
            "{method} {path} HTTP/1.1\r\nhost: {}\r\n{}\r\nconnection: close\r\ncontent-type: {kind}\r\ncontent-length: {}\r\n\r\n{body}",
            self.0,
            owner_header(&self.0),
            body.len()
        );
        stream.write_all(request.as_bytes()).unwrap();
        let mut all = String::new();
        stream.read_to_string(&mut all).unwrap();
        let (head, text) = all.split_once("\r\n\r\n").unwrap();
        Reply {
            status: head.split(' ').nth(1).unwrap().parse().unwrap(),
            head: head.to_lowercase(),
            text: text.to_owned(),
        }
    }

    fn get(&self, path: &str) -> Value {
        self.send("GET", path, "application/json", "").json()
    }

    fn post(&self, path: &str, body: &Value) -> Reply {
        self.send("POST", path, "application/json", &body.to_string())
    }

    /// Submits a command as a job.
    fn submit_command(&self, id: &str, script: &str, more: Value) -> Value {
        let mut job = json!({"id": id, "work": {"exec": ["sh", "-c", script]}});
        for (key, value) in more.as_object().into_iter().flatten() {
            job[key] = value.clone();
        }
        let reply = self.post("/v1/jobs/commands", &job);
        assert_eq!(reply.status, 201, "{}", reply.text);
        reply.json()
    }

    /// Follows a job or run by long polling until it is in this state.
    fn watch(&self, path: &str, wanted: &str) -> Value {
        let mut seen = self.get(path);
        eventually(&format!("{path} to be {wanted}"), || {
            if seen["state"] != wanted {
                let version = seen["version"].as_u64().unwrap();
                seen = self.get(&format!("{path}?after={version}&wait_ms=2000"));
            }
            seen["state"] == wanted
        });
        seen
    }

    /// How often a job or run entered this state.
    fn times_in_state(&self, path: &str, state: &str) -> usize {
        let events = self.get(path)["events"].clone();
        let events = events.as_array().unwrap();
        events.iter().filter(|event| event["to"] == state).count()
    }
}

#[test]
fn dev_serves_the_whole_plane() {
    let fixture = Fixture::sqlite();
    let (mut dev, daemon) = DaemonClient::start(&fixture, &["dev", "--listen", "127.0.0.1:0"]);

    // Ten approvers decide at once: one decision counts, the others learn it.
    daemon.submit_command("asked", "echo approved", json!({"requires_approval": true}));
    let asked = daemon.get("/v1/approvals")["approvals"][0].clone();
    assert_eq!(asked["id"], "asked");
    let approvers: Vec<_> = (0..10)
        .map(|number| {
            let daemon = daemon.clone();
            let yes = json!({
                "by": format!("approver-{number}"), "reason": "seen", "snapshot": asked["snapshot"],
            });
            thread::spawn(move || daemon.post("/v1/approvals/asked/approve", &yes))
        })
        .collect();
    let answers: Vec<_> = approvers.into_iter().map(|approver| approver.join().unwrap()).collect();
    let (won, lost): (Vec<_>, Vec<_>) = answers.iter().partition(|answer| answer.status == 200);
    assert_eq!((won.len(), lost.len()), (1, 9));
    let decider = won[0].json()["decision"]["by"].clone();
    for answer in lost {
        let problem = answer.json();
        assert_eq!((answer.status, &problem["code"]), (409, &json!("already_approved")));
        assert_eq!(problem["by"], decider, "{problem}");
    }
    let done = daemon.watch("/v1/jobs/asked", "SUCCEEDED");
    assert_eq!(done["decision"]["by"], decider);

    // Cancelled while it works: its process ends too.
    daemon.submit_command("long", "echo $$ > pid; exec sleep 600", json!({}));
    let pid = fixture.pid("pid");
    let reply = daemon.post("/v1/jobs/long/cancel", &json!({"reason": "enough"}));
    assert!(matches!(reply.status, 200 | 202), "{}", reply.text);
    daemon.watch("/v1/jobs/long", "CANCELLED");
    eventually("the command's end", || !is_running(pid));

    // A dead job, replayed once although it is requested several times.
    daemon.submit_command("bad", "test -e mended", json!({"attempts": 2, "backoff": "10ms"}));
    let dead = daemon.watch("/v1/jobs/bad", "FAILED");
    assert_eq!((&dead["failures"], &dead["dead"]["attempts"]), (&json!(2), &json!(2)));
    fixture.write("mended", "");
    let again = daemon.post("/v1/jobs/bad/retry", &json!({}));
    assert_eq!(again.status, 201, "{}", again.text);
    let id = again.json()["id"].as_str().unwrap().to_owned();
    let twice = daemon.post("/v1/jobs/bad/retry", &json!({}));
    assert_eq!((twice.status, twice.json()["id"].as_str()), (200, Some(id.as_str())));
    daemon.watch(&format!("/v1/jobs/{id}"), "SUCCEEDED");

    // A run: two parallel steps, an approval, a last step.
    let workflow = "name = \"deploy\"\n\
        [[step]]\nid = \"build\"\nexec = [\"true\"]\n\
        [[step]]\nid = \"lint\"\nexec = [\"true\"]\n\
        [[step]]\nid = \"ask\"\nneeds = [\"build\", \"lint\"]\napproval = \"deploy?\"\n\
        [[step]]\nid = \"roll\"\nneeds = [\"ask\"]\nexec = [\"sh\", \"-c\", \"echo x >> rolled\"]\n";
    let applied = daemon.send("PUT", "/v1/workflows", "application/toml", workflow);
    assert_eq!(applied.status, 200, "{}", applied.text);
    assert_eq!(daemon.post("/v1/runs", &json!({"workflow": "deploy", "id": "r"})).status, 201);
    eventually("the question", || daemon.get("/v1/approvals")["approvals"][0]["id"] == "r.ask.1");
    let seen = daemon.get("/v1/jobs/r.ask.1")["snapshot"].clone();
    let yes = json!({"by": "ann", "reason": "go", "snapshot": seen});
    assert_eq!(daemon.post("/v1/approvals/r.ask.1/approve", &yes).status, 200);
    daemon.watch("/v1/runs/r", "SUCCEEDED");
    assert_eq!(fixture.read("rolled"), "x\n");
    assert_eq!(daemon.times_in_state("/v1/runs/r/timeline", "SUCCEEDED"), 1);

    let metrics = daemon.send("GET", "/metrics", "", "").text;
    assert!(metrics.contains("leasehold_plane_jobs{store=\"sqlite\",state=\"FAILED\"} 1"), "{metrics}");

    // An orderly stop lets running work finish.
    daemon.submit_command(
        "last",
        "echo > began; while ! test -e go; do sleep 0.05; done; echo x >> last",
        json!({}),
    );
    eventually("the last job to begin", || fixture.path("began").exists());
    dev.signal(Signal::TERM);
    dev.wait_for_stderr("stopping");
    fixture.write("go", "");
    assert_eq!(dev.wait_exit_code(), 0, "{}", dev.stderr());
    let (_dev, daemon) = DaemonClient::start(&fixture, &["dev", "--listen", "127.0.0.1:0"]);
    let last = daemon.get("/v1/jobs/last");
    assert_eq!((&last["state"], &last["attempt"]), (&json!("SUCCEEDED"), &json!(1)), "{last}");
    assert_eq!(fixture.read("last"), "x\n");
}

#[test]
fn a_daemon_killed_in_the_middle_loses_nothing() {
    let fixture = Fixture::sqlite();
    let (mut dev, daemon) = DaemonClient::start(&fixture, &["dev", "--listen", "127.0.0.1:0"]);
    let workflow = "name = \"w\"\n[[step]]\nid = \"ask\"\napproval = \"well?\"\n";
    assert_eq!(daemon.send("PUT", "/v1/workflows", "application/toml", workflow).status, 200);
    assert_eq!(daemon.post("/v1/runs", &json!({"workflow": "w", "id": "r"})).status, 201);
    // The first attempt dies with the daemon; the next one ends at once.
    daemon.submit_command("caught", "test -e killed || { echo $$ > pid; exec sleep 600; }", json!({}));
    let pid = fixture.pid("pid");
    let pull = json!({"id": "pulled", "work": "pull", "topic": "t"});
    assert_eq!(daemon.post("/v1/jobs", &pull).status, 201);
    daemon.watch("/v1/jobs/pulled", "DISPATCHED");
    // DISPATCHED is visible a moment before the dispatcher has released the lock.
    let mut claimed = json!(null);
    eventually("the claim", || {
        let reply = daemon.post("/v1/topics/t/claim", &json!({"worker": "w"}));
        claimed = if reply.status == 200 { reply.json() } else { json!(null) };
        claimed["claim"]["attempt"].is_u64()
    });
    eventually("the question", || daemon.get("/v1/approvals")["approvals"][0]["id"] == "r.ask.1");
    fixture.write("killed", "");
    dev.signal(Signal::KILL);
    assert_eq!(dev.wait_exit_code(), -9);
    eventually("the command to die with its replica", || !is_running(pid));

    let (_dev, daemon) = DaemonClient::start(&fixture, &["dev", "--listen", "127.0.0.1:0"]);
    // A worker's claim outlives the daemon it was made through.
    let mut done = claimed["claim"].clone();
    done.as_object_mut().unwrap().remove("job");
    done["done"] = json!(1);
    let reply = daemon.post("/v1/jobs/pulled/result", &done);
    assert_eq!((reply.status, &reply.json()["state"]), (200, &json!("SUCCEEDED")), "{}", reply.text);
    let seen = daemon.get("/v1/jobs/r.ask.1")["snapshot"].clone();
    let yes = json!({"by": "ann", "reason": "go", "snapshot": seen});
    assert_eq!(daemon.post("/v1/approvals/r.ask.1/approve", &yes).status, 200);
    daemon.watch("/v1/runs/r", "SUCCEEDED");
    let caught = daemon.watch("/v1/jobs/caught", "SUCCEEDED");
    assert_eq!((&caught["losses"], &caught["failures"]), (&json!(1), &json!(0)), "{caught}");
    for job in ["caught", "pulled", "r.ask.1"] {
        assert_eq!(daemon.times_in_state(&format!("/v1/jobs/{job}/history"), "SUCCEEDED"), 1, "{job}");
    }
}

#[test]
fn serve_uses_another_plane_store_and_enforces_admission() {
    let fixture = Fixture::sqlite();
    let kept = format!("sqlite:{}", fixture.path("elsewhere.db").display());
    let words = [
        "serve",
        "--listen",
        "127.0.0.1:0",
        "--plane",
        "--plane-store",
        &kept,
        "--admission",
        "1",
        "--allow-self-approval",
    ];
    let (mut serve, daemon) = DaemonClient::start(&fixture, &words);
    let words = ["--policies", "policy.toml", "plane", "replica", "--plane-store", &kept, "--poll", "400ms"];
    let replica = fixture.start(&words);
    replica.wait_for_stderr("is running");
    daemon.submit_command("first", "echo x >> first", json!({}));
    daemon.watch("/v1/jobs/first", "SUCCEEDED");
    assert!(fixture.path("elsewhere.plane.db").exists() && !fixture.path("locks.plane.db").exists());

    let workflow = "name = \"w\"\n[[step]]\nid = \"ask\"\napproval = \"well?\"\n";
    assert_eq!(daemon.send("PUT", "/v1/workflows", "application/toml", workflow).status, 200);
    let start = |daemon: &DaemonClient, id: &str| {
        daemon.post("/v1/runs", &json!({"workflow": "w", "id": id, "org": "us"}))
    };
    assert_eq!(start(&daemon, "us:one").status, 201);
    let full = start(&daemon, "us:two");
    assert_eq!((full.status, &full.json()["code"]), (429, &json!("limit_reached")), "{}", full.text);
    assert!(full.head.contains("retry-after: "), "{}", full.head);

    // The daemon restarts; replicas go on, and submitted work is not lost.
    serve.signal(Signal::KILL);
    assert_eq!(serve.wait_exit_code(), -9);
    let words = [
        "serve",
        "--listen",
        "127.0.0.1:0",
        "--plane",
        "--plane-store",
        &kept,
        "--admission",
        "1",
        "--allow-self-approval",
    ];
    let (_serve, daemon) = DaemonClient::start(&fixture, &words);
    assert_eq!(start(&daemon, "us:two").status, 429);
    eventually("the question", || daemon.get("/v1/approvals")["approvals"][0]["id"] == "us:one.ask.1");
    let seen = daemon.get("/v1/jobs/us:one.ask.1")["snapshot"].clone();
    let no = json!({"by": "ann", "reason": "not now", "snapshot": seen});
    assert_eq!(daemon.post("/v1/approvals/us:one.ask.1/reject", &no).status, 200);
    daemon.watch("/v1/runs/us:one", "FAILED");
    assert_eq!(start(&daemon, "us:two").status, 201);
}

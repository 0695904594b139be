//! The control plane through real daemons, over real sockets: submit, watch, decide, cancel, replay, run, restart.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::io::{Read, Write};
use std::net::TcpStream;
use std::thread;

use crate::stage::{Running, Stage, alive, eventually};
use rustix::process::Signal;
use serde_json::{Value, json};

/// Leases short enough to wait for.
const POLICY: &str = "
[class.scheduler]
ttl = \"1500ms\"
renew = { timeout = \"250ms\" }
acquire = { timeout = \"700ms\" }
";

/// A daemon's address; every call is a connection of its own.
#[derive(Clone)]
struct Daemon(String);

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

impl Daemon {
    /// Starts `leasehold` with these words and waits for its address.
    fn start(stage: &Stage, words: &[&str]) -> (Running, Self) {
        stage.write("policy.toml", POLICY);
        let running = stage.start(&[&["--policies", "policy.toml"], words].concat());
        let mut address = None;
        eventually("the daemon's address", || {
            let said = running.stdout() + &running.stderr();
            let url = said
                .split_whitespace()
                .find_map(|word| word.strip_prefix("http://"));
            address = url.map(|url| url.trim_end_matches(['.', ',']).to_owned());
            address.is_some()
        });
        (running, Self(address.unwrap()))
    }

    fn send(&self, method: &str, path: &str, kind: &str, body: &str) -> Reply {
        let mut stream = TcpStream::connect(&self.0).unwrap();
        let request = format!(
            "{method} {path} HTTP/1.1\r\nhost: {}\r\nconnection: close\r\ncontent-type: {kind}\r\ncontent-length: {}\r\n\r\n{body}",
            self.0,
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
    fn command(&self, id: &str, script: &str, more: Value) -> Value {
        let mut job = json!({"id": id, "work": {"exec": ["sh", "-c", script]}});
        for (key, value) in more.as_object().into_iter().flatten() {
            job[key] = value.clone();
        }
        let reply = self.post("/v1/jobs/commands", &job);
        assert_eq!(reply.status, 201, "{}", reply.text);
        reply.json()
    }

    /// Follows something until it is in this state: each answer comes when it has changed.
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

    /// How often a job or run came into this state.
    fn times(&self, path: &str, state: &str) -> usize {
        let events = self.get(path)["events"].clone();
        let events = events.as_array().unwrap();
        events.iter().filter(|event| event["to"] == state).count()
    }
}

#[test]
fn dev_serves_the_whole_plane() {
    let stage = Stage::sqlite();
    let (mut dev, daemon) = Daemon::start(&stage, &["dev", "--listen", "127.0.0.1:0"]);

    // Ten people approve at once: one decides, the others are told who.
    daemon.command("asked", "echo approved", json!({"requires_approval": true}));
    assert_eq!(daemon.get("/v1/approvals")["approvals"][0]["id"], "asked");
    let people: Vec<_> = (0..10)
        .map(|number| {
            let daemon = daemon.clone();
            let yes = json!({"by": format!("person-{number}"), "reason": "seen"});
            thread::spawn(move || daemon.post("/v1/approvals/asked/approve", &yes))
        })
        .collect();
    let answers: Vec<_> = people.into_iter().map(|person| person.join().unwrap()).collect();
    let (won, lost): (Vec<_>, Vec<_>) = answers.iter().partition(|answer| answer.status == 200);
    assert_eq!((won.len(), lost.len()), (1, 9));
    let decider = won[0].json()["decision"]["by"].clone();
    for answer in lost {
        let problem = answer.json();
        assert_eq!(
            (answer.status, &problem["code"]),
            (409, &json!("already_approved"))
        );
        assert_eq!(problem["by"], decider, "{problem}");
    }
    let done = daemon.watch("/v1/jobs/asked", "SUCCEEDED");
    assert_eq!(done["decision"]["by"], decider);

    // Called off while it works: its process is gone when it is CANCELLED.
    daemon.command("long", "echo $$ > pid; exec sleep 600", json!({}));
    let pid = stage.pid("pid");
    let reply = daemon.post("/v1/jobs/long/cancel", &json!({"reason": "enough"}));
    assert!(matches!(reply.status, 200 | 202), "{}", reply.text);
    daemon.watch("/v1/jobs/long", "CANCELLED");
    eventually("the command's end", || !alive(pid));

    // Given up, and brought back once however often it is asked.
    daemon.command("bad", "test -e mended", json!({"attempts": 2, "backoff": "10ms"}));
    let dead = daemon.watch("/v1/jobs/bad", "FAILED");
    assert_eq!(
        (&dead["failures"], &dead["dead"]["attempts"]),
        (&json!(2), &json!(2))
    );
    stage.write("mended", "");
    let again = daemon.post("/v1/jobs/bad/retry", &json!({}));
    assert_eq!(again.status, 201, "{}", again.text);
    let id = again.json()["id"].as_str().unwrap().to_owned();
    let twice = daemon.post("/v1/jobs/bad/retry", &json!({}));
    assert_eq!(
        (twice.status, twice.json()["id"].as_str()),
        (200, Some(id.as_str()))
    );
    daemon.watch(&format!("/v1/jobs/{id}"), "SUCCEEDED");

    // A run: two steps side by side, a question, a last step.
    let workflow = "name = \"deploy\"\n\
        [[step]]\nid = \"build\"\nexec = [\"true\"]\n\
        [[step]]\nid = \"lint\"\nexec = [\"true\"]\n\
        [[step]]\nid = \"ask\"\nneeds = [\"build\", \"lint\"]\napproval = \"deploy?\"\n\
        [[step]]\nid = \"roll\"\nneeds = [\"ask\"]\nexec = [\"sh\", \"-c\", \"echo x >> rolled\"]\n";
    let applied = daemon.send("PUT", "/v1/workflows", "application/toml", workflow);
    assert_eq!(applied.status, 200, "{}", applied.text);
    assert_eq!(
        daemon
            .post("/v1/runs", &json!({"workflow": "deploy", "id": "r"}))
            .status,
        201
    );
    eventually("the question", || {
        daemon.get("/v1/approvals")["approvals"][0]["id"] == "r.ask.1"
    });
    let yes = json!({"by": "ann", "reason": "go"});
    assert_eq!(daemon.post("/v1/approvals/r.ask.1/approve", &yes).status, 200);
    daemon.watch("/v1/runs/r", "SUCCEEDED");
    assert_eq!(stage.read("rolled"), "x\n");
    assert_eq!(daemon.times("/v1/runs/r/timeline", "SUCCEEDED"), 1);

    let metrics = daemon.send("GET", "/metrics", "", "").text;
    assert!(
        metrics.contains("leasehold_plane_jobs{store=\"sqlite\",state=\"FAILED\"} 1"),
        "{metrics}"
    );

    // The orderly end lets finish what is under way.
    daemon.command(
        "last",
        "echo > began; while ! test -e go; do sleep 0.05; done; echo x >> last",
        json!({}),
    );
    eventually("the last job to begin", || stage.path("began").exists());
    dev.signal(Signal::TERM);
    dev.says("stopping");
    stage.write("go", "");
    assert_eq!(dev.code(), 0, "{}", dev.stderr());
    let (_dev, daemon) = Daemon::start(&stage, &["dev", "--listen", "127.0.0.1:0"]);
    let last = daemon.get("/v1/jobs/last");
    assert_eq!(
        (&last["state"], &last["attempt"]),
        (&json!("SUCCEEDED"), &json!(1)),
        "{last}"
    );
    assert_eq!(stage.read("last"), "x\n");
}

#[test]
fn a_daemon_killed_in_the_middle_loses_nothing() {
    let stage = Stage::sqlite();
    let (mut dev, daemon) = Daemon::start(&stage, &["dev", "--listen", "127.0.0.1:0"]);
    let workflow = "name = \"w\"\n[[step]]\nid = \"ask\"\napproval = \"well?\"\n";
    assert_eq!(
        daemon
            .send("PUT", "/v1/workflows", "application/toml", workflow)
            .status,
        200
    );
    assert_eq!(
        daemon
            .post("/v1/runs", &json!({"workflow": "w", "id": "r"}))
            .status,
        201
    );
    // The first attempt dies with the daemon; whichever comes next ends at once.
    daemon.command(
        "caught",
        "test -e killed || { echo $$ > pid; exec sleep 600; }",
        json!({}),
    );
    let pid = stage.pid("pid");
    let pull = json!({"id": "pulled", "work": "pull", "topic": "t"});
    assert_eq!(daemon.post("/v1/jobs", &pull).status, 201);
    daemon.watch("/v1/jobs/pulled", "DISPATCHED");
    // It can be seen a moment before whoever dispatched it has given its lock back.
    let mut claimed = json!(null);
    eventually("the claim", || {
        let reply = daemon.post("/v1/topics/t/claim", &json!({"worker": "w"}));
        claimed = if reply.status == 200 {
            reply.json()
        } else {
            json!(null)
        };
        claimed["claim"]["attempt"].is_u64()
    });
    eventually("the question", || {
        daemon.get("/v1/approvals")["approvals"][0]["id"] == "r.ask.1"
    });
    stage.write("killed", "");
    dev.signal(Signal::KILL);
    assert_eq!(dev.code(), -9);
    eventually("the command to die with its replica", || !alive(pid));

    let (_dev, daemon) = Daemon::start(&stage, &["dev", "--listen", "127.0.0.1:0"]);
    // A worker's claim outlives the daemon it was made through.
    let done = json!({"attempt": claimed["claim"]["attempt"], "fence": claimed["claim"]["fence"], "done": 1});
    let reply = daemon.post("/v1/jobs/pulled/result", &done);
    assert_eq!(
        (reply.status, &reply.json()["state"]),
        (200, &json!("SUCCEEDED")),
        "{}",
        reply.text
    );
    let yes = json!({"by": "ann", "reason": "go"});
    assert_eq!(daemon.post("/v1/approvals/r.ask.1/approve", &yes).status, 200);
    daemon.watch("/v1/runs/r", "SUCCEEDED");
    let caught = daemon.watch("/v1/jobs/caught", "SUCCEEDED");
    assert_eq!(
        (&caught["losses"], &caught["failures"]),
        (&json!(1), &json!(0)),
        "{caught}"
    );
    for job in ["caught", "pulled", "r.ask.1"] {
        assert_eq!(
            daemon.times(&format!("/v1/jobs/{job}/history"), "SUCCEEDED"),
            1,
            "{job}"
        );
    }
}

#[test]
fn serve_keeps_the_plane_elsewhere_and_admits_no_more_than_it_may() {
    let stage = Stage::sqlite();
    let kept = format!("sqlite:{}", stage.path("elsewhere.db").display());
    let words = [
        "serve",
        "--listen",
        "127.0.0.1:0",
        "--plane",
        "--plane-store",
        &kept,
        "--admission",
        "1",
    ];
    let (mut serve, daemon) = Daemon::start(&stage, &words);
    let words = [
        "--policies",
        "policy.toml",
        "plane",
        "replica",
        "--plane-store",
        &kept,
        "--poll",
        "400ms",
    ];
    let replica = stage.start(&words);
    replica.says("is at work");
    daemon.command("first", "echo x >> first", json!({}));
    daemon.watch("/v1/jobs/first", "SUCCEEDED");
    assert!(stage.path("elsewhere.plane.db").exists() && !stage.path("locks.plane.db").exists());

    let workflow = "name = \"w\"\n[[step]]\nid = \"ask\"\napproval = \"well?\"\n";
    assert_eq!(
        daemon
            .send("PUT", "/v1/workflows", "application/toml", workflow)
            .status,
        200
    );
    let start =
        |daemon: &Daemon, id: &str| daemon.post("/v1/runs", &json!({"workflow": "w", "id": id, "org": "us"}));
    assert_eq!(start(&daemon, "one").status, 201);
    let full = start(&daemon, "two");
    assert_eq!(
        (full.status, &full.json()["code"]),
        (429, &json!("limit_reached")),
        "{}",
        full.text
    );
    assert!(full.head.contains("retry-after: "), "{}", full.head);

    // The daemon comes and goes; replicas go on, and what it was told is not forgotten.
    serve.signal(Signal::KILL);
    assert_eq!(serve.code(), -9);
    let words = [
        "serve",
        "--listen",
        "127.0.0.1:0",
        "--plane",
        "--plane-store",
        &kept,
        "--admission",
        "1",
    ];
    let (_serve, daemon) = Daemon::start(&stage, &words);
    assert_eq!(start(&daemon, "two").status, 429);
    eventually("the question", || {
        daemon.get("/v1/approvals")["approvals"][0]["id"] == "one.ask.1"
    });
    let no = json!({"by": "ann", "reason": "not now"});
    assert_eq!(daemon.post("/v1/approvals/one.ask.1/reject", &no).status, 200);
    daemon.watch("/v1/runs/one", "FAILED");
    assert_eq!(start(&daemon, "two").status, 201);
}

//! The event stream: live, resumed, with a gap, and filtered by rights. Events and metrics agree.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::fixture::{Daemon, DaemonPlan, eventually, within};

pub(crate) struct Stream {
    stream: TcpStream,
    pub(crate) text: String,
}

impl Stream {
    pub(crate) async fn open(daemon: &Daemon, last: Option<&str>, token: Option<&str>) -> Self {
        let last = last.map_or_else(String::new, |id| format!("last-event-id: {id}\r\n"));
        let token = token.map_or_else(String::new, |token| format!("authorization: Bearer {token}\r\n"));
        let mut stream = daemon.connect().await;
        let request = format!("GET /v1/events HTTP/1.1\r\nhost: {}\r\n{last}{token}\r\n", daemon.address);
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut opened = Self { stream, text: String::new() };
        opened.until("retry: 1000").await;
        opened
    }

    /// Reads until this text has arrived.
    pub(crate) async fn until(&mut self, text: &str) {
        within(text, async {
            let mut buffer = [0; 4096];
            while !self.text.contains(text) {
                let read = self.stream.read(&mut buffer).await.unwrap();
                assert!(read > 0, "ended before {text}: {}", self.text);
                self.text.push_str(&String::from_utf8_lossy(&buffer[..read]));
            }
        })
        .await;
    }

    fn events(&self) -> Vec<Value> {
        let data = self.text.lines().filter_map(|line| line.strip_prefix("data: "));
        data.map(|data| serde_json::from_str(data).unwrap()).collect()
    }
}

async fn acquire_and_release(daemon: &Daemon, name: &str) {
    let path = format!("/v1/locks/{name}");
    let granted = daemon.post(&format!("{path}/acquire"), json!({})).await.ok();
    let release = json!({"token": granted["token"]});
    daemon.post(&format!("{path}/release"), release).await.ok();
}

#[tokio::test]
async fn a_resumed_stream_misses_no_event() {
    let daemon = Daemon::start().await;
    let mut live = Stream::open(&daemon, None, None).await;
    acquire_and_release(&daemon, "job:1").await;
    live.until("event: released").await;
    let seen = live.events();
    assert_eq!(seen[0]["event"], "acquired");
    assert_eq!(seen[1]["event"], "released");
    let last = seen[0]["id"].as_str().unwrap();
    drop(live);
    acquire_and_release(&daemon, "job:2").await;
    let mut resumed = Stream::open(&daemon, Some(last), None).await;
    resumed.until("job:2").await;
    let events = resumed.events();
    assert_eq!(events[0], seen[1], "exactly behind the last one");
    assert!(!resumed.text.contains("event: gap"));
}

#[tokio::test]
async fn a_gap_is_reported_for_dropped_events() {
    let mut plan = DaemonPlan::new();
    plan.config.resumable_events = 4;
    let daemon = plan.start().await;
    acquire_and_release(&daemon, "job:1").await;
    let mut live = Stream::open(&daemon, Some("0000000000000000-1"), None).await;
    live.until("event: gap").await;
    live.until("event: released").await;
    let id = live.events()[1]["id"].as_str().unwrap().to_owned();
    for number in 0..5 {
        acquire_and_release(&daemon, &format!("more:{number}")).await;
    }
    let mut behind = Stream::open(&daemon, Some(&id), None).await;
    behind.until("more:4").await;
    assert!(behind.text.contains("event: gap"), "{}", behind.text);
}

#[tokio::test]
async fn only_readable_names_are_streamed() {
    let mut plan = DaemonPlan::new();
    let tokens = plan.identities(&[("root", &["admin:*"]), ("a", &["read:team"]), ("none", &[])]);
    let daemon = plan.start().await;
    let mut live = Stream::open(&daemon, None, Some(&tokens[1])).await;
    for name in ["theirs:1", "team2:1", "team:1"] {
        let path = format!("/v1/locks/{name}/acquire");
        daemon.call("POST", &path, Some(&tokens[0]), Some(json!({}))).await.ok();
    }
    live.until("team:1").await;
    assert!(!live.text.contains("theirs") && !live.text.contains("team2"), "{}", live.text);
    assert_eq!(daemon.call("GET", "/v1/events", Some(&tokens[2]), None).await.status, 403);
}

/// Invariant I10: each event changes its metrics exactly once.
#[tokio::test]
async fn events_and_metrics_agree() {
    let daemon = Daemon::start().await;
    let mut live = Stream::open(&daemon, None, None).await;
    for number in 0..3 {
        acquire_and_release(&daemon, &format!("job:{number}")).await;
    }
    let granted = daemon.post("/v1/locks/job:9/acquire", json!({"id": "i"})).await.ok();
    daemon.post("/v1/locks/job:9/acquire", json!({"id": "i"})).await.ok();
    daemon.post("/v1/locks/job:9/acquire", json!({})).await;
    let renew = json!({"token": granted["token"], "fence": granted["fence"]});
    daemon.post("/v1/locks/job:9/renew", renew).await.ok();
    daemon.post("/v1/locks/job:9/break", json!({"reason": "x", "force": true})).await.ok();
    daemon.post("/v1/locks/job:9/release", json!({"token": granted["token"]})).await;
    daemon.post("/v1/holds", json!({"id": "h", "name": "run:1"})).await.ok();
    daemon.call("DELETE", "/v1/holds/h", None, None).await.ok();
    acquire_and_release(&daemon, "last:1").await;
    live.until("last:1").await;
    eventually("the last event", async || live.text.contains("released")).await;
    live.until("\"last:1\",\"class\":\"scheduler\",\"holder\":\"local\",\"fence\"").await;
    let mut counts: BTreeMap<String, u64> = BTreeMap::new();
    for event in live.events() {
        *counts.entry(event["event"].as_str().unwrap().to_owned()).or_default() += 1;
    }
    let metrics = daemon.get("/metrics").await;
    assert_eq!(metrics.status, 200);
    let total = |start: &str| -> f64 {
        let lines = metrics.text.lines().filter(|line| line.starts_with(start));
        lines.map(|line| line.rsplit(' ').next().unwrap().parse::<f64>().unwrap()).sum()
    };
    let of = |label: &str| *counts.get(label).unwrap_or(&0) as f64;
    let outcome = |metric: &str, outcome: &str| -> f64 {
        let lines = metrics.text.lines().filter(|line| {
            line.starts_with(&format!("leasehold_{metric}_total{{"))
                && line.contains(&format!("outcome=\"{outcome}\""))
        });
        lines.map(|line| line.rsplit(' ').next().unwrap().parse::<f64>().unwrap()).sum()
    };
    assert_eq!(of("acquired"), 6.0, "{counts:?}");
    assert_eq!(outcome("acquire", "acquired"), of("acquired"));
    assert_eq!(outcome("acquire", "busy"), of("busy"));
    assert_eq!(outcome("renew", "renewed"), of("renewed"));
    assert_eq!(total("leasehold_broken_total{"), of("broken"));
    assert_eq!(total("leasehold_not_owned_total{"), of("not_owned"));
    assert!((of("busy"), of("renewed"), of("broken")) == (1.0, 1.0, 1.0), "{counts:?}");
    assert!(!metrics.text.contains("job:"), "never a name");
    assert!(metrics.text.contains("namespace=\"job\"") && metrics.text.contains("store=\"memory\""));
}

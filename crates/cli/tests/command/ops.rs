//! The rules in `ops/prometheus` work with the program: a real Prometheus scrapes it.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests, and what they share")]

use std::path::Path;
use std::process::{Child, Command, Stdio};

use crate::fixture::{Fixture, RunningProcess, eventually, exit_code, stderr_of, stdout_of};

/// Starts the daemon with these arguments and waits for its address.
fn daemon(fixture: &Fixture, words: &[String]) -> (RunningProcess, String) {
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let running = fixture.start(&words);
    let url = wait_for_url(&running);
    (running, url)
}

/// Waits until the daemon says where it listens.
pub(crate) fn wait_for_url(running: &RunningProcess) -> String {
    let mut url = None;
    eventually("the daemon", || {
        let message = running.stdout() + &running.stderr();
        url = message
            .split_whitespace()
            .find(|word| word.starts_with("http"))
            .map(|url| url.trim_end_matches(['.', ',']).to_owned());
        url.is_some()
    });
    url.unwrap()
}

/// Requests a URL with curl; returns status and body.
pub(crate) fn get(fixture: &Fixture, url: &str, more: &[&str]) -> (u16, String) {
    let mut curl = Command::new("curl");
    curl.args(["-sS", "-m", "20", "-w", "\n%{http_code}"]).args(more).arg(url).current_dir(fixture.path("."));
    let output = curl.output().expect("curl is needed: install the package curl");
    let text = stdout_of(&output);
    let (body, status) = text.rsplit_once('\n').unwrap_or(("", &text));
    (status.trim().parse().unwrap_or(0), format!("{body}{}", stderr_of(&output)))
}

/// Creates a tokens file with one admin token, and returns that token.
pub(crate) fn new_tokens_file(fixture: &Fixture, file: &str) -> String {
    let made = fixture.run(&["token", "new", "ops", "--grant", "admin:*", "--file", file]);
    assert_eq!(exit_code(&made), 0, "{}", stderr_of(&made));
    stdout_of(&made).trim().to_owned()
}

/// A Prometheus process that is killed at the end of the test.
struct Prometheus(Child);

impl Drop for Prometheus {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

// Prometheus cannot report a port that it chose itself.
fn free_port() -> u16 {
    std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

#[test]
fn prometheus_scrapes_leasehold_dev_and_loads_the_rules() {
    let fixture = Fixture::sqlite();
    let words = ["dev", "--listen", "127.0.0.1:0"].map(str::to_owned);
    let (_dev, url) = daemon(&fixture, &words);
    let rules = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../ops/prometheus").canonicalize().unwrap();
    let rules = rules.display();
    fixture.write(
        "prometheus.yml",
        &format!(
            "global: {{ scrape_interval: 200ms, scrape_timeout: 200ms, evaluation_interval: 200ms }}\n\
             rule_files: ['{rules}/recording.yml', '{rules}/alerts.yml']\n\
             scrape_configs:\n  - job_name: leasehold\n    authorization: {{ credentials_file: '{}' }}\n    \
             static_configs: [{{ targets: ['{}'] }}]\n",
            fixture.path(".local/state/leasehold/tokens").join(url.trim_start_matches("http://")).display(),
            url.trim_start_matches("http://")
        ),
    );
    let port = free_port();
    let child = Command::new("prometheus")
        .args(["--config.file=prometheus.yml", "--storage.tsdb.path=data"])
        .arg(format!("--web.listen-address=127.0.0.1:{port}"))
        .current_dir(fixture.path("."))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("prometheus is needed: install the package prometheus");
    let _prometheus = Prometheus(child);
    let ask = |path: &str| -> serde_json::Value {
        let (_, body) = get(&fixture, &format!("http://127.0.0.1:{port}/api/v1/{path}"), &["-g"]);
        serde_json::from_str(&body).unwrap_or_default()
    };
    eventually("the target to be up", || ask("targets")["data"]["activeTargets"][0]["health"] == "up");
    // Something to count, through the daemon.
    let work = fixture.run(&["--store", &url, "acquire", "job:1", "--token-file", "t"]);
    assert_eq!(exit_code(&work), 0, "{}", stderr_of(&work));
    let query = "query=sum(leasehold_acquire_total{namespace=\"job\"})";
    eventually("the acquire to be counted", || {
        let url = format!("http://127.0.0.1:{port}/api/v1/query");
        let (_, body) = get(&fixture, &url, &["-G", "--data-urlencode", query]);
        let answer: serde_json::Value = serde_json::from_str(&body).unwrap_or_default();
        answer["data"]["result"][0]["value"][1] == "1"
    });
    eventually("every rule to be evaluated without an error", || {
        let groups = ask("rules")["data"]["groups"].clone();
        let rules: Vec<_> = groups
            .as_array()
            .into_iter()
            .flatten()
            .flat_map(|group| group["rules"].as_array().cloned().unwrap_or_default())
            .collect();
        !rules.is_empty() && rules.iter().all(|rule| rule["health"] == "ok")
    });
    let groups = ask("rules")["data"]["groups"].clone();
    let alerts: Vec<_> = groups
        .as_array()
        .unwrap()
        .iter()
        .flat_map(|group| group["rules"].as_array().unwrap())
        .filter(|rule| rule["type"] == "alerting")
        .collect();
    let written = include_str!("../../../../ops/prometheus/alerts.yml").matches("- alert:").count();
    assert_eq!(alerts.len(), written);
    assert!(alerts.iter().all(|alert| alert["state"] == "inactive"), "{alerts:?}");
}

//! `run` and the daemon tell a collector about their holds, and a collector that is away costs nothing.

#![cfg(feature = "otlp")]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "tests, and what they share"
)]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::thread::JoinHandle;

use crate::stage::{Stage, printed};

/// A collector that takes one request: its address, and what it was sent.
fn collector() -> (String, JoinHandle<Vec<u8>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    let taken = std::thread::spawn(move || {
        let (stream, _) = listener.accept().unwrap();
        let mut reader = BufReader::new(stream);
        let mut length = 0;
        loop {
            let mut line = String::new();
            reader.read_line(&mut line).unwrap();
            if line.trim().is_empty() {
                break;
            }
            if let Some(value) = line.to_lowercase().strip_prefix("content-length:") {
                length = value.trim().parse().unwrap();
            }
        }
        let mut body = vec![0; length];
        reader.read_exact(&mut body).unwrap();
        let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n";
        reader.get_mut().write_all(answer).unwrap();
        body
    });
    (address, taken)
}

/// Names stand in the message as they are.
fn holds(body: &[u8], text: &str) -> bool {
    body.windows(text.len()).any(|part| part == text.as_bytes())
}

#[test]
fn a_run_tells_the_collector_about_its_hold() {
    let stage = Stage::sqlite();
    let (address, taken) = collector();
    let mut run = stage.start_with(&["run", "job:42", "--", "true"], |command| {
        command
            .env("OTEL_EXPORTER_OTLP_ENDPOINT", address)
            .env("OTEL_SERVICE_NAME", "nightly");
    });
    assert_eq!(run.code(), 0, "{}", run.stderr());
    let body = taken.join().unwrap();
    for text in ["hold job", "job:42", "acquired", "released", "nightly"] {
        assert!(holds(&body, text), "{text}");
    }
    // The right to release is in no span.
    assert!(!holds(&body, "|scheduler|"));
}

#[test]
fn a_collector_that_is_away_costs_a_line_and_nothing_else() {
    let stage = Stage::sqlite();
    let mut run = stage.start_with(&["run", "-c", "exit 7", "demo"], |command| {
        command.env("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1");
    });
    assert_eq!(run.code(), 7);
    assert!(run.stderr().contains("spans were not sent"), "{}", run.stderr());
}

#[test]
fn a_daemon_tells_of_the_holds_it_keeps() {
    let stage = Stage::sqlite();
    let (address, taken) = collector();
    let mut daemon = stage.start_with(&["serve", "--listen", "127.0.0.1:0"], |command| {
        command.env("OTEL_EXPORTER_OTLP_ENDPOINT", address);
    });
    daemon.says("serving");
    let said_by = daemon.stderr();
    let url = said_by
        .split_whitespace()
        .find(|word| word.starts_with("http://"))
        .unwrap()
        .to_owned();
    let curl = |args: &[&str]| {
        let output = std::process::Command::new("curl")
            .args(["-sS", "-m", "20"])
            .args(args)
            .output();
        printed(&output.expect("curl is needed: install the package curl"))
    };
    let json = "content-type: application/json";
    let ask = r#"{"id":"one","name":"job:42","holder":"me"}"#;
    let held = curl(&["-H", json, "-d", ask, &format!("{url}/v1/holds")]);
    assert!(held.contains("fence"), "{held}");
    curl(&["-X", "DELETE", &format!("{url}/v1/holds/one")]);
    daemon.signal(rustix::process::Signal::TERM);
    assert_eq!(daemon.code(), 0, "{}", daemon.stderr());
    assert!(holds(&taken.join().unwrap(), "job:42"));
}

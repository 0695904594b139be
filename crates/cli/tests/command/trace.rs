//! `run` and the daemon export spans of their holds to a collector; an unavailable collector does no harm.

#![cfg(feature = "otlp")]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests, and what they share")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::thread::JoinHandle;

use crate::fixture::{Fixture, owner_header, stdout_of};

/// A collector that accepts one request. Returns its address and the received body.
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

/// Whether the protobuf body contains a text; strings are stored in it verbatim.
fn contains_text(body: &[u8], text: &str) -> bool {
    body.windows(text.len()).any(|part| part == text.as_bytes())
}

#[test]
fn a_run_exports_its_hold() {
    let fixture = Fixture::sqlite();
    let (address, taken) = collector();
    let mut run = fixture.start_with(&["run", "job:42", "--", "true"], |command| {
        command.env("OTEL_EXPORTER_OTLP_ENDPOINT", address).env("OTEL_SERVICE_NAME", "nightly");
    });
    assert_eq!(run.wait_exit_code(), 0, "{}", run.stderr());
    let body = taken.join().unwrap();
    for text in ["hold job", "job:42", "acquired", "released", "nightly"] {
        assert!(contains_text(&body, text), "{text}");
    }
    // No span contains the release token.
    assert!(!contains_text(&body, "|scheduler|"));
}

#[test]
fn an_election_exports_its_hold() {
    let fixture = Fixture::sqlite();
    let (address, taken) = collector();
    let mut elect = fixture.start_with(&["elect", "leader:cron", "--", "true"], |command| {
        command.env("OTEL_EXPORTER_OTLP_ENDPOINT", address);
    });
    assert_eq!(elect.wait_exit_code(), 0, "{}", elect.stderr());
    let body = taken.join().unwrap();
    for text in ["hold leader", "leader:cron", "acquired", "released"] {
        assert!(contains_text(&body, text), "{text}");
    }
}

#[test]
fn an_unavailable_collector_costs_one_log_line_only() {
    let fixture = Fixture::sqlite();
    let mut run = fixture.start_with(&["run", "-c", "exit 7", "demo"], |command| {
        command.env("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1");
    });
    assert_eq!(run.wait_exit_code(), 7);
    assert!(run.stderr().contains("spans were not sent"), "{}", run.stderr());
}

#[test]
fn a_daemon_exports_the_holds_it_keeps() {
    let fixture = Fixture::sqlite();
    let (address, taken) = collector();
    let mut daemon = fixture.start_with(&["serve", "--listen", "127.0.0.1:0"], |command| {
        command.env("OTEL_EXPORTER_OTLP_ENDPOINT", address);
    });
    daemon.wait_for_stderr("serving");
    let said_by = daemon.stderr();
    let url = said_by.split_whitespace().find(|word| word.starts_with("http://")).unwrap().to_owned();
    let curl = |args: &[&str]| {
        let output = std::process::Command::new("curl")
            .args(["-sS", "-m", "20", "-H", &owner_header(&url)])
            .args(args)
            .output();
        stdout_of(&output.expect("curl is needed: install the package curl"))
    };
    let json = "content-type: application/json";
    let request = r#"{"id":"one","name":"job:42","holder":"me"}"#;
    let held = curl(&["-H", json, "-d", request, &format!("{url}/v1/holds")]);
    assert!(held.contains("fence"), "{held}");
    curl(&["-X", "DELETE", &format!("{url}/v1/holds/one")]);
    daemon.signal(rustix::process::Signal::TERM);
    assert_eq!(daemon.wait_exit_code(), 0, "{}", daemon.stderr());
    assert!(contains_text(&taken.join().unwrap(), "job:42"));
}

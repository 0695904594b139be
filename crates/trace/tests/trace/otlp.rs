//! Spans arrive at a collector in its format.

#![cfg(feature = "otlp")]
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::sync::Arc;

use leasehold_core::Locks;
use leasehold_core::clock::BootClock;
use leasehold_core::memory::MemoryStore;
use leasehold_trace::Otlp;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use prost::Message;

/// Accepts one request and returns its path and its decoded body.
fn collect_one(listener: &TcpListener) -> (String, ExportTraceServiceRequest) {
    let (stream, _) = listener.accept().unwrap();
    let mut reader = BufReader::new(stream);
    let (mut first, mut length) = (String::new(), 0);
    reader.read_line(&mut first).unwrap();
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
    reader.get_mut().write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").unwrap();
    let path = first.split(' ').nth(1).unwrap().to_owned();
    (path, ExportTraceServiceRequest::decode(body.as_slice()).unwrap())
}

#[tokio::test]
async fn a_collector_gets_the_span_of_a_hold() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let otlp = Otlp::new(&format!("http://{}", listener.local_addr().unwrap()), "nightly").unwrap();
    let collector = std::thread::spawn(move || collect_one(&listener));
    let store = Arc::new(MemoryStore::new(BootClock::shared()));
    let locks = Locks::builder(store).observer(otlp.spans()).build().unwrap();
    locks.class("scheduler").run("job:42", async |_| ()).await.unwrap();
    tokio::task::spawn_blocking(move || otlp.finish()).await.unwrap().unwrap();
    let (path, request) = collector.join().unwrap();
    assert_eq!(path, "/v1/traces");
    let resource = &request.resource_spans[0];
    let service =
        resource.resource.as_ref().unwrap().attributes.iter().find(|pair| pair.key == "service.name");
    assert!(format!("{service:?}").contains("nightly"));
    let span = &resource.scope_spans[0].spans[0];
    assert_eq!(span.name, "hold job");
    let events: Vec<_> = span.events.iter().map(|event| event.name.as_str()).collect();
    assert_eq!(events, ["acquired", "released"]);
    assert!(span.end_time_unix_nano >= span.start_time_unix_nano);
}

#[test]
fn an_invalid_url_is_refused() {
    let refused = Otlp::new("not an address", "x").unwrap_err();
    assert!(refused.to_string().contains("not an address"), "{refused}");
}

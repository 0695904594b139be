//! A real server and raw HTTP/1.1 connections: what a client in any language would send.

// Helpers outside `#[test]` functions unwrap as well: their panic is the failure message.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use crate::fences::{FenceSource, assert_never_goes_back};
use axum::routing::put;
use axum::{Extension, Router};
use http::StatusCode;
use leasehold_fence::http::{Admission, FenceLayer};
use leasehold_fence::{FenceGate, Verdict};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

type Log = Arc<Mutex<Vec<u64>>>;

/// A service whose handler repeats the check atomically with its write, as the
/// documentation requires.
async fn serve() -> (SocketAddr, Log) {
    let (gate, log) = (Arc::new(FenceGate::new()), Log::default());
    let (writes, written) = (Arc::clone(&gate), Arc::clone(&log));
    let handler = move |Extension(admission): Extension<Admission>| async move {
        // Lets requests overtake each other between the layer's check and the write.
        tokio::task::yield_now().await;
        let write = || written.lock().unwrap().push(admission.fence.get());
        match writes.admit_with(&admission.name, admission.fence, write) {
            Ok(Verdict::Admitted(())) => StatusCode::NO_CONTENT,
            Ok(Verdict::Stale(_)) => StatusCode::PRECONDITION_FAILED,
            Err(_) => StatusCode::SERVICE_UNAVAILABLE,
        }
    };
    let app = Router::new().route("/jobs/{id}", put(handler)).layer(FenceLayer::new(gate));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, app).await });
    (address, log)
}

/// Sends these header lines and returns the whole response.
async fn put_raw(address: SocketAddr, headers: &str) -> String {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let request = format!(
        "PUT /jobs/42 HTTP/1.1\r\nHost: test\r\nConnection: close\r\nContent-Length: 0\r\n{headers}\r\n"
    );
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    answer
}

#[tokio::test]
async fn the_contract_on_the_wire() {
    let (address, log) = serve().await;
    for (headers, expected) in [
        // Header names in any case, spaces around values: all that HTTP allows.
        ("Leasehold-Name: job:42\r\nLeasehold-Fence: 5\r\n", "204"),
        ("LEASEHOLD-NAME:  job:42 \r\nleasehold-fence:\t9 \r\n", "204"),
        // Another spelling of the same name is the same lock.
        ("Leasehold-Name: %6Aob:42\r\nLeasehold-Fence: 8\r\n", "412"),
        ("Leasehold-Name: job:42\r\nLeasehold-Fence: 8\r\n", "412"),
        ("Leasehold-Name: job:42\r\nLeasehold-Fence: 9\r\nLeasehold-Fence: 9\r\n", "400"),
        ("Leasehold-Name: job:42\r\nLeasehold-Fence: 9,9\r\n", "400"),
        ("Leasehold-Fence: 9\r\n", "400"),
        ("", "400"),
        ("Leasehold-Name: %C3%BCberweisung\r\nLeasehold-Fence: 1\r\n", "204"),
        ("Leasehold-Name: überweisung\r\nLeasehold-Fence: 1\r\n", "400"),
    ] {
        let answer = put_raw(address, headers).await;
        assert!(answer.starts_with(&format!("HTTP/1.1 {expected} ")), "{headers}: {answer}");
        if expected == "412" {
            let lower = answer.to_ascii_lowercase();
            assert!(lower.contains("content-type: application/problem+json"), "{answer}");
            assert!(answer.contains(r#""newest":"9""#) && answer.contains(r#""offered":"8""#), "{answer}");
        }
    }
    assert_eq!(*log.lock().unwrap(), [5, 9, 1]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn racing_requests_never_go_back() {
    let (address, log) = serve().await;
    let (front, mut clients) = (Arc::new(FenceSource::default()), Vec::new());
    for seed in 0..8 {
        let front = Arc::clone(&front);
        clients.push(tokio::spawn(async move {
            for fence in front.offers(seed, 40) {
                let headers = format!("Leasehold-Name: job:42\r\nLeasehold-Fence: {fence}\r\n");
                let answer = put_raw(address, &headers).await;
                assert!(
                    answer.starts_with("HTTP/1.1 204 ") || answer.starts_with("HTTP/1.1 412 "),
                    "{answer}"
                );
            }
        }));
    }
    for client in clients {
        client.await.unwrap();
    }
    assert_never_goes_back(&log.lock().unwrap());
}

//! Regression tests of the security review's findings about responses that are not read.

use std::time::Duration;

use leasehold::Ttl;
use leasehold::clock::{BootClock, Clock};
use leasehold::store::AcquireRequest;
use leasehold_core::Token;
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::fixture::{DaemonPlan, Reply, STEP_TIMEOUT, eventually, within};

/// Finding 13 of the security review: responses to peers that read nothing stayed in memory.
#[tokio::test]
async fn finding_13_a_peer_that_reads_nothing_is_cut() {
    let mut plan = DaemonPlan::new();
    plan.config.write_timeout = Duration::from_millis(300);
    plan.config.head_timeout = 10 * STEP_TIMEOUT;
    let daemon = plan.start().await;
    let stream = daemon.connect().await;
    let request = format!("GET /openapi.json HTTP/1.1\r\nhost: {}\r\n\r\n", daemon.address).repeat(20);
    let began = BootClock.now();
    eventually("the cut", async || match stream.try_write(request.as_bytes()) {
        Ok(_) => false,
        Err(error) => error.kind() != std::io::ErrorKind::WouldBlock,
    })
    .await;
    // The kernel would give up after 30 s.
    assert!(BootClock.now().since(began) < Duration::from_secs(20));
}

/// Finding 13 of the security review: one identity could keep any number of large responses in memory.
#[tokio::test]
async fn finding_13_responses_that_are_not_taken_are_bounded() {
    let mut plan = DaemonPlan::new();
    plan.config.write_timeout = 10 * STEP_TIMEOUT;
    let tokens = plan.identities(&[("flood", &["hold:a"]), ("calm", &["read:a"])]);
    let daemon = plan.start().await;
    for number in 0..3000 {
        let name = leasehold::Name::new(&format!("a:{number}{}", "x".repeat(480))).unwrap();
        let token = Token::parse(&format!("x|scheduler|{number:032x}")).unwrap();
        let request = AcquireRequest::new(name, token, Ttl::new(Duration::from_secs(3000)).unwrap());
        daemon.store.acquire(&request, STEP_TIMEOUT).await.unwrap();
    }
    let list = format!(
        "GET /v1/locks?limit=3000 HTTP/1.1\r\nhost: {}\r\nauthorization: Bearer {}\r\n\r\n",
        daemon.address, tokens[0]
    );
    let mut open = Vec::new();
    let mut refused = None;
    for _ in 0..40 {
        let mut stream = daemon.connect().await;
        stream.write_all(list.as_bytes()).await.unwrap();
        let mut first = [0; 1024];
        let read = within("an answer", stream.read(&mut first)).await.unwrap();
        let reply = Reply::parse(&first[..read]);
        if reply.status != 200 {
            refused = Some(reply);
            break;
        }
        open.push(stream);
    }
    assert_eq!(refused.expect("a refusal").code(), "too_many_responses");
    // Others are served, and so are renewals of this one.
    let path = "/v1/locks?limit=3000";
    assert_eq!(daemon.call("GET", path, Some(&tokens[1]), None).await.status, 200);
    let renew = json!({"token": format!("x|scheduler|{:032x}", 1), "fence": "1", "ttl_ms": 1000});
    let renewed = daemon.call("POST", "/v1/locks/a:1/renew", Some(&tokens[0]), Some(renew)).await;
    assert_eq!(renewed.code(), "not_owned");
    drop(open);
    eventually("room again", async || daemon.call("GET", path, Some(&tokens[0]), None).await.status == 200)
        .await;
}

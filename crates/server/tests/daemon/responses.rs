//! Regression tests of the security review's findings about responses that are not read.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::Router;
use axum::routing::post;
use futures_util::future::join_all;
use http::Method;
use leasehold::Ttl;
use leasehold::clock::{BootClock, Clock};
use leasehold::store::AcquireRequest;
use leasehold_core::Token;
use leasehold_server::Mount;
use leasehold_server::auth::{Right, Rule, TargetSource};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_util::sync::CancellationToken;

use crate::fixture::{Daemon, DaemonPlan, Reply, STEP_TIMEOUT, eventually, within};

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

/// A request that keeps its connection open.
fn open_request(daemon: &Daemon, method: &str, path: &str, token: &str, body: &Value) -> String {
    let body = body.to_string();
    format!(
        "{method} {path} HTTP/1.1\r\nhost: {}\r\nauthorization: Bearer {token}\r\ncontent-type: application/json\r\n\
         content-length: {}\r\n\r\n{body}",
        daemon.address,
        body.len()
    )
}

/// The head of the response to a request, and the connection, of which nothing more is read.
async fn response_head(daemon: &Daemon, request: &str) -> (Reply, TcpStream) {
    let mut stream = daemon.connect().await;
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut first = [0; 2048];
    let read = within("an answer", stream.read(&mut first)).await.unwrap();
    (Reply::parse(&first[..read]), stream)
}

/// Finding 13 of the security review: the route of results has the budget of heartbeats, and so had no bound
/// on the responses, which are whole jobs. What it took beyond the identity's part was missing for others.
#[tokio::test]
async fn finding_13_results_count_within_the_identitys_part() {
    let mut plan = DaemonPlan::with_plane();
    plan.config.write_timeout = 10 * STEP_TIMEOUT;
    let worker = ["submit:job", "submit:topic", "work:topic"];
    let tokens = plan.identities(&[("flood", &worker), ("calm", &worker)]);
    let daemon = plan.start().await;
    let (flood, calm) = (tokens[0].as_str(), tokens[1].as_str());
    // More than the kernel keeps of a response that is not read.
    let large = "x".repeat(250 * 1024);
    let claim = async |who: &str, id: &str| {
        let job = json!({"id": id, "work": "pull", "topic": id, "payload": large});
        daemon.call("POST", "/v1/jobs", Some(who), Some(job)).await.ok();
        let path = format!("/v1/topics/{id}/claim");
        let claimed = daemon.call("POST", &path, Some(who), Some(json!({"worker": who}))).await.ok();
        let claim = &claimed["claim"];
        json!({"attempt": claim["attempt"], "fence": claim["fence"], "secret": claim["secret"]})
    };
    let (beat, mut result) = (claim(flood, "f:beats").await, claim(flood, "f:ends").await);
    result["done"] = json!(large);
    let report = open_request(&daemon, "POST", "/v1/jobs/f:ends/result", flood, &result);
    let mut open = Vec::new();
    let mut refused = None;
    // 16 MiB are 33 of these responses.
    for _ in 0..60 {
        let (reply, stream) = response_head(&daemon, &report).await;
        if reply.status != 200 {
            refused = Some(reply);
            break;
        }
        open.push(stream);
    }
    let refused = refused.expect("a refusal");
    assert_eq!((refused.status, refused.code().as_str()), (429, "too_many_responses"), "{refused:?}");
    assert!(refused.header("retry-after").is_some());
    // Its heartbeats are answered, and so are the results of others: their parts are untouched.
    let beats = daemon.call("POST", "/v1/jobs/f:beats/heartbeat", Some(flood), Some(beat)).await;
    assert_eq!(beats.status, 200, "{beats:?}");
    let mut result = claim(calm, "c:ends").await;
    result["done"] = json!(large);
    let report = open_request(&daemon, "POST", "/v1/jobs/c:ends/result", calm, &result);
    let mut others = Vec::new();
    for _ in 0..25 {
        let (reply, stream) = response_head(&daemon, &report).await;
        assert_eq!(reply.status, 200, "{reply:?}");
        others.push(stream);
    }
    drop(open);
    let report = json!({"attempt": 1, "done": large});
    eventually("room again", async || {
        let path = "/v1/jobs/f:ends/result";
        daemon.call("POST", path, Some(flood), Some(report.clone())).await.status != 429
    })
    .await;
}

/// Finding 13 of the security review: requests that were admitted together could have responses of any sum.
#[tokio::test]
async fn finding_13_responses_to_changes_made_together_are_bounded() {
    let (admitted, go) = (Arc::new(AtomicUsize::new(0)), CancellationToken::new());
    let (count, wait) = (Arc::clone(&admitted), go.clone());
    let change = move || async move {
        count.fetch_add(1, Ordering::Relaxed);
        wait.cancelled().await;
        "x".repeat(1024 * 1024)
    };
    let mut plan = DaemonPlan::new();
    plan.config.write_timeout = 10 * STEP_TIMEOUT;
    let tokens = plan.identities(&[("flood", &["hold:a"]), ("calm", &["hold:a"])]);
    let rule = Rule::new(Right::Hold, TargetSource::Fixed("a"));
    plan.mounts = vec![Mount::new(Router::new().route("/v1/large", post(change))).rule(
        Method::POST,
        "/v1/large",
        rule,
    )];
    let daemon = plan.start().await;
    let request = open_request(&daemon, "POST", "/v1/large", &tokens[0], &json!({}));
    // 16 MiB are the identity's part, as much is for changes beyond it, and the rest is too much.
    let requests: Vec<_> = (0..40).map(|_| response_head(&daemon, &request)).collect();
    let all_admitted = async {
        eventually("all requests to be admitted", async || admitted.load(Ordering::Relaxed) == 40).await;
        go.cancel();
    };
    let (replies, ()) = tokio::join!(join_all(requests), all_admitted);
    let (sent, dropped): (Vec<_>, Vec<_>) = replies.iter().partition(|(reply, _)| reply.status == 200);
    assert_eq!((sent.len(), dropped.len()), (32, 8));
    for (reply, _) in dropped {
        let problem = reply.json();
        assert_eq!((reply.code().as_str(), &problem["unknown"]), ("unavailable", &json!(true)), "{reply:?}");
    }
    let refused = response_head(&daemon, &request).await.0;
    assert_eq!((refused.status, refused.code().as_str()), (429, "too_many_responses"), "{refused:?}");
    // Nothing of the part of another identity is missing.
    let request = open_request(&daemon, "POST", "/v1/large", &tokens[1], &json!({}));
    let calm = join_all((0..16).map(|_| response_head(&daemon, &request))).await;
    assert!(calm.iter().all(|(reply, _)| reply.status == 200));
}

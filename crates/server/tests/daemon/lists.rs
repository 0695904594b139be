//! Regression tests of the security review's findings about lists: their memory, and the time of the store.

use std::sync::Arc;

use futures_util::future::join_all;
use leasehold::clock::BootClock;
use leasehold_core::adapter::{FaultyStore, StoreOp};
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;

use crate::fixture::{Daemon, DaemonPlan, Reply, eventually};

/// What one identity may have of the lists, or of the history queries, that are being made.
const SHARE: usize = 16;

/// Finding 13 of the security review: a list was built whole, with up to a thousand payloads.
#[tokio::test]
async fn finding_13_lists_are_bounded_by_bytes() {
    let daemon = DaemonPlan::with_plane().start().await;
    let large = "x".repeat(250 * 1024);
    let text = "name = \"w\"\n[[step]]\nid = \"a\"\ndelay = \"1h\"\n";
    daemon.apply_as(None, text).await.ok();
    for number in 0..20 {
        let job =
            json!({"id": format!("j:{number}"), "work": "pull", "payload": large, "requires_approval": true});
        daemon.post("/v1/jobs", job).await.ok();
        let run = json!({"id": format!("r:{number}"), "workflow": "w", "input": large});
        daemon.post("/v1/runs", run).await.ok();
    }
    for (path, field) in [("/v1/jobs", "jobs"), ("/v1/approvals", "approvals"), ("/v1/runs", "runs")] {
        let list = daemon.get(&format!("{path}?limit=1000")).await;
        assert!(list.text.len() <= 4 * 1024 * 1024 + 1024, "{path}: {}", list.text.len());
        let list = list.ok();
        assert_eq!((list[field].as_array().unwrap().len(), &list["truncated"]), (16, &json!(true)), "{path}");
        let few = daemon.get(&format!("{path}?limit=3")).await.ok();
        assert_eq!((few[field].as_array().unwrap().len(), &few["truncated"]), (3, &json!(true)), "{path}");
    }
}

/// A list of small documents is read in several pages, and whole.
#[tokio::test]
async fn a_list_has_all_documents_of_its_pages() {
    let daemon = DaemonPlan::with_plane().start().await;
    for number in 0..50 {
        let job = json!({"id": format!("j:{number}"), "work": "pull"});
        daemon.post("/v1/jobs", job).await.ok();
    }
    let list = daemon.get("/v1/jobs").await.ok();
    let mut ids: Vec<_> = list["jobs"].as_array().unwrap().iter().map(|job| job["id"].to_string()).collect();
    ids.sort();
    ids.dedup();
    assert_eq!((ids.len(), &list["truncated"]), (50, &Value::Null));
}

fn statuses(replies: &[Reply]) -> (usize, usize) {
    let count = |status| replies.iter().filter(|reply| reply.status == status).count();
    (count(200), count(503))
}

#[track_caller]
fn assert_refused(reply: &Reply) {
    assert_eq!((reply.status, reply.code().as_str()), (503, "overloaded"), "{reply:?}");
    assert!(reply.header("retry-after").is_some(), "{reply:?}");
}

/// Finding 10 of the security review: the scans of one caller could take all of the store's time, also when the
/// caller did not wait for them.
#[tokio::test]
async fn finding_10_scans_of_the_store_have_a_share() {
    let mut plan = DaemonPlan::with_plane();
    let store = FaultyStore::new(Arc::clone(&plan.store), BootClock::shared());
    plan.store = store.store();
    let grants = ["read:a", "read:job", "read:run"];
    let tokens = plan.identities(&[("flood", &grants), ("calm", &["read:a"])]);
    let daemon = plan.start().await;
    let lists = store.for_ops(&[StoreOp::List]);
    lists.hang(true);
    let request = |who: usize, path: &str| {
        format!(
            "GET {path} HTTP/1.1\r\nhost: {}\r\nauthorization: Bearer {}\r\n\r\n",
            daemon.address, tokens[who]
        )
    };
    let send = async |who: usize| {
        let mut stream = daemon.connect().await;
        stream.write_all(request(who, "/v1/locks").as_bytes()).await.unwrap();
        stream
    };
    let before = store.calls(StoreOp::List);
    let mut open = Vec::new();
    for _ in 0..SHARE {
        open.push(send(0).await);
    }
    store.wait_for_calls(StoreOp::List, before + SHARE as u64).await;
    // The scans go on without their callers, and so count.
    drop(open);
    for path in ["/v1/locks", "/v1/jobs", "/v1/runs", "/v1/approvals"] {
        assert_refused(&daemon.call("GET", path, Some(&tokens[0]), None).await);
    }
    let _calm = send(1).await;
    store.wait_for_calls(StoreOp::List, before + SHARE as u64 + 1).await;
    lists.clear();
    eventually("room again", async || {
        daemon.call("GET", "/v1/locks", Some(&tokens[0]), None).await.status == 200
    })
    .await;
}

/// Sends a request now and gives its reply later.
async fn get(daemon: &Daemon, path: &str, token: &str) -> Reply {
    daemon.call("GET", path, Some(token), None).await
}

/// Finding 10 of the security review: queries of the policies' history had no share.
#[tokio::test]
async fn finding_10_the_policies_history_has_the_share_of_the_history() {
    let mut plan = DaemonPlan::new();
    let tokens = plan.identities(&[("flood", &["read:a"]), ("calm", &["read:a"])]);
    let daemon = plan.start().await;
    // A query waits for the writes before it, and these wait for this transaction, for two seconds at most.
    let file = rusqlite::Connection::open(daemon.state().join("daemon.db")).unwrap();
    file.execute_batch("BEGIN IMMEDIATE").unwrap();
    let paths = ["/v1/history", "/v1/policy-history"].into_iter().cycle();
    let flood: Vec<_> = paths.take(SHARE + 4).map(|path| get(&daemon, path, &tokens[0])).collect();
    let calm = get(&daemon, "/v1/policy-history", &tokens[1]);
    let (flood, calm) = tokio::join!(join_all(flood), calm);
    assert_eq!(statuses(&flood), (SHARE, 4), "{flood:?}");
    flood.iter().filter(|reply| reply.status == 503).for_each(assert_refused);
    assert_eq!(calm.status, 200, "{calm:?}");
}

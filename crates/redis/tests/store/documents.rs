//! Documents: what the conformance suite cannot see of them from outside.

use std::time::{Duration, SystemTime};

use leasehold_core::clock::{BootClock, Clock, run_until};
use leasehold_core::store::{
    Document, DocumentOutcome, DocumentQuery, DocumentWrite, Documents, ExpectedVersion, Store, StoreError,
    StoreErrorKind, WakeListener,
};
use leasehold_redis::RedisStore;
use redis::aio::MultiplexedConnection;

use crate::fixture::{
    CALL_TIMEOUT, eventually, expect_busy, expect_granted, name, open, queue_request, raw_connection,
    run_command, server, token,
};
use crate::proxy::{Fault, Proxy};

/// The largest version: the last integer that the scripts can count to.
const MAX_VERSION: u64 = (1 << 53) - 1;

async fn read(store: &RedisStore, at: &str) -> Option<Document> {
    Documents::read(store, &name(at), CALL_TIMEOUT).await.unwrap().document
}

fn brief(at: &str, ttl: u64) -> DocumentWrite {
    DocumentWrite::new(name(at), "x").with_ttl(Duration::from_millis(ttl))
}

async fn write(store: &RedisStore, request: &DocumentWrite) -> u64 {
    match Documents::write(store, request, CALL_TIMEOUT).await.unwrap() {
        DocumentOutcome::Changed(version) => version,
        conflict => panic!("{request:?}: {conflict:?}"),
    }
}

async fn put(store: &RedisStore, at: &str, value: &str) -> u64 {
    write(store, &DocumentWrite::new(name(at), value)).await
}

async fn write_error(store: &RedisStore, at: &str) -> StoreError {
    Documents::write(store, &DocumentWrite::new(name(at), "x"), CALL_TIMEOUT).await.unwrap_err()
}

async fn delete(store: &RedisStore, at: &str, expected: ExpectedVersion) -> DocumentOutcome {
    Documents::delete(store, &name(at), expected, CALL_TIMEOUT).await.unwrap()
}

async fn list(store: &RedisStore, query: &DocumentQuery) -> (Vec<String>, bool) {
    let page = Documents::list(store, query, CALL_TIMEOUT).await.unwrap();
    (page.documents.iter().map(|document| document.name.to_string()).collect(), page.truncated)
}

/// The sizes of the four keys: documents, names, times of expiry, and whether there is a counter.
async fn sizes(cli: &mut MultiplexedConnection) -> (u64, u64, u64, u64) {
    (
        run_command(cli, "HLEN lh1:docs:{lock:}").await,
        run_command(cli, "ZCARD lh1:docs-names:{lock:}").await,
        run_command(cli, "ZCARD lh1:docs-expiry:{lock:}").await,
        run_command(cli, "EXISTS lh1:docs-version:{lock:}").await,
    )
}

/// Waits until all documents that expire have expired.
async fn all_expire(cli: &MultiplexedConnection) {
    eventually("all have expired", || {
        let mut cli = cli.clone();
        async move {
            let (secs, micros): (u64, u64) = run_command(&mut cli, "TIME").await;
            let last: Vec<(String, f64)> =
                run_command(&mut cli, "ZRANGE lh1:docs-expiry:{lock:} -1 -1 WITHSCORES").await;
            last.first().is_none_or(|(_, expiry)| *expiry < (secs * 1_000_000 + micros) as f64)
        }
    })
    .await;
}

async fn is_woken(listener: &WakeListener) -> bool {
    let clock = BootClock;
    run_until(&clock, clock.now() + CALL_TIMEOUT, listener.notified()).await.is_some()
}

/// Uses up the wake-ups that have arrived.
async fn drain(listener: &WakeListener) {
    let clock = BootClock;
    while run_until(&clock, clock.now() + Duration::from_millis(100), listener.notified()).await.is_some() {}
}

async fn count_subscribers(cli: &mut MultiplexedConnection) -> u64 {
    let (_, count): (String, u64) = run_command(cli, "PUBSUB NUMSUB lh1:wake:docs:{lock:}").await;
    count
}

#[tokio::test]
async fn r15_followers_are_notified_after_the_subscription_was_cut() {
    let server = server().await;
    let (store, writer, mut cli) = (open(&server.url()), open(&server.url()), raw_connection(&server).await);
    let followers = [store.watch(&name("policy")), store.watch(&name("other"))];
    for follower in &followers {
        assert!(is_woken(follower).await, "a subscription notifies once when it starts");
    }
    let killed: i64 = run_command(&mut cli, "CLIENT KILL TYPE pubsub").await;
    assert_eq!(killed, 1);
    // Without a change: one may have been made in the gap.
    for follower in &followers {
        assert!(is_woken(follower).await, "not notified after the subscription was up again");
        drain(follower).await;
    }
    put(&writer, "policy", "a").await;
    assert!(is_woken(&followers[0]).await, "the new subscription does not have the documents");
}

/// A store that has waiters subscribes to documents on the same connection, and only if it follows one.
#[tokio::test]
async fn waiters_and_followers_share_a_connection_and_do_not_disturb_each_other() {
    let server = server().await;
    let (store, mut cli) = (open(&server.url()), raw_connection(&server).await);
    expect_granted(&store, &queue_request("a", &token())).await;
    let mine = token();
    let waiter = Store::listen(&*store, &name("a"), &mine);
    assert!(expect_busy(&store, &queue_request("a", &mine)).await.queued);
    drain(&waiter).await;
    assert_eq!(count_subscribers(&mut cli).await, 0, "the store follows no document");

    let follower = store.watch(&name("policy"));
    assert!(is_woken(&follower).await, "a subscription notifies once when it starts");
    drain(&follower).await;
    assert_eq!(count_subscribers(&mut cli).await, 1);
    let clients: String = run_command(&mut cli, "CLIENT LIST TYPE pubsub").await;
    assert_eq!(clients.lines().count(), 1, "{clients}");
    put(&store, "policy", "a").await;
    assert!(is_woken(&follower).await);
    let clock = BootClock;
    let waiter_woken = run_until(&clock, clock.now(), waiter.notified()).await.is_some();
    assert!(!waiter_woken, "a document notified a waiter");
}

#[tokio::test]
async fn r20_a_replica_says_nothing_about_documents() {
    let server = server().await;
    let (store, mut cli) = (open(&server.url()), raw_connection(&server).await);
    let version = put(&store, "policy", "a").await;
    let (policy, free, documents) = (name("policy"), name("free"), &*store as &dyn Documents);
    let stale = DocumentWrite::new(policy.clone(), "b").expecting(ExpectedVersion::Exactly(1));
    let query = DocumentQuery::new("", 10);
    for operation in 0..7 {
        // Demoted under an open connection.
        read(&store, "policy").await;
        let _: () = run_command(&mut cli, "REPLICAOF 127.0.0.1 1").await;
        let failure = match operation {
            0 => documents.read(&policy, CALL_TIMEOUT).await.err(),
            1 => documents.read(&free, CALL_TIMEOUT).await.err(),
            2 => documents.list(&query, CALL_TIMEOUT).await.err(),
            3 => documents.write(&stale, CALL_TIMEOUT).await.err(),
            4 => documents.write(&DocumentWrite::new(free.clone(), "b"), CALL_TIMEOUT).await.err(),
            5 => documents.delete(&free, ExpectedVersion::Any, CALL_TIMEOUT).await.err(),
            _ => documents.delete(&policy, ExpectedVersion::Absent, CALL_TIMEOUT).await.err(),
        };
        let _: () = run_command(&mut cli, "REPLICAOF NO ONE").await;
        let failure = failure.unwrap_or_else(|| panic!("operation {operation} was answered"));
        assert!(!failure.unknown && failure.kind == StoreErrorKind::ReadOnly, "{operation}: {failure}");
        assert!(failure.message().contains("READONLY"), "{operation}: {failure}");
    }
    assert_eq!(read(&store, "policy").await.unwrap().version, version);
}

#[tokio::test]
async fn r11_out_of_memory_refuses_writes_and_serves_reads_and_deletions() {
    let server = server().await;
    let (store, mut cli) = (open(&server.url()), raw_connection(&server).await);
    let version = put(&store, "policy", "a").await;
    // Something to remove: a write that has freed memory first would be let through.
    write(&store, &brief("brief", 1)).await;
    all_expire(&cli).await;
    let _: () = run_command(&mut cli, "CONFIG SET maxmemory 1").await;
    let failure = write_error(&store, "policy").await;
    assert!(!failure.unknown && failure.kind == StoreErrorKind::Overloaded, "{failure}");
    let found = read(&store, "policy").await.unwrap();
    assert_eq!((found.version, found.value.as_str()), (version, "a"));
    let (names, _) = list(&store, &DocumentQuery::new("", 10)).await;
    assert_eq!(names, ["policy"]);
    let deleted = delete(&store, "policy", ExpectedVersion::Exactly(version)).await;
    assert_eq!(deleted, DocumentOutcome::Changed(version));
    assert_eq!(read(&store, "policy").await, None);
}

#[tokio::test]
async fn r12_a_primary_that_accepts_no_writes_is_still_read() {
    let server = server().await;
    let (store, mut cli) = (open(&server.url()), raw_connection(&server).await);
    let version = put(&store, "policy", "a").await;
    let _: () = run_command(&mut cli, "CONFIG SET min-replicas-to-write 1").await;
    let failure = write_error(&store, "policy").await;
    assert!(!failure.unknown && failure.kind == StoreErrorKind::Overloaded, "{failure}");
    assert_eq!(read(&store, "policy").await.unwrap().version, version);
    assert_eq!(list(&store, &DocumentQuery::new("", 10)).await, (vec!["policy".to_owned()], false));
    let refused = delete(&store, "policy", ExpectedVersion::Absent).await;
    assert!(matches!(refused, DocumentOutcome::Conflict(Some(_))), "{refused:?}");
}

#[tokio::test]
async fn expired_documents_are_removed_by_later_changes_and_listings() {
    let server = server().await;
    let (store, mut cli) = (open(&server.url()), raw_connection(&server).await);
    put(&store, "kept", "a").await;
    write(&store, &brief("long", 600_000)).await;
    // In one script, or the first would have expired before the last is written.
    for (round, number) in [(0, 40), (1, 2500)] {
        fill_with_expired(&mut cli, number).await;
        assert_eq!(sizes(&mut cli).await, (number + 2, number + 2, number + 1, 1));
        assert_eq!(read(&store, "n:1").await, None, "an expired document that is not yet removed");
        if round == 0 {
            put(&store, "kept", "b").await;
            assert_eq!(sizes(&mut cli).await, (26, 26, 25, 1), "a write removes sixteen");
            let _ = delete(&store, "none", ExpectedVersion::Any).await;
            assert_eq!(sizes(&mut cli).await, (10, 10, 9, 1), "a deletion removes sixteen");
            // A name whose document has expired is free, and is not removed with the others.
            write(&store, &DocumentWrite::new(name("n:40"), "x").expecting(ExpectedVersion::Absent)).await;
            assert_eq!(sizes(&mut cli).await, (3, 3, 1, 1));
            let _ = delete(&store, "n:40", ExpectedVersion::Any).await;
        } else {
            let (names, truncated) = list(&store, &DocumentQuery::new("", 10)).await;
            assert_eq!((names, truncated), (vec!["kept".into(), "long".into()], false));
        }
        assert_eq!(sizes(&mut cli).await, (2, 2, 1, 1));
    }
}

/// Stores `n:1` to `n:<number>` as the store does, expired just now.
async fn fill_with_expired(cli: &mut MultiplexedConnection, number: u64) {
    let script = "local time = redis.call('TIME') \
                  local now = string.format('%.0f', tonumber(time[1]) * 1000000 + tonumber(time[2])) \
                  for at = 1, tonumber(ARGV[1]) do \
                  redis.call('HSET', 'lh1:docs:{lock:}', 'n:' .. at, '1|' .. now .. '|x') \
                  redis.call('ZADD', 'lh1:docs-names:{lock:}', 0, 'n:' .. at) \
                  redis.call('ZADD', 'lh1:docs-expiry:{lock:}', now, 'n:' .. at) end";
    let () = redis::cmd("EVAL").arg(script).arg(0).arg(number).query_async(cli).await.unwrap();
}

#[tokio::test]
async fn an_expired_document_is_not_there_to_be_changed() {
    let server = server().await;
    let (store, cli) = (open(&server.url()), raw_connection(&server).await);
    for at in ["deleted", "replaced"] {
        let version = write(&store, &brief(at, 1)).await;
        all_expire(&cli).await;
        let stale = ExpectedVersion::Exactly(version);
        let request = DocumentWrite::new(name(at), "y").expecting(stale);
        let refused = Documents::write(&*store, &request, CALL_TIMEOUT).await.unwrap();
        assert_eq!(refused, DocumentOutcome::Conflict(None));
        assert_eq!(delete(&store, at, stale).await, DocumentOutcome::Conflict(None));
        if at == "deleted" {
            assert_eq!(delete(&store, at, ExpectedVersion::Any).await, DocumentOutcome::Changed(0));
        }
    }
}

/// A call holds up every other client of the server, so it returns at most about 4 MiB.
#[tokio::test]
async fn a_page_of_large_documents_is_shorter() {
    let server = server().await;
    let store = open(&server.url());
    let value = "x".repeat(leasehold_core::store::MAX_DOCUMENT_BYTES);
    for at in 0..130 {
        put(&store, &format!("n:{at:03}"), &value).await;
    }
    let (mut query, mut pages, mut all) = (DocumentQuery::new("n:", 1000), Vec::new(), Vec::new());
    loop {
        let (names, truncated) = list(&store, &query).await;
        pages.push(names.len());
        query = query.after(name(names.last().unwrap()));
        all.extend(names);
        if !truncated {
            break;
        }
    }
    assert_eq!(pages, [63, 63, 4]);
    assert_eq!(all, (0..130).map(|at| format!("n:{at:03}")).collect::<Vec<_>>());
}

#[tokio::test]
async fn versions_follow_the_servers_clock_and_their_counter() {
    let server = server().await;
    let (store, mut cli) = (open(&server.url()), raw_connection(&server).await);
    let micros = |(secs, micros): (u64, u64)| secs * 1_000_000 + micros;
    let before = micros(run_command(&mut cli, "TIME").await);
    let first = put(&store, "a", "x").await;
    let store_time = Documents::read(&*store, &name("a"), CALL_TIMEOUT).await.unwrap().store_time;
    let after = micros(run_command(&mut cli, "TIME").await);
    assert!((before..=after).contains(&first), "{before} {first} {after}");
    let read_at = store_time.duration_since(SystemTime::UNIX_EPOCH).unwrap().as_micros();
    assert!((u128::from(first)..=u128::from(after)).contains(&read_at), "{first} {read_at} {after}");
    // A clock that has gone back: the counter is ahead of it.
    let ahead = after + 3_600_000_000;
    let _: () = run_command(&mut cli, &format!("SET lh1:docs-version:{{lock:}} {ahead}")).await;
    assert_eq!(put(&store, "a", "x").await, ahead + 1);
    assert_eq!(put(&store, "b", "x").await, ahead + 2, "one counter for all names");
    // Every digit is kept, up to the last number that Lua can count to.
    let _: () = run_command(&mut cli, &format!("SET lh1:docs-version:{{lock:}} {}", MAX_VERSION - 1)).await;
    assert_eq!(put(&store, "a", "x").await, MAX_VERSION);
    let exactly = DocumentWrite::new(name("a"), "y").expecting(ExpectedVersion::Exactly(MAX_VERSION - 1));
    let refused = Documents::write(&*store, &exactly, CALL_TIMEOUT).await.unwrap();
    assert!(matches!(refused, DocumentOutcome::Conflict(Some(_))), "{refused:?}");
    for bad in ["text", &MAX_VERSION.to_string()] {
        let _: () = run_command(&mut cli, &format!("SET lh1:docs-version:{{lock:}} {bad}")).await;
        let failure = write_error(&store, "a").await;
        assert!(!failure.unknown && failure.kind == StoreErrorKind::Corrupt, "{bad}: {failure}");
        assert_eq!(read(&store, "a").await.unwrap().version, MAX_VERSION, "{bad}");
    }
}

#[tokio::test]
async fn keys_are_reserved_bounded_and_apart_for_each_prefix() {
    let server = server().await;
    let (store, mut cli) = (open(&server.url()), raw_connection(&server).await);
    let other = open(&format!("{}?prefix=other:&map=job:=x:", server.url()));
    for at in ["a", "job:1", "docs:"] {
        put(&store, at, "x").await;
        write(&store, &brief(&format!("{at}brief"), 600_000)).await;
    }
    let mut keys: Vec<String> = run_command(&mut cli, "KEYS *").await;
    keys.sort();
    let wanted =
        ["lh1:docs-expiry:{lock:}", "lh1:docs-names:{lock:}", "lh1:docs-version:{lock:}", "lh1:docs:{lock:}"];
    assert_eq!(keys, wanted);
    for key in keys {
        assert_eq!(run_command::<i64>(&mut cli, &format!("PTTL {key}")).await, -1, "{key}");
    }
    assert_eq!(read(&other, "a").await, None);
    assert_eq!(list(&other, &DocumentQuery::new("", 10)).await, (vec![], false));
    put(&other, "job:1", "theirs").await;
    assert_eq!(read(&store, "job:1").await.unwrap().value, "x");
    assert_eq!(read(&other, "job:1").await.unwrap().value, "theirs");
}

#[tokio::test]
async fn evicted_and_foreign_documents() {
    let server = server().await;
    let (store, mut cli) = (open(&server.url()), raw_connection(&server).await);
    for at in ["a", "b", "c"] {
        put(&store, at, "x").await;
    }
    let _: () = run_command(&mut cli, "HDEL lh1:docs:{lock:} a b").await;
    let first = list(&store, &DocumentQuery::new("", 1)).await;
    assert_eq!(first, (vec!["c".to_owned()], false), "names without documents");
    let _: () = run_command(&mut cli, "HSET lh1:docs:{lock:} c secret").await;
    let failures = [
        Documents::read(&*store, &name("c"), CALL_TIMEOUT).await.unwrap_err(),
        Documents::list(&*store, &DocumentQuery::new("", 9), CALL_TIMEOUT).await.unwrap_err(),
        Documents::delete(&*store, &name("c"), ExpectedVersion::Exactly(1), CALL_TIMEOUT).await.unwrap_err(),
    ];
    for failure in failures {
        assert!(!failure.unknown && failure.kind == StoreErrorKind::Corrupt, "{failure}");
        assert!(!failure.to_string().contains("secret"), "{failure}");
    }
    put(&store, "c", "ours").await;
    assert_eq!(read(&store, "c").await.unwrap().value, "ours");
}

#[tokio::test]
async fn r03_a_change_without_a_reply_is_unknown_and_a_read_is_not() {
    let server = server().await;
    let proxy = Proxy::start(server.port()).await.unwrap();
    let (store, direct) = (open(&proxy.url()), open(&server.url()));
    put(&store, "policy", "a").await;
    proxy.set_fault(Fault::CutOnce);
    let failure = write_error(&store, "policy").await;
    assert!(failure.unknown && failure.kind == StoreErrorKind::Unreachable, "{failure}");
    // It was applied: the caller finds its own value.
    eventually("the write arrived", || async { read(&direct, "policy").await.unwrap().value == "x" }).await;
    for operation in ["read", "list"] {
        // Over an open connection, so that the request is sent.
        read(&store, "policy").await;
        proxy.set_fault(Fault::CutOnce);
        let failure = if operation == "read" {
            Documents::read(&*store, &name("policy"), CALL_TIMEOUT).await.unwrap_err()
        } else {
            Documents::list(&*store, &DocumentQuery::new("", 1), CALL_TIMEOUT).await.unwrap_err()
        };
        assert!(!failure.unknown && failure.kind == StoreErrorKind::Unreachable, "{operation}: {failure}");
    }
}

#[tokio::test]
async fn a_page_starts_within_the_prefix() {
    let server = server().await;
    let store = open(&server.url());
    for at in ["a", "b", "h", "h:1", "h:2", "i"] {
        put(&store, at, "x").await;
    }
    for (after, wanted) in [("a", &["h:1", "h:2"][..]), ("h:1", &["h:2"]), ("h:2", &[]), ("i", &[])] {
        let (names, truncated) = list(&store, &DocumentQuery::new("h:", 9).after(name(after))).await;
        assert_eq!(
            (names.as_slice(), truncated),
            (&wanted.iter().map(ToString::to_string).collect::<Vec<_>>()[..], false),
            "{after}"
        );
    }
}

#[tokio::test]
async fn r01_the_script_is_flushed_before_each_operation() {
    let server = server().await;
    let (store, mut cli) = (open(&server.url()), raw_connection(&server).await);
    let _: () = run_command(&mut cli, "SCRIPT FLUSH").await;
    let version = put(&store, "a", "x").await;
    let _: () = run_command(&mut cli, "SCRIPT FLUSH").await;
    assert_eq!(read(&store, "a").await.unwrap().version, version);
    let _: () = run_command(&mut cli, "SCRIPT FLUSH").await;
    assert_eq!(list(&store, &DocumentQuery::new("", 1)).await, (vec!["a".to_owned()], false));
    let _: () = run_command(&mut cli, "SCRIPT FLUSH").await;
    assert_eq!(delete(&store, "a", ExpectedVersion::Any).await, DocumentOutcome::Changed(version));
}

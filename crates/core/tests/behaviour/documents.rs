//! Documents in memory and behind the adapters. `leasehold-conformance` has the cases for every store; these
//! are the bounds and edges of the reference.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use leasehold_core::adapter::{FaultyStore, PrefixedStore, StoreOp};
use leasehold_core::clock::{RuntimeClock, SharedClock, run_until};
use leasehold_core::memory::MemoryStore;
use leasehold_core::store::{
    Capabilities, Document, DocumentOutcome, DocumentQuery, DocumentWrite, ExpectedVersion,
    MAX_DOCUMENT_BYTES, MAX_DOCUMENT_TTL, MAX_DOCUMENTS_LISTED, Promise, SharedStore, StoreErrorKind,
    WakeListener, WakeRegistry,
};
use leasehold_core::types::Name;

const CALL_TIMEOUT: Duration = Duration::from_secs(1);

fn memory() -> (SharedStore, SharedClock) {
    let clock = RuntimeClock::shared();
    (Arc::new(MemoryStore::new(Arc::clone(&clock))), clock)
}

fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

async fn write(store: &SharedStore, request: DocumentWrite) -> DocumentOutcome {
    store.documents().unwrap().write(&request, CALL_TIMEOUT).await.unwrap()
}

async fn put(store: &SharedStore, at: &str, value: &str) -> u64 {
    match write(store, DocumentWrite::new(name(at), value)).await {
        DocumentOutcome::Changed(version) => version,
        conflict => panic!("{conflict:?}"),
    }
}

async fn read(store: &SharedStore, at: &str) -> Option<Document> {
    store.documents().unwrap().read(&name(at), CALL_TIMEOUT).await.unwrap().document
}

async fn delete(store: &SharedStore, at: &str, expected: ExpectedVersion) -> DocumentOutcome {
    store.documents().unwrap().delete(&name(at), expected, CALL_TIMEOUT).await.unwrap()
}

async fn list(store: &SharedStore, query: &DocumentQuery) -> (Vec<String>, bool) {
    let page = store.documents().unwrap().list(query, CALL_TIMEOUT).await.unwrap();
    (page.documents.iter().map(|document| document.name.to_string()).collect(), page.truncated)
}

async fn is_notified(clock: &SharedClock, listener: &WakeListener) -> bool {
    let end = clock.now() + Duration::from_millis(100);
    run_until(clock.as_ref(), end, listener.notified()).await.is_some()
}

#[test]
fn the_bounds_are_those_of_the_documentation() {
    assert_eq!(MAX_DOCUMENT_BYTES, 65_536);
    assert_eq!(MAX_DOCUMENT_TTL, Duration::from_secs(31_622_400));
    let request = |bytes: usize| DocumentWrite::new(name("a"), "x".repeat(bytes));
    request(MAX_DOCUMENT_BYTES).check().unwrap();
    request(MAX_DOCUMENT_BYTES - 1).with_ttl(Duration::from_millis(1)).check().unwrap();
    request(0).with_ttl(MAX_DOCUMENT_TTL).check().unwrap();
    for (refused, field) in [
        (request(MAX_DOCUMENT_BYTES + 1), "value"),
        (request(0).with_ttl(Duration::ZERO), "ttl"),
        (request(0).with_ttl(MAX_DOCUMENT_TTL + Duration::from_nanos(1)), "ttl"),
    ] {
        let error = refused.check().unwrap_err();
        assert_eq!((error.kind, error.unknown), (StoreErrorKind::Misconfigured, false));
        assert!(error.message().starts_with(field), "{error}");
    }
    for (limit, fits) in
        [(0, false), (1, true), (MAX_DOCUMENTS_LISTED, true), (MAX_DOCUMENTS_LISTED + 1, false)]
    {
        assert_eq!(DocumentQuery::new("", limit).check().is_ok(), fits, "{limit}");
    }
}

#[test]
fn a_request_shows_its_size_and_not_its_value() {
    let shown = format!("{:?}", DocumentWrite::new(name("policy"), "hunter2"));
    assert!(shown.contains("policy") && shown.contains("bytes: 7"), "{shown}");
    assert!(!shown.contains("hunter2"), "{shown}");
}

#[test]
fn an_expected_version_is_compared() {
    for (expected, absent, seven) in [
        (ExpectedVersion::Any, true, true),
        (ExpectedVersion::Absent, true, false),
        (ExpectedVersion::Exactly(7), false, true),
        (ExpectedVersion::Exactly(8), false, false),
    ] {
        assert_eq!((expected.allows(None), expected.allows(Some(7))), (absent, seven), "{expected:?}");
    }
}

#[test]
fn a_store_declares_its_documents() {
    let plain = Capabilities::new("x", Promise::Volatile);
    assert!(!plain.documents && !plain.document_wake);
    assert!(plain.with_documents(false).documents && !plain.with_documents(false).document_wake);
    assert!(plain.with_documents(true).document_wake);
}

#[test]
fn a_group_is_notified_by_its_whole_name() {
    let registry = Arc::new(WakeRegistry::default());
    assert!(!registry.wake_group("policy"));
    let _followers = [registry.listen_in_group("policy"), registry.listen_in_group("policy")];
    assert_eq!(registry.len(), 2, "a follower replaced another one");
    assert!(registry.wake_group("policy"));
    for other in ["polic", "policy2", ""] {
        assert!(!registry.wake_group(other), "{other}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_document_lives_until_the_moment_of_its_expiry() {
    let (store, _) = memory();
    let ttl = Duration::from_millis(100);
    let _ = write(&store, DocumentWrite::new(name("a"), "x").with_ttl(ttl)).await;
    put(&store, "b", "x").await;
    tokio::time::advance(ttl - Duration::from_nanos(1)).await;
    assert_eq!(read(&store, "a").await.unwrap().remaining, Some(Duration::from_nanos(1)));
    assert_eq!(list(&store, &DocumentQuery::new("", 9)).await.0, ["a", "b"]);
    tokio::time::advance(Duration::from_nanos(1)).await;
    assert_eq!(read(&store, "a").await, None);
    assert_eq!(list(&store, &DocumentQuery::new("", 9)).await.0, ["b"]);
    // The clock of the store is that of its expiries.
    let time = store.documents().unwrap().read(&name("a"), CALL_TIMEOUT).await.unwrap().store_time;
    assert!(time >= UNIX_EPOCH + ttl);
}

#[tokio::test(start_paused = true)]
async fn a_change_needs_the_expected_version_and_is_shown_otherwise() {
    let (store, _) = memory();
    let first = put(&store, "a", "one").await;
    let second = put(&store, "a", "two").await;
    assert!(second > first && first > 0);
    let current = Document::new(name("a"), second, "two".to_owned());
    for stale in [ExpectedVersion::Absent, ExpectedVersion::Exactly(first)] {
        let request = DocumentWrite::new(name("a"), "three").expecting(stale);
        assert_eq!(write(&store, request).await, DocumentOutcome::Conflict(Some(current.clone())));
        assert_eq!(delete(&store, "a", stale).await, DocumentOutcome::Conflict(Some(current.clone())));
    }
    assert_eq!(read(&store, "a").await, Some(current));
    let expected = ExpectedVersion::Exactly(second);
    assert_eq!(delete(&store, "a", expected).await, DocumentOutcome::Changed(second));
    assert_eq!(delete(&store, "a", ExpectedVersion::Any).await, DocumentOutcome::Changed(0));
    assert_eq!(delete(&store, "a", expected).await, DocumentOutcome::Conflict(None));
    assert!(put(&store, "a", "four").await > second);
}

#[tokio::test(start_paused = true)]
async fn what_is_beyond_the_bounds_is_refused_by_the_store() {
    let (store, _) = memory();
    let documents = store.documents().unwrap();
    let long = DocumentWrite::new(name("a"), "x".repeat(MAX_DOCUMENT_BYTES + 1));
    assert!(documents.write(&long, CALL_TIMEOUT).await.is_err());
    assert!(documents.list(&DocumentQuery::new("", 0), CALL_TIMEOUT).await.is_err());
    assert_eq!(read(&store, "a").await, None);
}

#[tokio::test(start_paused = true)]
async fn pages_follow_each_other_and_followers_are_notified() {
    let (store, clock) = memory();
    for at in ["h:1", "h:2", "h:3", "i"] {
        put(&store, at, "x").await;
    }
    assert_eq!(list(&store, &DocumentQuery::new("h:", 2)).await, (vec!["h:1".into(), "h:2".into()], true));
    let next = DocumentQuery::new("h:", 2).after(name("h:2"));
    assert_eq!(list(&store, &next).await, (vec!["h:3".into()], false));
    let follower = store.documents().unwrap().watch(&name("i"));
    assert!(!is_notified(&clock, &follower).await);
    put(&store, "h:1", "y").await;
    assert!(!is_notified(&clock, &follower).await, "another document changed");
    put(&store, "i", "y").await;
    assert!(is_notified(&clock, &follower).await);
    let refused = DocumentWrite::new(name("i"), "z").expecting(ExpectedVersion::Absent);
    let _ = write(&store, refused).await;
    assert!(!is_notified(&clock, &follower).await, "nothing changed");
    let _ = delete(&store, "i", ExpectedVersion::Any).await;
    assert!(is_notified(&clock, &follower).await);
}

#[tokio::test(start_paused = true)]
async fn a_prefix_separates_documents() {
    let (plain, clock) = memory();
    let store: SharedStore = Arc::new(PrefixedStore::new(Arc::clone(&plain), "team:").unwrap());
    for foreign in ["team", "team:", "team2:a", "a", "zoo"] {
        put(&plain, foreign, "theirs").await;
    }
    let follower = store.documents().unwrap().watch(&name("a"));
    let first = put(&store, "a", "ours").await;
    assert!(is_notified(&clock, &follower).await);
    put(&store, "b", "ours").await;
    assert_eq!(read(&plain, "team:a").await.unwrap().value, "ours");
    let ours = Document::new(name("a"), first, "ours".to_owned());
    assert_eq!(read(&store, "a").await, Some(ours.clone()));
    assert_eq!(list(&store, &DocumentQuery::new("", 1)).await, (vec!["a".into()], true));
    let next = DocumentQuery::new("", 1).after(name("a"));
    assert_eq!(list(&store, &next).await, (vec!["b".into()], false));
    assert_eq!(list(&store, &DocumentQuery::new("b", 9)).await, (vec!["b".into()], false));
    let refused = DocumentWrite::new(name("a"), "x").expecting(ExpectedVersion::Absent);
    assert_eq!(write(&store, refused).await, DocumentOutcome::Conflict(Some(ours)));
    assert_eq!(delete(&store, "a", ExpectedVersion::Any).await, DocumentOutcome::Changed(first));
    assert_eq!(read(&plain, "a").await.unwrap().value, "theirs", "a deletion left the prefix");
    let long = name(&"x".repeat(Name::MAX));
    let documents = store.documents().unwrap();
    assert!(documents.read(&long, CALL_TIMEOUT).await.is_err());
    assert!(!is_notified(&clock, &documents.watch(&long)).await);
}

#[tokio::test(start_paused = true)]
async fn faults_and_lost_wake_ups_concern_documents_too() {
    let (memory, clock) = memory();
    let chaos = FaultyStore::new(memory, Arc::clone(&clock));
    let store = chaos.store();
    let documents = store.documents().unwrap();
    let first = put(&store, "a", "x").await;
    let follower = documents.watch(&name("a"));
    put(&store, "a", "y").await;
    assert!(is_notified(&clock, &follower).await);
    assert!(read(&store, "a").await.unwrap().version > first);
    assert_eq!(list(&store, &DocumentQuery::new("", 9)).await.0, ["a"]);
    assert_eq!(chaos.calls(StoreOp::Documents), 4);
    chaos.all().down(true);
    let (at, any) = (name("a"), ExpectedVersion::Any);
    assert!(documents.read(&at, CALL_TIMEOUT).await.is_err());
    assert!(documents.list(&DocumentQuery::new("", 9), CALL_TIMEOUT).await.is_err());
    assert!(documents.write(&DocumentWrite::new(at.clone(), "z"), CALL_TIMEOUT).await.is_err());
    assert!(documents.delete(&at, any, CALL_TIMEOUT).await.is_err());
    chaos.all().down(false);
    chaos.drop_hints(true);
    let silent = documents.watch(&at);
    assert!(matches!(delete(&store, "a", any).await, DocumentOutcome::Changed(version) if version > first));
    assert!(!is_notified(&clock, &silent).await);
    assert!(is_notified(&clock, &follower).await, "those of before are not silenced");
}

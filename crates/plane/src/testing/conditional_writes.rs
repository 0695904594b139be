//! Conditional writes: applied once, completely and in order, or refused with the reason.

use std::sync::Arc;

use super::{
    STORE_WAIT_TIMEOUT, change_state, fence, message, new_document, revision, write_applied, write_refused,
};
use crate::store::{
    DocumentKey, DocumentKind, Queue, Revision, SharedPlaneStore, WriteRefusal, WriteRequest, WriteResponse,
};

/// A document is created once and read back as written.
pub async fn a_new_document_is_there_once(store: SharedPlaneStore) {
    assert!(store.read(DocumentKind::Job, "a").await.unwrap().is_none());
    assert_eq!(write_applied(&*store, &new_document("a")).await, 1);
    let doc = store.read(DocumentKind::Job, "a").await.unwrap().unwrap();
    assert_eq!((doc.version, doc.state.as_str()), (1, "PENDING"));
    assert_eq!(doc.body, "{\"of\":\"a\"}");
    assert!(doc.now >= doc.created && doc.created == doc.updated && doc.created > 0);
    let again = WriteRequest { id: "other".into(), ..new_document("a") };
    assert_eq!(write_refused(&*store, &again).await, WriteRefusal::Exists);
    // The same id of another kind is another document.
    assert!(store.read(DocumentKind::Run, "a").await.unwrap().is_none());
}

/// A writer that read an older version is refused and learns the present one.
pub async fn a_write_needs_the_version_it_saw(store: SharedPlaneStore) {
    let missing = change_state("a", 1, "PENDING", "SCHEDULED");
    assert_eq!(write_refused(&*store, &missing).await, WriteRefusal::Missing);
    write_applied(&*store, &new_document("a")).await;
    assert_eq!(write_applied(&*store, &change_state("a", 1, "PENDING", "SCHEDULED")).await, 2);
    let late = change_state("a", 1, "PENDING", "CANCELLED");
    let found = WriteRefusal::VersionMismatch { found: 2, state: "SCHEDULED".into() };
    assert_eq!(write_refused(&*store, &late).await, found);
    assert_eq!(store.read(DocumentKind::Job, "a").await.unwrap().unwrap().state, "SCHEDULED");
}

/// A forbidden transition is refused even with the right version.
pub async fn a_state_follows_only_where_it_may(store: SharedPlaneStore) {
    write_applied(&*store, &new_document("a")).await;
    write_applied(&*store, &change_state("a", 1, "PENDING", "CANCELLED")).await;
    let twice = change_state("a", 2, "RUNNING", "SUCCEEDED");
    let why = WriteRefusal::ForbiddenTransition { state: "CANCELLED".into(), to: "SUCCEEDED" };
    assert_eq!(write_refused(&*store, &twice).await, why);
}

/// Older fences are refused, equal and newer ones admitted; each name has its own.
pub async fn a_stale_fence_is_refused(store: SharedPlaneStore) {
    write_applied(&*store, &WriteRequest { fence: fence("job:a", 20), ..new_document("a") }).await;
    let next = |number, id: &str| WriteRequest {
        id: id.into(),
        fence: fence("job:a", number),
        ..change_state("a", 1, "PENDING", "SCHEDULED")
    };
    match write_refused(&*store, &next(19, "w1")).await {
        WriteRefusal::StaleFence { offered, newest, state } => {
            assert_eq!((offered.get(), newest.get()), (19, 20));
            assert_eq!(state.as_deref(), Some("PENDING"));
        }
        other => panic!("{other:?}"),
    }
    // Fewer digits, so smaller as a number although greater as text.
    assert!(matches!(write_refused(&*store, &next(9, "w2")).await, WriteRefusal::StaleFence { .. }));
    assert_eq!(write_applied(&*store, &next(20, "w3")).await, 2);
    // A refused write must not store its fence: this fence is newer, but the version does not match.
    let foreign = WriteRequest {
        id: "w4".into(),
        fence: fence("job:a", 99),
        ..change_state("a", 1, "PENDING", "FAILED")
    };
    assert!(matches!(write_refused(&*store, &foreign).await, WriteRefusal::VersionMismatch { .. }));
    let newer = WriteRequest { fence: fence("job:a", 21), ..change_state("a", 2, "SCHEDULED", "DISPATCHED") };
    assert_eq!(write_applied(&*store, &newer).await, 3);
    write_applied(&*store, &WriteRequest { fence: fence("job:b", 1), ..new_document("b") }).await;
    // A local-only hold has no fence: only the version protects.
    assert_eq!(write_applied(&*store, &change_state("a", 3, "DISPATCHED", "RUNNING")).await, 4);
}

/// A write without a response can be sent again, also after other writes.
pub async fn a_repeated_write_changes_nothing(store: SharedPlaneStore) {
    let first = WriteRequest { messages: vec![message("m")], ..new_document("a") };
    write_applied(&*store, &first).await;
    let again = store.write(&first).await.unwrap();
    assert!(matches!(again, WriteResponse::Applied { version: 1, repeated: true, .. }), "{again:?}");
    let second = WriteRequest { fence: fence("job:a", 5), ..change_state("a", 1, "PENDING", "SCHEDULED") };
    write_applied(&*store, &second).await;
    write_applied(
        &*store,
        &WriteRequest { fence: fence("job:a", 9), ..change_state("a", 2, "SCHEDULED", "CANCELLED") },
    )
    .await;
    for (write, version) in [(&second, 2), (&first, 1)] {
        match store.write(write).await.unwrap() {
            WriteResponse::Applied { version: answered, repeated: true, .. } => assert_eq!(answered, version),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(store.history(DocumentKind::Job, "a").await.unwrap().len(), 3);
    assert_eq!(store.receive(Queue::Jobs, 10, STORE_WAIT_TIMEOUT).await.unwrap().len(), 1);
}

/// An idempotency key creates one document only.
pub async fn an_idempotency_key_brings_one_document(store: SharedPlaneStore) {
    let key = DocumentKey::scoped("default", "k");
    let keyed = |id: &str| WriteRequest {
        revision: Revision { key: Some(key.clone()), ..revision(id, "PENDING") },
        ..new_document(id)
    };
    write_applied(&*store, &keyed("a")).await;
    assert_eq!(write_refused(&*store, &keyed("b")).await, WriteRefusal::KeyInUse { id: "a".into() });
    assert!(store.read(DocumentKind::Job, "b").await.unwrap().is_none());
    assert_eq!(store.find_id_by_key(DocumentKind::Job, &key).await.unwrap().as_deref(), Some("a"));
    assert_eq!(store.find_id_by_key(DocumentKind::Run, &key).await.unwrap(), None);
}

/// Further documents and messages are written together with the write or not at all; existing documents
/// stay unchanged.
pub async fn all_of_a_write_or_nothing(store: SharedPlaneStore) {
    write_applied(&*store, &new_document("old")).await;
    let whole = WriteRequest {
        new_documents: vec![revision("x", "PENDING"), revision("old", "FAILED")],
        messages: vec![message("m1"), message("m2")],
        ..new_document("a")
    };
    match store.write(&whole).await.unwrap() {
        WriteResponse::Applied { already_existing: skipped, .. } => assert_eq!(skipped, ["old"]),
        other => panic!("{other:?}"),
    }
    assert_eq!(store.read(DocumentKind::Job, "x").await.unwrap().unwrap().version, 1);
    assert_eq!(store.history(DocumentKind::Job, "x").await.unwrap().len(), 1);
    assert_eq!(store.read(DocumentKind::Job, "old").await.unwrap().unwrap().state, "PENDING");
    let late = WriteRequest {
        new_documents: vec![revision("y", "PENDING")],
        messages: vec![message("m3")],
        ..change_state("a", 7, "PENDING", "SCHEDULED")
    };
    write_refused(&*store, &late).await;
    assert!(store.read(DocumentKind::Job, "y").await.unwrap().is_none());
    let mut taken: Vec<_> = store.receive(Queue::Jobs, 10, STORE_WAIT_TIMEOUT).await.unwrap();
    taken.sort_by(|a, b| a.id.cmp(&b.id));
    let names: Vec<_> = taken.iter().map(|message| message.id.as_str()).collect();
    assert_eq!(names, ["m1", "m2"]);
}

/// Of several writers that read the same version, one succeeds.
pub async fn of_many_writers_one_wins(store: SharedPlaneStore) {
    write_applied(&*store, &new_document("a")).await;
    let writers: Vec<_> = (0..12)
        .map(|number| {
            let store = Arc::clone(&store);
            let write =
                WriteRequest { id: format!("w{number}"), ..change_state("a", 1, "PENDING", "SCHEDULED") };
            tokio::spawn(async move { store.write(&write).await.unwrap() })
        })
        .collect();
    let mut won = 0;
    for writer in writers {
        won += usize::from(matches!(writer.await.unwrap(), WriteResponse::Applied { .. }));
    }
    assert_eq!(won, 1);
    assert_eq!(store.history(DocumentKind::Job, "a").await.unwrap().len(), 2);
}

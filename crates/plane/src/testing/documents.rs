//! Documents: queries, history and purge.

use std::time::Duration;

use leasehold_core::clock::{BootClock, ClockExt};

use super::{change_state, fence, ids, new_document, query, revision, write_applied};
use crate::store::{DocumentKey, DocumentKind, DocumentQuery, Revision, SharedPlaneStore, WriteRequest};

/// Documents are found by state, index key and due time, the earliest first, and counted.
pub async fn documents_are_found(store: SharedPlaneStore) {
    let put = |id: &'static str, shelf: &str, due_in: Option<Duration>| WriteRequest {
        revision: Revision { index_key: shelf.into(), due_in, ..revision(id, "PENDING") },
        ..new_document(id)
    };
    write_applied(&*store, &put("later", "t1", Some(Duration::from_secs(100)))).await;
    write_applied(&*store, &put("never", "t2", None)).await;
    write_applied(&*store, &put("soon", "t2", Some(Duration::ZERO))).await;
    write_applied(&*store, &put("moved", "t1", Some(Duration::ZERO))).await;
    let born = store.read(DocumentKind::Job, "moved").await.unwrap().unwrap().created;
    BootClock.sleep(Duration::from_millis(5)).await;
    write_applied(&*store, &change_state("moved", 1, "PENDING", "SCHEDULED")).await;
    let moved = store.read(DocumentKind::Job, "moved").await.unwrap().unwrap();
    assert_eq!(moved.created, born);
    assert!(moved.updated > born);
    let pending = query(&["PENDING"]);
    assert_eq!(ids(&*store, &pending).await, ["soon", "later", "never"]);
    assert_eq!(ids(&*store, &DocumentQuery { limit: 1, ..pending.clone() }).await, ["soon"]);
    assert_eq!(ids(&*store, &DocumentQuery { due_only: true, ..pending.clone() }).await, ["soon"]);
    assert_eq!(
        ids(&*store, &DocumentQuery { index_key: Some("t2".into()), ..pending.clone() }).await,
        ["soon", "never"]
    );
    assert_eq!(ids(&*store, &query(&["SCHEDULED", "RUNNING"])).await, ["moved"]);
    // Order and limit apply to all states together.
    let both = DocumentQuery { limit: 2, ..query(&["SCHEDULED", "PENDING"]) };
    assert_eq!(ids(&*store, &both).await, ["soon", "later"]);
    assert!(ids(&*store, &DocumentQuery { kind: DocumentKind::Run, ..pending.clone() }).await.is_empty());
    assert_eq!(store.count(&pending).await.unwrap(), 3);
    assert_eq!(
        store.count(&DocumentQuery { index_key: Some("t1".into()), ..pending.clone() }).await.unwrap(),
        1
    );
    assert_eq!(store.count(&query(&["PENDING", "SCHEDULED"])).await.unwrap(), 4);
}

/// Pages of a query hold each document once, in the order of the whole list.
pub async fn documents_come_in_pages(store: SharedPlaneStore) {
    let all: Vec<String> = (0..7).map(|number| format!("d{number}")).collect();
    for (number, id) in (1..).zip(&all) {
        let revision = Revision { due_in: Some(Duration::from_secs(number)), ..revision(id, "PENDING") };
        write_applied(&*store, &WriteRequest { revision, ..new_document(id) }).await;
    }
    let mut paged = Vec::new();
    for offset in [0, 3, 6, 9] {
        let page = DocumentQuery { offset, limit: 3, ..query(&["PENDING", "SCHEDULED"]) };
        paged.extend(ids(&*store, &page).await);
    }
    assert_eq!(paged, all);
}

/// Each write makes one event, in order.
pub async fn every_write_is_one_event(store: SharedPlaneStore) {
    write_applied(&*store, &new_document("a")).await;
    write_applied(&*store, &change_state("a", 1, "PENDING", "SCHEDULED")).await;
    write_applied(&*store, &change_state("a", 2, "SCHEDULED", "DISPATCHED")).await;
    let history = store.history(DocumentKind::Job, "a").await.unwrap();
    let seen: Vec<_> = history.iter().map(|event| (event.version, event.body.as_str())).collect();
    let to = ["{\"to\":\"PENDING\"}", "{\"to\":\"SCHEDULED\"}", "{\"to\":\"DISPATCHED\"}"];
    assert_eq!(seen, [(1, to[0]), (2, to[1]), (3, to[2])]);
    assert!(history.windows(2).all(|two| two[0].at <= two[1].at));
    assert!(store.history(DocumentKind::Job, "b").await.unwrap().is_empty());
}

/// Documents that ended long ago are purged with their events and key; no others are.
pub async fn old_documents_are_forgotten(store: SharedPlaneStore) {
    let keyed = WriteRequest {
        revision: Revision { key: Some(DocumentKey::scoped("default", "k")), ..revision("old", "PENDING") },
        ..new_document("old")
    };
    write_applied(&*store, &keyed).await;
    let failed = WriteRequest { fence: fence("job:old", 9), ..change_state("old", 1, "PENDING", "FAILED") };
    write_applied(&*store, &failed).await;
    write_applied(&*store, &new_document("alive")).await;
    let hour = Duration::from_secs(3600);
    assert_eq!(store.purge(DocumentKind::Job, &["FAILED"], hour, 10).await.unwrap(), 0);
    assert_eq!(store.purge(DocumentKind::Job, &["FAILED"], Duration::ZERO, 10).await.unwrap(), 1);
    assert!(store.read(DocumentKind::Job, "old").await.unwrap().is_none());
    assert!(store.history(DocumentKind::Job, "old").await.unwrap().is_empty());
    assert_eq!(
        store.find_id_by_key(DocumentKind::Job, &DocumentKey::scoped("default", "k")).await.unwrap(),
        None
    );
    assert_eq!(ids(&*store, &query(&["PENDING", "FAILED"])).await, ["alive"]);
    // The fence mark is purged too: marks of deleted documents must not accumulate.
    let anew = WriteRequest { fence: fence("job:old", 5), ..new_document("old") };
    assert_eq!(write_applied(&*store, &anew).await, 1);
    // The limit applies to all states together.
    for (id, end) in [("x", "FAILED"), ("y", "CANCELLED"), ("z", "CANCELLED")] {
        write_applied(&*store, &new_document(id)).await;
        write_applied(&*store, &change_state(id, 1, "PENDING", end)).await;
    }
    for gone in [2, 1, 0] {
        let ended = ["FAILED", "CANCELLED"];
        let purged = store.purge(DocumentKind::Job, &ended, Duration::ZERO, 2).await.unwrap();
        assert_eq!(purged, gone);
    }
}

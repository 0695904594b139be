//! Documents: queries, history and purge.

use std::time::Duration;

use leasehold_core::clock::{BootClock, ClockExt};

use super::{change_state, fence, ids, new_document, query, revision, write_applied, write_refused};
use crate::store::{
    Document, DocumentKey, DocumentKind, DocumentQuery, DocumentScope, KEPT_FIRST_EVENTS, KEPT_NEWEST_EVENTS,
    KeptEnded, OwnerQuota, Revision, SharedPlaneStore, WriteRefusal, WriteRequest, WriteResponse,
};

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
    let mut page = DocumentQuery { limit: 3, ..query(&["PENDING", "SCHEDULED"]) };
    loop {
        let found = store.page(&page).await.unwrap();
        paged.extend(found.documents.into_iter().map(|document| document.id));
        page.after = found.next;
        if page.after.is_none() {
            break;
        }
    }
    assert_eq!(paged, all);
    // A page that ends with the last document says so.
    let whole = DocumentQuery { limit: 9, ..query(&["PENDING", "SCHEDULED", "RUNNING"]) };
    assert_eq!(store.page(&whole).await.unwrap().next, None);
}

/// A query with a scope finds the documents of that scope, however many others there are, and in pages.
pub async fn documents_are_found_by_scope(store: SharedPlaneStore) {
    let mine = ["acme", "acme:1", "acme:b:2"];
    let others = ["acme2:1", "acm", "acme-x", "x:acme", "default"];
    for (number, id) in (0..).zip(others.into_iter().chain(mine)) {
        // The same due time for some, and none for others.
        let due_in = (number % 2 == 0).then_some(Duration::from_secs(9));
        let state = if number % 3 == 0 { "SCHEDULED" } else { "PENDING" };
        let revision = Revision { due_in, ..revision(id, state) };
        write_applied(&*store, &WriteRequest { revision, ..new_document(id) }).await;
    }
    for (id, topic) in [("of-topic", "pay"), ("of-part", "pay:eu"), ("of-other", "payments")] {
        let revision = Revision { index_key: topic.into(), ..revision(id, "PENDING") };
        write_applied(&*store, &WriteRequest { revision, ..new_document(id) }).await;
    }
    let scope = |ids: &[&str], index_keys: &[&str]| {
        let owned = |all: &[&str]| all.iter().map(|one| (*one).to_owned()).collect();
        Some(DocumentScope { ids: owned(ids), index_keys: owned(index_keys) })
    };
    for (scope, expected) in [
        (scope(&["acme"], &[]), &mine[..]),
        (scope(&["acme:b"], &[]), &["acme:b:2"]),
        (scope(&[], &["pay"]), &["of-part", "of-topic"]),
        (scope(&["acm", "of-topic"], &["pay"]), &["acm", "of-part", "of-topic"]),
        (scope(&[], &[]), &[]),
    ] {
        let mut page = DocumentQuery { scope, limit: 1, ..query(&["PENDING", "SCHEDULED"]) };
        let (mut found, mut rounds) = (Vec::new(), 0);
        loop {
            rounds += 1;
            assert!(rounds < 20, "{page:?}");
            let next = store.page(&page).await.unwrap();
            found.extend(next.documents.into_iter().map(|document| document.id));
            page.after = next.next;
            if page.after.is_none() {
                break;
            }
        }
        found.sort();
        assert_eq!(found, expected);
    }
}

/// An owner has at most as many documents as its quota says; repeated writes are not counted again.
pub async fn quotas_are_counted_by_owner(store: SharedPlaneStore) {
    let owned = |id: &'static str, owner: &str| WriteRequest {
        revision: Revision { owner: owner.into(), ..revision(id, "PENDING") },
        quota: Some(OwnerQuota { states: vec!["PENDING", "SCHEDULED"], limit: 2, kept_ended: None }),
        ..new_document(id)
    };
    let refused = WriteRefusal::QuotaReached { kind: DocumentKind::Job, limit: 2 };
    for id in ["a", "b"] {
        write_applied(&*store, &owned(id, "ann")).await;
    }
    assert_eq!(write_refused(&*store, &owned("c", "ann")).await, refused);
    let repeated = store.write(&owned("a", "ann")).await.unwrap();
    assert!(matches!(repeated, WriteResponse::Applied { repeated: true, .. }), "{repeated:?}");
    let again = WriteRequest { id: "another".into(), ..owned("a", "ann") };
    assert_eq!(write_refused(&*store, &again).await, WriteRefusal::Exists);
    write_applied(&*store, &owned("d", "bob")).await;
    let mut mine = query(&["PENDING", "SCHEDULED"]);
    mine.owner = Some("ann".into());
    assert_eq!(store.count(&mine).await.unwrap(), 2);
    // A document in another state that counts goes on counting; one that has ended does not.
    let keep = |write: WriteRequest| WriteRequest {
        revision: Revision { owner: "ann".into(), ..write.revision.clone() },
        ..write
    };
    write_applied(&*store, &keep(change_state("a", 1, "PENDING", "SCHEDULED"))).await;
    assert_eq!(write_refused(&*store, &owned("c", "ann")).await, refused);
    write_applied(&*store, &keep(change_state("b", 1, "PENDING", "CANCELLED"))).await;
    write_applied(&*store, &owned("c", "ann")).await;
}

/// Each new document deletes the oldest ended ones of its owner beyond those that are kept: runs with the ended jobs
/// of their steps, jobs with their cancel requests. Nothing else goes.
pub async fn ended_documents_of_an_owner_are_bounded(store: SharedPlaneStore) {
    let ended = ["CANCELLED", "FAILED"];
    let owned = |kind, id: &str, owner: &str, body: String| WriteRequest {
        revision: Revision {
            kind,
            owner: owner.into(),
            key: Some(DocumentKey::scoped("default", id)),
            body,
            ..revision(id, "PENDING")
        },
        quota: Some(OwnerQuota {
            states: vec!["PENDING"],
            limit: 100,
            kept_ended: Some(KeptEnded { states: ended.to_vec(), limit: 2 }),
        }),
        ..new_document(id)
    };
    let end = async |new: &WriteRequest, state| {
        let end = Revision { state, key: None, ..new.revision.clone() };
        let write = change_state(&new.revision.id, 1, "PENDING", state);
        write_applied(&*store, &WriteRequest { revision: end, quota: None, ..write }).await;
    };
    let there = async |kind, id: &str| store.read(kind, id).await.unwrap().is_some();
    let job = |id: &str, parent: &str| {
        let body = format!("{{\"parent\":{{\"run\":\"{parent}\"}}}}");
        WriteRequest { quota: None, ..owned(DocumentKind::Job, id, "", body) }
    };
    for kind in [DocumentKind::Job, DocumentKind::Run] {
        let add = async |id: &str, owner: &str, state| {
            let body = "{\"steps\":{\"s\":{\"attempt\":3}}}".to_owned();
            let new = owned(kind, id, owner, body);
            write_applied(&*store, &new).await;
            if let Some(state) = state {
                end(&new, state).await;
            }
        };
        for owner in ["bob", ""] {
            for number in 0..2 {
                add(&format!("{owner}{number}"), owner, Some("FAILED")).await;
            }
        }
        add("open", "ann", None).await;
        for (number, state) in ended.into_iter().cycle().take(3).enumerate() {
            add(&format!("a{number}"), "ann", Some(state)).await;
            for attempt in 1..=2 {
                let step = job(&format!("a{number}.s.{attempt}"), &format!("a{number}"));
                write_applied(&*store, &step).await;
                // The second attempt's job has not ended.
                if attempt == 1 {
                    end(&step, "FAILED").await;
                }
            }
        }
        // The id of a third attempt belongs to another's job.
        let foreign = job("a0.s.3", "other");
        write_applied(&*store, &foreign).await;
        end(&foreign, "FAILED").await;
        let signal = Revision { kind: DocumentKind::CancelRequest, ..revision("a0", "DONE") };
        write_applied(&*store, &WriteRequest { revision: signal, ..new_document("signal") }).await;
        assert!(there(kind, "a0").await, "the third one has not been followed by another");
        add("b", "ann", None).await;
        assert!(!there(kind, "a0").await);
        assert!(store.history(kind, "a0").await.unwrap().is_empty());
        let key = DocumentKey::scoped("default", "a0");
        assert_eq!(store.find_id_by_key(kind, &key).await.unwrap(), None);
        for id in ["a1", "a2", "b", "open", "bob0", "bob1", "0", "1"] {
            assert!(there(kind, id).await, "{kind:?} {id}");
        }
        let with_run = kind == DocumentKind::Run;
        assert_eq!(there(DocumentKind::CancelRequest, "a0").await, with_run, "{kind:?}");
        assert_eq!(there(DocumentKind::Job, "a0.s.1").await, !with_run, "{kind:?}");
        for id in ["a0.s.2", "a0.s.3", "a1.s.1"] {
            assert!(there(DocumentKind::Job, id).await, "{kind:?} {id}");
        }
        // Begun again, it does not count as ended any more.
        let rerun = Revision { owner: "ann".into(), kind, ..revision("a1", "PENDING") };
        if with_run {
            let write =
                WriteRequest { allowed_states: vec!["FAILED"], ..change_state("a1", 2, "FAILED", "PENDING") };
            write_applied(&*store, &WriteRequest { revision: rerun, ..write }).await;
            add("c", "ann", None).await;
            assert!(there(kind, "a1").await && there(kind, "a2").await);
        } else {
            // The next kind uses the same names.
            for id in ["a0.s.2", "a1.s.2", "a2.s.2"] {
                end(&job(id, id), "FAILED").await;
            }
            store.purge(DocumentKind::Job, &["FAILED", "CANCELLED"], Duration::ZERO, 100).await.unwrap();
            store.purge(DocumentKind::CancelRequest, &["DONE"], Duration::ZERO, 100).await.unwrap();
        }
    }
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

/// Of a long history the first and the newest events are kept, and repeated writes are still recognised.
pub async fn long_histories_keep_their_first_and_newest_events(store: SharedPlaneStore) {
    let newest = KEPT_FIRST_EVENTS + KEPT_NEWEST_EVENTS + 20;
    write_applied(&*store, &new_document("a")).await;
    for seen in 1..newest {
        write_applied(&*store, &change_state("a", seen, "PENDING", "PENDING")).await;
    }
    let history = store.history(DocumentKind::Job, "a").await.unwrap();
    let versions: Vec<_> = history.iter().map(|event| event.version).collect();
    let kept: Vec<_> = (1..=KEPT_FIRST_EVENTS).chain(newest - KEPT_NEWEST_EVENTS + 1..=newest).collect();
    assert_eq!(versions, kept);
    assert_eq!(store.read(DocumentKind::Job, "a").await.unwrap().unwrap().version, newest);
    for seen in [1, KEPT_FIRST_EVENTS - 1, newest - KEPT_NEWEST_EVENTS, newest - 1] {
        let again = store.write(&change_state("a", seen, "PENDING", "PENDING")).await.unwrap();
        assert!(matches!(again, WriteResponse::Applied { repeated: true, .. }), "{seen}: {again:?}");
    }
    // A repetition of a write whose event is gone is refused like any late write.
    for seen in [KEPT_FIRST_EVENTS, newest - KEPT_NEWEST_EVENTS - 1] {
        let late = write_refused(&*store, &change_state("a", seen, "PENDING", "PENDING")).await;
        assert!(matches!(late, WriteRefusal::VersionMismatch { .. }), "{seen}: {late:?}");
    }
}

/// The due time alone moves without a new version or event, and under the conditions of every write.
pub async fn a_due_time_moves_without_an_event(store: SharedPlaneStore) {
    let due = |id: &str, seconds| WriteRequest {
        revision: Revision { due_in: Some(Duration::from_secs(seconds)), ..revision(id, "PENDING") },
        ..new_document(id)
    };
    write_applied(&*store, &due("a", 10)).await;
    write_applied(&*store, &due("b", 20)).await;
    let topic = DocumentQuery { index_key: Some("topic".into()), ..query(&["PENDING"]) };
    assert_eq!(ids(&*store, &topic).await, ["a", "b"]);
    let before = store.read(DocumentKind::Job, "a").await.unwrap().unwrap();
    let extend = |id: &str, seen, state| WriteRequest {
        id: id.into(),
        expected_version: Some(seen),
        allowed_states: vec![state],
        fence: fence("job:a", 5),
        messages: Vec::new(),
        only_due_time: true,
        ..due("a", 30)
    };
    for id in ["w1", "w1", "w2"] {
        assert_eq!(write_applied(&*store, &extend(id, 1, "PENDING")).await, 1);
    }
    let after = store.read(DocumentKind::Job, "a").await.unwrap().unwrap();
    assert!(after.due.unwrap() >= before.due.unwrap() + 20_000, "{before:?} {after:?}");
    assert_eq!(Document { due: before.due, now: before.now, ..after }, before);
    assert_eq!(store.history(DocumentKind::Job, "a").await.unwrap().len(), 1);
    for query in [topic, query(&["PENDING"])] {
        assert_eq!(ids(&*store, &query).await, ["b", "a"]);
    }
    assert!(matches!(
        write_refused(&*store, &extend("w3", 2, "PENDING")).await,
        WriteRefusal::VersionMismatch { .. }
    ));
    assert!(matches!(
        write_refused(&*store, &extend("w4", 1, "RUNNING")).await,
        WriteRefusal::ForbiddenTransition { .. }
    ));
    // Its fence counts for later writes.
    let older = WriteRequest { fence: fence("job:a", 4), ..change_state("a", 1, "PENDING", "SCHEDULED") };
    assert!(matches!(write_refused(&*store, &older).await, WriteRefusal::StaleFence { .. }));
    write_applied(&*store, &change_state("a", 1, "PENDING", "SCHEDULED")).await;
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

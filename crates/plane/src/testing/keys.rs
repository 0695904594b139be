//! Idempotency keys: each counts within its scope, and entries of earlier versions still count there.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::{STORE_WAIT_TIMEOUT, message, new_document, revision, write_applied, write_refused};
use crate::store::{
    DocumentKey, DocumentKind, DocumentQuery, Message, Queue, Revision, SharedPlaneStore, WriteRefusal,
    WriteRequest,
};

fn keyed(id: &str, key: DocumentKey) -> WriteRequest {
    WriteRequest { revision: Revision { key: Some(key), ..revision(id, "PENDING") }, ..new_document(id) }
}

fn tenant_job(id: &str, tenant: &str, key: DocumentKey) -> WriteRequest {
    let mut write = keyed(id, key);
    write.revision.body = format!("{{\"spec\":{{\"tenant\":\"{tenant}\"}}}}");
    write
}

/// The same key in two scopes names two documents, and no scope with a key reads like another.
pub async fn keys_count_within_their_scope(store: SharedPlaneStore) {
    let pairs = [("a", "b:c"), ("a:b", "c"), ("a", "c"), ("", "a:c"), ("1:a", "c"), ("default", "c")];
    for (number, (scope, key)) in pairs.into_iter().enumerate() {
        write_applied(&*store, &keyed(&number.to_string(), DocumentKey::scoped(scope, key))).await;
    }
    for (number, (scope, key)) in pairs.into_iter().enumerate() {
        let id = number.to_string();
        let key = DocumentKey::scoped(scope, key);
        assert_eq!(store.find_id_by_key(DocumentKind::Job, &key).await.unwrap(), Some(id.clone()));
        assert_eq!(write_refused(&*store, &keyed("new", key)).await, WriteRefusal::KeyInUse { id });
    }
}

/// A caller's key and a key of the plane itself never meet, whatever the caller writes.
pub async fn engine_keys_are_a_space_of_their_own(store: SharedPlaneStore) {
    let engine = DocumentKey::engine("default", "replay:x");
    for (number, key) in ["replay:x", "job/engine", "engine/replay:x"].into_iter().enumerate() {
        write_applied(&*store, &keyed(&format!("c{number}"), DocumentKey::scoped("default", key))).await;
    }
    assert_eq!(store.find_id_by_key(DocumentKind::Job, &engine).await.unwrap(), None);
    write_applied(&*store, &keyed("e", engine.clone())).await;
    let taken = WriteRefusal::KeyInUse { id: "e".into() };
    assert_eq!(write_refused(&*store, &keyed("again", engine)).await, taken);
}

/// A key that an earlier version stored without a scope counts for documents of its own scope only.
pub async fn keys_of_earlier_versions_count_in_their_scope(store: SharedPlaneStore) {
    write_applied(&*store, &keyed("acme:1", DocumentKey::unscoped("k"))).await;
    write_applied(&*store, &tenant_job("2", "globex", DocumentKey::unscoped("l"))).await;
    write_applied(&*store, &keyed("3", DocumentKey::unscoped("replay:x"))).await;
    let taken = |id: &str| WriteRefusal::KeyInUse { id: id.to_owned() };
    let acme = keyed("acme:new", DocumentKey::scoped("acme", "k"));
    assert_eq!(write_refused(&*store, &acme).await, taken("acme:1"));
    let globex = tenant_job("globex:new", "globex", DocumentKey::scoped("globex", "l"));
    assert_eq!(write_refused(&*store, &globex).await, taken("2"));
    let replay = keyed("new", DocumentKey::engine("default", "replay:x"));
    assert_eq!(write_refused(&*store, &replay).await, taken("3"));
    // In another scope the same keys are free.
    for (id, key) in [("evil:1", "k"), ("evil:2", "l"), ("evil:3", "replay:x")] {
        let key = DocumentKey::scoped("evil", key);
        assert_eq!(store.find_id_by_key(DocumentKind::Job, &key).await.unwrap(), None);
        write_applied(&*store, &keyed(id, key)).await;
    }
    // Such a caller's key does not reach the plane's own entry either.
    let other = DocumentKey::engine("evil", "replay:x");
    assert_eq!(store.find_id_by_key(DocumentKind::Job, &other).await.unwrap(), None);
}

/// All texts of up to three of these parts, which separate or begin the names of stores.
fn ambiguous_texts() -> Vec<String> {
    let parts = ["a", ":", "job", "PENDING", "'", "}"];
    let mut texts = BTreeSet::from([String::new()]);
    for _ in 0..3 {
        let longer: Vec<_> =
            texts.iter().flat_map(|text| parts.map(|part| format!("{text}{part}"))).collect();
        texts.extend(longer);
    }
    texts.remove("");
    texts.into_iter().collect()
}

/// Documents, keys, topics, owners and messages with names that read alike when they are joined: each is
/// found by its own name only.
pub async fn names_that_read_alike_are_kept_apart(store: SharedPlaneStore) {
    let texts = ambiguous_texts();
    let kinds = [DocumentKind::Job, DocumentKind::Run];
    // Sorted by what a careless store would make of scope and key, so that pairs of one such text meet.
    let short = || texts.iter().filter(|text| text.len() < 4);
    let mut pairs: Vec<_> = short().flat_map(|scope| short().map(move |key| (scope, key))).collect();
    pairs.sort_by_key(|(scope, key)| format!("{scope}:{key}"));
    let places = kinds.into_iter().flat_map(|kind| texts.iter().map(move |id| (kind, id)));
    let documents: Vec<_> = places
        .zip(pairs)
        .enumerate()
        .map(|(number, ((kind, id), (scope, key)))| Revision {
            kind,
            // Other ones for the run than for the job of the same id.
            index_key: texts[(number * 7 + number / texts.len()) % texts.len()].clone(),
            owner: texts[(number * 11 + number / texts.len()) % texts.len()].clone(),
            key: Some(DocumentKey::scoped(scope, key)),
            body: format!("{{\"number\":{number}}}"),
            ..revision(id, if number % 3 == 0 { "PENDING" } else { "SCHEDULED" })
        })
        .collect();
    assert_eq!(documents.len(), 2 * texts.len());
    for (number, some) in documents.chunks(100).enumerate() {
        let first = some[0].clone();
        let write = WriteRequest {
            new_documents: some[1..].to_vec(),
            ..WriteRequest::new(format!("w{number}"), first)
        };
        write_applied(&*store, &write).await;
    }
    let mut by_topic: BTreeMap<_, BTreeSet<_>> = BTreeMap::new();
    let mut by_owner: BTreeMap<_, u64> = BTreeMap::new();
    for document in &documents {
        let Revision { kind, id, index_key, owner, .. } = document;
        let found = store.read(*kind, id).await.unwrap().unwrap();
        assert_eq!((&found.body, found.version), (&document.body, 1), "{document:?}");
        let key = document.key.as_ref().unwrap();
        assert_eq!(store.find_id_by_key(*kind, key).await.unwrap().as_ref(), Some(id), "{document:?}");
        by_topic.entry((*kind, index_key, document.state)).or_default().insert(id.clone());
        *by_owner.entry((*kind, owner, document.state)).or_default() += 1;
    }
    for ((kind, topic, state), ids) in by_topic {
        let query =
            DocumentQuery { index_key: Some(topic.clone()), ..DocumentQuery::new(kind, [state], 1000) };
        let found = store.list(&query).await.unwrap().into_iter().map(|document| document.id);
        assert_eq!(found.collect::<BTreeSet<_>>(), ids, "{query:?}");
    }
    for ((kind, owner, state), count) in by_owner {
        // Counting stops at the limit.
        let query = DocumentQuery { owner: Some(owner.clone()), ..DocumentQuery::new(kind, [state], 1000) };
        assert_eq!(store.count(&query).await.unwrap(), count, "{query:?}");
    }
    let queues = [Queue::Jobs, Queue::Runs];
    for (queue, id) in queues.into_iter().flat_map(|queue| texts.iter().map(move |id| (queue, id))) {
        let document_id = format!("{}/{id}", queue.as_str());
        let message = Message { queue, document_id, due_in: Duration::ZERO, ..message(id) };
        assert!(store.send(&message).await.unwrap(), "{message:?}");
    }
    for queue in queues {
        let taken = store.receive(queue, 1000, STORE_WAIT_TIMEOUT).await.unwrap();
        assert_eq!(taken.len(), texts.len());
        for delivery in taken {
            assert_eq!(delivery.document_id, format!("{}/{}", queue.as_str(), delivery.id));
        }
    }
}

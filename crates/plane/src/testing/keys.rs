//! Idempotency keys: each counts within its scope, and entries of earlier versions still count there.

use super::{new_document, revision, write_applied, write_refused};
use crate::store::{DocumentKey, DocumentKind, Revision, SharedPlaneStore, WriteRefusal, WriteRequest};

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

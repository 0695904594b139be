//! What the Redis store leaves behind on its server.

use std::time::Duration;

use leasehold_plane::store::redis::{KEY_PREFIX, RedisPlane};
use leasehold_plane::store::{
    DocumentKey, DocumentKind, KeptEnded, OwnerQuota, PlaneStore, Revision, WriteRequest, WriteResponse,
};
use leasehold_redis::testkit::RedisServer;
use leasehold_redis::{LuaScript, RedisOptions, ScriptClient};
use redis::Value;

async fn keys(server: &RedisServer) -> Vec<Value> {
    let client = ScriptClient::open(RedisOptions::parse(&server.url()).unwrap()).unwrap();
    let script = LuaScript::new("return redis.call('KEYS', '*')".to_owned());
    match client.run(&script, &[KEY_PREFIX], &[], Duration::from_secs(10)).await.unwrap() {
        Value::Array(keys) => keys,
        other => panic!("{other:?}"),
    }
}

/// An index entry of a deleted document would stay for ever, because nothing ever looks for it again.
#[tokio::test]
async fn finding_21_deleted_documents_leave_no_key() {
    let server = RedisServer::start().await.unwrap();
    let store = RedisPlane::open(RedisOptions::parse(&server.url()).unwrap()).unwrap();
    let write = async |kind, id: &str, owner: &str, body: &str| {
        let new = Revision {
            kind,
            id: id.into(),
            state: "PENDING",
            due_in: Some(Duration::from_secs(1)),
            index_key: "topic".into(),
            owner: owner.into(),
            key: Some(DocumentKey::scoped("default", id)),
            body: body.into(),
            event: "{}".into(),
        };
        let kept_ended = Some(KeptEnded { states: vec!["FAILED"], limit: 10 });
        let quota = Some(OwnerQuota { states: vec!["PENDING"], limit: 10, kept_ended });
        let ended = Revision { state: "FAILED", key: None, due_in: None, ..new.clone() };
        let create = WriteRequest { quota, ..WriteRequest::new(format!("new-{id}"), new) };
        let end = WriteRequest {
            expected_version: Some(1),
            allowed_states: vec!["PENDING"],
            ..WriteRequest::new(format!("end-{id}"), ended)
        };
        for write in [create, end] {
            let response = store.write(&write).await.unwrap();
            assert!(matches!(response, WriteResponse::Applied { repeated: false, .. }), "{response:?}");
        }
    };
    write(DocumentKind::Job, "j", "ann", "{}").await;
    write(DocumentKind::Run, "r", "ann", r#"{"steps":{"s":{"attempt":1}}}"#).await;
    write(DocumentKind::Job, "r.s.1", "", r#"{"parent":{"run":"r"}}"#).await;
    assert!(keys(&server).await.len() > 10);
    for kind in [DocumentKind::Run, DocumentKind::Job] {
        let gone = store.purge(kind, &["FAILED"], Duration::ZERO, 10).await.unwrap();
        assert_eq!(gone, 1, "{kind:?}: the step's job goes with its run");
    }
    assert_eq!(keys(&server).await, []);
}

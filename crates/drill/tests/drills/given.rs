//! A store that is not ours is swept of what this run has left, and of nothing else.

use std::time::Duration;

use leasehold::StoreUrl;
use leasehold_core::Locks;
use leasehold_drill::fleet::{Given, MARK, Stage};
use leasehold_drill::scenario::POLICIES;
use leasehold_redis::testkit::RedisServer;

use crate::program;

/// Somebody else's drill and this one each hold a lease, and this one is over.
async fn swept(url: &str) {
    let given = Given::open(url).await.unwrap();
    let stage = Stage::build(given.kind(), Some(&given), POLICIES, &program(), false)
        .await
        .unwrap();
    let store = StoreUrl::parse(url).unwrap().open().unwrap();
    let locks = Locks::builder(store).without_log().build().unwrap();
    let other = "drill:leasehold-drill-OTHER:job:1";
    let ours = stage.name("job:1");
    let held = [
        locks.class("scheduler").acquire(other).await.unwrap(),
        locks.class("scheduler").acquire(ours.as_str()).await.unwrap(),
    ];
    given.sweep().await.unwrap();
    let store = StoreUrl::parse(url).unwrap().open().unwrap();
    let left = store.list("drill:", 10, Duration::from_secs(5)).await.unwrap();
    let left: Vec<_> = left.leases.iter().map(|lease| lease.name.to_string()).collect();
    assert_eq!(left, [other]);
    drop(held);
    locks.shutdown(Duration::from_secs(1)).await;
    stage.close().await;
}

#[tokio::test]
async fn somebody_elses_leases_stay_in_a_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("locks.db");
    let url = format!("sqlite:{}", path.display());
    // Opened once, so that there is a file to mark.
    drop(StoreUrl::parse(&url).unwrap().open().unwrap());
    let db = rusqlite::Connection::open(&path).unwrap();
    db.execute_batch(&format!("CREATE TABLE \"{MARK}\" (why TEXT)"))
        .unwrap();
    swept(&url).await;
}

#[tokio::test]
async fn somebody_elses_leases_stay_on_a_server() {
    let server = RedisServer::start().await.unwrap();
    let client = redis::Client::open(server.url()).unwrap();
    let mut connection = client.get_multiplexed_async_connection().await.unwrap();
    let set = redis::cmd("SET").arg(MARK).arg("yes").to_owned();
    set.exec_async(&mut connection).await.unwrap();
    swept(&server.url()).await;
}

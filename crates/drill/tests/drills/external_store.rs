//! The sweep of an external store removes what this run has left, and nothing else.

use std::sync::Arc;
use std::time::Duration;

use leasehold::StoreUrl;
use leasehold_core::Locks;
use leasehold_core::testbed::DRILLABLE_MARK;
use leasehold_drill::fleet::{DrillStore, DrillTestbed, ExternalStore};
use leasehold_drill::scenario::POLICIES;
use leasehold_redis::testkit::RedisServer;

use crate::program;

/// Another drill and this one hold a lease each. The sweep must remove only this one's.
async fn assert_sweeps_own_leases_only(url: &str) {
    let given = ExternalStore::open(url).await.unwrap();
    let drilled = DrillStore::External(Arc::clone(&given));
    let testbed = DrillTestbed::build(&drilled, POLICIES, &program(), false).await.unwrap();
    let store = StoreUrl::parse(url).unwrap().open().unwrap();
    let locks = Locks::builder(store).without_log().build().unwrap();
    let other = "drill:leasehold-drill-OTHER:job:1";
    let ours = testbed.lock_name("job:1");
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
    testbed.close().await;
}

#[tokio::test]
async fn leases_of_other_drills_stay_in_a_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("locks.db");
    let url = format!("sqlite:{}", path.display());
    // Opening the store creates the file that the mark goes into.
    drop(StoreUrl::parse(&url).unwrap().open().unwrap());
    let db = rusqlite::Connection::open(&path).unwrap();
    db.execute_batch(&format!("CREATE TABLE \"{DRILLABLE_MARK}\" (why TEXT)")).unwrap();
    assert_sweeps_own_leases_only(&url).await;
}

#[tokio::test]
async fn leases_of_other_drills_stay_on_a_server() {
    let server = RedisServer::start().await.unwrap();
    let client = redis::Client::open(server.url()).unwrap();
    let mut connection = client.get_multiplexed_async_connection().await.unwrap();
    let set = redis::cmd("SET").arg(DRILLABLE_MARK).arg("yes").to_owned();
    set.exec_async(&mut connection).await.unwrap();
    assert_sweeps_own_leases_only(&server.url()).await;
}

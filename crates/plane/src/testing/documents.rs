//! Documents: found, followed by their events, forgotten in the end.

use std::time::Duration;

use leasehold_core::clock::{BootClock, ClockExt};

use super::{change, done, entry, fence, ids, new, query};
use crate::store::{Entry, Kind, Query, SharedPlaneStore, Write};

/// Documents are found by state, shelf and due time, the most urgent first, and counted.
pub async fn documents_are_found(store: SharedPlaneStore) {
    let put = |id: &'static str, shelf: &str, due_in: Option<Duration>| Write {
        entry: Entry {
            shelf: shelf.into(),
            due_in,
            ..entry(id, "PENDING")
        },
        ..new(id)
    };
    done(&*store, &put("later", "t1", Some(Duration::from_secs(100)))).await;
    done(&*store, &put("never", "t2", None)).await;
    done(&*store, &put("soon", "t2", Some(Duration::ZERO))).await;
    done(&*store, &put("moved", "t1", Some(Duration::ZERO))).await;
    let born = store.read(Kind::Job, "moved").await.unwrap().unwrap().created;
    BootClock.sleep(Duration::from_millis(5)).await;
    done(&*store, &change("moved", 1, "PENDING", "SCHEDULED")).await;
    let moved = store.read(Kind::Job, "moved").await.unwrap().unwrap();
    assert_eq!(moved.created, born);
    assert!(moved.updated > born);
    let pending = query(&["PENDING"]);
    assert_eq!(ids(&*store, &pending).await, ["soon", "later", "never"]);
    assert_eq!(
        ids(
            &*store,
            &Query {
                limit: 1,
                ..pending.clone()
            }
        )
        .await,
        ["soon"]
    );
    assert_eq!(
        ids(
            &*store,
            &Query {
                due: true,
                ..pending.clone()
            }
        )
        .await,
        ["soon"]
    );
    assert_eq!(
        ids(
            &*store,
            &Query {
                shelf: Some("t2".into()),
                ..pending.clone()
            }
        )
        .await,
        ["soon", "never"]
    );
    assert_eq!(ids(&*store, &query(&["SCHEDULED", "RUNNING"])).await, ["moved"]);
    // The most urgent of all states together, and no more than wanted of them.
    let both = Query {
        limit: 2,
        ..query(&["SCHEDULED", "PENDING"])
    };
    assert_eq!(ids(&*store, &both).await, ["soon", "later"]);
    assert!(
        ids(
            &*store,
            &Query {
                kind: Kind::Run,
                ..pending.clone()
            }
        )
        .await
        .is_empty()
    );
    assert_eq!(store.count(&pending).await.unwrap(), 3);
    assert_eq!(
        store
            .count(&Query {
                shelf: Some("t1".into()),
                ..pending.clone()
            })
            .await
            .unwrap(),
        1
    );
    assert_eq!(store.count(&query(&["PENDING", "SCHEDULED"])).await.unwrap(), 4);
}

/// Each write is one event, in order.
pub async fn every_write_is_one_event(store: SharedPlaneStore) {
    done(&*store, &new("a")).await;
    done(&*store, &change("a", 1, "PENDING", "SCHEDULED")).await;
    done(&*store, &change("a", 2, "SCHEDULED", "DISPATCHED")).await;
    let history = store.history(Kind::Job, "a").await.unwrap();
    let seen: Vec<_> = history
        .iter()
        .map(|event| (event.version, event.body.as_str()))
        .collect();
    let to = [
        "{\"to\":\"PENDING\"}",
        "{\"to\":\"SCHEDULED\"}",
        "{\"to\":\"DISPATCHED\"}",
    ];
    assert_eq!(seen, [(1, to[0]), (2, to[1]), (3, to[2])]);
    assert!(history.windows(2).all(|two| two[0].at <= two[1].at));
    assert!(store.history(Kind::Job, "b").await.unwrap().is_empty());
}

/// What has long ended is forgotten, with its events and key; nothing else is.
pub async fn old_documents_are_forgotten(store: SharedPlaneStore) {
    let keyed = Write {
        entry: Entry {
            key: Some("k".into()),
            ..entry("old", "PENDING")
        },
        ..new("old")
    };
    done(&*store, &keyed).await;
    let failed = Write {
        fence: fence("job:old", 9),
        ..change("old", 1, "PENDING", "FAILED")
    };
    done(&*store, &failed).await;
    done(&*store, &new("alive")).await;
    let hour = Duration::from_secs(3600);
    assert_eq!(store.purge(Kind::Job, &["FAILED"], hour, 10).await.unwrap(), 0);
    assert_eq!(
        store
            .purge(Kind::Job, &["FAILED"], Duration::ZERO, 10)
            .await
            .unwrap(),
        1
    );
    assert!(store.read(Kind::Job, "old").await.unwrap().is_none());
    assert!(store.history(Kind::Job, "old").await.unwrap().is_empty());
    assert_eq!(store.by_key(Kind::Job, "k").await.unwrap(), None);
    assert_eq!(ids(&*store, &query(&["PENDING", "FAILED"])).await, ["alive"]);
    // Its fence is forgotten with it: marks of what is long gone must not pile up.
    let anew = Write {
        fence: fence("job:old", 5),
        ..new("old")
    };
    assert_eq!(done(&*store, &anew).await, 1);
    // No more at once than wanted, in all states together.
    for (id, end) in [("x", "FAILED"), ("y", "CANCELLED"), ("z", "CANCELLED")] {
        done(&*store, &new(id)).await;
        done(&*store, &change(id, 1, "PENDING", end)).await;
    }
    for gone in [2, 1, 0] {
        let ended = ["FAILED", "CANCELLED"];
        let purged = store.purge(Kind::Job, &ended, Duration::ZERO, 2).await.unwrap();
        assert_eq!(purged, gone);
    }
}

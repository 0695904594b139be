//! One conditional step: applied once, whole, in order, or refused and told why.

use std::sync::Arc;

use super::{PATIENCE, change, done, entry, fence, letter, new, refused};
use crate::store::{Entry, Kind, Queue, Refusal, SharedPlaneStore, Write, Written};

/// A document is made once, and read back as it was written.
pub async fn a_new_document_is_there_once(store: SharedPlaneStore) {
    assert!(store.read(Kind::Job, "a").await.unwrap().is_none());
    assert_eq!(done(&*store, &new("a")).await, 1);
    let doc = store.read(Kind::Job, "a").await.unwrap().unwrap();
    assert_eq!((doc.version, doc.state.as_str()), (1, "PENDING"));
    assert_eq!(doc.body, "{\"of\":\"a\"}");
    assert!(doc.now >= doc.created && doc.created == doc.updated && doc.created > 0);
    let again = Write {
        id: "other".into(),
        ..new("a")
    };
    assert_eq!(refused(&*store, &again).await, Refusal::Exists);
    // The same id of another kind is another document.
    assert!(store.read(Kind::Run, "a").await.unwrap().is_none());
}

/// Who saw an older version is refused, and told what there is.
pub async fn a_write_needs_the_version_it_saw(store: SharedPlaneStore) {
    let missing = change("a", 1, "PENDING", "SCHEDULED");
    assert_eq!(refused(&*store, &missing).await, Refusal::Missing);
    done(&*store, &new("a")).await;
    assert_eq!(done(&*store, &change("a", 1, "PENDING", "SCHEDULED")).await, 2);
    let late = change("a", 1, "PENDING", "CANCELLED");
    let found = Refusal::Version {
        found: 2,
        state: "SCHEDULED".into(),
    };
    assert_eq!(refused(&*store, &late).await, found);
    assert_eq!(
        store.read(Kind::Job, "a").await.unwrap().unwrap().state,
        "SCHEDULED"
    );
}

/// Not even with the right version.
pub async fn a_state_follows_only_where_it_may(store: SharedPlaneStore) {
    done(&*store, &new("a")).await;
    done(&*store, &change("a", 1, "PENDING", "CANCELLED")).await;
    let twice = change("a", 2, "RUNNING", "SUCCEEDED");
    let why = Refusal::Transition {
        state: "CANCELLED".into(),
        to: "SUCCEEDED",
    };
    assert_eq!(refused(&*store, &twice).await, why);
}

/// Older fences are refused, equal and newer ones admitted; each name has its own.
pub async fn a_stale_fence_is_refused(store: SharedPlaneStore) {
    done(
        &*store,
        &Write {
            fence: fence("job:a", 20),
            ..new("a")
        },
    )
    .await;
    let next = |number, id: &str| Write {
        id: id.into(),
        fence: fence("job:a", number),
        ..change("a", 1, "PENDING", "SCHEDULED")
    };
    match refused(&*store, &next(19, "w1")).await {
        Refusal::Stale {
            offered,
            newest,
            state,
        } => {
            assert_eq!((offered.get(), newest.get()), (19, 20));
            assert_eq!(state.as_deref(), Some("PENDING"));
        }
        other => panic!("{other:?}"),
    }
    // Shorter in digits, and so smaller, although greater as text.
    assert!(matches!(
        refused(&*store, &next(9, "w2")).await,
        Refusal::Stale { .. }
    ));
    assert_eq!(done(&*store, &next(20, "w3")).await, 2);
    // A refused write leaves no mark: its fence was newer, but its version was not.
    let foreign = Write {
        id: "w4".into(),
        fence: fence("job:a", 99),
        ..change("a", 1, "PENDING", "FAILED")
    };
    assert!(matches!(
        refused(&*store, &foreign).await,
        Refusal::Version { .. }
    ));
    let newer = Write {
        fence: fence("job:a", 21),
        ..change("a", 2, "SCHEDULED", "DISPATCHED")
    };
    assert_eq!(done(&*store, &newer).await, 3);
    done(
        &*store,
        &Write {
            fence: fence("job:b", 1),
            ..new("b")
        },
    )
    .await;
    // A local-only hold has none: the version alone protects.
    assert_eq!(done(&*store, &change("a", 3, "DISPATCHED", "RUNNING")).await, 4);
}

/// A write that was not answered can be sent again: now, and after others have written.
pub async fn a_repeated_write_changes_nothing(store: SharedPlaneStore) {
    let first = Write {
        send: vec![letter("m")],
        ..new("a")
    };
    done(&*store, &first).await;
    let again = store.write(&first).await.unwrap();
    assert!(
        matches!(
            again,
            Written::Done {
                version: 1,
                repeated: true,
                ..
            }
        ),
        "{again:?}"
    );
    let second = Write {
        fence: fence("job:a", 5),
        ..change("a", 1, "PENDING", "SCHEDULED")
    };
    done(&*store, &second).await;
    done(
        &*store,
        &Write {
            fence: fence("job:a", 9),
            ..change("a", 2, "SCHEDULED", "CANCELLED")
        },
    )
    .await;
    for (write, version) in [(&second, 2), (&first, 1)] {
        match store.write(write).await.unwrap() {
            Written::Done {
                version: answered,
                repeated: true,
                ..
            } => assert_eq!(answered, version),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(store.history(Kind::Job, "a").await.unwrap().len(), 3);
    assert_eq!(store.take(Queue::Jobs, 10, PATIENCE).await.unwrap().len(), 1);
}

/// A key brings one document, ever.
pub async fn an_idempotency_key_brings_one_document(store: SharedPlaneStore) {
    let keyed = |id: &str| Write {
        entry: Entry {
            key: Some("k".into()),
            ..entry(id, "PENDING")
        },
        ..new(id)
    };
    done(&*store, &keyed("a")).await;
    assert_eq!(
        refused(&*store, &keyed("b")).await,
        Refusal::Key { id: "a".into() }
    );
    assert!(store.read(Kind::Job, "b").await.unwrap().is_none());
    assert_eq!(store.by_key(Kind::Job, "k").await.unwrap().as_deref(), Some("a"));
    assert_eq!(store.by_key(Kind::Run, "k").await.unwrap(), None);
}

/// Further documents and mail come with the write, or not at all; what is there already is left alone.
pub async fn all_of_a_write_or_nothing(store: SharedPlaneStore) {
    done(&*store, &new("old")).await;
    let whole = Write {
        also: vec![entry("x", "PENDING"), entry("old", "FAILED")],
        send: vec![letter("m1"), letter("m2")],
        ..new("a")
    };
    match store.write(&whole).await.unwrap() {
        Written::Done { skipped, .. } => assert_eq!(skipped, ["old"]),
        other => panic!("{other:?}"),
    }
    assert_eq!(store.read(Kind::Job, "x").await.unwrap().unwrap().version, 1);
    assert_eq!(store.history(Kind::Job, "x").await.unwrap().len(), 1);
    assert_eq!(
        store.read(Kind::Job, "old").await.unwrap().unwrap().state,
        "PENDING"
    );
    let late = Write {
        also: vec![entry("y", "PENDING")],
        send: vec![letter("m3")],
        ..change("a", 7, "PENDING", "SCHEDULED")
    };
    refused(&*store, &late).await;
    assert!(store.read(Kind::Job, "y").await.unwrap().is_none());
    let mut taken: Vec<_> = store.take(Queue::Jobs, 10, PATIENCE).await.unwrap();
    taken.sort_by(|a, b| a.id.cmp(&b.id));
    let names: Vec<_> = taken.iter().map(|mail| mail.id.as_str()).collect();
    assert_eq!(names, ["m1", "m2"]);
}

/// Of writers that saw the same version one is applied.
pub async fn of_many_writers_one_wins(store: SharedPlaneStore) {
    done(&*store, &new("a")).await;
    let writers: Vec<_> = (0..12)
        .map(|number| {
            let store = Arc::clone(&store);
            let write = Write {
                id: format!("w{number}"),
                ..change("a", 1, "PENDING", "SCHEDULED")
            };
            tokio::spawn(async move { store.write(&write).await.unwrap() })
        })
        .collect();
    let mut won = 0;
    for writer in writers {
        won += usize::from(matches!(writer.await.unwrap(), Written::Done { .. }));
    }
    assert_eq!(won, 1);
    assert_eq!(store.history(Kind::Job, "a").await.unwrap().len(), 2);
}

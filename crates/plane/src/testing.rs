//! The suite every plane store passes: one function per promise, one test per function and store.
//!
//! ```text
//! leasehold_plane::plane_store_suite!(my_store);   // my_store: async fn() -> (SharedPlaneStore, impl Sized)
//! ```

use std::sync::Arc;
use std::time::Duration;

use leasehold_core::clock::{BootClock, Clock, ClockExt};
use leasehold_core::{Fence, Name};

use crate::store::{
    Entry, Kind, Mail, PlaneStore, Query, Queue, Refusal, Settle, SharedPlaneStore, Write, Written,
};

/// Longer than any store takes to let a short time pass.
const PATIENCE: Duration = Duration::from_secs(10);

fn entry(id: &str, state: &'static str) -> Entry {
    Entry {
        kind: Kind::Job,
        id: id.to_owned(),
        state,
        due_in: None,
        shelf: "topic".into(),
        key: None,
        body: format!("{{\"of\":\"{id}\"}}"),
        event: format!("{{\"to\":\"{state}\"}}"),
    }
}

fn new(id: &str) -> Write {
    Write {
        id: format!("new-{id}"),
        entry: entry(id, "PENDING"),
        expect: None,
        from: Vec::new(),
        fence: None,
        also: Vec::new(),
        send: Vec::new(),
    }
}

/// From the state before, by the table of jobs.
fn change(id: &str, seen: u64, from: &'static str, to: &'static str) -> Write {
    Write {
        id: format!("{id}-{seen}-{to}"),
        entry: entry(id, to),
        expect: Some(seen),
        from: vec![from],
        ..new(id)
    }
}

fn mail(id: &str) -> Mail {
    Mail {
        queue: Queue::Jobs,
        id: id.to_owned(),
        to: "a".into(),
        body: "{}".into(),
        due_in: Duration::ZERO,
    }
}

fn query(states: &[&'static str]) -> Query {
    Query {
        kind: Kind::Job,
        states: states.to_vec(),
        due: false,
        shelf: None,
        limit: 100,
    }
}

fn fence(name: &str, number: u64) -> Option<(Name, Fence)> {
    Some((Name::new(name).unwrap(), Fence::new(number).unwrap()))
}

async fn done(store: &dyn PlaneStore, write: &Write) -> u64 {
    match store.write(write).await.unwrap() {
        Written::Done { version, .. } => version,
        other => panic!("{other:?}"),
    }
}

async fn refused(store: &dyn PlaneStore, write: &Write) -> Refusal {
    match store.write(write).await.unwrap() {
        Written::Refused(refusal) => refusal,
        other => panic!("{other:?}"),
    }
}

async fn ids(store: &dyn PlaneStore, query: &Query) -> Vec<String> {
    store
        .list(query)
        .await
        .unwrap()
        .into_iter()
        .map(|doc| doc.id)
        .collect()
}

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
        send: vec![mail("m")],
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
        send: vec![mail("m1"), mail("m2")],
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
        send: vec![mail("m3")],
        ..change("a", 7, "PENDING", "SCHEDULED")
    };
    refused(&*store, &late).await;
    assert!(store.read(Kind::Job, "y").await.unwrap().is_none());
    let mut taken: Vec<_> = store.take(Queue::Jobs, 10, PATIENCE).await.unwrap();
    taken.sort_by(|a, b| a.id.cmp(&b.id));
    let names: Vec<_> = taken.iter().map(|mail| mail.id.as_str()).collect();
    assert_eq!(names, ["m1", "m2"]);
}

/// Mail is hidden from others while someone has it, and comes again if nobody acknowledges it; a late taker's answer
/// counts for nothing.
pub async fn mail_comes_until_it_is_acknowledged(store: SharedPlaneStore) {
    store.send(&mail("m")).await.unwrap();
    store.send(&mail("m")).await.unwrap();
    let short = Duration::from_millis(60);
    let first = store.take(Queue::Jobs, 10, short).await.unwrap();
    assert_eq!(first.len(), 1, "sent twice under one id, it is one");
    assert_eq!((first[0].to.as_str(), first[0].tries), ("a", 1));
    assert!(store.take(Queue::Runs, 10, short).await.unwrap().is_empty());
    let second = eventually(|| async {
        let taken = store.take(Queue::Jobs, 10, PATIENCE).await.unwrap();
        (!taken.is_empty()).then_some(taken)
    })
    .await;
    assert_eq!(second[0].tries, 2);
    assert!(
        store.take(Queue::Jobs, 10, short).await.unwrap().is_empty(),
        "hidden"
    );
    assert!(
        !store.settle(&first[0], Settle::Ack).await.unwrap(),
        "a late answer"
    );
    assert!(
        !store
            .settle(&first[0], Settle::Again(Duration::ZERO))
            .await
            .unwrap()
    );
    assert!(
        store
            .settle(&second[0], Settle::Again(Duration::ZERO))
            .await
            .unwrap()
    );
    let third = store.take(Queue::Jobs, 10, PATIENCE).await.unwrap();
    assert_eq!(third[0].tries, 3);
    assert!(store.settle(&third[0], Settle::Ack).await.unwrap());
    assert!(!store.settle(&third[0], Settle::Ack).await.unwrap(), "gone");
    // Once acknowledged it can be sent anew; mail for later is not delivered now.
    let later = Mail {
        due_in: PATIENCE,
        ..mail("m")
    };
    store.send(&later).await.unwrap();
    assert!(store.take(Queue::Jobs, 10, short).await.unwrap().is_empty());
}

/// Takers at the same time get different mail.
pub async fn mail_goes_to_one_taker(store: SharedPlaneStore) {
    for number in 0..40 {
        store.send(&mail(&format!("m{number:02}"))).await.unwrap();
    }
    let takers: Vec<_> = (0..8)
        .map(|_| {
            let store = Arc::clone(&store);
            tokio::spawn(async move { store.take(Queue::Jobs, 7, PATIENCE).await.unwrap() })
        })
        .collect();
    let mut all = Vec::new();
    for taker in takers {
        all.extend(taker.await.unwrap().into_iter().map(|mail| mail.id));
    }
    assert_eq!(all.len(), 40);
    all.sort();
    all.dedup();
    assert_eq!(all.len(), 40);
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
    done(&*store, &change("moved", 1, "PENDING", "SCHEDULED")).await;
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
    done(&*store, &change("old", 1, "PENDING", "FAILED")).await;
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
    assert_eq!(done(&*store, &new("old")).await, 1);
}

/// Asks until there is an answer.
async fn eventually<T, F: Future<Output = Option<T>>>(ask: impl Fn() -> F) -> T {
    let end = BootClock.now() + PATIENCE;
    loop {
        if let Some(answer) = ask().await {
            return answer;
        }
        assert!(BootClock.now() < end, "it did not happen in time");
        BootClock.sleep(Duration::from_millis(5)).await;
    }
}

/// One test for each case, on the store that the function makes. What comes with it is kept until the end.
#[macro_export]
macro_rules! plane_store_suite {
    ($make:path) => {
        $crate::plane_store_suite!($make;
            a_new_document_is_there_once, a_write_needs_the_version_it_saw, a_state_follows_only_where_it_may,
            a_stale_fence_is_refused, a_repeated_write_changes_nothing, an_idempotency_key_brings_one_document,
            all_of_a_write_or_nothing, mail_comes_until_it_is_acknowledged, mail_goes_to_one_taker,
            of_many_writers_one_wins, documents_are_found, every_write_is_one_event, old_documents_are_forgotten,
        );
    };
    ($make:path; $($case:ident),* $(,)?) => {
        $(
            #[tokio::test]
            async fn $case() {
                let (store, _kept) = $make().await;
                $crate::testing::$case(store).await;
            }
        )*
    };
}

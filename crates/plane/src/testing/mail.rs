//! Mail: to one taker at a time, until it is acknowledged.

use std::sync::Arc;
use std::time::Duration;

use super::{PATIENCE, eventually, letter};
use crate::store::{Mail, Queue, Settle, SharedPlaneStore};

/// Mail is hidden from others while someone has it, and comes again if nobody acknowledges it; a late taker's answer
/// counts for nothing.
pub async fn mail_comes_until_it_is_acknowledged(store: SharedPlaneStore) {
    assert!(store.send(&letter("m")).await.unwrap());
    assert!(!store.send(&letter("m")).await.unwrap(), "it waits there already");
    let short = Duration::from_millis(60);
    let first = store.take(Queue::Jobs, 10, short).await.unwrap();
    assert_eq!(first.len(), 1, "sent twice under one id, it is one");
    assert_eq!((first[0].to.as_str(), first[0].tries), ("a", 1));
    // Nor while somebody has it: it is not begun anew.
    assert!(!store.send(&letter("m")).await.unwrap());
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
        ..letter("m")
    };
    store.send(&later).await.unwrap();
    assert!(store.take(Queue::Jobs, 10, short).await.unwrap().is_empty());
}

/// Takers at the same time get different mail.
pub async fn mail_goes_to_one_taker(store: SharedPlaneStore) {
    for number in 0..40 {
        store.send(&letter(&format!("m{number:02}"))).await.unwrap();
    }
    let takers: Vec<_> = (0..8)
        .map(|_| {
            let store = Arc::clone(&store);
            tokio::spawn(async move { store.take(Queue::Jobs, 7, PATIENCE).await.unwrap() })
        })
        .collect();
    let mut all = Vec::new();
    for taker in takers {
        let taken = taker.await.unwrap();
        assert!(taken.len() <= 7, "no more than wanted");
        all.extend(taken.into_iter().map(|mail| mail.id));
    }
    assert_eq!(all.len(), 40);
    all.sort();
    all.dedup();
    assert_eq!(all.len(), 40);
}

//! Messages: delivered to one receiver at a time, until acknowledged.

use std::sync::Arc;
use std::time::Duration;

use super::{STORE_WAIT_TIMEOUT, eventually, message};
use crate::store::{Disposition, Message, Queue, SharedPlaneStore};

/// A delivered message is hidden from other receivers and comes again unless acknowledged. A late
/// receiver's settlement has no effect.
pub async fn mail_comes_until_it_is_acknowledged(store: SharedPlaneStore) {
    assert!(store.send(&message("m")).await.unwrap());
    assert!(!store.send(&message("m")).await.unwrap(), "it waits there already");
    let short = Duration::from_millis(60);
    let first = store.receive(Queue::Jobs, 10, short).await.unwrap();
    assert_eq!(first.len(), 1, "sent twice under one id, it is one");
    assert_eq!((first[0].document_id.as_str(), first[0].tries), ("a", 1));
    // Nor while it is delivered: a repeated send must not restart it.
    assert!(!store.send(&message("m")).await.unwrap());
    assert!(store.receive(Queue::Runs, 10, short).await.unwrap().is_empty());
    let second = eventually(|| async {
        let taken = store.receive(Queue::Jobs, 10, STORE_WAIT_TIMEOUT).await.unwrap();
        (!taken.is_empty()).then_some(taken)
    })
    .await;
    assert_eq!(second[0].tries, 2);
    assert!(store.receive(Queue::Jobs, 10, short).await.unwrap().is_empty(), "hidden");
    assert!(!store.settle(&first[0], Disposition::Ack).await.unwrap(), "a late answer");
    assert!(!store.settle(&first[0], Disposition::Redeliver(Duration::ZERO)).await.unwrap());
    assert!(store.settle(&second[0], Disposition::Redeliver(Duration::ZERO)).await.unwrap());
    let third = store.receive(Queue::Jobs, 10, STORE_WAIT_TIMEOUT).await.unwrap();
    assert_eq!(third[0].tries, 3);
    assert!(store.settle(&third[0], Disposition::Ack).await.unwrap());
    assert!(!store.settle(&third[0], Disposition::Ack).await.unwrap(), "gone");
    // After the acknowledgement the id can be sent again; a message with a delay is not delivered now.
    let later = Message { due_in: STORE_WAIT_TIMEOUT, ..message("m") };
    store.send(&later).await.unwrap();
    assert!(store.receive(Queue::Jobs, 10, short).await.unwrap().is_empty());
}

/// Concurrent receivers get different messages.
pub async fn mail_goes_to_one_taker(store: SharedPlaneStore) {
    for number in 0..40 {
        store.send(&message(&format!("m{number:02}"))).await.unwrap();
    }
    let takers: Vec<_> = (0..8)
        .map(|_| {
            let store = Arc::clone(&store);
            tokio::spawn(async move { store.receive(Queue::Jobs, 7, STORE_WAIT_TIMEOUT).await.unwrap() })
        })
        .collect();
    let mut all = Vec::new();
    for taker in takers {
        let taken = taker.await.unwrap();
        assert!(taken.len() <= 7, "no more than wanted");
        all.extend(taken.into_iter().map(|message| message.id));
    }
    assert_eq!(all.len(), 40);
    all.sort();
    all.dedup();
    assert_eq!(all.len(), 40);
}

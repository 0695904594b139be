//! The suite every plane store passes: one function per promise, one test per function and store.
//!
//! ```text
//! leasehold_plane::plane_store_suite!(my_store);   // my_store: async fn() -> (SharedPlaneStore, impl Sized)
//! ```

mod documents;
mod mail;
mod writes;

use std::time::Duration;

use leasehold_core::clock::{BootClock, Clock, ClockExt};
use leasehold_core::{Fence, Name};

pub use documents::{documents_are_found, every_write_is_one_event, old_documents_are_forgotten};
pub use mail::{mail_comes_until_it_is_acknowledged, mail_goes_to_one_taker};
pub use writes::{
    a_new_document_is_there_once, a_repeated_write_changes_nothing, a_stale_fence_is_refused,
    a_state_follows_only_where_it_may, a_write_needs_the_version_it_saw, all_of_a_write_or_nothing,
    an_idempotency_key_brings_one_document, of_many_writers_one_wins,
};

use crate::store::{Entry, Kind, Mail, PlaneStore, Query, Queue, Refusal, Write, Written};

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

fn letter(id: &str) -> Mail {
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

//! The conformance suite of plane stores: one function per guarantee, one test per function and store.
//!
//! ```text
//! leasehold_plane::plane_store_suite!(my_store);   // my_store: async fn() -> (SharedPlaneStore, impl Sized)
//! ```

mod conditional_writes;
mod documents;
mod keys;
mod messages;

use std::time::Duration;

use leasehold_core::clock::{BootClock, Clock, ClockExt};
use leasehold_core::{Fence, Name};

pub use conditional_writes::{
    a_new_document_is_there_once, a_repeated_write_changes_nothing, a_stale_fence_is_refused,
    a_state_follows_only_where_it_may, a_write_needs_the_version_it_saw, all_of_a_write_or_nothing,
    an_idempotency_key_brings_one_document, of_many_writers_one_wins,
};
pub use documents::{
    a_due_time_moves_without_an_event, documents_are_found, documents_are_found_by_scope,
    documents_come_in_pages, ended_documents_of_an_owner_are_bounded, every_write_is_one_event,
    long_histories_keep_their_first_and_newest_events, old_documents_are_forgotten,
    quotas_are_counted_by_owner,
};
pub use keys::{
    engine_keys_are_a_space_of_their_own, keys_count_within_their_scope,
    keys_of_earlier_versions_count_in_their_scope, names_that_read_alike_are_kept_apart,
};
pub use messages::{mail_comes_until_it_is_acknowledged, mail_goes_to_one_taker};

use crate::store::{
    DocumentKind, DocumentQuery, Message, PlaneStore, Queue, Revision, WriteRefusal, WriteRequest,
    WriteResponse,
};

/// Longer than any store needs for a short delay to pass.
const STORE_WAIT_TIMEOUT: Duration = Duration::from_secs(10);

fn revision(id: &str, state: &'static str) -> Revision {
    Revision {
        kind: DocumentKind::Job,
        id: id.to_owned(),
        state,
        due_in: None,
        index_key: "topic".into(),
        owner: String::new(),
        key: None,
        body: format!("{{\"of\":\"{id}\"}}"),
        event: format!("{{\"to\":\"{state}\"}}"),
    }
}

fn new_document(id: &str) -> WriteRequest {
    WriteRequest {
        id: format!("new-{id}"),
        revision: revision(id, "PENDING"),
        expected_version: None,
        allowed_states: Vec::new(),
        quota: None,
        fence: None,
        new_documents: Vec::new(),
        messages: Vec::new(),
        only_due_time: false,
    }
}

/// A write from one state to another. The caller chooses states that follow each other in the job table.
fn change_state(id: &str, seen: u64, from: &'static str, to: &'static str) -> WriteRequest {
    WriteRequest {
        id: format!("{id}-{seen}-{to}"),
        revision: revision(id, to),
        expected_version: Some(seen),
        allowed_states: vec![from],
        quota: None,
        ..new_document(id)
    }
}

fn message(id: &str) -> Message {
    Message {
        queue: Queue::Jobs,
        id: id.to_owned(),
        document_id: "a".into(),
        body: "{}".into(),
        due_in: Duration::ZERO,
    }
}

fn query(states: &[&'static str]) -> DocumentQuery {
    DocumentQuery::new(DocumentKind::Job, states.to_vec(), 100)
}

fn fence(name: &str, number: u64) -> Option<(Name, Fence)> {
    Some((Name::new(name).unwrap(), Fence::new(number).unwrap()))
}

async fn write_applied(store: &dyn PlaneStore, write: &WriteRequest) -> u64 {
    match store.write(write).await.unwrap() {
        WriteResponse::Applied { version, .. } => version,
        other => panic!("{other:?}"),
    }
}

async fn write_refused(store: &dyn PlaneStore, write: &WriteRequest) -> WriteRefusal {
    match store.write(write).await.unwrap() {
        WriteResponse::Refused(refusal) => refusal,
        other => panic!("{other:?}"),
    }
}

async fn ids(store: &dyn PlaneStore, query: &DocumentQuery) -> Vec<String> {
    store.list(query).await.unwrap().into_iter().map(|doc| doc.id).collect()
}

/// Polls until the closure returns a value.
async fn eventually<T, F: Future<Output = Option<T>>>(ask: impl Fn() -> F) -> T {
    let end = BootClock.now() + STORE_WAIT_TIMEOUT;
    loop {
        if let Some(answer) = ask().await {
            return answer;
        }
        assert!(BootClock.now() < end, "it did not happen in time");
        BootClock.sleep(Duration::from_millis(5)).await;
    }
}

/// Generates one test per case, on the store that the given function creates. The second value it returns
/// (such as a temporary directory) lives until the end of the test.
#[macro_export]
macro_rules! plane_store_suite {
    ($make:path) => {
        $crate::plane_store_suite!($make;
            a_new_document_is_there_once, a_write_needs_the_version_it_saw, a_state_follows_only_where_it_may,
            a_stale_fence_is_refused, a_repeated_write_changes_nothing, an_idempotency_key_brings_one_document,
            all_of_a_write_or_nothing, mail_comes_until_it_is_acknowledged, mail_goes_to_one_taker,
            of_many_writers_one_wins, documents_are_found, documents_come_in_pages, every_write_is_one_event,
            a_due_time_moves_without_an_event, ended_documents_of_an_owner_are_bounded, long_histories_keep_their_first_and_newest_events, old_documents_are_forgotten,
            documents_are_found_by_scope, quotas_are_counted_by_owner,
            keys_count_within_their_scope, engine_keys_are_a_space_of_their_own,
            keys_of_earlier_versions_count_in_their_scope, names_that_read_alike_are_kept_apart,
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

//! A store with only the required capabilities: the other cases are skipped,
//! and the skips are declared.

use std::panic::catch_unwind;
use std::sync::Arc;
use std::time::Duration;

use leasehold_conformance::{Time, check_skips, find_case};
use leasehold_core::Name;
use leasehold_core::store::{
    AcquireRequest, AcquireResponse, Capabilities, LeaseList, Promise, ReleaseRequest, ReleaseResponse,
    RenewRequest, RenewResponse, SharedStore, Store, StoreError,
};

use crate::fixture::Memory;

leasehold_conformance::suite! {
    time: Virtual,
    fixture: bare(),
    skips: [
        "fencing::trap_11_grows_across_hand_over",
        "fencing::hand_over_respects_the_floor",
        "ambiguity::void_is_not_queued",
        "waiting::waiters_are_served_in_order",
        "waiting::handed_over_lease_shuts_others_out",
        "waiting::a_repeated_acquire_keeps_the_place_in_the_queue",
        "waiting::trap_17_granted_after_waiting_is_alive",
        "waiting::waiter_that_gave_up_is_forgotten",
        "waiting::leaving_the_queue_touches_no_lease",
        "waiting::trap_19_dead_waiter_costs_no_more_than_a_claim",
        "waiting::unconfirmed_claim_runs_out",
        "waiting::waiter_entry_runs_out",
        "waiting::a_repeated_acquire_renews_the_queue_entry",
        "waiting::waiters_are_counted",
        "waking::*",
        "listing::names_are_in_order",
        "listing::prefix_is_literal",
        "listing::limit_and_truncation",
        "listing::only_live_leases_are_listed",
        "crossprocess::*",
        "documents::a_read_returns_the_last_write",
        "documents::versions_grow",
        "documents::versions_grow_across_reopening",
        "documents::a_write_needs_the_expected_version",
        "documents::a_deletion_needs_the_expected_version",
        "documents::racing_writers_lose_no_update",
        "documents::an_expired_document_is_absent",
        "documents::a_write_replaces_the_lifetime",
        "documents::names_do_not_collide",
        "documents::listing_is_in_order_and_in_pages",
        "documents::bounds_are_refused",
        "documents::the_stores_time_passes",
        "documents::a_change_wakes_each_follower",
    ],
}

fn bare() -> Memory {
    Memory::behind(|store, _| Arc::new(MinimalStore(store)))
}

#[derive(Debug)]
struct MinimalStore(SharedStore);

#[async_trait::async_trait]
impl Store for MinimalStore {
    fn capabilities(&self) -> Capabilities {
        Capabilities::new("bare", Promise::Volatile)
    }

    fn describe(&self) -> String {
        "bare:".to_owned()
    }

    async fn acquire(
        &self,
        request: &AcquireRequest,
        within: Duration,
    ) -> Result<AcquireResponse, StoreError> {
        self.0.acquire(&request.clone().with_queue(None), within).await
    }

    async fn renew(
        &self,
        batch: &[RenewRequest],
        within: Duration,
    ) -> Vec<Result<RenewResponse, StoreError>> {
        self.0.renew(batch, within).await
    }

    async fn release(
        &self,
        request: &ReleaseRequest,
        within: Duration,
    ) -> Result<ReleaseResponse, StoreError> {
        self.0.release(request, within).await
    }

    async fn inspect(&self, name: &Name, within: Duration) -> Result<LeaseList, StoreError> {
        self.0.inspect(name, within).await
    }
}

#[test]
fn the_reason_for_a_skip_names_the_store_and_what_it_lacks() {
    let case = find_case("waking::hint_arrives").unwrap();
    let reason = case.skip_reason(&Capabilities::new("bare", Promise::Volatile));
    let wanted = "the bare store says that it keeps no queue of waiters and it cannot wake waiters";
    assert_eq!(reason.as_deref(), Some(wanted));
}

#[test]
fn undeclared_stale_and_unknown_skips_are_reported() {
    for (declared, told) in [
        (vec![], "skipped without being declared: [\"fencing::"),
        (vec!["release::twice_is_not_owned"], "but played: [\"release::twice_is_not_owned\"]"),
        (vec!["nothing::at_all"], "no such case: [\"nothing::at_all\"]"),
    ] {
        let panicked = catch_unwind(|| check_skips(Time::Virtual, async { bare() }, &declared)).unwrap_err();
        let message = panicked.downcast_ref::<String>().unwrap();
        assert!(message.contains(told), "{message}");
    }
}

//! A prefix changes nothing but the names, even beside other prefixes with the same names.

use std::sync::Arc;
use std::time::Duration;

use leasehold_conformance::client::{TestClient, long_ttl};
use leasehold_conformance::find_case;
use leasehold_core::Name;
use leasehold_core::adapter::PrefixedStore;
use leasehold_core::store::{
    AcquireRequest, AcquireResponse, Capabilities, Documents, LeaseList, ReleaseRequest, ReleaseResponse,
    RenewRequest, RenewResponse, SharedStore, Store, StoreError,
};

use crate::fixture::Memory;
use crate::mutant_store::{Bug, MutantStore};

fn with_prefix(store: SharedStore, prefix: &str) -> SharedStore {
    Arc::new(PrefixedStore::new(store, prefix).unwrap())
}

/// The store under a prefix, with neighbours whose names sort before, among and after its own.
async fn crowded() -> Memory {
    with_neighbours(Memory::behind(|store, _| with_prefix(store, "team:")).shorter_names("team:".len())).await
}

async fn with_neighbours(fixture: Memory) -> Memory {
    let plain = fixture.plain();
    for foreign in ["team", "team2:job:1", "job:1", "a", "zoo", "tea", "team:"] {
        let neighbour = TestClient::new(&plain, foreign, "neighbour").unwrap();
        neighbour.expect_granted(long_ttl()).await.unwrap();
    }
    fixture
}

/// A prefix adapter that separates names but lists everything in the store.
#[derive(Debug)]
struct LeakyListStore(SharedStore, SharedStore);

#[async_trait::async_trait]
impl Store for LeakyListStore {
    fn capabilities(&self) -> Capabilities {
        self.0.capabilities()
    }

    fn documents(&self) -> Option<&dyn Documents> {
        self.0.documents()
    }

    fn describe(&self) -> String {
        self.0.describe()
    }

    async fn acquire(
        &self,
        request: &AcquireRequest,
        within: Duration,
    ) -> Result<AcquireResponse, StoreError> {
        self.0.acquire(request, within).await
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

    async fn list(&self, prefix: &str, limit: usize, within: Duration) -> Result<LeaseList, StoreError> {
        self.1.list(prefix, limit, within).await
    }
}

async fn case_fails(id: &str, fixture: Memory) -> bool {
    find_case(id).unwrap().run(&with_neighbours(fixture).await).await.is_err()
}

#[tokio::test(start_paused = true)]
async fn prefix_that_lists_its_neighbours_is_detected() {
    for id in ["listing::names_are_in_order", "names::hostile_names_do_not_collide"] {
        let leaky = || {
            Memory::behind(|store, _| {
                Arc::new(LeakyListStore(with_prefix(Arc::clone(&store), "team:"), store))
            })
        };
        assert!(case_fails(id, leaky().shorter_names(5)).await, "{id}");
    }
}

#[tokio::test(start_paused = true)]
async fn neighbours_stay_hidden_even_if_the_store_lists_too_much() {
    for id in ["listing::names_are_in_order", "listing::prefix_is_literal"] {
        let memory = Arc::default();
        let over = Memory::behind(move |store, _| {
            with_prefix(MutantStore::shared(Bug::ListWithoutPrefix, store, &memory), "team:")
        });
        assert!(!case_fails(id, over).await, "{id}");
    }
}

leasehold_conformance::suite! {
    time: Virtual,
    fixture: crowded().await,
    skips: ["crossprocess::*"],
}

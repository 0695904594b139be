//! A prefix changes nothing but the names, even beside tenants who use the same ones.

use std::sync::Arc;
use std::time::Duration;

use leasehold_conformance::asker::{Asker, long};
use leasehold_conformance::find;
use leasehold_core::Name;
use leasehold_core::adapter::Prefixed;
use leasehold_core::store::{
    Answer, Ask, Capabilities, Failure, Given, Giving, Lease, Listing, Renewal, Renewed, SharedStore, Store,
};

use crate::bent::{Bent, Bug};
use crate::fixture::Memory;

fn under(store: SharedStore, prefix: &str) -> SharedStore {
    Arc::new(Prefixed::new(store, prefix).unwrap())
}

/// The cases' store under a prefix, between neighbours whose names would sort before, among and after its own.
async fn crowded() -> Memory {
    crowd(Memory::behind(|store, _| under(store, "team:")).shorter_names("team:".len())).await
}

async fn crowd(fixture: Memory) -> Memory {
    let plain = fixture.plain();
    for foreign in ["team", "team2:job:1", "job:1", "a", "zoo", "tea", "team:"] {
        let neighbour = Asker::new(&plain, foreign, "neighbour").unwrap();
        neighbour.gets(long()).await.unwrap();
    }
    fixture
}

/// A prefix that keeps names apart but lists whatever the store has.
#[derive(Debug)]
struct Leaky(SharedStore, SharedStore);

#[async_trait::async_trait]
impl Store for Leaky {
    fn capabilities(&self) -> Capabilities {
        self.0.capabilities()
    }

    fn describe(&self) -> String {
        self.0.describe()
    }

    async fn acquire(&self, ask: &Ask, within: Duration) -> Result<Answer, Failure> {
        self.0.acquire(ask, within).await
    }

    async fn renew(&self, batch: &[Renewal], within: Duration) -> Vec<Result<Renewed, Failure>> {
        self.0.renew(batch, within).await
    }

    async fn release(&self, giving: &Giving, within: Duration) -> Result<Given, Failure> {
        self.0.release(giving, within).await
    }

    async fn inspect(&self, name: &Name, within: Duration) -> Result<Option<Lease>, Failure> {
        self.0.inspect(name, within).await
    }

    async fn list(&self, prefix: &str, limit: usize, within: Duration) -> Result<Listing, Failure> {
        self.1.list(prefix, limit, within).await
    }
}

async fn fails(id: &str, fixture: Memory) -> bool {
    find(id).unwrap().verdict(&crowd(fixture).await).await.is_err()
}

#[tokio::test(start_paused = true)]
async fn a_prefix_that_shows_its_neighbours_is_noticed() {
    for id in [
        "listing::names_are_in_order",
        "names::hostile_names_do_not_collide",
    ] {
        let leaky = || Memory::behind(|store, _| Arc::new(Leaky(under(Arc::clone(&store), "team:"), store)));
        assert!(fails(id, leaky().shorter_names(5)).await, "{id}");
    }
}

#[tokio::test(start_paused = true)]
async fn neighbours_stay_hidden_even_if_the_store_lists_too_much() {
    for id in ["listing::names_are_in_order", "listing::prefix_is_literal"] {
        let memory = Arc::default();
        let over = Memory::behind(move |store, _| {
            under(Bent::shared(Bug::ListWithoutPrefix, store, &memory), "team:")
        });
        assert!(!fails(id, over).await, "{id}");
    }
}

leasehold_conformance::suite! {
    time: Virtual,
    fixture: crowded().await,
    skips: ["crossprocess::*"],
}

//! A verb's way to the store: which one, for how long it may take, and a runtime to wait on.

use std::future::Future;
use std::time::Duration;

use anyhow::{Context, anyhow};
use leasehold::StoreUrl;
use leasehold::clock::{BootClock, Clock, until};
use leasehold::policy::duration::human;
use leasehold::store::{Failure, Listing, SharedStore};
use tokio::runtime::Runtime;

use crate::args::Place;
use crate::config::Config;

/// An open store.
#[derive(Debug)]
pub(crate) struct Desk {
    /// Which.
    pub(crate) url: StoreUrl,
    /// It.
    pub(crate) store: SharedStore,
    /// How long it may take to answer.
    pub(crate) within: Duration,
    runtime: Runtime,
}

impl Desk {
    /// Opens the store that was named.
    pub(crate) fn open(place: &Place) -> anyhow::Result<Self> {
        Self::of(place.store()?, place)
    }

    /// Opens this one.
    pub(crate) fn of(url: StoreUrl, place: &Place) -> anyhow::Result<Self> {
        let within = Config::load(place)?.timeout.value;
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let store = runtime.block_on(async { url.open() })?;
        Ok(Self {
            url,
            store,
            within,
            runtime,
        })
    }

    /// Waits for one answer of the store.
    pub(crate) fn ask<T>(&self, question: impl Future<Output = Result<T, Failure>>) -> anyhow::Result<T> {
        self.wait(asked(question, self.within))
    }

    /// What is held below this prefix.
    pub(crate) fn list(&self, prefix: &str, limit: usize) -> anyhow::Result<Listing> {
        self.ask(self.store.list(prefix, limit, self.within))
            .with_context(|| format!("cannot list the locks of {}", self.url))
    }

    /// Waits for something.
    pub(crate) fn wait<T>(&self, work: impl Future<Output = T>) -> T {
        self.runtime.block_on(work)
    }
}

/// Waits for a store's answer, but not much longer than it was told to take.
pub(crate) async fn asked<T>(
    question: impl Future<Output = Result<T, Failure>>,
    within: Duration,
) -> anyhow::Result<T> {
    match until(&BootClock, BootClock.now() + within, question).await {
        Some(answer) => Ok(answer?),
        None => Err(anyhow!(
            "the store did not answer within {}; is it running?",
            human(within)
        )),
    }
}

//! An open store with its timeout and a runtime: what a verb needs for single store calls.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use leasehold::StoreUrl;
use leasehold::clock::{BootClock, Clock, ClockExt, run_until};
use leasehold::policy::duration::human;
use leasehold::store::{LeaseList, SharedStore, StoreError, StoreErrorKind, bounded_call};
use leasehold_core::acquire::DriverIo;
use leasehold_core::rng::OsRandom;
use tokio::runtime::Runtime;

use crate::config::Settings;
use crate::lease::short_duration;

/// Between two tries of a call that failed with a transient error.
const RETRY_PAUSE: Duration = Duration::from_millis(100);

#[derive(Debug)]
pub(crate) struct StoreSession {
    pub(crate) url: StoreUrl,
    pub(crate) store: SharedStore,
    /// The limit for each call, from the setting `timeout`.
    pub(crate) timeout: Duration,
    runtime: Runtime,
}

impl StoreSession {
    /// Opens the store that the arguments and the configuration select.
    pub(crate) fn open(settings: &Settings) -> anyhow::Result<Self> {
        Self::open_url(settings.store_url()?, settings)
    }

    pub(crate) fn open_url(url: StoreUrl, settings: &Settings) -> anyhow::Result<Self> {
        let within = settings.timeout.value;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        // A store may start tasks while it opens, so it is opened inside the runtime.
        let store = runtime.block_on(async { url.open() })?;
        Ok(Self { url, store, timeout: within, runtime })
    }

    /// Runs one store call, limited by the session's timeout.
    pub(crate) fn call<T>(&self, question: impl Future<Output = Result<T, StoreError>>) -> anyhow::Result<T> {
        self.block_on(call_within(question, self.timeout))
    }

    /// Repeats a call that fails with a transient error, until the session's timeout. `call` gets the
    /// time that is left.
    pub(crate) fn call_with_retries<T>(
        &self,
        call: impl AsyncFn(Duration) -> Result<T, StoreError>,
    ) -> anyhow::Result<T> {
        self.block_on(async {
            let end = BootClock.now() + self.timeout;
            loop {
                let left = end.since(BootClock.now());
                match run_until(&BootClock, end, call(left)).await {
                    Some(Ok(response)) => return Ok(response),
                    Some(Err(failure)) if failure.is_transient() && BootClock.now() + RETRY_PAUSE < end => {
                        BootClock.sleep(RETRY_PAUSE).await;
                    }
                    Some(Err(failure)) => return Err(failure.into()),
                    None => bail!("no answer within {}", short_duration(self.timeout)),
                }
            }
        })
    }

    /// Lists the leases whose names begin with `prefix`.
    pub(crate) fn list(&self, prefix: &str, limit: usize) -> anyhow::Result<LeaseList> {
        self.call(self.store.list(prefix, limit, self.timeout))
            .with_context(|| format!("cannot list the locks of {}", self.url))
    }

    /// What core's drivers need: the store, time and randomness.
    pub(crate) fn driver_io(&self) -> DriverIo {
        DriverIo::new(Arc::clone(&self.store), BootClock::shared(), OsRandom::shared())
    }

    pub(crate) fn block_on<T>(&self, work: impl Future<Output = T>) -> T {
        self.runtime.block_on(work)
    }
}

/// Runs one store call with a limit of its own.
pub(crate) async fn call_within<T>(
    question: impl Future<Output = Result<T, StoreError>>,
    within: Duration,
) -> anyhow::Result<T> {
    let answer = bounded_call(&BootClock, within, question).await;
    answer.map_err(|failure| match failure.kind {
        StoreErrorKind::TimedOut => anyhow::Error::from(failure)
            .context(format!("the store did not answer within {}; is it running?", human(within))),
        _ => failure.into(),
    })
}

//! The lock client of `run` and `elect`, with its observers.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use leasehold::{Locks, StoreUrl};

use super::event_printer::EventPrinter;
use crate::config::Settings;
use crate::metrics_file::{EventCounter, MetricsFile};
use crate::trace::Trace;

/// The limit for pending releases and undos at exit.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(1);

/// An open client whose events are printed, counted and traced.
pub(crate) struct CommandClient {
    pub(crate) locks: Locks,
    pub(crate) printer: EventPrinter,
    trace: Trace,
    metrics_file: Option<MetricsFile>,
}

impl CommandClient {
    pub(crate) async fn open(
        settings: &Settings,
        store: &StoreUrl,
        metrics_file: Option<&Path>,
    ) -> anyhow::Result<Self> {
        let (observer, printer) = EventPrinter::new();
        let trace = Trace::from_env()?;
        let counter = Arc::new(EventCounter::default());
        let opening = leasehold::open(store.clone()).observer(observer).observer(Arc::clone(&counter) as _);
        let mut opening = trace.observe_opening(opening);
        if let Some(file) = settings.policy_file() {
            opening = opening.policies(file);
        }
        if let Some(holder) = settings.holder()? {
            opening = opening.holder(holder);
        }
        let locks = opening.build().await?;
        let kind = locks.store().capabilities().kind;
        let metrics_file = metrics_file.map(|path| MetricsFile::start(path, &counter, kind)).transpose()?;
        Ok(Self { locks, printer, trace, metrics_file })
    }

    /// Undoes requests without a response as far as possible, and writes the last metrics and spans.
    pub(crate) async fn close(self) {
        self.locks.shutdown(SHUTDOWN_TIMEOUT).await;
        if let Some(file) = self.metrics_file {
            file.finish().await;
        }
        self.trace.finish().await;
    }
}

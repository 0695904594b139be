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
        // Policies are read first: an invalid file must not leave a new, empty database behind.
        let (policies, holder, url) = (settings.followed_policies()?, settings.holder()?, store.clone());
        // On a blocking thread: opening a SQLite file may wait for other processes.
        let store = tokio::task::spawn_blocking(move || url.open()).await??;
        let builder = Locks::builder(store).observer(observer).observer(Arc::clone(&counter) as _);
        let mut builder = trace.observe_builder(builder);
        if let Some((file, book)) = policies {
            builder = builder.policies(book).policy_file(file);
        }
        if let Some(holder) = holder {
            builder = builder.holder(holder);
        }
        let locks = builder.build()?;
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

//! Spans for an OpenTelemetry collector, if the build has feature `otlp` and the environment names one.

use leasehold_core::LocksBuilder;

#[cfg(feature = "otlp")]
const OTLP_ENDPOINT_VARIABLE: &str = "OTEL_EXPORTER_OTLP_ENDPOINT";

/// The span exporter; empty without the feature or without a collector.
#[derive(Debug, Default)]
pub(crate) struct Trace {
    #[cfg(feature = "otlp")]
    exporter: Option<leasehold_trace::Otlp>,
}

impl Trace {
    #[cfg(feature = "otlp")]
    pub(crate) fn from_env() -> anyhow::Result<Self> {
        let endpoint = std::env::var(OTLP_ENDPOINT_VARIABLE).ok().filter(|endpoint| !endpoint.is_empty());
        let service = std::env::var("OTEL_SERVICE_NAME").unwrap_or_else(|_| "leasehold".to_owned());
        let to = endpoint.map(|endpoint| leasehold_trace::Otlp::new(&endpoint, &service));
        Ok(Self { exporter: to.transpose()? })
    }

    #[cfg(not(feature = "otlp"))]
    #[expect(clippy::unnecessary_wraps, reason = "the same as with the feature")]
    pub(crate) fn from_env() -> anyhow::Result<Self> {
        Ok(Self::default())
    }

    /// Adds the exporter as an observer.
    pub(crate) fn observe_builder(&self, builder: LocksBuilder) -> LocksBuilder {
        #[cfg(feature = "otlp")]
        if let Some(to) = &self.exporter {
            return builder.observer(to.spans());
        }
        builder
    }

    /// Sends the remaining spans. An unreachable collector is reported but does not change the exit code.
    #[cfg_attr(not(feature = "otlp"), expect(clippy::unused_async, reason = "the same as with the feature"))]
    pub(crate) async fn finish(self) {
        #[cfg(feature = "otlp")]
        if let Some(to) = self.exporter
            // The exporter flushes with blocking I/O.
            && let Ok(Err(why)) = tokio::task::spawn_blocking(move || to.finish()).await
        {
            crate::message::print_message(&format!("spans were not sent: {why}"));
        }
    }
}

//! Sends spans to a collector over OTLP/HTTP.

use std::sync::Arc;
use std::time::Duration;

use opentelemetry::trace::TracerProvider as _;
use opentelemetry_otlp::{SpanExporter, WithExportConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::{SdkTracer, SdkTracerProvider};

use crate::SpanObserver;

/// The exporter could not be created.
#[derive(Debug, thiserror::Error)]
#[error("cannot send spans to {to}: {why}")]
#[non_exhaustive]
pub struct OtlpError {
    to: String,
    why: String,
}

/// Sends spans to a collector in batches, from its own thread. An unreachable collector loses spans
/// and affects no lock.
#[derive(Debug)]
pub struct Otlp {
    provider: SdkTracerProvider,
    spans: Arc<SpanObserver<SdkTracer>>,
}

impl Otlp {
    /// Creates an exporter to the collector at this URL (`http://127.0.0.1:4318`), under this
    /// service name.
    ///
    /// # Errors
    /// The URL is invalid.
    pub fn new(endpoint: &str, service: &str) -> Result<Self, OtlpError> {
        let exporter = SpanExporter::builder()
            .with_http()
            .with_endpoint(format!("{}/v1/traces", endpoint.trim_end_matches('/')))
            .with_timeout(Duration::from_secs(3))
            .build()
            .map_err(|error| OtlpError { to: endpoint.to_owned(), why: error.to_string() })?;
        let resource = Resource::builder().with_service_name(service.to_owned()).build();
        let provider =
            SdkTracerProvider::builder().with_batch_exporter(exporter).with_resource(resource).build();
        let spans = Arc::new(SpanObserver::new(provider.tracer("leasehold")));
        Ok(Self { provider, spans })
    }

    /// The observer to add to a client.
    #[must_use]
    pub fn spans(&self) -> Arc<SpanObserver<SdkTracer>> {
        Arc::clone(&self.spans)
    }

    /// Sends the remaining spans, for a few seconds at most. It blocks, so do not call it on a
    /// runtime thread.
    ///
    /// # Errors
    /// Some spans could not be sent.
    pub fn finish(&self) -> Result<(), String> {
        // `shutdown` alone does not report lost spans; the flush does.
        let sent = self.provider.force_flush();
        let ended = self.provider.shutdown();
        sent.and(ended).map_err(|error| error.to_string())
    }
}

//! A tracer that sends to a collector, over OTLP/HTTP.

use std::sync::Arc;
use std::time::Duration;

use opentelemetry::trace::TracerProvider as _;
use opentelemetry_otlp::{SpanExporter, WithExportConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::{SdkTracer, SdkTracerProvider};

use crate::Spans;

/// Spans cannot be sent.
#[derive(Debug, thiserror::Error)]
#[error("cannot send spans to {to}: {why}")]
pub struct CannotSend {
    to: String,
    why: String,
}

/// Spans on their way to a collector. They leave in batches, from a thread of their own; a collector that is away costs spans only.
#[derive(Debug)]
pub struct Otlp {
    provider: SdkTracerProvider,
    spans: Arc<Spans<SdkTracer>>,
}

impl Otlp {
    /// To the collector at this address (`http://127.0.0.1:4318`), under this service's name.
    ///
    /// # Errors
    /// The address is not one.
    pub fn new(endpoint: &str, service: &str) -> Result<Self, CannotSend> {
        let exporter = SpanExporter::builder()
            .with_http()
            .with_endpoint(format!("{}/v1/traces", endpoint.trim_end_matches('/')))
            .with_timeout(Duration::from_secs(3))
            .build()
            .map_err(|error| CannotSend {
                to: endpoint.to_owned(),
                why: error.to_string(),
            })?;
        let resource = Resource::builder().with_service_name(service.to_owned()).build();
        let provider = SdkTracerProvider::builder()
            .with_batch_exporter(exporter)
            .with_resource(resource)
            .build();
        let spans = Arc::new(Spans::new(provider.tracer("leasehold")));
        Ok(Self { provider, spans })
    }

    /// The observer to add to a client.
    #[must_use]
    pub fn spans(&self) -> Arc<Spans<SdkTracer>> {
        Arc::clone(&self.spans)
    }

    /// Sends what is left, for a few seconds at most. It blocks: not on a thread that others need.
    ///
    /// # Errors
    /// Some of it could not be sent.
    pub fn finish(&self) -> Result<(), String> {
        // Only a flush says whether it arrived.
        let sent = self.provider.force_flush();
        let ended = self.provider.shutdown();
        sent.and(ended).map_err(|error| error.to_string())
    }
}

//! Spans for a collector, if this build has them (feature `otlp`) and the environment names one.

use leasehold::Opening;
use leasehold::leasehold_core::Builder;

/// Where OpenTelemetry's programs look for the collector's address.
#[cfg(feature = "otlp")]
const ENDPOINT: &str = "OTEL_EXPORTER_OTLP_ENDPOINT";

/// Spans on their way, or none.
#[derive(Debug, Default)]
pub(crate) struct Trace {
    #[cfg(feature = "otlp")]
    to: Option<leasehold_trace::Otlp>,
}

impl Trace {
    /// As the environment says.
    #[cfg(feature = "otlp")]
    pub(crate) fn from_env() -> anyhow::Result<Self> {
        let endpoint = std::env::var(ENDPOINT)
            .ok()
            .filter(|endpoint| !endpoint.is_empty());
        let service = std::env::var("OTEL_SERVICE_NAME").unwrap_or_else(|_| "leasehold".to_owned());
        let to = endpoint.map(|endpoint| leasehold_trace::Otlp::new(&endpoint, &service));
        Ok(Self { to: to.transpose()? })
    }

    /// None: this build cannot.
    #[cfg(not(feature = "otlp"))]
    #[expect(clippy::unnecessary_wraps, reason = "the same as with the feature")]
    pub(crate) fn from_env() -> anyhow::Result<Self> {
        Ok(Self::default())
    }

    /// A client that tells them.
    pub(crate) fn opening(&self, opening: Opening) -> Opening {
        #[cfg(feature = "otlp")]
        if let Some(to) = &self.to {
            return opening.observer(to.spans());
        }
        opening
    }

    /// A client that tells them.
    pub(crate) fn builder(&self, builder: Builder) -> Builder {
        #[cfg(feature = "otlp")]
        if let Some(to) = &self.to {
            return builder.observer(to.spans());
        }
        builder
    }

    /// Sends what is left. A collector that is away is worth a line, not an exit code.
    #[cfg_attr(
        not(feature = "otlp"),
        expect(clippy::unused_async, reason = "the same as with the feature")
    )]
    pub(crate) async fn finish(self) {
        #[cfg(feature = "otlp")]
        if let Some(to) = self.to
            && let Ok(Err(why)) = tokio::task::spawn_blocking(move || to.finish()).await
        {
            crate::say::say(&format!("spans were not sent: {why}"));
        }
    }
}

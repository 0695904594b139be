//! The remote end of a connection: its TLS names and its time limit.

use std::sync::Arc;
use std::time::Duration;

/// The names in the client's certificate; empty without one.
#[derive(Debug, Clone, Default)]
pub(crate) struct Peer {
    pub(crate) names: Arc<[String]>,
    /// Set on a reserved connection: the request must be complete within this time.
    pub(crate) reserved_timeout: Option<Duration>,
}

impl Peer {
    /// Reads the names of a certificate that the handshake has verified.
    pub(crate) fn from_certificate(certificate: &rustls::pki_types::CertificateDer<'_>) -> Self {
        let Ok(certificate) = webpki::EndEntityCert::try_from(certificate) else {
            return Self::default();
        };
        let dns = certificate.valid_dns_names().map(str::to_owned);
        let uris = certificate.valid_uri_names().map(str::to_owned);
        Self { names: dns.chain(uris).collect(), reserved_timeout: None }
    }
}

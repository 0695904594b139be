//! Who is at the other end of a connection, as far as TLS knows, and what it may take of the daemon's time.

use std::sync::Arc;
use std::time::Duration;

/// The names in the client's certificate; none without one.
#[derive(Debug, Clone, Default)]
pub(crate) struct Peer {
    pub(crate) names: Arc<[String]>,
    /// It has one of the last connections, and only for so long until its request is whole.
    pub(crate) hurry: Option<Duration>,
}

impl Peer {
    /// From a certificate that the handshake has verified.
    pub(crate) fn of(certificate: &rustls::pki_types::CertificateDer<'_>) -> Self {
        let Ok(certificate) = webpki::EndEntityCert::try_from(certificate) else {
            return Self::default();
        };
        let dns = certificate.valid_dns_names().map(str::to_owned);
        let uris = certificate.valid_uri_names().map(str::to_owned);
        Self {
            names: dns.chain(uris).collect(),
            hurry: None,
        }
    }
}

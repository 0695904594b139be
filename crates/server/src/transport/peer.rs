//! The remote end of a connection: its TLS names and its time limit.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use crate::transport::unidentified::UnidentifiedConnection;

/// The names in the client's certificate; empty without one.
#[derive(Debug, Clone, Default)]
pub(crate) struct Peer {
    /// Where the connection comes from.
    pub(crate) address: Option<IpAddr>,
    pub(crate) names: Arc<[String]>,
    /// The connection's place among those without an identity; `None` if callers are not told apart.
    pub(crate) unidentified: Option<Arc<UnidentifiedConnection>>,
    /// Set on a reserved connection: the request must be complete within this time.
    pub(crate) reserved_timeout: Option<Duration>,
}

impl Peer {
    /// The peer has presented a valid identity.
    pub(crate) fn set_identified(&self) {
        if let Some(place) = &self.unidentified {
            place.set_identified();
        }
    }

    /// The names of a certificate that the handshake has verified.
    pub(crate) fn names_of(certificate: &rustls::pki_types::CertificateDer<'_>) -> Arc<[String]> {
        let Ok(certificate) = webpki::EndEntityCert::try_from(certificate) else {
            return Arc::default();
        };
        let dns = certificate.valid_dns_names().map(str::to_owned);
        let uris = certificate.valid_uri_names().map(str::to_owned);
        dns.chain(uris).collect()
    }
}

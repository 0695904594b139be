//! A client certificate, and whether the authorities that are in force still vouch for it.
//!
//! A handshake verifies the certificate once, but its connection may last for days. When the file of the
//! authorities has changed, the certificate is verified again, at the next request or access check.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rustls::pki_types::CertificateDer;

use crate::transport::tls::FollowedTls;

/// A client certificate that a handshake has verified.
pub(crate) struct ClientCertificate {
    /// The names in it.
    pub(crate) names: Vec<String>,
    /// The certificate, and those between it and its authority.
    chain: Vec<CertificateDer<'static>>,
    tls: Arc<FollowedTls>,
    /// The generation of the TLS files under which it was verified last.
    verified_in: AtomicU64,
}

impl ClientCertificate {
    /// The certificate of a handshake under this generation of the TLS files; `None` if the client sent none.
    pub(crate) fn new(
        chain: &[CertificateDer<'static>],
        tls: &Arc<FollowedTls>,
        generation: u64,
    ) -> Option<Arc<Self>> {
        let names = names_of(chain.first()?);
        let (chain, tls) = (chain.to_vec(), Arc::clone(tls));
        Some(Arc::new(Self { names, chain, tls, verified_in: AtomicU64::new(generation) }))
    }

    /// Whether an authority in force vouches for the certificate.
    pub(crate) fn is_trusted(&self) -> bool {
        let Some((certificate, intermediates)) = self.chain.split_first() else { return false };
        let verified_in = self.verified_in.load(Ordering::Relaxed);
        let Some(generation) = self.tls.verify_since(verified_in, certificate, intermediates) else {
            return false;
        };
        self.verified_in.store(generation, Ordering::Relaxed);
        true
    }
}

impl fmt::Debug for ClientCertificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientCertificate").field("names", &self.names).finish_non_exhaustive()
    }
}

fn names_of(certificate: &CertificateDer<'_>) -> Vec<String> {
    let Ok(certificate) = webpki::EndEntityCert::try_from(certificate) else {
        return Vec::new();
    };
    let dns = certificate.valid_dns_names().map(str::to_owned);
    let uris = certificate.valid_uri_names().map(str::to_owned);
    dns.chain(uris).collect()
}

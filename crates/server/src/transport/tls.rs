//! The daemon's TLS certificate, and the authority of client certificates.

use std::path::Path;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::UNIX_EPOCH;

use leasehold::clock::SharedClock;
use leasehold_core::private_file::is_private;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;
use rustls::{RootCertStore, ServerConfig};
use tokio_rustls::TlsAcceptor;

use crate::config::TlsFiles;
use crate::followed_file::FollowedFiles;

/// The TLS configuration in force. Changed files are taken over within seconds; files that cannot be
/// used together are logged, and the old ones stay.
pub(crate) struct FollowedTls {
    files: TlsFiles,
    followed: FollowedFiles,
    clock: SharedClock,
    current: RwLock<TlsInForce>,
}

/// What the files gave when they were read last.
#[derive(Clone)]
struct TlsInForce {
    acceptor: TlsAcceptor,
    /// Verifies client certificates; `None` if none are requested.
    verifier: Option<Arc<dyn ClientCertVerifier>>,
    /// Grows with each change that was taken over.
    generation: u64,
}

impl FollowedTls {
    /// Reads the certificate files.
    ///
    /// # Errors
    /// Names the file that cannot be used and the reason.
    pub(crate) fn open(files: TlsFiles, clock: SharedClock) -> Result<Self, String> {
        let paths = [&files.cert, &files.key].into_iter().chain(&files.client_ca).cloned().collect();
        let followed = FollowedFiles::new(paths, Arc::clone(&clock));
        let (acceptor, verifier) = load_tls_files(&files)?;
        let current = RwLock::new(TlsInForce { acceptor, verifier, generation: 0 });
        Ok(Self { files, followed, clock, current })
    }

    /// The acceptor for the next connection, and the generation of the files that it was made from.
    pub(crate) fn acceptor(&self) -> (TlsAcceptor, u64) {
        let current = self.in_force();
        (current.acceptor, current.generation)
    }

    /// Verifies a client certificate, unless that was done in the generation in force. Returns that generation
    /// if the certificate is good.
    pub(crate) fn verify_since(
        &self,
        verified_in: u64,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
    ) -> Option<u64> {
        let current = self.in_force();
        if current.generation != verified_in {
            let now = self.clock.wall().duration_since(UNIX_EPOCH).ok()?;
            let now = UnixTime::since_unix_epoch(now);
            current.verifier?.verify_client_cert(certificate, intermediates, now).ok()?;
        }
        Some(current.generation)
    }

    fn in_force(&self) -> TlsInForce {
        self.followed.reload_if_changed(|| match load_tls_files(&self.files) {
            Ok((acceptor, verifier)) => {
                let mut current = self.current.write().unwrap_or_else(PoisonError::into_inner);
                *current = TlsInForce { acceptor, verifier, generation: current.generation + 1 };
                tracing::info!("the TLS certificate has changed and was taken over");
            }
            // Certificate and key are often replaced one after the other; the next check has both.
            Err(error) => {
                tracing::error!(error, "the TLS certificate was not taken over; the old one stays in force")
            }
        });
        self.current.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

type LoadedTls = (TlsAcceptor, Option<Arc<dyn ClientCertVerifier>>);

/// Reads the certificate files, and builds the acceptor and the verifier of client certificates.
fn load_tls_files(files: &TlsFiles) -> Result<LoadedTls, String> {
    if !is_private(&files.key).map_err(|error| unusable(&files.key, &error))? {
        return Err(format!("{}: others can read this key; run chmod 600 on it", files.key.display()));
    }
    let chain = certificates(&files.cert)?;
    let key = PrivateKeyDer::from_pem_file(&files.key).map_err(|error| unusable(&files.key, &error))?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?;
    let verifier = match &files.client_ca {
        Some(path) => {
            let mut roots = RootCertStore::empty();
            roots.add_parsable_certificates(certificates(path)?);
            // A certificate is requested, not required: probes have none. The gate requires one, or a
            // token, on every route that is not open.
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider)
                .allow_unauthenticated()
                .build()
                .map_err(|error| unusable(path, &error))?;
            Some(verifier)
        }
        None => None,
    };
    let builder = match &verifier {
        Some(verifier) => builder.with_client_cert_verifier(Arc::clone(verifier)),
        None => builder.with_no_client_auth(),
    };
    let mut config = builder.with_single_cert(chain, key).map_err(|error| unusable(&files.cert, &error))?;
    // The server speaks HTTP/1.1 only; offering it avoids a failed h2 negotiation.
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok((TlsAcceptor::from(Arc::new(config)), verifier))
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    CertificateDer::pem_file_iter(path)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .map_err(|error| unusable(path, &error))
}

fn unusable(path: &Path, error: &dyn std::fmt::Display) -> String {
    format!("{}: cannot be used: {error}", path.display())
}

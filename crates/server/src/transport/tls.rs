//! The daemon's TLS certificate, and the authority of client certificates.

use std::path::Path;
use std::sync::{Arc, PoisonError, RwLock};

use leasehold::clock::SharedClock;
use leasehold_core::private_file::is_private;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use tokio_rustls::TlsAcceptor;

use crate::config::TlsFiles;
use crate::followed_file::FollowedFiles;

/// The TLS configuration in force. Changed files are taken over within seconds; files that cannot be
/// used together are logged, and the old ones stay.
pub(crate) struct FollowedTls {
    files: TlsFiles,
    followed: FollowedFiles,
    current: RwLock<TlsAcceptor>,
}

impl FollowedTls {
    /// Reads the certificate files.
    ///
    /// # Errors
    /// Names the file that cannot be used and the reason.
    pub(crate) fn open(files: TlsFiles, clock: SharedClock) -> Result<Self, String> {
        let paths = [&files.cert, &files.key].into_iter().chain(&files.client_ca).cloned().collect();
        let followed = FollowedFiles::new(paths, clock);
        let current = RwLock::new(acceptor(&files)?);
        Ok(Self { files, followed, current })
    }

    /// The acceptor for the next connection.
    pub(crate) fn acceptor(&self) -> TlsAcceptor {
        self.followed.reload_if_changed(|| match acceptor(&self.files) {
            Ok(new) => {
                *self.current.write().unwrap_or_else(PoisonError::into_inner) = new;
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

/// Reads the certificate files and builds the acceptor.
fn acceptor(files: &TlsFiles) -> Result<TlsAcceptor, String> {
    if !is_private(&files.key).map_err(|error| unusable(&files.key, &error))? {
        return Err(format!("{}: others can read this key; run chmod 600 on it", files.key.display()));
    }
    let chain = certificates(&files.cert)?;
    let key = PrivateKeyDer::from_pem_file(&files.key).map_err(|error| unusable(&files.key, &error))?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?;
    let builder = match &files.client_ca {
        Some(path) => {
            let mut roots = RootCertStore::empty();
            roots.add_parsable_certificates(certificates(path)?);
            // A certificate is requested, not required: probes have none. The gate requires one, or a
            // token, on every route that is not open.
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider)
                .allow_unauthenticated()
                .build()
                .map_err(|error| unusable(path, &error))?;
            builder.with_client_cert_verifier(verifier)
        }
        None => builder.with_no_client_auth(),
    };
    let mut config = builder.with_single_cert(chain, key).map_err(|error| unusable(&files.cert, &error))?;
    // The server speaks HTTP/1.1 only; offering it avoids a failed h2 negotiation.
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(TlsAcceptor::from(Arc::new(config)))
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    CertificateDer::pem_file_iter(path)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .map_err(|error| unusable(path, &error))
}

fn unusable(path: &Path, error: &dyn std::fmt::Display) -> String {
    format!("{}: cannot be used: {error}", path.display())
}

//! Trusted authorities and the client certificate for `https`.

use std::sync::Arc;

use leasehold_core::store::StoreError;
use leasehold_core::url_options::{check_private, misconfigured};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio_rustls::TlsConnector;

use crate::options::HttpOptions;

/// The connector and the name that the daemon's certificate must have; `None` for plain `http`.
pub(crate) fn connector(
    options: &HttpOptions,
) -> Result<Option<(TlsConnector, ServerName<'static>)>, StoreError> {
    if !options.tls {
        return Ok(None);
    }
    let name = ServerName::try_from(options.host.clone()).map_err(|_| {
        misconfigured("the host is neither a name nor an address that a certificate can have")
    })?;
    let mut roots = RootCertStore::empty();
    match &options.ca_file {
        Some(path) => {
            let (added, _) = roots.add_parsable_certificates(certificates("ca_file", path)?);
            // An empty trust store would reject every daemon with a confusing TLS error.
            if added == 0 {
                return Err(misconfigured(format!("ca_file {} has no certificate to trust", path.display())));
            }
        }
        None => roots.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned()),
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|err| misconfigured(format!("TLS cannot be set up: {err}")))?
        .with_root_certificates(roots);
    let config = match (&options.cert_file, &options.key_file) {
        (Some(cert), Some(key)) => {
            check_private("key_file", key)?;
            let secret = PrivateKeyDer::from_pem_file(key)
                .map_err(|err| misconfigured(format!("key_file {} cannot be used: {err}", key.display())))?;
            config.with_client_auth_cert(certificates("cert_file", cert)?, secret).map_err(|err| {
                misconfigured(format!("cert_file and key_file cannot be used together: {err}"))
            })?
        }
        _ => config.with_no_client_auth(),
    };
    Ok(Some((TlsConnector::from(Arc::new(config)), name)))
}

fn certificates(key: &str, path: &std::path::Path) -> Result<Vec<CertificateDer<'static>>, StoreError> {
    let unusable = |err| misconfigured(format!("{key} {} cannot be used: {err}", path.display()));
    CertificateDer::pem_file_iter(path).map_err(unusable)?.collect::<Result<_, _>>().map_err(unusable)
}

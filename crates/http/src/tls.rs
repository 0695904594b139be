//! Whom we trust and who we are, for `https`.

use std::sync::Arc;

use leasehold_core::store::Failure;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio_rustls::TlsConnector;

use crate::options::{HttpOptions, check_private, refuse};

/// The connector and the name the daemon's certificate must have; nothing for plain `http`.
pub(crate) fn connector(
    options: &HttpOptions,
) -> Result<Option<(TlsConnector, ServerName<'static>)>, Failure> {
    if !options.tls {
        return Ok(None);
    }
    let name = ServerName::try_from(options.host.clone())
        .map_err(|_| refuse("the host is neither a name nor an address that a certificate can have"))?;
    let mut roots = RootCertStore::empty();
    match &options.ca_file {
        Some(path) => {
            let (added, _) = roots.add_parsable_certificates(certificates("ca_file", path)?);
            if added == 0 {
                return Err(refuse(format!(
                    "ca_file {} has no certificate to trust",
                    path.display()
                )));
            }
        }
        None => roots.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned()),
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|err| refuse(format!("TLS cannot be set up: {err}")))?
        .with_root_certificates(roots);
    let config = match (&options.cert_file, &options.key_file) {
        (Some(cert), Some(key)) => {
            check_private("key_file", key)?;
            let secret = PrivateKeyDer::from_pem_file(key)
                .map_err(|err| refuse(format!("key_file {} cannot be used: {err}", key.display())))?;
            config
                .with_client_auth_cert(certificates("cert_file", cert)?, secret)
                .map_err(|err| refuse(format!("cert_file and key_file cannot be used together: {err}")))?
        }
        _ => config.with_no_client_auth(),
    };
    Ok(Some((TlsConnector::from(Arc::new(config)), name)))
}

fn certificates(key: &str, path: &std::path::Path) -> Result<Vec<CertificateDer<'static>>, Failure> {
    let unusable = |err| refuse(format!("{key} {} cannot be used: {err}", path.display()));
    CertificateDer::pem_file_iter(path)
        .map_err(unusable)?
        .collect::<Result<_, _>>()
        .map_err(unusable)
}

//! The API token of each request: from the file that the URL names, or a local daemon's owner token.

use std::net::Ipv4Addr;
use std::sync::{Mutex, PoisonError};

use http::HeaderValue;
use leasehold_core::store::StoreError;
use leasehold_core::url_options::misconfigured;

use crate::options::HttpOptions;
use crate::owner_token::OwnerToken;

/// Where requests get their token from.
#[derive(Debug)]
pub(crate) struct Credentials {
    /// Connections are made by this machine's network, not by a simulation or a tunnel.
    real_network: bool,
    /// The client reaches this machine's own loopback interface and has no other identity.
    uses_owner_token: bool,
    current: Mutex<(Option<OwnerToken>, Generation)>,
}

/// Counts the owner tokens seen. A connection carries requests of its own generation only: one that
/// was opened before the daemon started may lead to another process.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Generation(u64);

impl Credentials {
    pub(crate) fn new(options: &HttpOptions, real_network: bool) -> Self {
        let identified = options.token_file.is_some() || options.cert_file.is_some();
        Self { real_network, uses_owner_token: real_network && !identified, current: Mutex::default() }
    }

    /// The `Authorization` header. Both files are read for each request, so that a rotated token and
    /// a restarted daemon count at once.
    pub(crate) fn header(&self, options: &HttpOptions) -> Result<Option<HeaderValue>, StoreError> {
        let token = match options.token()? {
            Some(token) => Some(token),
            None => self.find_owner_token(options)?,
        };
        let Some(token) = token else { return Ok(None) };
        let value = HeaderValue::from_str(&format!("Bearer {token}"));
        let mut value = value.map_err(|_| misconfigured("the API token cannot be sent in a header"))?;
        // Keeps the token out of debug output of the headers.
        value.set_sensitive(true);
        Ok(Some(value))
    }

    fn find_owner_token(&self, options: &HttpOptions) -> Result<Option<String>, StoreError> {
        if !self.uses_owner_token {
            return Ok(None);
        }
        let found = OwnerToken::find(&options.host, options.port)?;
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        if current.0 != found {
            *current = (found.clone(), Generation(current.1.0 + 1));
        }
        Ok(found.map(|found| found.token))
    }

    /// The generation of a connection that is opened now.
    pub(crate) fn generation(&self) -> Generation {
        self.current.lock().unwrap_or_else(PoisonError::into_inner).1
    }

    /// The host to connect to. `localhost` may resolve to several addresses, where different users
    /// may listen; the token goes only to the address that it belongs to.
    pub(crate) fn host_to_dial(&self, options: &HttpOptions) -> String {
        let current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        match &current.0 {
            Some(token) => token.address.to_string(),
            // Without TLS nothing proves who listens. Were IPv4 refused, another user's process could wait on IPv6.
            None if self.names_localhost_in_clear(options) => Ipv4Addr::LOCALHOST.to_string(),
            None => options.host.clone(),
        }
    }

    fn names_localhost_in_clear(&self, options: &HttpOptions) -> bool {
        let localhost = options.host.eq_ignore_ascii_case("localhost");
        self.real_network && localhost && !options.tls && options.token_file.is_some()
    }

    /// Whether a refused request may be sent again, because the token in its file is a new one.
    pub(crate) fn has_changed(&self, sent: Option<&HeaderValue>, options: &HttpOptions) -> bool {
        self.header(options).is_ok_and(|now| now.is_some() && now.as_ref() != sent)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Finding 27 of the security review: a token goes to one address only.
    #[test]
    fn finding_27_a_token_for_localhost_goes_to_one_loopback_address() {
        let host = |url: &str, real_network| {
            let options = HttpOptions::parse(url).unwrap();
            Credentials::new(&options, real_network).host_to_dial(&options)
        };
        assert_eq!(host("http://localhost:7420?token_file=/t", true), "127.0.0.1");
        assert_eq!(host("http://LOCALHOST:7420?token_file=/t", true), "127.0.0.1");
        assert_eq!(host("http://[::1]:7420?token_file=/t", true), "::1");
        assert_eq!(host("http://localhost:7420", true), "localhost");
        assert_eq!(host("http://localhost:7420?token_file=/t", false), "localhost");
    }
}

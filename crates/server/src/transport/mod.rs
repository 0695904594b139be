//! Connections: listeners, TLS, the peer's identity, and the checks of requests by browsers.

pub(crate) mod browser;
pub(crate) mod client_certificate;
pub(crate) mod connection;
pub(crate) mod listener;
pub(crate) mod peer;
pub(crate) mod scrape;
pub(crate) mod tls;
pub(crate) mod unidentified;
pub(crate) mod write_timeout;

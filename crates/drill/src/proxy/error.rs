//! Errors of starting and controlling a proxy.

use std::io;
use std::net::SocketAddr;

/// Why a proxy did not start or rejected a command. Failures of the proxied connections are not
/// errors of the proxy: they are counted in [`ProxyStats`](super::ProxyStats).
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The address cannot be bound: choose another port, or 0 for a free one.
    #[error("cannot listen on {address}: choose another port, or 0 for a free one")]
    Bind {
        /// The requested address.
        address: SocketAddr,
        /// The error of the operating system.
        source: io::Error,
    },
    /// Other machines can reach the address: call
    /// [`ProxyConfig::expose`](super::ProxyConfig::expose) to allow that.
    #[error(
        "{address} can be reached from other machines; a fault proxy listens on the loopback interface unless told to be exposed"
    )]
    Exposed {
        /// The requested address.
        address: SocketAddr,
    },
    /// A toxic with invalid parameters.
    #[error("{field}: {why}")]
    Invalid {
        /// The attribute's name in the text form.
        field: String,
        /// What is wrong with it, and which values are allowed.
        why: String,
    },
    /// A toxic of that name is already in force: remove it first, or choose another name.
    #[error("there is a toxic named `{name}` already: remove it first, or say name=… for another one")]
    DuplicateToxic {
        /// The duplicate name.
        name: String,
    },
    /// No toxic of that name is in force; `list` shows all.
    #[error("there is no toxic named `{name}`: `list` shows those in force")]
    UnknownToxic {
        /// The requested name.
        name: String,
    },
    /// The proxy has been stopped: start a new one.
    #[error("the proxy has been stopped: start a new one")]
    Stopped,
}

impl Error {
    pub(super) fn invalid(field: &str, why: impl Into<String>) -> Self {
        Self::Invalid { field: field.to_owned(), why: why.into() }
    }
}

//! What can go wrong when a proxy is started or given an order.

use std::io;
use std::net::SocketAddr;

/// Why a proxy did not start or did not take an order. The proxied connections' own troubles are not errors here: they
/// are the proxy's work, and are counted in [`Stats`](super::Stats).
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The address could not be listened on: choose another port, or 0 for a free one.
    #[error("cannot listen on {address}: choose another port, or 0 for a free one")]
    Bind {
        /// The address that was asked for.
        address: SocketAddr,
        /// What the operating system says.
        source: io::Error,
    },
    /// The address can be reached from other machines: say [`Config::expose`](super::Config::expose) if that is meant.
    #[error(
        "{address} can be reached from other machines; a fault proxy listens on the loopback interface unless told to be exposed"
    )]
    Exposed {
        /// The address that was asked for.
        address: SocketAddr,
    },
    /// A toxic that cannot be meant as it was written.
    #[error("{field}: {why}")]
    Invalid {
        /// The attribute, as it is written in the text form.
        field: String,
        /// What is wrong, and what is allowed.
        why: String,
    },
    /// A toxic of that name is in force already: remove it first, or give this one a name of its own.
    #[error("there is a toxic named `{name}` already: remove it first, or say name=… for another one")]
    Taken {
        /// The name of both.
        name: String,
    },
    /// No toxic of that name is in force: `list` shows those that are.
    #[error("there is no toxic named `{name}`: `list` shows those in force")]
    Unknown {
        /// The name that was asked for.
        name: String,
    },
    /// The proxy has been stopped: start a new one.
    #[error("the proxy has been stopped: start a new one")]
    Stopped,
}

impl Error {
    pub(super) fn invalid(field: &str, why: impl Into<String>) -> Self {
        Self::Invalid {
            field: field.to_owned(),
            why: why.into(),
        }
    }
}

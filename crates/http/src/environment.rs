//! What the client takes from its machine: a clock, randomness, and connections.
//!
//! [`Environment::default`] uses the boot clock, the system's randomness and TCP. A simulation or a
//! tunnel passes its own; the rest of the client is the same code.

use std::fmt;
use std::io;
use std::pin::Pin;
use std::sync::Arc;

use async_trait::async_trait;
use leasehold_core::clock::{BootClock, SharedClock};
use leasehold_core::rng::{OsRandom, SharedRandom};
use tokio::io::{AsyncRead, AsyncWrite};

/// A connection to the daemon.
pub trait Stream: AsyncRead + AsyncWrite + Send {}

impl<S: AsyncRead + AsyncWrite + Send> Stream for S {}

/// Opens connections to the daemon.
#[async_trait]
pub trait Connector: Send + Sync {
    /// Opens a connection to this host and port.
    ///
    /// # Errors
    /// The host cannot be reached; nothing has been sent.
    async fn connect(&self, host: &str, port: u16) -> io::Result<Pin<Box<dyn Stream>>>;
}

/// The clock, randomness and connector of a client.
#[derive(Clone)]
#[must_use]
pub struct Environment {
    pub(crate) clock: SharedClock,
    pub(crate) random: SharedRandom,
    /// `None`: TCP.
    pub(crate) connector: Option<Arc<dyn Connector>>,
}

impl Environment {
    /// An environment with this clock, randomness and connector.
    pub fn new(clock: SharedClock, random: SharedRandom, dial: Arc<dyn Connector>) -> Self {
        Self { clock, random, connector: Some(dial) }
    }
}

impl Default for Environment {
    fn default() -> Self {
        Self { clock: BootClock::shared(), random: OsRandom::shared(), connector: None }
    }
}

impl fmt::Debug for Environment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Environment").finish_non_exhaustive()
    }
}

//! What the way to the daemon takes from the machine it runs on: time, chance, and connections.
//!
//! [`Parts::default`] is the machine's own: its boot clock, its randomness, TCP. Whoever gives others (a simulation, a tunnel)
//! decides what they are; everything above is the same.

use std::fmt;
use std::io;
use std::pin::Pin;
use std::sync::Arc;

use async_trait::async_trait;
use leasehold_core::clock::{BootClock, SharedClock};
use leasehold_core::rng::{OsRandom, SharedRandom};
use tokio::io::{AsyncRead, AsyncWrite};

/// One connection to the daemon.
pub trait Stream: AsyncRead + AsyncWrite + Send {}

impl<S: AsyncRead + AsyncWrite + Send> Stream for S {}

/// How connections to the daemon are made.
#[async_trait]
pub trait Dial: Send + Sync {
    /// A new connection to this host and port.
    ///
    /// # Errors
    /// Nobody is there: nothing has been sent.
    async fn dial(&self, host: &str, port: u16) -> io::Result<Pin<Box<dyn Stream>>>;
}

/// What the way to the daemon takes from its machine.
#[derive(Clone)]
#[must_use]
pub struct Parts {
    pub(crate) clock: SharedClock,
    pub(crate) random: SharedRandom,
    /// None: TCP.
    pub(crate) dial: Option<Arc<dyn Dial>>,
}

impl Parts {
    /// This clock, this source of chance, and connections made like this.
    pub fn new(clock: SharedClock, random: SharedRandom, dial: Arc<dyn Dial>) -> Self {
        Self {
            clock,
            random,
            dial: Some(dial),
        }
    }
}

impl Default for Parts {
    fn default() -> Self {
        Self {
            clock: BootClock::shared(),
            random: OsRandom::shared(),
            dial: None,
        }
    }
}

impl fmt::Debug for Parts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Parts").finish_non_exhaustive()
    }
}

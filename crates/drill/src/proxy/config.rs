//! What a proxy needs to know before it starts.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use leasehold_core::clock::{BootClock, SharedClock};
use leasehold_core::rng::{OsRandom, SeededRandom, SharedRandom};

use super::error::Error;

/// What the two sides speak, as far as the proxy has to understand it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Protocol {
    /// Bytes. Command toxics are refused; `cut_after_forward` takes a number of bytes.
    #[default]
    Raw,
    /// Redis's protocol (RESP2 and RESP3, not within TLS): commands and replies are told apart and counted.
    Resp,
}

/// Where a proxy listens, where it leads, and what it draws its time and chance from.
#[derive(Debug, Clone)]
#[must_use]
pub struct Config {
    pub(super) listen: SocketAddr,
    pub(super) upstream: SocketAddr,
    pub(super) control: Option<SocketAddr>,
    pub(super) protocol: Protocol,
    pub(super) exposed: bool,
    pub(super) buffer: usize,
    pub(super) connections: usize,
    pub(super) history: usize,
    pub(super) clock: SharedClock,
    pub(super) random: SharedRandom,
}

impl Config {
    /// A proxy to `upstream` that passes bytes, on a free port of 127.0.0.1.
    pub fn raw(upstream: SocketAddr) -> Self {
        Self {
            listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
            upstream,
            control: None,
            protocol: Protocol::Raw,
            exposed: false,
            buffer: 1 << 20,
            connections: 10_000,
            history: 10_000,
            clock: BootClock::shared(),
            random: OsRandom::shared(),
        }
    }

    /// A proxy to a Redis server, on a free port of 127.0.0.1.
    pub fn resp(upstream: SocketAddr) -> Self {
        Self {
            protocol: Protocol::Resp,
            ..Self::raw(upstream)
        }
    }

    /// Where to listen. Port 0 is a free one.
    pub fn listen(mut self, address: SocketAddr) -> Self {
        self.listen = address;
        self
    }

    /// Takes orders as lines of text on this address. Whoever can connect to it can give them.
    pub fn control(mut self, address: SocketAddr) -> Self {
        self.control = Some(address);
        self
    }

    /// Allows addresses that other machines can reach. Anybody there then reaches the server behind, too.
    pub fn expose(mut self) -> Self {
        self.exposed = true;
        self
    }

    /// The most bytes that wait in each direction of a connection (1 MiB). A full buffer stops reading, so latency caps
    /// the throughput at `buffer / latency`.
    pub fn buffer(mut self, bytes: usize) -> Self {
        self.buffer = bytes.max(1);
        self
    }

    /// The most connections at a time (10,000). Further ones wait to be accepted.
    pub fn connections(mut self, most: usize) -> Self {
        self.connections = most.clamp(1, 1 << 20);
        self
    }

    /// The most faults that are remembered (10,000). Later ones are only counted.
    pub fn history(mut self, most: usize) -> Self {
        self.history = most;
        self
    }

    /// The clock that delays are counted on.
    pub fn clock(mut self, clock: SharedClock) -> Self {
        self.clock = clock;
        self
    }

    /// Where chance comes from: asked once, when the proxy starts.
    pub fn random(mut self, random: SharedRandom) -> Self {
        self.random = random;
        self
    }

    /// The same seed draws the same connections and commands.
    pub fn seed(self, seed: u64) -> Self {
        self.random(SeededRandom::shared(seed))
    }

    /// Refuses addresses that other machines can reach, unless that was asked for.
    pub(super) fn check(&self) -> Result<(), Error> {
        let listening = std::iter::once(self.listen).chain(self.control);
        for address in listening {
            let local = match address.ip() {
                IpAddr::V4(ip) => ip.is_loopback(),
                IpAddr::V6(ip) => ip.is_loopback(),
            };
            if !local && !self.exposed {
                return Err(Error::Exposed { address });
            }
        }
        Ok(())
    }
}

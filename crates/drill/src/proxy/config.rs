//! Configuration of a proxy.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use leasehold_core::clock::{BootClock, SharedClock};
use leasehold_core::rng::{OsRandom, SeededRandom, SharedRandom};

use super::error::Error;

/// The protocol of the proxied connections, as far as the proxy has to parse it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum ProxyProtocol {
    /// Opaque bytes. Toxics on commands are rejected; `cut_after_forward` needs a number of bytes.
    #[default]
    Raw,
    /// Redis's protocol (RESP2 and RESP3, without TLS): commands and replies are parsed and
    /// counted.
    Resp,
}

/// Addresses, protocol and limits of a proxy, and its clock and random source.
#[derive(Debug, Clone)]
#[must_use]
pub struct ProxyConfig {
    pub(super) listen: SocketAddr,
    pub(super) upstream: SocketAddr,
    pub(super) control: Option<SocketAddr>,
    pub(super) protocol: ProxyProtocol,
    pub(super) exposed: bool,
    pub(super) buffer: usize,
    pub(super) connections: usize,
    pub(super) history: usize,
    pub(super) clock: SharedClock,
    pub(super) random: SharedRandom,
}

impl ProxyConfig {
    /// A proxy that forwards bytes to `upstream`, on a free port of 127.0.0.1.
    pub fn raw(upstream: SocketAddr) -> Self {
        Self {
            listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
            upstream,
            control: None,
            protocol: ProxyProtocol::Raw,
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
        Self { protocol: ProxyProtocol::Resp, ..Self::raw(upstream) }
    }

    /// Sets the listen address. Port 0 selects a free port.
    pub fn listen(mut self, address: SocketAddr) -> Self {
        self.listen = address;
        self
    }

    /// Opens a control socket for text commands on this address. It has no authentication.
    pub fn control(mut self, address: SocketAddr) -> Self {
        self.control = Some(address);
        self
    }

    /// Allows listen addresses that other machines can reach. They then also reach the server
    /// behind the proxy.
    pub fn expose(mut self) -> Self {
        self.exposed = true;
        self
    }

    /// Limits the bytes buffered in each direction of a connection (default 1 MiB). A full buffer
    /// stops reading, so a latency limits throughput to `buffer / latency`.
    pub fn buffer(mut self, bytes: usize) -> Self {
        self.buffer = bytes.max(1);
        self
    }

    /// Limits the open connections (default 10,000). Further connections wait to be accepted.
    pub fn connections(mut self, most: usize) -> Self {
        self.connections = most.clamp(1, 1 << 20);
        self
    }

    /// Limits the faults kept in the history (default 10,000). Later ones are only counted.
    pub fn history(mut self, most: usize) -> Self {
        self.history = most;
        self
    }

    /// Sets the clock for delays.
    pub fn clock(mut self, clock: SharedClock) -> Self {
        self.clock = clock;
        self
    }

    /// Sets the random source. It is read once, for the proxy's seed, when the proxy starts.
    pub fn random(mut self, random: SharedRandom) -> Self {
        self.random = random;
        self
    }

    /// Sets a fixed seed: the same seed selects the same connections and commands.
    pub fn seed(self, seed: u64) -> Self {
        self.random(SeededRandom::shared(seed))
    }

    /// Rejects addresses that other machines can reach, unless `expose` was called.
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

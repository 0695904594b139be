//! The faults that a proxy can inject, as data.

use std::time::Duration;

use super::config::ProxyProtocol;
use super::error::Error;

/// The direction of a connection that a toxic affects.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum StreamDirection {
    /// From the client to the server: requests.
    Upstream,
    /// From the server to the client: replies.
    Downstream,
}

impl StreamDirection {
    /// Its name in the text form.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Upstream => "upstream",
            Self::Downstream => "downstream",
        }
    }
}

/// The fault, with its parameters.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum ToxicKind {
    /// Each chunk is delivered `latency` ± `jitter` after it arrived. Order is kept.
    Latency {
        /// Mean delay of a chunk.
        latency: Duration,
        /// Largest deviation from the mean, in either direction.
        jitter: Duration,
    },
    /// Throughput is limited.
    Bandwidth {
        /// Kilobytes (1,000 bytes) a second.
        rate: u64,
    },
    /// The end of the stream (FIN) is forwarded late.
    SlowClose {
        /// Time between the end of the stream and its forwarding.
        delay: Duration,
    },
    /// No data passes. The connection is closed after `timeout`, or never if `timeout` is zero.
    /// Data that arrived is held, not dropped: it is delivered when the toxic is removed, as by a
    /// network that heals.
    Timeout {
        /// Time until the connection is closed; zero is never.
        timeout: Duration,
    },
    /// The connection is reset (RST on both sides) after `timeout`.
    ResetPeer {
        /// Time until the reset; zero is immediately.
        timeout: Duration,
    },
    /// The connection is closed after a number of bytes.
    LimitData {
        /// Byte limit, counted per connection from the moment the toxic took effect on it.
        bytes: u64,
    },
    /// Data is delivered in small pieces.
    Slicer {
        /// Mean size of a piece in bytes.
        average_size: u64,
        /// Largest deviation from the mean; smaller than the mean.
        size_variation: u64,
        /// Pause between two pieces.
        delay: Duration,
    },
    /// The server receives and answers the request. The reply is dropped and the connection is cut.
    CutAfterForward(CutOptions),
    /// The server receives a command twice. The second reply is dropped.
    Repeat(RepeatOptions),
}

/// When and how `cut_after_forward` cuts. The default: at the reply to any command, by closing.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CutOptions {
    /// Restricts the toxic to commands of this name, case-insensitive.
    pub command: Option<String>,
    /// Cuts at the first reply after this many forwarded bytes, instead of at a command.
    pub bytes: Option<u64>,
    /// Number of uses over all connections; after that the toxic does nothing.
    pub times: Option<u64>,
    /// Whether to reset (RST) instead of closing (FIN).
    pub reset: bool,
}

/// Which commands `repeat` sends twice. The default: all.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RepeatOptions {
    /// Restricts the toxic to commands of this name, case-insensitive.
    pub command: Option<String>,
    /// Number of uses over all connections; after that the toxic does nothing.
    pub times: Option<u64>,
}

impl ToxicKind {
    /// Its name in the text form: toxiproxy's where toxiproxy has this fault.
    #[must_use]
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::Latency { .. } => "latency",
            Self::Bandwidth { .. } => "bandwidth",
            Self::SlowClose { .. } => "slow_close",
            Self::Timeout { .. } => "timeout",
            Self::ResetPeer { .. } => "reset_peer",
            Self::LimitData { .. } => "limit_data",
            Self::Slicer { .. } => "slicer",
            Self::CutAfterForward(_) => "cut_after_forward",
            Self::Repeat(_) => "repeat",
        }
    }

    /// Whether the toxicity is drawn for each command instead of once for each connection.
    pub(super) const fn per_command(&self) -> bool {
        matches!(self, Self::Repeat(_) | Self::CutAfterForward(CutOptions { bytes: None, .. }))
    }

    /// Maximum number of uses over all connections.
    pub(super) const fn max_uses(&self) -> Option<u64> {
        match self {
            Self::CutAfterForward(CutOptions { times, .. }) | Self::Repeat(RepeatOptions { times, .. }) => {
                *times
            }
            _ => None,
        }
    }

    const fn default_direction(&self) -> StreamDirection {
        match self {
            // These two act on requests, so no other direction makes sense.
            Self::CutAfterForward(_) | Self::Repeat(_) => StreamDirection::Upstream,
            // toxiproxy's default.
            _ => StreamDirection::Downstream,
        }
    }
}

/// A fault with a name, a direction and a probability.
#[derive(Debug, Clone, PartialEq)]
#[must_use]
pub struct Toxic {
    pub(super) name: String,
    pub(super) stream: StreamDirection,
    pub(super) toxicity: f64,
    pub(super) kind: ToxicKind,
}

impl Toxic {
    /// Creates a toxic for every connection, named `<type>_<stream>`. The direction is downstream,
    /// for `cut_after_forward` and `repeat` upstream.
    pub fn new(kind: ToxicKind) -> Self {
        let stream = kind.default_direction();
        Self { name: format!("{}_{}", kind.as_str(), stream.as_str()), stream, toxicity: 1.0, kind }
    }

    /// Sets the direction. The default name changes with it.
    pub fn with_direction(mut self, stream: StreamDirection) -> Self {
        // A name that the user chose is kept, even if the direction changes afterwards.
        if self.name == format!("{}_{}", self.kind.as_str(), self.stream.as_str()) {
            self.name = format!("{}_{}", self.kind.as_str(), stream.as_str());
        }
        self.stream = stream;
        self
    }

    /// Sets the name.
    pub fn with_name(mut self, name: impl Into<String>) -> Self {
        self.name = name.into();
        self
    }

    /// Sets the probability, from 0 to 1. It is drawn once for each connection. For `repeat`, and
    /// for `cut_after_forward` without `bytes`, it is drawn for each command.
    pub fn with_toxicity(mut self, probability: f64) -> Self {
        self.toxicity = probability;
        self
    }

    /// The name to remove it by.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The direction that it affects.
    #[must_use]
    pub const fn stream(&self) -> StreamDirection {
        self.stream
    }

    /// The fault and its parameters.
    #[must_use]
    pub const fn kind(&self) -> &ToxicKind {
        &self.kind
    }

    /// Rejects parameters that contradict each other or do not fit the protocol.
    pub(super) fn check(&self, protocol: ProxyProtocol) -> Result<(), Error> {
        // The name appears in one-line replies of the control socket: no spaces and no control
        // characters.
        let plain = |c: char| c.is_ascii_alphanumeric() || "_-.:".contains(c);
        if self.name.is_empty() || self.name.len() > 64 || !self.name.chars().all(plain) {
            return Err(Error::invalid("name", "1 to 64 letters, digits or any of _ - . :"));
        }
        if !(0.0..=1.0).contains(&self.toxicity) {
            return Err(Error::invalid("toxicity", "a number from 0 to 1"));
        }
        if self.kind.default_direction() == StreamDirection::Upstream
            && self.stream == StreamDirection::Downstream
        {
            let why = format!("{} is about requests: it works upstream only", self.kind.as_str());
            return Err(Error::invalid("stream", why));
        }
        if self.kind.per_command() && protocol == ProxyProtocol::Raw {
            let why = "needs to know where commands end: use a proxy that speaks RESP, or cut_after_forward bytes=…";
            return Err(Error::invalid(self.kind.as_str(), why));
        }
        match &self.kind {
            ToxicKind::Bandwidth { rate: 0 } => {
                Err(Error::invalid("rate", "at least 1 kB/s; `timeout timeout=0` stops all data"))
            }
            ToxicKind::Slicer { average_size: 0, .. } => {
                Err(Error::invalid("average_size", "at least 1 byte"))
            }
            ToxicKind::Slicer { average_size, size_variation, .. } if size_variation >= average_size => {
                Err(Error::invalid("size_variation", "smaller than average_size"))
            }
            ToxicKind::CutAfterForward(CutOptions { command: Some(_), bytes: Some(_), .. }) => {
                Err(Error::invalid("bytes", "either `command` or `bytes`, not both"))
            }
            ToxicKind::CutAfterForward(CutOptions { command: Some(name), .. })
            | ToxicKind::Repeat(RepeatOptions { command: Some(name), .. })
                if name.is_empty() || name.len() > 32 || !name.chars().all(plain) =>
            {
                Err(Error::invalid("command", "a command's name, e.g. EVALSHA"))
            }
            _ => Ok(()),
        }
    }
}

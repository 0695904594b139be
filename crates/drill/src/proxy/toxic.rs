//! The faults, as data.

use std::time::Duration;

use super::config::Protocol;
use super::error::Error;

/// The direction a toxic works on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Stream {
    /// From the client to the server: requests.
    Upstream,
    /// From the server to the client: replies.
    Downstream,
}

impl Stream {
    /// The word for it in text.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Upstream => "upstream",
            Self::Downstream => "downstream",
        }
    }
}

/// What is done to the data.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Kind {
    /// Every chunk is delivered `latency` ± `jitter` after it came. Order is kept.
    Latency {
        /// The delay.
        latency: Duration,
        /// How far it varies either way.
        jitter: Duration,
    },
    /// At most so much passes.
    Bandwidth {
        /// Kilobytes (1,000 bytes) a second.
        rate: u64,
    },
    /// The end of the stream is passed on late.
    SlowClose {
        /// How late.
        delay: Duration,
    },
    /// Nothing passes any more; the connection is closed after `timeout`, or never if that is zero. What had come by
    /// then is held, not dropped: it goes on when the toxic is removed, as over a network that heals.
    Timeout {
        /// How long until it is closed.
        timeout: Duration,
    },
    /// The connection is reset (RST on both sides) after `timeout`.
    ResetPeer {
        /// How long until then; zero is at once.
        timeout: Duration,
    },
    /// The connection is closed when so much has passed.
    LimitData {
        /// How much, counted per connection from when the toxic took effect on it.
        bytes: u64,
    },
    /// Data is delivered in small pieces.
    Slicer {
        /// The size of a piece.
        average_size: u64,
        /// How far it varies either way; smaller than the average.
        size_variation: u64,
        /// How long after each piece the next one goes.
        delay: Duration,
    },
    /// The request reaches the server and is answered; the answer is withheld and the connection cut.
    CutAfterForward(Cut),
    /// A command reaches the server twice; the second reply is swallowed.
    Repeat(Repeat),
}

/// When `cut_after_forward` cuts, and how. The default: at the reply to any command, by closing.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Cut {
    /// Only commands of this name, in any case.
    pub command: Option<String>,
    /// Instead of at a command: at the first answer after so many bytes have been forwarded.
    pub bytes: Option<u64>,
    /// So often, over all connections; then the toxic is spent.
    pub times: Option<u64>,
    /// Reset (RST) instead of close (FIN).
    pub reset: bool,
}

/// Which commands `repeat` sends twice. The default: all.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Repeat {
    /// Only commands of this name, in any case.
    pub command: Option<String>,
    /// So often, over all connections; then the toxic is spent.
    pub times: Option<u64>,
}

impl Kind {
    /// The word for it in text: toxiproxy's where it has one.
    #[must_use]
    pub const fn word(&self) -> &'static str {
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

    /// Whether it is drawn for each command instead of for each connection.
    pub(super) const fn per_command(&self) -> bool {
        matches!(
            self,
            Self::Repeat(_) | Self::CutAfterForward(Cut { bytes: None, .. })
        )
    }

    /// How often it may strike over all connections.
    pub(super) const fn times(&self) -> Option<u64> {
        match self {
            Self::CutAfterForward(Cut { times, .. }) | Self::Repeat(Repeat { times, .. }) => *times,
            _ => None,
        }
    }

    /// Requests are what our own toxics are about; for the others, toxiproxy's default.
    const fn usual_stream(&self) -> Stream {
        match self {
            Self::CutAfterForward(_) | Self::Repeat(_) => Stream::Upstream,
            _ => Stream::Downstream,
        }
    }
}

/// A fault with its name, its direction and its probability.
#[derive(Debug, Clone, PartialEq)]
#[must_use]
pub struct Toxic {
    pub(super) name: String,
    pub(super) stream: Stream,
    pub(super) toxicity: f64,
    pub(super) kind: Kind,
}

impl Toxic {
    /// On every connection, downstream (`cut_after_forward` and `repeat`: upstream), named `<type>_<stream>`.
    pub fn new(kind: Kind) -> Self {
        let stream = kind.usual_stream();
        Self {
            name: format!("{}_{}", kind.word(), stream.word()),
            stream,
            toxicity: 1.0,
            kind,
        }
    }

    /// On this direction. A name that was not chosen follows.
    pub fn on(mut self, stream: Stream) -> Self {
        if self.name == format!("{}_{}", self.kind.word(), self.stream.word()) {
            self.name = format!("{}_{}", self.kind.word(), stream.word());
        }
        self.stream = stream;
        self
    }

    /// Under this name.
    pub fn named(mut self, name: impl Into<String>) -> Self {
        self.name = name.into();
        self
    }

    /// With this probability, from 0 to 1: drawn once for each connection; for `repeat` and for `cut_after_forward`
    /// without `bytes`, for each command.
    pub fn toxicity(mut self, probability: f64) -> Self {
        self.toxicity = probability;
        self
    }

    /// Its name, by which it is removed.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its direction.
    #[must_use]
    pub const fn stream(&self) -> Stream {
        self.stream
    }

    /// What it does.
    #[must_use]
    pub const fn kind(&self) -> &Kind {
        &self.kind
    }

    /// Refuses what cannot be meant.
    pub(super) fn check(&self, protocol: Protocol) -> Result<(), Error> {
        let plain = |c: char| c.is_ascii_alphanumeric() || "_-.:".contains(c);
        if self.name.is_empty() || self.name.len() > 64 || !self.name.chars().all(plain) {
            return Err(Error::invalid(
                "name",
                "1 to 64 letters, digits or any of _ - . :",
            ));
        }
        if !(0.0..=1.0).contains(&self.toxicity) {
            return Err(Error::invalid("toxicity", "a number from 0 to 1"));
        }
        if self.kind.usual_stream() == Stream::Upstream && self.stream == Stream::Downstream {
            let why = format!("{} is about requests: it works upstream only", self.kind.word());
            return Err(Error::invalid("stream", why));
        }
        if self.kind.per_command() && protocol == Protocol::Raw {
            let why = "needs to know where commands end: use a proxy that speaks RESP, or cut_after_forward bytes=…";
            return Err(Error::invalid(self.kind.word(), why));
        }
        match &self.kind {
            Kind::Bandwidth { rate: 0 } => Err(Error::invalid(
                "rate",
                "at least 1 kB/s; `timeout timeout=0` stops all data",
            )),
            Kind::Slicer { average_size: 0, .. } => Err(Error::invalid("average_size", "at least 1 byte")),
            Kind::Slicer {
                average_size,
                size_variation,
                ..
            } if size_variation >= average_size => {
                Err(Error::invalid("size_variation", "smaller than average_size"))
            }
            Kind::CutAfterForward(Cut {
                command: Some(_),
                bytes: Some(_),
                ..
            }) => Err(Error::invalid("bytes", "either `command` or `bytes`, not both")),
            Kind::CutAfterForward(Cut {
                command: Some(name), ..
            })
            | Kind::Repeat(Repeat {
                command: Some(name), ..
            }) if name.is_empty() || name.len() > 32 || !name.chars().all(plain) => {
                Err(Error::invalid("command", "a command's name, e.g. EVALSHA"))
            }
            _ => Ok(()),
        }
    }
}

//! Which faults there are.

use crate::fleet::StoreKind;

/// One fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Fault {
    /// kill -9 of a worker at work.
    Kill,
    /// kill -9 of every worker.
    KillAll,
    /// A worker at work is stopped for longer than its TTL, and goes on.
    Pause,
    /// Every worker is stopped for longer than a TTL, and goes on.
    PauseAll,
    /// Nobody is answered.
    Outage,
    /// A worker's wall clock jumps by an hour, either way.
    ClientClock,
    /// Every connection is reset.
    Reset,
    /// Connections stay open and nothing passes, in either direction.
    BlackHole,
    /// Requests are held back, and arrive when everybody has given them up.
    LateRequests,
    /// Commands are executed, their answers are lost.
    LostReplies,
    /// Commands reach the server twice.
    Repeat,
    /// Every message is slow.
    Latency,
    /// Messages come in small pieces.
    Slices,
    /// Connections end after some bytes.
    LimitData,
    /// The server forgets its scripts, again and again.
    ScriptFlush,
    /// The server forgets everything.
    Flush,
    /// The server is killed with -9 and comes back empty.
    Restart,
    /// The server is stopped, and goes on.
    Freeze,
    /// The server takes no more connections and closes those there are.
    ConnectionLimit,
    /// The server closes all connections.
    ClientKill,
    /// The server's wall clock jumps ahead by a minute: its leases are gone.
    ServerAhead,
    /// The server's wall clock is set back by a second.
    ServerBack,
    /// Somebody rewrites the whole file.
    Vacuum,
    /// Somebody moves the journal into the file, again and again.
    Checkpoint,
    /// Somebody reads and does not end.
    Reader,
}

impl Fault {
    /// Every one of them.
    pub const ALL: &'static [Self] = &[
        Self::Kill,
        Self::KillAll,
        Self::Pause,
        Self::PauseAll,
        Self::Outage,
        Self::ClientClock,
        Self::Reset,
        Self::BlackHole,
        Self::LateRequests,
        Self::LostReplies,
        Self::Repeat,
        Self::Latency,
        Self::Slices,
        Self::LimitData,
        Self::ScriptFlush,
        Self::Flush,
        Self::Restart,
        Self::Freeze,
        Self::ConnectionLimit,
        Self::ClientKill,
        Self::ServerAhead,
        Self::ServerBack,
        Self::Vacuum,
        Self::Checkpoint,
        Self::Reader,
    ];

    /// The word for it.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Kill => "kill",
            Self::KillAll => "kill-all",
            Self::Pause => "pause",
            Self::PauseAll => "pause-all",
            Self::Outage => "outage",
            Self::ClientClock => "client-clock",
            Self::Reset => "reset",
            Self::BlackHole => "black-hole",
            Self::LateRequests => "late-requests",
            Self::LostReplies => "lost-replies",
            Self::Repeat => "repeat",
            Self::Latency => "latency",
            Self::Slices => "slices",
            Self::LimitData => "limit-data",
            Self::ScriptFlush => "script-flush",
            Self::Flush => "flush",
            Self::Restart => "restart",
            Self::Freeze => "freeze",
            Self::ConnectionLimit => "connection-limit",
            Self::ClientKill => "client-kill",
            Self::ServerAhead => "server-ahead",
            Self::ServerBack => "server-back",
            Self::Vacuum => "vacuum",
            Self::Checkpoint => "checkpoint",
            Self::Reader => "reader",
        }
    }

    /// What is done, in plain words.
    #[must_use]
    pub const fn about(self) -> &'static str {
        match self {
            Self::Kill => "kill -9 of a worker at work",
            Self::KillAll => "kill -9 of every worker",
            Self::Pause => "a worker at work is stopped past its TTL",
            Self::PauseAll => "every worker is stopped past its TTL",
            Self::Outage => "nobody is answered",
            Self::ClientClock => "the workers' wall clocks jump by an hour",
            Self::Reset => "every connection is reset",
            Self::BlackHole => "nothing passes, and no connection ends",
            Self::LateRequests => "requests arrive when they have been given up",
            Self::LostReplies => "commands are executed and their answers lost",
            Self::Repeat => "commands reach the server twice",
            Self::Latency => "every message is slow",
            Self::Slices => "messages come in small pieces",
            Self::LimitData => "connections end after some bytes",
            Self::ScriptFlush => "the server forgets its scripts",
            Self::Flush => "the server forgets everything",
            Self::Restart => "the server is killed and comes back empty",
            Self::Freeze => "the server is stopped for a while",
            Self::ConnectionLimit => "the server takes no more connections",
            Self::ClientKill => "the server closes all connections",
            Self::ServerAhead => "the server's clock jumps ahead by a minute",
            Self::ServerBack => "the server's clock is set back by a second",
            Self::Vacuum => "the whole file is rewritten",
            Self::Checkpoint => "the journal is moved into the file",
            Self::Reader => "a reader does not end",
        }
    }

    /// Whether this store can have it.
    #[must_use]
    pub const fn on(self, store: StoreKind) -> bool {
        match self {
            Self::Kill | Self::KillAll | Self::Pause | Self::PauseAll | Self::Outage | Self::ClientClock => {
                true
            }
            Self::Vacuum | Self::Checkpoint | Self::Reader => matches!(store, StoreKind::Sqlite),
            _ => matches!(store, StoreKind::Redis),
        }
    }

    /// Whether it sets a clock, which needs libfaketime.
    #[must_use]
    pub const fn skews(self) -> bool {
        matches!(self, Self::ClientClock | Self::ServerAhead | Self::ServerBack)
    }

    /// The store loses leases that it had granted.
    #[must_use]
    pub const fn forgets(self) -> bool {
        matches!(self, Self::Flush | Self::Restart | Self::ServerAhead)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_fault_has_a_store_and_a_word_of_its_own() {
        let mut words: Vec<_> = Fault::ALL.iter().map(|fault| fault.word()).collect();
        words.sort_unstable();
        words.dedup();
        assert_eq!(words.len(), Fault::ALL.len());
        for fault in Fault::ALL {
            assert!(
                fault.on(StoreKind::Sqlite) || fault.on(StoreKind::Redis),
                "{fault:?}"
            );
        }
    }
}

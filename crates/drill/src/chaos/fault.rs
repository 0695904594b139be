//! The list of random faults.

use crate::fleet::StoreKind;

/// A fault that a short drill or a soak can inject.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Fault {
    /// kill -9 of a worker at work.
    Kill,
    /// kill -9 of every worker.
    KillAll,
    /// A working worker is paused for longer than its TTL.
    Pause,
    /// Every worker is paused for longer than a TTL.
    PauseAll,
    /// The store answers no client.
    Outage,
    /// The workers' wall clocks jump by an hour, ahead or back.
    ClientClock,
    /// Every connection is reset.
    Reset,
    /// Connections stay open, and no data passes in either direction.
    BlackHole,
    /// Requests are held back, and arrive after their clients have timed out.
    LateRequests,
    /// The server executes commands, and their replies are lost.
    LostReplies,
    /// The server receives commands twice.
    Repeat,
    /// Every reply is delayed.
    Latency,
    /// Replies arrive in small pieces.
    Slices,
    /// Connections are closed after a number of bytes.
    LimitData,
    /// The server's script cache is flushed repeatedly.
    ScriptFlush,
    /// All keys of the server are deleted.
    Flush,
    /// The server is killed with SIGKILL and restarts empty.
    Restart,
    /// The server is paused and resumed.
    Freeze,
    /// The server accepts no more connections and closes the open ones.
    ConnectionLimit,
    /// The server closes all connections.
    ClientKill,
    /// The server's wall clock jumps ahead by a minute, so its leases expire.
    ServerAhead,
    /// The server's wall clock is set back by a second.
    ServerBack,
    /// Another connection rewrites the whole SQLite file.
    Vacuum,
    /// Another connection checkpoints the SQLite journal repeatedly.
    Checkpoint,
    /// Another connection keeps a read transaction open.
    Reader,
}

impl Fault {
    /// All faults, in the order that seeds refer to.
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

    /// Its name in reports.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
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

    /// A short description for the history.
    #[must_use]
    pub const fn description(self) -> &'static str {
        match self {
            Self::Kill => "kill -9 of a worker at work",
            Self::KillAll => "kill -9 of every worker",
            Self::Pause => "a worker at work is stopped past its TTL",
            Self::PauseAll => "every worker is stopped past its TTL",
            Self::Outage => "the store answers no client",
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

    /// Whether it can be injected on this store.
    #[must_use]
    pub const fn applies_to(self, store: StoreKind) -> bool {
        match self {
            Self::Kill | Self::KillAll | Self::Pause | Self::PauseAll | Self::Outage | Self::ClientClock => {
                true
            }
            Self::Vacuum | Self::Checkpoint | Self::Reader => matches!(store, StoreKind::Sqlite),
            _ => matches!(store, StoreKind::Redis),
        }
    }

    /// Whether it changes a wall clock, which needs libfaketime.
    #[must_use]
    pub const fn needs_fake_clock(self) -> bool {
        matches!(self, Self::ClientClock | Self::ServerAhead | Self::ServerBack)
    }

    /// Whether the store loses leases that it has granted.
    #[must_use]
    pub const fn loses_leases(self) -> bool {
        // `ServerAhead` too: Redis expires keys by its wall clock.
        matches!(self, Self::Flush | Self::Restart | Self::ServerAhead)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_fault_has_a_store_and_a_unique_name() {
        let mut words: Vec<_> = Fault::ALL.iter().map(|fault| fault.as_str()).collect();
        words.sort_unstable();
        words.dedup();
        assert_eq!(words.len(), Fault::ALL.len());
        for fault in Fault::ALL {
            assert!(fault.applies_to(StoreKind::Sqlite) || fault.applies_to(StoreKind::Redis), "{fault:?}");
        }
    }
}

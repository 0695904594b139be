//! The list of random faults.

use leasehold_core::testbed::{StoreFault, TestbedAbility, TestbedInfo};

/// A fault that a short drill or a soak can inject.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
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
    /// A fault that only this kind of store has.
    Store(StoreFault),
    /// The server's wall clock jumps ahead by a minute, so its leases expire.
    ServerAhead,
    /// The server's wall clock is set back by a second.
    ServerBack,
}

const STORE_FAULTS: [Fault; 6] =
    [Fault::Kill, Fault::KillAll, Fault::Pause, Fault::PauseAll, Fault::Outage, Fault::ClientClock];
const NETWORK_FAULTS: [Fault; 8] = [
    Fault::Reset,
    Fault::BlackHole,
    Fault::LateRequests,
    Fault::LostReplies,
    Fault::Repeat,
    Fault::Latency,
    Fault::Slices,
    Fault::LimitData,
];
const SERVER_CLOCK_FAULTS: [Fault; 2] = [Fault::ServerAhead, Fault::ServerBack];

impl Fault {
    /// The faults that can be injected on this kind of store, in the order that seeds refer to.
    /// Without `fake_clocks`, those that change a wall clock are left out.
    #[must_use]
    pub fn possible_on(store: &TestbedInfo, fake_clocks: bool) -> Vec<Self> {
        let when = |ability, faults: &[Self]| match store.can(ability) {
            true => faults.to_vec(),
            false => Vec::new(),
        };
        let mut all = STORE_FAULTS.to_vec();
        all.extend(when(TestbedAbility::Network, &NETWORK_FAULTS));
        all.extend(store.faults.iter().copied().map(Self::Store));
        all.extend(when(TestbedAbility::ServerClock, &SERVER_CLOCK_FAULTS));
        let commands = store.can(TestbedAbility::Commands);
        all.retain(|fault| {
            (fake_clocks || !fault.needs_fake_clock())
                && (commands || !matches!(fault, Self::LostReplies | Self::Repeat))
        });
        all
    }

    /// Its name in reports.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        self.words().0
    }

    /// A short description for the history.
    #[must_use]
    pub const fn description(self) -> &'static str {
        self.words().1
    }

    const fn words(self) -> (&'static str, &'static str) {
        match self {
            Self::Kill => ("kill", "kill -9 of a worker at work"),
            Self::KillAll => ("kill-all", "kill -9 of every worker"),
            Self::Pause => ("pause", "a worker at work is stopped past its TTL"),
            Self::PauseAll => ("pause-all", "every worker is stopped past its TTL"),
            Self::Outage => ("outage", "the store answers no client"),
            Self::ClientClock => ("client-clock", "the workers' wall clocks jump by an hour"),
            Self::Reset => ("reset", "every connection is reset"),
            Self::BlackHole => ("black-hole", "nothing passes, and no connection ends"),
            Self::LateRequests => ("late-requests", "requests arrive when they have been given up"),
            Self::LostReplies => ("lost-replies", "commands are executed and their answers lost"),
            Self::Repeat => ("repeat", "commands reach the server twice"),
            Self::Latency => ("latency", "every message is slow"),
            Self::Slices => ("slices", "messages come in small pieces"),
            Self::LimitData => ("limit-data", "connections end after some bytes"),
            Self::Store(fault) => (fault.name, fault.description),
            Self::ServerAhead => ("server-ahead", "the server's clock jumps ahead by a minute"),
            Self::ServerBack => ("server-back", "the server's clock is set back by a second"),
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
        match self {
            Self::Store(fault) => fault.loses_leases,
            // Such a store expires leases by its wall clock.
            Self::ServerAhead => true,
            _ => false,
        }
    }
}

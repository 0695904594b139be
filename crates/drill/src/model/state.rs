//! One instant of the modelled world: true time, clients, store, target, messages, and ghosts that only proofs see.

use super::network::Network;
use super::promise::{Breaches, within_deadline};

/// The most clients a configuration may have.
pub const CLIENTS: usize = 3;

/// Who asks: a client and the number of its acquire. Fresh for every acquire, like the real token.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Token {
    /// The client.
    pub client: u8,
    /// Which of its acquires, from 0.
    pub attempt: u8,
}

impl Token {
    /// The acquire's place in a client's bit set.
    #[must_use]
    pub fn bit(self) -> u8 {
        1 << self.attempt
    }
}

/// What was granted: the fence, and as a ghost the grant's true place in the order of grants.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Grant {
    /// The number the protocol works with.
    pub fence: u8,
    /// The truth it should agree with; nobody in the protocol sees it.
    pub order: u8,
}

/// One client. Nothing ever forces it to step: every step it does not take while time goes on is a pause.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Client {
    /// What it is doing.
    pub phase: Phase,
    /// The number of the present, or else the next, acquire.
    pub attempt: u8,
    /// How far its clock is behind the fastest possible one. It is chosen when it begins to matter; 0 before.
    pub lag: u8,
    /// The highest fence it has seen; kept only where the store can forget.
    pub floor: u8,
    /// Ghost: its acquires whose release or undo has arrived, or that ended without a hold and owed none.
    pub settled: u8,
}

/// What a client is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum Phase {
    /// There is no such client.
    #[default]
    Absent,
    /// Nothing.
    Idle,
    /// It has asked.
    Asking {
        /// How often.
        asks: u8,
        /// Its clock when it asked last.
        sent_at: u8,
    },
    /// It holds the lease, as far as it knows.
    Holding {
        /// What it was granted.
        grant: Grant,
        /// On its own clock.
        deadline: u8,
        /// The renewal it waits for: its clock when that was sent.
        awaits: Option<u8>,
        /// Renewals left.
        renewals: u8,
        /// Writes left.
        writes: u8,
        /// An ask of this token may still be on its way: leave a tombstone when releasing.
        tombstone: bool,
    },
}

impl Phase {
    /// Whether the client's clock matters.
    #[must_use]
    pub fn is_timed(&self) -> bool {
        matches!(self, Self::Asking { .. } | Self::Holding { .. })
    }
}

/// What the store keeps, and can lose.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Memory {
    /// The one name's lease.
    pub lease: Option<Lease>,
    /// The fence counter.
    pub last: u8,
    /// Who got the last fence; kept only by a store with that mistake.
    pub last_owner: Option<u8>,
    /// Tombstones, a bit set for each client.
    pub voided: [u8; CLIENTS],
}

/// The store's side of a hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Lease {
    /// Whose.
    pub token: Token,
    /// With which fence.
    pub grant: Grant,
    /// On the store's clock.
    pub expires: u8,
}

/// The protected side: the newest grant it has admitted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Target {
    /// By number.
    pub fence: u8,
    /// In truth (a ghost).
    pub order: u8,
}

/// Faults that may still happen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Budget {
    /// Messages that may be lost.
    pub losses: u8,
    /// Messages that may be repeated.
    pub repeats: u8,
    /// Times the store may forget.
    pub forgets: u8,
    /// Times the store's clock may step.
    pub steps: u8,
}

/// One instant of the world.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct State {
    /// True time, which nobody can read.
    pub now: u8,
    /// The clients; absent ones come last.
    pub clients: [Client; CLIENTS],
    /// What the store knows.
    pub store: Memory,
    /// How far the store's clock is behind the fastest possible one.
    pub store_lag: u8,
    /// How far the store's clock has stepped.
    pub store_step: i8,
    /// What a replica knows; kept only where one can take over.
    pub replica: Memory,
    /// The protected side.
    pub target: Target,
    /// Messages on their way.
    pub network: Network,
    /// Faults to come.
    pub budget: Budget,
    /// Ghost: the latest grant's order and the highest fence ever granted.
    pub granted: Grant,
    /// Ghost: what earlier steps broke.
    pub breaches: Breaches,
}

impl State {
    /// What a client's clock shows.
    #[must_use]
    pub fn clock(&self, who: usize) -> u8 {
        self.now - self.clients.get(who).map_or(0, |client| client.lag)
    }

    /// What the store's clock shows.
    #[must_use]
    pub fn store_clock(&self) -> u8 {
        (self.now - self.store_lag).saturating_add_signed(self.store_step)
    }

    /// The lease, if it has not run out by the store's clock.
    #[must_use]
    pub fn live_lease(&self) -> Option<Lease> {
        self.store
            .lease
            .filter(|lease| lease.expires > self.store_clock())
    }

    /// Whether a client holds, and is within its deadline by its own clock.
    #[must_use]
    pub fn in_time(&self, who: usize) -> bool {
        self.clients
            .get(who)
            .is_some_and(|client| within_deadline(&client.phase, self.clock(who)))
    }

    /// The token of a client's present acquire or hold.
    #[must_use]
    pub fn token_of(&self, who: usize) -> Option<Token> {
        let client = u8::try_from(who).ok()?;
        self.clients.get(who).map(|found| Token {
            client,
            attempt: found.attempt,
        })
    }

    /// How many clients there are.
    #[must_use]
    pub fn present(&self) -> usize {
        self.clients
            .iter()
            .take_while(|client| client.phase != Phase::Absent)
            .count()
    }
}

//! One state of the modelled world: true time, clients, store, target, messages, and ghost variables
//! that only the promises read.

use super::network::ModelNetwork;
use super::promise::{Breaches, within_deadline};

/// The most clients of a configuration.
pub const MAX_CLIENTS: usize = 3;

/// Identifies an acquire: the client and the acquire's number. Fresh for every acquire, like the real
/// token.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ModelToken {
    /// Index of the client.
    pub client: u8,
    /// Number of its acquire, from 0.
    pub attempt: u8,
}

impl ModelToken {
    /// The acquire's bit in a client's bit set.
    #[must_use]
    pub fn bit(self) -> u8 {
        1 << self.attempt
    }
}

/// A grant: its fence, and as a ghost its true position in the order of grants.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ModelGrant {
    /// The number that the protocol uses.
    pub fence: u8,
    /// The true order that the fence should follow; the protocol cannot read it.
    pub order: u8,
}

/// One client. Nothing forces it to step: any step not taken while time advances is a pause.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct ModelClient {
    /// Its current activity.
    pub phase: ClientPhase,
    /// Number of the current acquire, or else of the next one.
    pub attempt: u8,
    /// How far its clock lags behind the fastest possible one. Chosen when it begins to matter; 0 before.
    pub lag: u8,
    /// The highest fence it has seen; kept only where the store can lose data.
    pub fence_floor: u8,
    /// Ghost: its acquires that were released or undone, or that ended without a hold and owed no undo.
    pub settled: u8,
}

/// A client's current activity.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum ClientPhase {
    /// The configuration has no such client.
    #[default]
    Absent,
    /// It does nothing.
    Idle,
    /// It waits for a grant.
    Acquiring {
        /// Number of requests sent.
        asks: u8,
        /// Its clock at the latest request.
        sent_at: u8,
    },
    /// It holds the lease, as far as it knows.
    Holding {
        /// The grant it received.
        grant: ModelGrant,
        /// Deadline on its own clock.
        deadline: u8,
        /// Its clock at the sending of the renewal it waits for.
        awaits: Option<u8>,
        /// Renewals it may still send.
        renewals: u8,
        /// Writes it may still send.
        writes: u8,
        /// A request of this token may still be under way, so the release leaves a tombstone.
        tombstone: bool,
    },
}

impl ClientPhase {
    /// Whether the client's clock matters.
    #[must_use]
    pub fn is_timed(&self) -> bool {
        matches!(self, Self::Acquiring { .. } | Self::Holding { .. })
    }
}

/// The store's data, which it can lose.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct StoreMemory {
    /// The lease of the one name.
    pub lease: Option<ModelLease>,
    /// The fence counter.
    pub last_fence: u8,
    /// Client with the last fence; kept only by a store with that mistake.
    pub last_owner: Option<u8>,
    /// Tombstones, a bit set per client.
    pub tombstones: [u8; MAX_CLIENTS],
}

/// The store's side of a hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ModelLease {
    /// The acquire that owns it.
    pub token: ModelToken,
    /// Its fence and order.
    pub grant: ModelGrant,
    /// Expiry on the store's clock.
    pub expires: u8,
}

/// The protected target: the newest grant that it has admitted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct ModelTarget {
    /// The newest fence.
    pub fence: u8,
    /// Ghost: the newest true order.
    pub order: u8,
}

/// Faults that may still happen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FaultBudget {
    /// Messages that may be lost.
    pub losses: u8,
    /// Messages that may be repeated.
    pub repeats: u8,
    /// Times that the store may lose data.
    pub data_losses: u8,
    /// Times that the store's clock may step.
    pub clock_steps: u8,
}

/// One state of the world.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ModelState {
    /// True time, which no participant can read.
    pub now: u8,
    /// The clients; absent ones come last.
    pub clients: [ModelClient; MAX_CLIENTS],
    /// The store's data.
    pub store: StoreMemory,
    /// How far the store's clock lags behind the fastest possible one.
    pub store_lag: u8,
    /// How far the store's clock has stepped.
    pub store_step: i8,
    /// The replica's data; kept only where a replica can take over.
    pub replica: StoreMemory,
    /// The protected target.
    pub target: ModelTarget,
    /// Messages under way.
    pub network: ModelNetwork,
    /// Faults that may still happen.
    pub budget: FaultBudget,
    /// Ghost: order of the latest grant, and the highest fence ever granted.
    pub latest_grant: ModelGrant,
    /// Ghost: promises that earlier steps broke.
    pub breaches: Breaches,
}

impl ModelState {
    /// A client's clock.
    #[must_use]
    pub fn clock(&self, who: usize) -> u8 {
        self.now - self.clients.get(who).map_or(0, |client| client.lag)
    }

    /// The store's clock.
    #[must_use]
    pub fn store_clock(&self) -> u8 {
        (self.now - self.store_lag).saturating_add_signed(self.store_step)
    }

    /// The lease, if it has not expired by the store's clock.
    #[must_use]
    pub fn live_lease(&self) -> Option<ModelLease> {
        self.store.lease.filter(|lease| lease.expires > self.store_clock())
    }

    /// Whether a client holds and is within its deadline by its own clock.
    #[must_use]
    pub fn is_within_deadline(&self, who: usize) -> bool {
        self.clients.get(who).is_some_and(|client| within_deadline(&client.phase, self.clock(who)))
    }

    /// The token of a client's current acquire or hold.
    #[must_use]
    pub fn token_of(&self, who: usize) -> Option<ModelToken> {
        let client = u8::try_from(who).ok()?;
        self.clients.get(who).map(|found| ModelToken { client, attempt: found.attempt })
    }

    /// Number of clients in this configuration.
    #[must_use]
    pub fn client_count(&self) -> usize {
        self.clients.iter().take_while(|client| client.phase != ClientPhase::Absent).count()
    }
}

//! What one run of the checker explores: clients, faults, and which rules are broken.
//!
//! A configuration is data. Sizes and fault budgets bound the state space. The [`Rules`] are the
//! rules of the protocol, each of which can be replaced by the mistake it prevents. [`ExpectedResult`] is the
//! required result.

use super::coverage::CoverageEvent;
use super::promise::ModelPromise;

/// One bounded world and its required result.
#[derive(Debug, Clone, Copy)]
pub struct ModelConfig {
    /// Name of the test: `holds_…` or `breaks_…`.
    pub name: &'static str,
    /// One sentence that says what the configuration is about.
    pub about: &'static str,
    /// Number of clients, 2 or 3.
    pub clients: u8,
    /// Number of acquires that each client may start.
    pub attempts: u8,
    /// Number of requests per acquire, all with the same token.
    pub requests_per_acquire: u8,
    /// Number of renewals per hold.
    pub renewals: u8,
    /// Number of fenced writes per hold.
    pub writes: u8,
    /// The lease's TTL in ticks.
    pub ttl: u8,
    /// Largest error of one clock about a duration, in ticks.
    pub clock_error: u8,
    /// Ticks with faults. After them no client starts anything, no fault happens, and every message
    /// arrives within its tick.
    pub fault_ticks: u8,
    /// Number of messages that can be under way at once.
    pub in_flight: u8,
    /// Number of messages that may be lost. (Any number may be late until the faults end.)
    pub losses: u8,
    /// Number of messages that may be delivered twice.
    pub repeats: u8,
    /// Whether acquire requests may be repeated. ADR 0007 assumes that they are not.
    pub repeats_acquires: bool,
    /// How the store loses data, if it does.
    pub data_loss: DataLoss,
    /// How far the store's clock may step, once; 0 for no step.
    pub clock_step: i8,
    /// What a holder does when its deadline passes.
    pub on_failure: OnFailure,
    /// The rules of the protocol, or mistakes in their place.
    pub rules: Rules,
    /// The required result.
    pub expect: ExpectedResult,
}

/// How the store loses acknowledged writes. It happens at most once per run and takes at least a tick.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DataLoss {
    /// It loses nothing.
    Never,
    /// Lease, tombstones and fence counter are lost.
    Flush,
    /// A replica takes over that was last in sync at any earlier moment.
    LaggingReplica,
}

/// What a holder does when its deadline passes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnFailure {
    /// It abandons the hold.
    Fence,
    /// It works on, unproven, and a late renewal proves it again.
    Continue,
}

/// The rules of the protocol. [`Rules::SOUND`] is the protocol; any other value is a known mistake.
#[derive(Debug, Clone, Copy)]
pub struct Rules {
    /// Where the holder's deadline starts.
    pub deadline: DeadlineFrom,
    /// How many clock errors the holder subtracts.
    pub margin: u8,
    /// How the next fence is computed.
    pub fence: FenceFrom,
    /// The target refuses an older fence.
    pub target_enforces: bool,
    /// A release ends only the lease of its own token.
    pub release_compares: bool,
    /// A renewal extends only the lease of its own token and fence.
    pub renew_compares: bool,
    /// A renewal extends only a lease that has not expired.
    pub renew_needs_live_lease: bool,
    /// An acquire that ends with an unknown outcome is undone.
    pub undoes_unknown_acquires: bool,
    /// The undo leaves a tombstone.
    pub tombstone: bool,
    /// The release leaves a tombstone if the hold was requested more than once.
    pub release_tombstone: bool,
    /// Validity is compared with the clock at each use, not cached.
    pub checks_at_use: bool,
    /// Leases expire after their TTL.
    pub leases_expire: bool,
}

impl Rules {
    /// The protocol as it is.
    pub const SOUND: Self = Self {
        deadline: DeadlineFrom::Sending,
        // One error of the holder's clock and one of the store's.
        margin: 2,
        fence: FenceFrom::CounterAndTime,
        target_enforces: true,
        release_compares: true,
        renew_compares: true,
        renew_needs_live_lease: true,
        undoes_unknown_acquires: true,
        tombstone: true,
        release_tombstone: true,
        checks_at_use: true,
        leases_expire: true,
    };
}

/// Where a holder's deadline starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeadlineFrom {
    /// At the sending of the request that was answered.
    Sending,
    /// Mistake: at the arrival of the response.
    Reply,
    /// Mistake: at the latest request, whichever was answered.
    LatestRequest,
}

/// How the store computes the next fence.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FenceFrom {
    /// `max(last + 1, time, floor + 1)`.
    CounterAndTime,
    /// Mistake: `last + 1`.
    Counter,
    /// Mistake: `max(last + 1, floor + 1)`.
    CounterAndFloor,
    /// Mistake: the same fence again for the client that had the last one.
    SameForOwner,
}

/// The required result of a run.
#[derive(Debug, Clone, Copy)]
pub enum ExpectedResult {
    /// Every promise holds in every reachable state.
    AllHold {
        /// The promises to check.
        promises: &'static [ModelPromise],
        /// Events that must have been reached, or the run proves nothing.
        sights: &'static [CoverageEvent],
        /// The exact number of transitions, so that a model that shrinks by accident is noticed. `None` if
        /// a run takes too long to repeat for every change.
        transitions: Option<u64>,
    },
    /// Each of these promises has a counterexample.
    AllBreak(&'static [ModelPromise]),
}

impl ModelConfig {
    /// First tick of a run: late enough for a clock to lag and step back without passing zero.
    pub const FIRST_TICK: u8 = 4;

    /// First tick without faults.
    #[must_use]
    pub fn faults_end(&self) -> u8 {
        Self::FIRST_TICK + self.fault_ticks
    }

    /// Last tick of a run. A lease extended at the last moment of faults must have expired by then (L1).
    /// That includes the slowest store clock, set back as far as allowed.
    #[must_use]
    pub fn last_tick(&self) -> u8 {
        self.faults_end() + self.ttl + self.clock_error + self.clock_step.min(0).unsigned_abs()
    }

    /// The deadline rule: the first instant, on the holder's clock, at which it must not act any more.
    #[must_use]
    pub fn deadline(&self, counted_from: u8) -> u8 {
        counted_from + self.ttl.saturating_sub(self.rules.margin * self.clock_error)
    }

    /// The promises of this configuration.
    #[must_use]
    pub fn promises(&self) -> &'static [ModelPromise] {
        match self.expect {
            ExpectedResult::AllHold { promises, .. } => promises,
            ExpectedResult::AllBreak(promises) => promises,
        }
    }
}

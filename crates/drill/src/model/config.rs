//! What one run of the checker explores: how many clients, which faults, which rules are kept and which are broken.
//!
//! A configuration is data. The sizes and fault budgets bound the state space; the [`Rules`] are the protocol's own
//! sentences, each of which can be replaced by the mistake it guards against; [`Expect`] says what must come out.

use super::promise::Promise;
use super::sight::Sight;

/// One bounded world and what is expected of it.
#[derive(Debug, Clone, Copy)]
pub struct Config {
    /// Names the test: `holds_…` or `breaks_…`.
    pub name: &'static str,
    /// What the configuration is about, in a sentence.
    pub about: &'static str,
    /// How many clients, 2 or 3.
    pub clients: u8,
    /// How many acquires each client may begin.
    pub attempts: u8,
    /// How often one acquire may be asked with the same token.
    pub asks: u8,
    /// Renewals that one hold may send.
    pub renewals: u8,
    /// Fenced writes that one hold may send.
    pub writes: u8,
    /// The lease's time to live, in ticks.
    pub ttl: u8,
    /// How much one clock may be wrong about a duration, in ticks.
    pub clock_error: u8,
    /// Ticks of trouble. After them nobody begins anything, no fault happens and every message arrives within its tick.
    pub trouble: u8,
    /// Messages that can be on their way at once.
    pub in_flight: u8,
    /// Messages that the network may lose for good. (Any number may be late until the trouble ends.)
    pub losses: u8,
    /// Messages that the network may deliver and deliver again.
    pub repeats: u8,
    /// Whether asks are among the messages that may be repeated. ADR 0007 takes it that they are not.
    pub repeats_asks: bool,
    /// How the store forgets, if it does.
    pub forgets: Forgets,
    /// How far the store's clock may step, once; 0 for a clock that does not.
    pub clock_step: i8,
    /// What a holder does when its deadline passes.
    pub on_failure: OnFailure,
    /// The protocol's rules, or the mistakes in their place.
    pub rules: Rules,
    /// What must come out.
    pub expect: Expect,
}

/// How the store loses acknowledged writes. It happens at most once in a run and takes at least a tick.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Forgets {
    /// It does not.
    Never,
    /// Lease, tombstones and fence counter are gone.
    Flush,
    /// A replica that was last in step at any earlier moment takes over.
    LaggingReplica,
}

/// What a holder does when its deadline passes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnFailure {
    /// It abandons the hold.
    Fence,
    /// It works on, unproven, and is proven again by a late renewal.
    Continue,
}

/// The protocol's rules. [`Rules::SOUND`] is the protocol; each other value is a known mistake.
#[derive(Debug, Clone, Copy)]
pub struct Rules {
    /// From when the holder counts.
    pub deadline: DeadlineFrom,
    /// How many clock errors the holder takes off.
    pub margin: u8,
    /// How the next fence is found.
    pub fence: FenceFrom,
    /// The target refuses an older fence.
    pub target_enforces: bool,
    /// A release ends only the lease of its own token.
    pub release_compares: bool,
    /// A renewal extends only the lease of its own token and fence.
    pub renew_compares: bool,
    /// A renewal extends only a lease that has not run out.
    pub renew_needs_life: bool,
    /// An acquire that is given up while its outcome is unknown is undone.
    pub undoes: bool,
    /// The undo leaves a tombstone.
    pub tombstone: bool,
    /// So does the release of a hold that was asked for more than once.
    pub release_tombstone: bool,
    /// Validity is compared with the clock at each use, not remembered.
    pub checks_at_use: bool,
    /// Leases run out.
    pub lease_ends: bool,
}

impl Rules {
    /// The protocol as it is.
    pub const SOUND: Self = Self {
        deadline: DeadlineFrom::Sending,
        margin: 2,
        fence: FenceFrom::CounterAndTime,
        target_enforces: true,
        release_compares: true,
        renew_compares: true,
        renew_needs_life: true,
        undoes: true,
        tombstone: true,
        release_tombstone: true,
        checks_at_use: true,
        lease_ends: true,
    };
}

/// From when a holder counts its deadline.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeadlineFrom {
    /// From the sending of the very request that was answered.
    Sending,
    /// Mistake: from the arrival of the answer.
    Reply,
    /// Mistake: from the latest request, whichever of them was answered.
    LatestAsk,
}

/// How the store finds the next fence.
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

/// What must come out of a run.
#[derive(Debug, Clone, Copy)]
pub enum Expect {
    /// Every promise holds in every reachable state.
    Holds {
        /// The promises.
        promises: &'static [Promise],
        /// What must have happened somewhere, or the run proved nothing.
        sights: &'static [Sight],
        /// The number of transitions, exactly, so that a model that shrinks by accident is noticed. `None` where
        /// a run takes too long to be repeated for every change.
        transitions: Option<u64>,
    },
    /// Each of these promises has a counterexample.
    Breaks(&'static [Promise]),
}

impl Config {
    /// The first tick of a run: late enough for a clock to lag, and to step back, without passing zero.
    pub const START: u8 = 4;

    /// When the trouble ends.
    #[must_use]
    pub fn calm_from(&self) -> u8 {
        Self::START + self.trouble
    }

    /// When the run ends: a lease touched at the last moment of trouble must be over by then (L1), by a store's clock
    /// that is as slow as it may be and was set back as far as it may be.
    #[must_use]
    pub fn end(&self) -> u8 {
        self.calm_from() + self.ttl + self.clock_error + self.clock_step.min(0).unsigned_abs()
    }

    /// The first instant, on the holder's own clock, at which it must not act any more: the deadline rule.
    #[must_use]
    pub fn deadline(&self, counted_from: u8) -> u8 {
        counted_from + self.ttl.saturating_sub(self.rules.margin * self.clock_error)
    }

    /// The promises that this configuration is about.
    #[must_use]
    pub fn promises(&self) -> &'static [Promise] {
        match self.expect {
            Expect::Holds { promises, .. } => promises,
            Expect::Breaks(promises) => promises,
        }
    }
}

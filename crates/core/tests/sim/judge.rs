//! The oracle: shows facts in true time to every invariant. It does not depend on how the machines decide.

use std::collections::BTreeMap;

use leasehold_core::clock::Moment;
use leasehold_core::life::{Effect, HoldState};
use leasehold_core::policy::{Class, Enforcement, OnFailure};
use leasehold_core::types::{Fence, Token};

use crate::clock::Nanos;
use crate::invariant;
use crate::store::{Execution, LeaseRecord, StoreRequest};

/// A client and the number of one of its holds. Clients continue numbering after a crash, so keys are unique.
pub(crate) type HoldKey = (usize, u64);

/// One hold machine as it is after a step.
#[derive(Debug)]
pub(crate) struct HoldSnapshot<'a> {
    pub(crate) key: HoldKey,
    pub(crate) name: usize,
    pub(crate) token: &'a Token,
    pub(crate) fence: Option<Fence>,
    pub(crate) state: HoldState,
    /// The declared class, whatever class the machine was given.
    pub(crate) class: &'a Class,
    /// The end of its proof in true time; zero if it has none.
    pub(crate) proven_until: Nanos,
    /// An undo of an acquire, not a hold.
    pub(crate) undo: bool,
    /// On its client's clock.
    pub(crate) started: Moment,
    pub(crate) local: Moment,
}

impl HoldSnapshot<'_> {
    /// Whether the policy stops work that cannot prove its lease.
    pub(crate) fn stops_unproven_work(&self) -> bool {
        self.class.renew.on_failure == OnFailure::Fence && self.class.mode == Enforcement::Enforce
    }
}

/// How an acquire ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AcquireEnding {
    Held,
    Local,
    Busy,
    Unavailable,
    Cancelled,
}

/// One observation by the oracle.
#[derive(Debug)]
pub(crate) enum Fact<'a> {
    /// The store executed a message.
    Applied {
        at: Nanos,
        verb: &'a StoreRequest,
        /// Not the first copy of the message.
        repeated: bool,
        /// Its sender has given up on it.
        late: bool,
        done: &'a Execution,
    },
    /// The store lost all its data.
    StoreLostData,
    /// An acquire ended.
    Ended {
        key: HoldKey,
        token: &'a Token,
        class: &'a Class,
        how: AcquireEnding,
        /// The outcome of at least one request is unknown.
        loose: bool,
        /// The store failed, or was not called, at least once.
        erred: bool,
        /// An undo was begun, or the hold that it fell back to is responsible for it.
        undo: bool,
        lease: Option<&'a LeaseRecord>,
    },
    /// An undo began.
    Undoing { token: &'a Token },
    /// A hold ended without undoing its heal token: it must know that this token has no lease.
    Dropped { token: &'a Token },
    /// A hold is over, and its keeper has dropped its token.
    Over { token: &'a Token },
    /// A hold machine was stepped.
    Stepped {
        at: Nanos,
        hold: &'a HoldSnapshot<'a>,
        effects: &'a [Effect],
        lease: Option<&'a LeaseRecord>,
        /// When the lease is over in the store, as this step told the caller.
        promised: Option<Nanos>,
    },
    /// A hold's client learnt that the lease with this fence is not its own.
    NotOwnedReceived { key: HoldKey, fence: Fence },
    /// A protected step of work was done.
    Worked { hold: &'a HoldSnapshot<'a>, lease: Option<&'a LeaseRecord> },
    /// A write arrived at the target.
    Wrote { name: usize, fence: Fence, applied: bool },
    /// A client process crashed.
    Crashed { client: usize },
    /// Faults are over and every machine has ended, long enough ago for every lease to be over.
    Quiet { leases: &'a [LeaseRecord] },
}

/// One promise, judged on facts alone.
pub(crate) trait Invariant {
    fn number(&self) -> &'static str;
    /// Checks one fact.
    fn check_fact(&mut self, fact: &Fact<'_>) -> Result<(), String>;
}

/// All invariants and their violations.
pub(crate) struct Judge {
    invariants: Vec<Box<dyn Invariant>>,
    /// The first violation of each.
    pub(crate) violations: BTreeMap<&'static str, String>,
}

impl Judge {
    pub(crate) fn new() -> Self {
        Self { invariants: invariant::all(), violations: BTreeMap::new() }
    }

    /// Shows a fact to all invariants and records new violations.
    pub(crate) fn judge_fact(&mut self, at: Nanos, fact: &Fact<'_>) {
        for invariant in &mut self.invariants {
            if let Err(why) = invariant.check_fact(fact) {
                let said = format!("at {:.6} s: {why}", at as f64 / 1e9);
                self.violations.entry(invariant.number()).or_insert(said);
            }
        }
    }

    /// Records a missing event, which no fact can show.
    pub(crate) fn record_missing(&mut self, at: Nanos, why: String) {
        let said = format!("at {:.6} s: {why}", at as f64 / 1e9);
        self.violations.entry("L5").or_insert(said);
    }
}

//! The oracle: facts in true time, put before every invariant. It knows nothing of how the machines decide.

use std::collections::BTreeMap;

use leasehold_core::clock::Moment;
use leasehold_core::life::{Effect, State};
use leasehold_core::policy::{Class, Enforcement, OnFailure};
use leasehold_core::word::{Fence, Token};

use crate::clock::Nanos;
use crate::engine::{Applied, Record, Verb};
use crate::invariant;

/// Which life of which client. Clients that come back after a crash go on numbering, so keys are unique.
pub(crate) type Key = (usize, u64);

/// One life as it stands after a step.
#[derive(Debug)]
pub(crate) struct View<'a> {
    pub(crate) key: Key,
    pub(crate) name: usize,
    pub(crate) token: &'a Token,
    pub(crate) fence: Option<Fence>,
    pub(crate) state: State,
    /// What the class says, whatever the machine was told.
    pub(crate) class: &'a Class,
    /// The end of its proof in true time; zero if it has none.
    pub(crate) proven_until: Nanos,
    /// Not a hold but the undo of an acquire.
    pub(crate) undo: bool,
    /// On its client's clock.
    pub(crate) started: Moment,
    pub(crate) local: Moment,
}

impl View<'_> {
    /// Its policy stops work that cannot prove its lease.
    pub(crate) fn fences(&self) -> bool {
        self.class.renew.on_failure == OnFailure::Fence && self.class.mode == Enforcement::Enforce
    }
}

/// How an acquire ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ending {
    Held,
    Local,
    Busy,
    Unavailable,
    Cancelled,
}

/// Something that happened.
#[derive(Debug)]
pub(crate) enum Fact<'a> {
    /// The store carried out a message.
    Applied {
        at: Nanos,
        verb: &'a Verb,
        /// Not the first copy of it.
        repeated: bool,
        /// Its sender has given up on it.
        late: bool,
        done: &'a Applied,
    },
    /// The store lost everything.
    Forgot,
    /// An acquire ended.
    Ended {
        key: Key,
        token: &'a Token,
        class: &'a Class,
        how: Ending,
        /// An ask of it was never definitely answered.
        loose: bool,
        /// The store failed, or was not asked, at least once.
        erred: bool,
        /// An undo was begun, or the hold that it fell back to will see to it.
        undo: bool,
        lease: Option<&'a Record>,
    },
    /// An undo began.
    Undoing { token: &'a Token },
    /// A hold ended with a token that it had asked to heal with and did not undo: it must know that there is no lease.
    Dropped { token: &'a Token },
    /// A hold is over, and whoever kept it has forgotten its token.
    Over { token: &'a Token },
    /// A life was stepped.
    Stepped {
        at: Nanos,
        hold: &'a View<'a>,
        effects: &'a [Effect],
        lease: Option<&'a Record>,
        /// When the store has let go of it, as this step told the caller.
        promised: Option<Nanos>,
    },
    /// A hold's client heard that the lease with this fence is not its own.
    Told { key: Key, fence: Fence },
    /// A protected step of work was done.
    Worked {
        hold: &'a View<'a>,
        lease: Option<&'a Record>,
    },
    /// A write arrived at the target.
    Wrote {
        name: usize,
        fence: Fence,
        applied: bool,
    },
    /// A client died.
    Crashed { client: usize },
    /// Faults are over and every machine has ended; long enough ago for every lease to be over.
    Quiet { leases: &'a [Record] },
}

/// One promise, judged on facts alone.
pub(crate) trait Invariant {
    /// Its number.
    fn number(&self) -> &'static str;
    /// Looks at one fact.
    fn see(&mut self, fact: &Fact<'_>) -> Result<(), String>;
}

/// All invariants and what they have found.
pub(crate) struct Court {
    invariants: Vec<Box<dyn Invariant>>,
    /// The first violation of each.
    pub(crate) violations: BTreeMap<&'static str, String>,
}

impl Court {
    pub(crate) fn new() -> Self {
        Self {
            invariants: invariant::all(),
            violations: BTreeMap::new(),
        }
    }

    /// Puts a fact before everyone; what they found new is returned for the history.
    pub(crate) fn hear(&mut self, at: Nanos, fact: &Fact<'_>) {
        for invariant in &mut self.invariants {
            if let Err(why) = invariant.see(fact) {
                let said = format!("at {:.6} s: {why}", at as f64 / 1e9);
                self.violations.entry(invariant.number()).or_insert(said);
            }
        }
    }

    /// What no fact can show: something that should have happened did not.
    pub(crate) fn stuck(&mut self, at: Nanos, why: String) {
        let said = format!("at {:.6} s: {why}", at as f64 / 1e9);
        self.violations.entry("L5").or_insert(said);
    }
}

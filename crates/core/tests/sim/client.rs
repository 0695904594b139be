//! One client process: its clock, breaker, gate, acquires and hold machines.

use std::collections::BTreeMap;
use std::sync::Arc;

use leasehold_core::breaker::Breaker;
use leasehold_core::policy::Class;
use leasehold_core::rng::{SeededRandom, SharedRandom};
use leasehold_core::types::{Fence, Holder};

use crate::acquire_driver::SimAcquire;
use crate::clock::{DriftingClock, Nanos};
use crate::hold_driver::SimHold;
use crate::plan::SimPlan;

#[derive(Debug)]
pub(crate) struct SimClient {
    pub(crate) number: usize,
    pub(crate) clock: DriftingClock,
    pub(crate) holder: Holder,
    pub(crate) random: SharedRandom,
    pub(crate) breaker: Breaker,
    /// The highest fence seen, by name.
    pub(crate) floors: Vec<Option<Fence>>,
    /// The attempt or hold inside the process-local gate, by name.
    pub(crate) inside: Vec<Option<u64>>,
    pub(crate) classes: Vec<Arc<Class>>,
    pub(crate) attempts: BTreeMap<u64, SimAcquire>,
    pub(crate) entries: BTreeMap<u64, SimHold>,
    pub(crate) incarnation: u32,
    pub(crate) alive: bool,
    pub(crate) paused_until: Nanos,
    /// The number of acquires that ended in a lease.
    pub(crate) held: u64,
    next: u64,
}

impl SimClient {
    pub(crate) fn new(number: usize, clock: DriftingClock, plan: &SimPlan, seed: u64) -> Self {
        Self {
            number,
            clock,
            holder: Holder::new(&format!("client-{number}")).unwrap(),
            random: SeededRandom::shared(seed),
            breaker: Breaker::default(),
            floors: vec![None; plan.names],
            inside: vec![None; plan.names],
            classes: plan.classes.clone(),
            attempts: BTreeMap::new(),
            entries: BTreeMap::new(),
            incarnation: 0,
            alive: true,
            paused_until: 0,
            held: 0,
            next: 1,
        }
    }

    pub(crate) fn next_id(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    pub(crate) fn saw(&mut self, name: usize, fence: Fence) {
        self.floors[name] = self.floors[name].max(Some(fence));
    }

    /// Drops all state of the process except its clock, its number and its policy file.
    pub(crate) fn die(&mut self) {
        self.alive = false;
        self.incarnation += 1;
        self.attempts.clear();
        self.entries.clear();
        self.breaker = Breaker::default();
        self.floors.iter_mut().for_each(|floor| *floor = None);
        self.inside.iter_mut().for_each(|inside| *inside = None);
    }
}

/// The class of this name as it is now: it may have changed since the acquire began.
pub(crate) fn in_force<'a>(classes: &'a [Arc<Class>], class: &'a Arc<Class>) -> &'a Arc<Class> {
    classes.iter().find(|now| now.name == class.name).unwrap_or(class)
}

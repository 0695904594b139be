//! What every simulated process gives to the real client that it runs: clock, policies, name and observers.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use leasehold_core::observe::Counters;
use leasehold_core::policy::PolicyBook;
use leasehold_core::{Holder, LocksBuilder};

use super::class;
use super::clock::ProcessClock;
use super::history_buffer::SimObserver;
use super::plan::SimPlan;
use super::world::SimWorld;

/// The client's part of one life of a process.
pub(super) struct ClientSetup {
    pub(super) clock: ProcessClock,
    /// Set when the process is killed: nothing is recorded from then on.
    pub(super) silent: Arc<AtomicBool>,
    pub(super) counters: Arc<Counters>,
    book: PolicyBook,
    holder: Holder,
    observer: SimObserver,
}

impl ClientSetup {
    pub(super) fn new(world: &Arc<SimWorld>, slot: usize, plan: &SimPlan, who: &str) -> Result<Self, String> {
        let clock = ProcessClock { world: Arc::clone(world), slot };
        let silent = Arc::new(AtomicBool::new(false));
        Ok(Self {
            book: PolicyBook::from_text(&class::policy_text(&plan.classes), "sim")
                .map_err(|bad| bad.to_string())?,
            holder: Holder::new(who).map_err(|bad| bad.to_string())?,
            observer: SimObserver {
                world: Arc::clone(world),
                clock: clock.clone(),
                who: who.to_owned(),
                silent: Arc::clone(&silent),
            },
            counters: Arc::default(),
            clock,
            silent,
        })
    }

    /// Gives the client everything but its clock, which a daemon passes to its client itself.
    pub(super) fn configure(self, locks: LocksBuilder) -> LocksBuilder {
        locks
            .policies(self.book)
            .holder(self.holder)
            .observer(Arc::new(self.observer))
            .observer(self.counters)
            .without_log()
    }
}

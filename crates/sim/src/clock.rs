//! A process's own clock. It drifts, it runs on while the process is paused, and its sleeps are
//! events in the world's schedule.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use leasehold_core::clock::{Clock, Moment, Sleep};

use super::drift::Nanos;
use super::world::{SimSleep, SimWorld};

/// The clock of the processes on one host.
#[derive(Debug, Clone)]
pub(super) struct ProcessClock {
    pub(super) world: Arc<SimWorld>,
    pub(super) slot: usize,
}

impl ProcessClock {
    /// The true time at which this clock shows `moment`.
    pub(super) fn true_time_of(&self, moment: Moment) -> Nanos {
        let state = self.world.lock();
        let Some(host) = state.hosts.get(self.slot) else {
            return 0;
        };
        host.drift.true_time_of(moment + Duration::from_nanos(host.clock_lag))
    }
}

impl Clock for ProcessClock {
    fn now(&self) -> Moment {
        let state = self.world.lock();
        let Some(host) = state.hosts.get(self.slot) else {
            return Moment::ZERO;
        };
        host.drift.read(state.now) - Duration::from_nanos(host.clock_lag)
    }

    fn sleep_until(&self, at: Moment) -> Sleep {
        Box::pin(SimSleep {
            world: Arc::clone(&self.world),
            slot: self.slot,
            due: self.true_time_of(at),
            key: None,
        })
    }

    fn wall(&self) -> SystemTime {
        SystemTime::UNIX_EPOCH + self.now().since(Moment::ZERO)
    }
}

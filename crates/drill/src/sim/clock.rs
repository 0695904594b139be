//! A process's own clock: it drifts, it goes on while the process stands still, and its sleeps are in the agenda.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use leasehold_core::clock::{Clock, Moment, Sleep};

use super::drift::Nanos;
use super::world::{Sleeping, World};

/// The clock of the processes of one host.
#[derive(Debug, Clone)]
pub(super) struct ProcessClock {
    pub(super) world: Arc<World>,
    pub(super) slot: usize,
}

impl ProcessClock {
    /// The true time at which it shows this.
    pub(super) fn when(&self, moment: Moment) -> Nanos {
        let state = self.world.lock();
        let Some(host) = state.hosts.get(self.slot) else {
            return 0;
        };
        host.drift.when(moment + Duration::from_nanos(host.behind))
    }
}

impl Clock for ProcessClock {
    fn now(&self) -> Moment {
        let state = self.world.lock();
        let Some(host) = state.hosts.get(self.slot) else {
            return Moment::ZERO;
        };
        host.drift.read(state.now) - Duration::from_nanos(host.behind)
    }

    fn sleep_until(&self, at: Moment) -> Sleep {
        Box::pin(Sleeping {
            world: Arc::clone(&self.world),
            slot: self.slot,
            due: self.when(at),
            key: None,
        })
    }

    fn wall(&self) -> SystemTime {
        SystemTime::UNIX_EPOCH + self.now().since(Moment::ZERO)
    }
}

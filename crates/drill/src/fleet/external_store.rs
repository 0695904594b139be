//! A store that the drill did not start. It is drilled only if its operator has marked it, because
//! a drill blocks all other clients of the store.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use leasehold::StoreUrl;
use leasehold_core::clock::{BootClock, Clock, ClockExt, run_until};
use leasehold_core::testbed::{Testbed, TestbedFactory, TestbedInfo};

use super::DrillError;

/// Prefix of the lock names of every drill.
pub(super) const LOCK_NAME_PREFIX: &str = "drill:";

/// Prefix of a run's folder, and after [`LOCK_NAME_PREFIX`] of its lock names.
pub(super) const RUN_NAME_PREFIX: &str = "leasehold-drill-";

const SWEEP_TIMEOUT: Duration = Duration::from_secs(5);

const SWEEP_INTERVAL: Duration = Duration::from_millis(50);

/// The store to drill.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum DrillStore {
    /// Each run starts one of its own.
    ThrowAway(&'static dyn TestbedFactory),
    /// All runs share it.
    External(Arc<ExternalStore>),
}

impl DrillStore {
    /// Name, faults and abilities of this kind of store.
    #[must_use]
    pub fn info(&self) -> TestbedInfo {
        match self {
            Self::ThrowAway(factory) => factory.info(),
            Self::External(given) => given.info,
        }
    }

    /// A throw-away store of each registered kind.
    #[must_use]
    pub fn all_throwaway() -> Vec<Self> {
        leasehold::testbeds().into_iter().map(Self::ThrowAway).collect()
    }
}

/// A store that its operator has marked as drillable.
#[derive(Debug)]
pub struct ExternalStore {
    info: TestbedInfo,
    testbed: Arc<dyn Testbed>,
    /// Lock name prefixes of the runs on this store.
    run_prefixes: Mutex<Vec<String>>,
}

impl ExternalStore {
    /// Opens the store and checks the mark.
    ///
    /// # Errors
    /// The store is not marked, does not answer, or is of a kind that cannot be drilled.
    pub async fn open(url: &str) -> Result<Arc<Self>, DrillError> {
        let url = StoreUrl::parse(url).map_err(|error| DrillError::Store(error.to_string()))?;
        let Some(factory) = url.testbed() else {
            let kinds: Vec<_> = leasehold::testbeds().iter().map(|kind| kind.info().name).collect();
            return Err(DrillError::NotDrillable(format!(
                "{url} cannot be drilled: there are faults for these stores only: {}",
                kinds.join(", ")
            )));
        };
        let testbed = factory.attach(&url.expose()).await?.into();
        Ok(Arc::new(Self { info: factory.info(), testbed, run_prefixes: Mutex::default() }))
    }

    pub(super) fn testbed(&self) -> Arc<dyn Testbed> {
        Arc::clone(&self.testbed)
    }

    /// Registers a run by its lock name prefix, for the sweep.
    pub(super) fn add_run(&self, prefix: &str) {
        let mut runs = self.run_prefixes.lock().unwrap_or_else(PoisonError::into_inner);
        runs.push(prefix.to_owned());
    }

    /// Removes what the registered runs have left: leases of killed workers, queue entries and
    /// tombstones. All of them would expire, but a lease only after its TTL. Data of other drills
    /// stays.
    ///
    /// Call it when no worker of these runs is alive.
    ///
    /// # Errors
    /// The store does not answer, or new rows keep appearing.
    pub async fn sweep(&self) -> Result<(), DrillError> {
        // A run that was interrupted may have left the store blocked.
        self.testbed.unblock().await;
        let mine = self.run_prefixes.lock().unwrap_or_else(PoisonError::into_inner).clone();
        // The store may execute a killed worker's last request after a sweep, so two sweeps in a
        // row must find nothing.
        let until_clean = async {
            let mut clean = 0;
            while clean < 2 {
                let removed = self.testbed.remove_leases(&mine).await?;
                clean = if removed == 0 { clean + 1 } else { 0 };
                BootClock.sleep(SWEEP_INTERVAL).await;
            }
            Ok(())
        };
        let swept = run_until(&BootClock, BootClock.now() + SWEEP_TIMEOUT, until_clean).await;
        swept.unwrap_or_else(|| Err(DrillError::Store("no answer".to_owned())))
    }
}

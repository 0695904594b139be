//! The drill's throw-away stores, policy with short leases, and files.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use leasehold::{Locks, StoreUrl};
use leasehold_core::clock::{BootClock, Clock, ClockExt};
use leasehold_core::policy::PolicyBook;
use leasehold_core::rng::OsRandom;
use leasehold_core::testbed::{ProcessWrapper, Testbed, TestbedAbility, TestbedFactory, TestbedSetup};
use leasehold_plane::{Plane, Settings as PlaneSettings};
use tempfile::TempDir;

use super::PlaneDrillOptions;
use super::workload::Workload;
use crate::fleet::WorkerProgram;

/// Stores and files of the replicas; removed on drop.
pub(super) struct PlaneTestbed {
    locks: Arc<dyn Testbed>,
    /// The store whose plane keeps the jobs; usually the lock store itself.
    jobs: Arc<dyn Testbed>,
    folder: PathBuf,
    _temporary: Option<TempDir>,
}

/// The start and end of an outage of the lock store, in milliseconds of the wall clock.
#[derive(Debug, Clone, Copy)]
pub(super) struct Outage {
    pub(super) from: u64,
    pub(super) to: u64,
}

impl PlaneTestbed {
    pub(super) async fn create(options: &PlaneDrillOptions, program: &WorkerProgram) -> anyhow::Result<Self> {
        let temporary = match &options.keep {
            Some(folder) => {
                std::fs::create_dir_all(folder)
                    .with_context(|| format!("cannot make {}", folder.display()))?;
                None
            }
            None => Some(tempfile::tempdir()?),
        };
        let folder = match (&options.keep, &temporary) {
            (Some(folder), _) => folder.clone(),
            (None, Some(temporary)) => temporary.path().to_path_buf(),
            (None, None) => anyhow::bail!("there is no folder"),
        };
        let wrapper = ProcessWrapper::new(program.binding_prefix());
        let setup = TestbedSetup::new(&folder, "plane").with_wrapper(wrapper);
        let start = async |kind: &'static dyn TestbedFactory| {
            anyhow::Ok(Arc::<dyn Testbed>::from(kind.start(setup.clone()).await?))
        };
        let jobs = start(options.on).await?;
        // An outage needs a lock store that can be stopped while the jobs' store stays up.
        let can_stop = |kind: &&'static dyn TestbedFactory| kind.info().can(TestbedAbility::Restart);
        let locks = match options.outage {
            Some(_) if !can_stop(&options.on) => {
                let other = leasehold::testbeds().into_iter().find(can_stop);
                start(other.context("no registered store can be stopped")?).await?
            }
            _ => Arc::clone(&jobs),
        };
        std::fs::write(folder.join("policy.toml"), policy_text(options.ttl, options.poll))?;
        Ok(Self { locks, jobs, folder, _temporary: temporary })
    }

    /// The URL of the lock store.
    pub(super) fn lock_url(&self) -> String {
        self.locks.url()
    }

    /// The URL of the plane's store.
    pub(super) fn plane_url(&self) -> String {
        self.jobs.url()
    }

    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    pub(super) fn policies(&self) -> PathBuf {
        self.folder.join("policy.toml")
    }

    /// The files with one writer at a time that the replicas share, with the name of their content.
    pub(super) fn single_writer_files(&self) -> Vec<(&'static str, PathBuf)> {
        let jobs = self.jobs.single_writer_file();
        let jobs = jobs.map(|path| ("jobs", leasehold_plane::plane_file_path(&path)));
        let locks = self.locks.single_writer_file().map(|path| ("locks", path));
        jobs.into_iter().chain(locks).collect()
    }

    /// The file to which each job appends its start and end.
    pub(super) fn effects_file(&self) -> PathBuf {
        self.folder.join("effects")
    }

    /// Opens the plane as a client.
    pub(super) async fn plane(&self) -> anyhow::Result<Plane> {
        let locks = Locks::builder(StoreUrl::parse(&self.lock_url())?.open()?)
            .policies(PolicyBook::from_file(self.policies())?)
            .without_log()
            .build()?;
        let store = leasehold_plane::open_store(&StoreUrl::parse(&self.plane_url())?)?;
        Ok(Plane::with_observers(locks, store, PlaneSettings::default(), OsRandom::shared(), Vec::new())?)
    }

    /// Stops the lock store once work has started, and restarts it after `down`.
    pub(super) async fn stop_lock_store(
        &self,
        down: Duration,
        load: &Workload<'_>,
        progress: &dyn Fn(&str),
    ) -> anyhow::Result<Outage> {
        load.wait_until_started().await;
        let from = wall_millis();
        progress(&format!("the lock store is down for {down:?}"));
        self.locks.stop().await?;
        BootClock.sleep(down).await;
        self.locks.restart().await?;
        progress("the lock store is back");
        Ok(Outage { from, to: wall_millis() })
    }
}

/// Milliseconds since 1970 by the wall clock, which the stores' timestamps on this host use too.
pub(super) fn wall_millis() -> u64 {
    let since = BootClock.wall().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

fn policy_text(ttl: Duration, poll: Duration) -> String {
    let text = |duration: Duration| format!("{}ms", duration.as_millis());
    let mut all = String::new();
    for class in ["scheduler", "workflow", "workflow-critical", "approval"] {
        all += &format!(
            "[class.{class}]\nttl = \"{}\"\nrenew = {{ timeout = \"{}\" }}\nacquire = {{ timeout = \"{}\" }}\n",
            text(ttl),
            text(ttl / 6),
            text(ttl / 2),
        );
    }
    for class in ["reconciler", "replayer"] {
        all += &format!(
            "[class.{class}]\npoll = \"{}\"\nrenew = {{ timeout = \"{}\" }}\nacquire = {{ timeout = \"{}\" }}\n",
            text(poll),
            text(poll / 3),
            text(poll),
        );
    }
    all
}

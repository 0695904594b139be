//! The drill's throw-away stores, policy with short leases, and files.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context;
use leasehold::{Locks, StoreUrl};
use leasehold_core::clock::{BootClock, Clock, ClockExt};
use leasehold_core::policy::PolicyBook;
use leasehold_core::rng::OsRandom;
use leasehold_plane::{Plane, Settings as PlaneSettings};
use leasehold_redis::testkit::RedisServer;
use tempfile::TempDir;

use super::PlaneDrillOptions;
use super::workload::Workload;
use crate::fleet::{StoreKind, WorkerProgram};

/// Stores and files of the replicas; removed on drop.
pub(super) struct PlaneTestbed {
    folder: PathBuf,
    _temporary: Option<TempDir>,
    server: Option<RedisServer>,
    /// The URL of the lock store.
    pub(super) locks: String,
    /// The URL of the plane's store.
    pub(super) plane: String,
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
        let file = format!("sqlite:{}", folder.join("plane.db").display());
        // An outage needs a lock store that can be stopped while the jobs' store stays up.
        let redis = options.on == StoreKind::Redis || options.outage.is_some();
        let server = if redis {
            Some(
                RedisServer::start_wrapped(&program.binding_prefix(), &[])
                    .await
                    .context("cannot start redis-server (is it installed?)")?,
            )
        } else {
            None
        };
        let url = server.as_ref().map_or_else(|| file.clone(), RedisServer::url);
        std::fs::write(folder.join("policy.toml"), policy_text(options.ttl, options.poll))?;
        Ok(Self {
            plane: if options.on == StoreKind::Redis { url.clone() } else { file },
            locks: url,
            folder,
            _temporary: temporary,
            server,
        })
    }

    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    pub(super) fn policies(&self) -> PathBuf {
        self.folder.join("policy.toml")
    }

    /// The shared SQLite files with the name of their content.
    pub(super) fn sqlite_files(&self) -> Vec<(&'static str, PathBuf)> {
        let all = [
            // The plane keeps its documents in a file beside the locks' file.
            ("jobs", &self.plane, "plane.plane.db"),
            ("locks", &self.locks, "plane.db"),
        ];
        all.into_iter()
            .filter(|(_, url, _)| url.starts_with("sqlite:"))
            .map(|(name, _, file)| (name, self.folder.join(file)))
            .collect()
    }

    /// The file to which each job appends its start and end.
    pub(super) fn effects_file(&self) -> PathBuf {
        self.folder.join("effects")
    }

    /// Opens the plane as a client.
    pub(super) async fn plane(&self) -> anyhow::Result<Plane> {
        let locks = Locks::builder(StoreUrl::parse(&self.locks)?.open()?)
            .policies(PolicyBook::from_file(self.policies())?)
            .without_log()
            .build()?;
        let store = leasehold_plane::open_store(&StoreUrl::parse(&self.plane)?)?;
        Ok(Plane::with_observers(locks, store, PlaneSettings::default(), OsRandom::shared(), Vec::new())?)
    }

    /// Stops the lock store once work has started, and restarts it after `down`.
    pub(super) async fn stop_lock_store(
        &mut self,
        down: Duration,
        load: &Workload<'_>,
        progress: &dyn Fn(&str),
    ) -> anyhow::Result<Outage> {
        load.wait_until_started().await;
        let server = self.server.as_mut().context("there is no lock store to stop")?;
        let from = wall_millis();
        progress(&format!("the lock store is down for {down:?}"));
        server.stop();
        BootClock.sleep(down).await;
        server.restart().await?;
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

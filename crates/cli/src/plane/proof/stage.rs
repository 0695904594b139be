//! Throw-away stores, the policy with short leases, and where the effects of the work are written down.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context;
use leasehold::clock::{BootClock, Clock, ClockExt};
use leasehold::leasehold_core::rng::OsRandom;
use leasehold::policy::PolicyBook;
use leasehold::{Locks, StoreUrl};
use leasehold_drill::fleet::Program;
use leasehold_plane::{Plane, Settings};
use leasehold_redis::testkit::RedisServer;
use tempfile::TempDir;

use super::ProofArgs;
use super::load::Load;
use crate::say::say;

/// A kind of throw-away store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Kind {
    /// SQLite files in a temporary folder
    Sqlite,
    /// A redis-server on a free port
    Redis,
}

/// Everything the replicas need, gone when dropped.
pub(super) struct Stage {
    folder: PathBuf,
    _temporary: Option<TempDir>,
    server: Option<RedisServer>,
    /// Where the locks are.
    pub(super) locks: String,
    /// Where the jobs are.
    pub(super) plane: String,
}

/// When the lock store was down, in milliseconds of the wall clock.
#[derive(Debug, Clone, Copy)]
pub(super) struct Outage {
    pub(super) from: u64,
    pub(super) to: u64,
}

impl Stage {
    pub(super) async fn set(args: &ProofArgs) -> anyhow::Result<Self> {
        let temporary = match &args.keep {
            Some(folder) => {
                std::fs::create_dir_all(folder)
                    .with_context(|| format!("cannot make {}", folder.display()))?;
                None
            }
            None => Some(tempfile::tempdir()?),
        };
        let folder = match (&args.keep, &temporary) {
            (Some(folder), _) => folder.clone(),
            (None, Some(temporary)) => temporary.path().to_path_buf(),
            (None, None) => anyhow::bail!("there is no folder"),
        };
        let file = format!("sqlite:{}", folder.join("plane.db").display());
        let redis = args.on == Kind::Redis || args.outage.is_some();
        let server = if redis {
            Some(
                RedisServer::under(&Program::this()?.binding(), &[])
                    .await
                    .context("cannot start redis-server (is it installed?)")?,
            )
        } else {
            None
        };
        let url = server.as_ref().map_or_else(|| file.clone(), RedisServer::url);
        std::fs::write(folder.join("policy.toml"), policy(args.ttl, args.poll))?;
        Ok(Self {
            plane: if args.on == Kind::Redis { url.clone() } else { file },
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

    /// The SQLite files that are shared, by what is in them.
    pub(super) fn files(&self) -> Vec<(&'static str, PathBuf)> {
        let all = [
            ("jobs", &self.plane, "plane.plane.db"),
            ("locks", &self.locks, "plane.db"),
        ];
        all.into_iter()
            .filter(|(_, url, _)| url.starts_with("sqlite:"))
            .map(|(name, _, file)| (name, self.folder.join(file)))
            .collect()
    }

    /// Where each piece of work writes a line.
    pub(super) fn effects(&self) -> PathBuf {
        self.folder.join("effects")
    }

    /// The plane as a client sees it.
    pub(super) async fn plane(&self) -> anyhow::Result<Plane> {
        let locks = Locks::builder(StoreUrl::parse(&self.locks)?.open()?)
            .policies(PolicyBook::from_file(self.policies())?)
            .without_log()
            .build()?;
        let store = leasehold_plane::open_store(&StoreUrl::parse(&self.plane)?)?;
        Ok(Plane::with(
            locks,
            store,
            Settings::default(),
            OsRandom::shared(),
            Vec::new(),
        )?)
    }

    /// Kills the lock store when work is under way, and starts it again after this time.
    pub(super) async fn lock_store_down(
        &mut self,
        down: Duration,
        load: &Load<'_>,
    ) -> anyhow::Result<Outage> {
        load.under_way().await;
        let server = self.server.as_mut().context("there is no lock store to stop")?;
        let from = now();
        say(&format!("the lock store is down for {down:?}"));
        server.stop();
        BootClock.sleep(down).await;
        server.restart().await?;
        say("the lock store is back");
        Ok(Outage { from, to: now() })
    }
}

/// Milliseconds since 1970, as the stores on this host count them.
pub(super) fn now() -> u64 {
    let since = BootClock
        .wall()
        .duration_since(std::time::UNIX_EPOCH)
        .unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// The built-in classes with short leases.
fn policy(ttl: Duration, poll: Duration) -> String {
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

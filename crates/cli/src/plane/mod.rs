//! `leasehold plane`: runs a replica of the control plane; and the access of other verbs to the plane.
//!
//! `replica` runs one replica until a signal stops it. `client` has the requests of the verbs, which `through_store` and
//! `through_daemon` send; `print` prints the responses.

pub(crate) mod client;
pub(crate) mod print;
mod replica;
mod through_daemon;
mod through_store;

use std::sync::Arc;

use clap::{Args, Subcommand};
use leasehold::{Locks, StoreUrl};
use leasehold_plane::events::PlaneObserver;
use leasehold_plane::scheduler::Scheduler;
use leasehold_plane::work::{Executors, exec::CommandExecutor};
use leasehold_plane::{Plane, Replica, Settings as PlaneSettings};
use leasehold_server::{MetricsRegistry, UnboundServer};

use crate::args::Redacted;
use crate::config::Settings;

/// Arguments of `leasehold plane`.
#[derive(Debug, Args)]
pub(crate) struct PlaneArgs {
    #[command(subcommand)]
    pub(crate) command: PlaneCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum PlaneCommand {
    /// Run one replica: scheduler, workflow engine and repair loops; any number run side by side
    Replica(replica::ReplicaArgs),
}

pub(crate) fn main(settings: &Settings, args: PlaneArgs) -> anyhow::Result<bool> {
    match args.command {
        PlaneCommand::Replica(args) => replica::main(settings, &args),
    }
}

/// Where the plane's documents are.
#[derive(Debug, Args)]
pub(crate) struct PlaneStoreArg {
    /// Where jobs and runs are kept, if not beside the locks: sqlite:PATH or redis://HOST
    #[arg(long, global = true, value_name = "URL", env = "LEASEHOLD_PLANE_STORE", hide_env_values = true)]
    pub(crate) plane_store: Option<Redacted<String>>,
}

impl PlaneStoreArg {
    /// The configured plane store; an empty value counts as not set.
    fn configured(&self) -> Option<&str> {
        let named = self.plane_store.as_ref().map(|url| url.as_str());
        named.filter(|url| !url.is_empty())
    }

    /// The plane's store: the configured one, or the store of the locks.
    pub(crate) fn plane_url(&self, locks: &StoreUrl) -> anyhow::Result<StoreUrl> {
        Ok(match self.configured() {
            Some(given) => StoreUrl::parse(given)?,
            None => locks.clone(),
        })
    }

    async fn open(&self, settings: &Settings) -> anyhow::Result<Plane> {
        let opened = self.open_with_metrics(settings, PlaneSettings::default(), None, Vec::new());
        opened.await.map(|(plane, _)| plane)
    }

    /// Opens the plane with metrics of the plane and its locks.
    async fn open_with_metrics(
        &self,
        settings: &Settings,
        plane_settings: PlaneSettings,
        holder: Option<leasehold::Holder>,
        observers: Vec<Arc<dyn PlaneObserver>>,
    ) -> anyhow::Result<(Plane, Arc<MetricsRegistry>)> {
        let url = settings.store_url()?;
        let kept = self.plane_url(&url)?;
        let (locks, numbers) = open_locks(settings, &url, holder)?;
        let store = leasehold_plane::open_store(&kept)?;
        let mut all: Vec<Arc<dyn PlaneObserver>> =
            vec![Arc::new(leasehold_plane::events::LogObserver), Arc::clone(&numbers) as _];
        all.extend(observers);
        let random = leasehold_core::rng::OsRandom::shared();
        Ok((Plane::with_observers(locks, store, plane_settings, random, all)?, numbers))
    }
}

// Opened by the URL's value and not by its text: `Display` redacts, so the text may not open.
fn open_locks(
    settings: &Settings,
    url: &StoreUrl,
    holder: Option<leasehold::Holder>,
) -> anyhow::Result<(Locks, Arc<MetricsRegistry>)> {
    let store = url.open()?;
    let numbers = Arc::new(MetricsRegistry::new(store.capabilities().kind));
    let mut builder = Locks::builder(store).observer(Arc::clone(&numbers) as _);
    if let Some((file, book)) = settings.followed_policies()? {
        builder = builder.policies(book).policy_file(file);
    }
    if let Some(holder) = holder.or(settings.holder()?) {
        builder = builder.holder(holder);
    }
    let locks = builder.build()?;
    numbers.init_series(&locks, true);
    Ok((locks, numbers))
}

/// The executor of commands, with a guardian. `pass_env` names further variables that they inherit.
fn command_executor(pass_env: &[String]) -> CommandExecutor {
    CommandExecutor::with_guardian("/proc/self/exe").pass_env(pass_env)
}

/// The parts that a daemon needs to serve the plane on its locks; with a replica if wanted.
pub(crate) fn embed_in_daemon(
    url: &StoreUrl,
    plane_settings: PlaneSettings,
    opened: &UnboundServer,
    replica: bool,
    pass_env: &[String],
) -> anyhow::Result<(Plane, Scheduler, Option<Replica>)> {
    let store = leasehold_plane::open_store(url)?;
    let observers: Vec<Arc<dyn PlaneObserver>> =
        vec![Arc::new(leasehold_plane::events::LogObserver), opened.plane_observer()];
    let random = leasehold_core::rng::OsRandom::shared();
    let plane = Plane::with_observers(opened.locks().clone(), store, plane_settings, random, observers)?;
    let works = Executors::default().exec(Some(command_executor(pass_env)));
    let replica = replica.then(|| Replica::start(plane.clone(), works.clone()));
    // Share the replica's scheduler: it knows which jobs this process works on.
    let scheduler = match &replica {
        Some(replica) => replica.scheduler().clone(),
        None => Scheduler::new(plane.writer().clone(), works),
    };
    Ok((plane, scheduler, replica))
}

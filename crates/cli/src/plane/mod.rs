//! `leasehold plane`: a replica of the control plane; and how the verbs about jobs reach the plane.
//!
//! `replica` runs one replica until it is told to stop; `proof` is `leasehold drill plane`. `question` is what the verbs ask,
//! `way` who answers, `print` how the answers are shown.

pub(crate) mod print;
pub(crate) mod proof;
pub(crate) mod question;
mod replica;
pub(crate) mod way;

use std::sync::Arc;

use clap::{Args, Subcommand};
use leasehold::{Locks, StoreUrl};
use leasehold_plane::note::Observer;
use leasehold_plane::scheduler::Scheduler;
use leasehold_plane::work::{Works, exec::Exec};
use leasehold_plane::{Plane, Replica, Settings};
use leasehold_server::{Numbers, Opened};

use crate::args::{Discreet, Place};

/// `leasehold plane`.
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

/// Does what was asked.
pub(crate) fn main(place: &Place, args: PlaneArgs) -> anyhow::Result<bool> {
    match args.command {
        PlaneCommand::Replica(args) => replica::main(place, &args),
    }
}

/// Where the plane's documents are.
#[derive(Debug, Args)]
pub(crate) struct PlaneStoreArg {
    /// Where jobs and runs are kept, if not beside the locks: sqlite:PATH or redis://HOST
    #[arg(
        long,
        global = true,
        value_name = "URL",
        env = "LEASEHOLD_PLANE_STORE",
        hide_env_values = true
    )]
    pub(crate) plane_store: Option<Discreet<String>>,
}

impl PlaneStoreArg {
    /// Where it was said to be kept.
    fn named(&self) -> Option<&str> {
        let named = self.plane_store.as_ref().map(|url| url.as_str());
        named.filter(|url| !url.is_empty())
    }

    /// Where the plane is kept, if the locks are there.
    pub(crate) fn kept(&self, locks: &StoreUrl) -> anyhow::Result<StoreUrl> {
        Ok(match self.named() {
            Some(given) => StoreUrl::parse(given)?,
            None => locks.clone(),
        })
    }

    /// Opens the plane.
    async fn open(&self, place: &Place) -> anyhow::Result<Plane> {
        let opened = self.open_counted(place, Settings::default(), None, Vec::new());
        opened.await.map(|(plane, _)| plane)
    }

    /// Opens the plane, and counts what it and its locks do.
    async fn open_counted(
        &self,
        place: &Place,
        settings: Settings,
        holder: Option<leasehold::Holder>,
        observers: Vec<Arc<dyn Observer>>,
    ) -> anyhow::Result<(Plane, Arc<Numbers>)> {
        let url = place.store()?;
        let kept = self.kept(&url)?;
        let (locks, numbers) = locks(place, &url, holder)?;
        let store = leasehold_plane::open_store(&kept)?;
        let mut all: Vec<Arc<dyn Observer>> =
            vec![Arc::new(leasehold_plane::note::Log), Arc::clone(&numbers) as _];
        all.extend(observers);
        let random = leasehold::leasehold_core::rng::OsRandom::shared();
        Ok((Plane::with(locks, store, settings, random, all)?, numbers))
    }
}

/// Opened by the URL's value and not by its text, which hides secrets.
fn locks(
    place: &Place,
    url: &StoreUrl,
    holder: Option<leasehold::Holder>,
) -> anyhow::Result<(Locks, Arc<Numbers>)> {
    let store = url.open()?;
    let numbers = Arc::new(Numbers::new(store.capabilities().kind));
    let mut builder = Locks::builder(store).observer(Arc::clone(&numbers) as _);
    if let Some(file) = place.policy_file()? {
        builder = builder.policies(place.book()?).policy_file(file);
    }
    if let Some(holder) = holder.or(place.holder()?) {
        builder = builder.holder(holder);
    }
    let locks = builder.build()?;
    numbers.begin(&locks, true);
    Ok((locks, numbers))
}

/// What a daemon needs to serve the plane on these locks; with one replica, if that is wanted.
pub(crate) fn within(
    url: &StoreUrl,
    settings: Settings,
    opened: &Opened,
    replica: bool,
) -> anyhow::Result<(Plane, Scheduler, Option<Replica>)> {
    let store = leasehold_plane::open_store(url)?;
    let observers: Vec<Arc<dyn Observer>> =
        vec![Arc::new(leasehold_plane::note::Log), opened.plane_observer()];
    let random = leasehold::leasehold_core::rng::OsRandom::shared();
    let plane = Plane::with(opened.locks().clone(), store, settings, random, observers)?;
    let works = Works::default().exec(Some(Exec::warden("/proc/self/exe")));
    let replica = replica.then(|| Replica::start(plane.clone(), works.clone()));
    let scheduler = match &replica {
        Some(replica) => replica.scheduler().clone(),
        None => Scheduler::new(plane.ledger().clone(), works),
    };
    Ok((plane, scheduler, replica))
}

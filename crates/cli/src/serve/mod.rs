//! `leasehold serve`: the daemon over any store, until it is told to stop.

mod args;
mod audit;
mod token;

use std::net::SocketAddr;
use std::path::PathBuf;

use anyhow::Context;
use leasehold::StoreUrl;
use leasehold::leasehold_core::Builder;
use leasehold::policy::PolicyBook;
use leasehold_plane::Settings;
use leasehold_server::{Config, Server, TlsFiles};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::signal::unix::{SignalKind, signal};

pub(crate) use args::{AuditArgs, ServeArgs, TokenArgs};
pub(crate) use audit::main as audit;
pub(crate) use token::main as token;

use crate::args::Place;
use crate::say::say;
use crate::trace::Trace;

/// How long a replica within the daemon may finish what it has begun.
const DRAIN: std::time::Duration = std::time::Duration::from_secs(10);

/// Serves; answers true if it ended in order.
pub(crate) fn main(place: &Place, args: ServeArgs) -> anyhow::Result<bool> {
    let url = place.store()?;
    let store = url.to_string();
    let plane = args.plane.then(|| {
        anyhow::Ok(Within {
            kept: args.plane_store.kept(&url)?,
            settings: Settings {
                admission: args.admission,
                ..Settings::default()
            },
            replica: false,
        })
    });
    let setting = Setting {
        url,
        policies: place.policy_file()?,
        plane: plane.transpose()?,
        config: args.config()?,
    };
    setting.run(|address| say(&format!("serving {store} at {address}")))
}

/// What is served, and how.
pub(crate) struct Setting {
    pub(crate) url: StoreUrl,
    pub(crate) policies: Option<PathBuf>,
    /// How much of the control plane is in it.
    pub(crate) plane: Option<Within>,
    pub(crate) config: Config,
}

/// The control plane that a daemon has within it.
#[derive(Debug)]
pub(crate) struct Within {
    /// Where its jobs and runs are kept.
    pub(crate) kept: StoreUrl,
    pub(crate) settings: Settings,
    /// One replica too; otherwise replicas are elsewhere.
    pub(crate) replica: bool,
}

impl Setting {
    /// Serves until the first signal, then drains; a second signal ends it at once.
    pub(crate) fn run(self, ready: impl FnOnce(&str)) -> anyhow::Result<bool> {
        more_files();
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
        let ended = runtime.block_on(async {
            // Before anything else: a signal that comes early must not kill a daemon that has taken something.
            let (mut first, mut second) = (Signals::new()?, Signals::new()?);
            let trace = Trace::from_env()?;
            let (server, replica) = self.bind(&trace).await?;
            ready(&server.url());
            let run = server.run(async move {
                first.any().await;
                say("stopping; a second signal ends it at once");
                // Before the daemon's own end: the replica works under the daemon's locks, and its workers report here.
                if let Some(replica) = replica
                    && !replica.drain(DRAIN).await
                {
                    say("not everything was done in time: the next replica takes it over");
                }
            });
            let run = async {
                run.await;
                trace.finish().await;
            };
            tokio::select! {
                () = run => Ok::<_, anyhow::Error>(true),
                () = async { second.any().await; second.any().await } => Ok(false),
            }
        });
        // What still runs has had its time.
        runtime.shutdown_background();
        ended
    }

    async fn bind(self, trace: &Trace) -> anyhow::Result<(Server, Option<leasehold_plane::Replica>)> {
        // The policies first: a mistake in them should not have made an empty database.
        let book = self.policies.as_ref().map(PolicyBook::from_file).transpose()?;
        let url = self.url.clone();
        // Opening a file may wait for other processes.
        let store = tokio::task::spawn_blocking(move || url.open()).await??;
        let policies = self.policies;
        let setup = |locks: Builder| {
            let mut locks = trace.builder(locks);
            if let (Some(path), Some(book)) = (policies, book) {
                locks = locks.policies(book).policy_file(path);
            }
            locks
        };
        let opened = Server::open(self.config, store, setup).await?;
        let Some(within) = self.plane else {
            return Ok((opened.bind(Vec::new()).await?, None));
        };
        let (plane, scheduler, replica) =
            crate::plane::within(&within.kept, within.settings, &opened, within.replica)?;
        let opened = opened.with_plane(plane, scheduler);
        Ok((opened.bind(Vec::new()).await?, replica))
    }
}

/// INT and TERM.
struct Signals {
    int: tokio::signal::unix::Signal,
    term: tokio::signal::unix::Signal,
}

impl Signals {
    fn new() -> anyhow::Result<Self> {
        Ok(Self {
            int: signal(SignalKind::interrupt()).context("cannot listen for signals")?,
            term: signal(SignalKind::terminate()).context("cannot listen for signals")?,
        })
    }

    async fn any(&mut self) {
        tokio::select! {
            _ = self.int.recv() => {}
            _ = self.term.recv() => {}
        }
    }
}

/// Every connection is a file: as many as the system lets us have.
fn more_files() {
    let limit = getrlimit(Resource::Nofile);
    let _ = setrlimit(
        Resource::Nofile,
        Rlimit {
            current: limit.maximum,
            maximum: limit.maximum,
        },
    );
}

impl ServeArgs {
    fn config(self) -> anyhow::Result<Config> {
        let mut config = Config::new(self.listen);
        config.tokens = self.tokens;
        config.plaintext = self.plaintext;
        config.state = Some(self.state.map_or_else(Place::daemon_folder, Ok)?);
        config.drain = self.drain;
        config.longest_wait = self.longest_wait;
        config.tls = match (self.tls_cert, self.tls_key) {
            (Some(cert), Some(key)) => Some(TlsFiles {
                cert,
                key,
                client_ca: self.client_ca,
            }),
            _ => None,
        };
        Ok(config)
    }
}

/// Where a daemon listens if nobody says.
pub(crate) const LISTEN: SocketAddr =
    SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 7420);

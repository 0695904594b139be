//! `leasehold serve`: the daemon over any store, until a signal stops it.

mod args;
mod audit;
mod owner_token;
mod token;

use std::io::IsTerminal;
use std::net::SocketAddr;
use std::path::PathBuf;

use anyhow::Context;
use leasehold::StoreUrl;
use leasehold::policy::PolicyBook;
use leasehold_core::LocksBuilder;
use leasehold_core::rng::OsRandom;
use leasehold_plane::Settings as PlaneSettings;
use leasehold_server::auth::OwnerToken;
use leasehold_server::{Config, Server, TlsFiles};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::signal::unix::{SignalKind, signal};

pub(crate) use args::{AuditArgs, ServeArgs, TokenArgs};
pub(crate) use audit::main as audit;
use owner_token::OwnerTokenFiles;
pub(crate) use token::main as token;

use crate::config::Settings;
use crate::message::print_message;
use crate::trace::Trace;

/// The limit for the embedded replica to finish its work at shutdown.
const REPLICA_DRAIN_TIMEOUT: std::time::Duration = std::time::Duration::from_secs(10);

/// Runs the daemon. Returns true after an orderly shutdown.
pub(crate) fn main(settings: &Settings, args: ServeArgs) -> anyhow::Result<bool> {
    let url = settings.store_url()?;
    let store = url.to_string();
    let plane = args.plane.then(|| {
        anyhow::Ok(PlaneSetup {
            store: args.plane_store.plane_url(&url)?,
            settings: PlaneSettings {
                max_runs_per_org: args.admission,
                allow_self_approval: args.allow_self_approval,
                ..PlaneSettings::default()
            },
            replica: false,
            pass_env: Vec::new(),
        })
    });
    let setup = DaemonSetup {
        url,
        policies: settings.followed_policies()?,
        plane: plane.transpose()?,
        config: args.config()?,
    };
    setup.run(|ready| {
        print_message(&format!("serving {store} at {}", ready.url));
        // Not into a log: until it is used or expires, the link opens the dashboard for its reader.
        if let Some(link) = ready.dashboard.filter(|_| std::io::stderr().is_terminal()) {
            print_message(&format!("the dashboard, this link works once: {link}"));
        }
    })
}

/// The store, policies, control plane and server configuration of a daemon.
pub(crate) struct DaemonSetup {
    pub(crate) url: StoreUrl,
    pub(crate) policies: Option<(PathBuf, PolicyBook)>,
    /// The embedded control plane, if any.
    pub(crate) plane: Option<PlaneSetup>,
    pub(crate) config: Config,
}

/// A daemon that is about to serve.
pub(crate) struct ReadyDaemon<'a> {
    pub(crate) url: String,
    /// A link that opens the dashboard once, if the daemon has an owner token.
    pub(crate) dashboard: Option<String>,
    pub(crate) owner_token: Option<&'a OwnerTokenFiles>,
}

/// The control plane inside a daemon.
#[derive(Debug)]
pub(crate) struct PlaneSetup {
    /// The store of jobs and runs.
    pub(crate) store: StoreUrl,
    pub(crate) settings: PlaneSettings,
    /// Run one replica inside the daemon; otherwise replicas run elsewhere.
    pub(crate) replica: bool,
    /// Further variables of the environment that the replica's commands inherit.
    pub(crate) pass_env: Vec<String>,
}

impl DaemonSetup {
    /// Serves until the first signal, then drains. A second signal ends it at once.
    pub(crate) fn run(mut self, ready: impl FnOnce(ReadyDaemon<'_>)) -> anyhow::Result<bool> {
        raise_file_limit();
        self.config.owner_token = self.needs_owner_token().then(|| OwnerToken::make(&OsRandom));
        let owner_token = self.config.owner_token.clone();
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
        let ended = runtime.block_on(async {
            // First of all: an early signal must not kill a daemon that already holds leases.
            let (mut first, mut second) = (StopSignals::new()?, StopSignals::new()?);
            let trace = Trace::from_env()?;
            let (server, replica) = self.bind(&trace).await?;
            // After the bind, which chooses the port; removed when the daemon has stopped.
            let files =
                owner_token.map(|token| OwnerTokenFiles::write(server.address(), &token)).transpose()?;
            let (url, dashboard) = (server.url(), server.dashboard_url());
            ready(ReadyDaemon { url, dashboard, owner_token: files.as_ref() });
            let run = server.run_boxed(Box::pin(async move {
                first.next().await;
                print_message("stopping; a second signal ends it at once");
                // Drained before the daemon: the replica works under the daemon's locks, and its workers
                // report to the daemon.
                if let Some(replica) = replica
                    && !replica.drain(REPLICA_DRAIN_TIMEOUT).await
                {
                    print_message("not everything was done in time: the next replica takes it over");
                }
            }));
            let run = async {
                run.await;
                trace.finish().await;
            };
            tokio::select! {
                () = run => Ok::<_, anyhow::Error>(true),
                // This listener also receives the first signal, hence twice.
                () = async { second.next().await; second.next().await } => Ok(false),
            }
        });
        // Tasks that still run have used up their time.
        runtime.shutdown_background();
        ended
    }

    /// Whether no identities are configured, so that only the user of this process may use the daemon.
    fn needs_owner_token(&self) -> bool {
        let config = &self.config;
        config.listen.ip().is_loopback() && config.tokens.is_none() && !config.accepts_client_certs()
    }

    async fn bind(self, trace: &Trace) -> anyhow::Result<(Server, Option<leasehold_plane::Replica>)> {
        let url = self.url.clone();
        // Opening a SQLite file may block while other processes lock it.
        let store = tokio::task::spawn_blocking(move || url.open()).await??;
        let policies = self.policies;
        let setup = |locks: LocksBuilder| {
            let mut locks = trace.observe_builder(locks);
            if let Some((path, book)) = policies {
                locks = locks.policies(book).policy_file(path);
            }
            locks
        };
        let opened = Server::open(self.config, store, setup).await?;
        let Some(within) = self.plane else {
            return Ok((opened.bind(Vec::new()).await?, None));
        };
        let (plane, scheduler, replica) = crate::plane::embed_in_daemon(
            &within.store,
            within.settings,
            &opened,
            within.replica,
            &within.pass_env,
        )?;
        let opened = opened.with_plane(plane, scheduler);
        Ok((opened.bind(Vec::new()).await?, replica))
    }
}

struct StopSignals {
    int: tokio::signal::unix::Signal,
    term: tokio::signal::unix::Signal,
}

impl StopSignals {
    fn new() -> anyhow::Result<Self> {
        Ok(Self {
            int: signal(SignalKind::interrupt()).context("cannot listen for signals")?,
            term: signal(SignalKind::terminate()).context("cannot listen for signals")?,
        })
    }

    async fn next(&mut self) {
        tokio::select! {
            _ = self.int.recv() => {}
            _ = self.term.recv() => {}
        }
    }
}

// Each connection needs a file descriptor, and the usual soft limit of 1024 is low for a daemon.
fn raise_file_limit() {
    let limit = getrlimit(Resource::Nofile);
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
}

impl ServeArgs {
    fn config(self) -> anyhow::Result<Config> {
        let mut config = Config::new(self.listen);
        config.tokens = self.tokens;
        config.plaintext = self.plaintext;
        config.state_dir = Some(self.state.map_or_else(Settings::daemon_folder, Ok)?);
        config.drain_timeout = self.drain;
        config.max_wait = self.longest_wait;
        config.max_audit_segments = usize::try_from(self.audit_segments).unwrap_or(usize::MAX);
        config.max_connections = usize::try_from(self.max_connections).unwrap_or(usize::MAX);
        config.tls = match (self.tls_cert, self.tls_key) {
            (Some(cert), Some(key)) => Some(TlsFiles { cert, key, client_ca: self.client_ca }),
            _ => None,
        };
        Ok(config)
    }
}

/// The default address of the daemon.
pub(crate) const DEFAULT_LISTEN_ADDRESS: SocketAddr =
    SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 7420);

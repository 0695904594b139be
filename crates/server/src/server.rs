//! Starts, runs and stops the daemon.

use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use leasehold::Locks;
use leasehold::clock::run_until;
use leasehold::event::Observer;
use leasehold::store::SharedStore;
use leasehold_core::LocksBuilder;
use leasehold_plane::Plane;
use leasehold_plane::scheduler::Scheduler;
use rustix::process::{Resource, getrlimit};
use tokio::net::TcpListener;

use crate::api::dashboard::dashboard_url;
use crate::api::routes::{Mount, router};
use crate::auth::{Principal, Rules, Tokens, earlier_grants};
use crate::config::Config;
use crate::environment::Environment;
use crate::state::app::{App, ServerSetup, TokenKey};
use crate::state::audit::{Audit, SegmentLimits};
use crate::state::holds;
use crate::state::record::{Feed, History, Recorder};
use crate::state::served_plane::ServedPlane;
use crate::state::state_db::StateDb;
use crate::state::state_folder::restore_private_modes;
use crate::transport::connection::Connections;
use crate::transport::listener::ConnectionListener;
use crate::transport::tls::FollowedTls;

// A store that is down must not keep the daemon from serving; the holds are resumed in the
// background then.
const RESUME_TIMEOUT: Duration = Duration::from_secs(5);

/// Why a daemon cannot start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// The configuration would admit unidentified callers from other machines, or a file cannot be
    /// used.
    #[error("{0}")]
    Config(String),
    /// The address cannot be bound.
    #[error("cannot listen on {address}: {error}")]
    Listen {
        /// The address from the configuration.
        address: SocketAddr,
        /// The operating system's error.
        error: std::io::Error,
    },
}

/// A daemon with open files and a lock client, not yet bound. For callers whose routes need the
/// client first.
#[must_use = "nothing is bound until `bind`"]
pub struct UnboundServer {
    config: Config,
    locks: Locks,
    setup: ServerSetup,
}

impl UnboundServer {
    /// The daemon's own lock client.
    #[must_use]
    pub fn locks(&self) -> &Locks {
        &self.locks
    }

    /// An observer that counts a control plane's notes in the daemon's metrics.
    #[must_use]
    pub fn plane_observer(&self) -> Arc<dyn leasehold_plane::events::PlaneObserver> {
        Arc::clone(&self.setup.recorder) as _
    }

    /// Serves this control plane on the daemon's address.
    pub fn with_plane(mut self, plane: Plane, scheduler: Scheduler) -> Self {
        self.setup.recorder.metrics_registry.init_series(&self.locks, true);
        let watchers = self.setup.recorder.watchers.clone();
        self.setup.plane = Some(ServedPlane { plane, scheduler, watchers });
        self
    }

    /// Resumes the holds of the previous run and binds the configured address.
    ///
    /// # Errors
    /// A file cannot be used, or the address is in use.
    pub async fn bind(mut self, mounts: Vec<Mount>) -> Result<Server, StartError> {
        let files = getrlimit(Resource::Nofile).current.and_then(|files| usize::try_from(files).ok());
        self.config.limit_connections(files.unwrap_or(usize::MAX));
        let listen = self.config.listen;
        let refuse = |error| StartError::Listen { address: listen, error };
        let listener = TcpListener::bind(listen).await.map_err(refuse)?;
        let address = listener.local_addr().map_err(refuse)?;
        self.serve_at(listener, address, mounts).await
    }

    /// Resumes the holds of the previous run and prepares to serve connections of `listener`, which
    /// is bound to `address`.
    ///
    /// # Errors
    /// A file cannot be used.
    pub async fn serve_at<D: ConnectionListener>(
        self,
        listener: D,
        address: SocketAddr,
        mounts: Vec<Mount>,
    ) -> Result<Server<D>, StartError> {
        let Self { config, locks, setup } = self;
        let tls = config.tls.clone().map(|files| FollowedTls::open(files, Arc::clone(locks.clock())));
        let tls = tls.transpose().map_err(StartError::Config)?;
        let tokens = Tokens::from_config(&config, locks.clock())
            .map_err(|error| StartError::Config(error.to_string()))?;
        if config.accepts_client_certs() && config.tokens.is_none() {
            tracing::warn!("no certificate has any right: the `[[client]]` entries of --tokens give them");
        }
        // Only the plane's rights have changed: without it no grant allows less than before.
        for principal in tokens.iter().filter(|_| setup.plane.is_some()).flat_map(Tokens::principals) {
            for warning in earlier_grants::warnings(&principal) {
                tracing::warn!("{warning}");
            }
        }
        let app = Arc::new(App::new(config, locks, tokens, setup));
        let (router, rules) = router(&app, mounts);
        // Resume before serving: each hold of the previous run must own its id again before a
        // client can request that id.
        let resuming = holds::resume_holds(&app);
        let end = app.clock.now() + RESUME_TIMEOUT;
        if run_until(&*app.clock, end, resuming).await.is_none() {
            tracing::warn!(
                "the store does not answer yet: holds kept before the restart are resumed when it does"
            );
        }
        Ok(Server {
            connections: Connections::new(Arc::clone(&app), router, listener, tls),
            app,
            rules,
            address,
        })
    }
}

impl std::fmt::Debug for UnboundServer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("UnboundServer").field("config", &self.config).finish_non_exhaustive()
    }
}

/// A daemon that is bound but does not serve yet.
#[derive(Debug)]
#[must_use = "nothing is served until `run`"]
pub struct Server<D = TcpListener> {
    app: Arc<App>,
    rules: Arc<Rules>,
    connections: Connections<D>,
    address: SocketAddr,
}

impl Server {
    /// [`open`](Self::open) followed by [`bind`](UnboundServer::bind).
    ///
    /// # Errors
    /// The errors of both.
    pub async fn bind(
        config: Config,
        store: SharedStore,
        setup: impl FnOnce(LocksBuilder) -> LocksBuilder,
        mounts: Vec<Mount>,
    ) -> Result<Self, StartError> {
        Self::open(config, store, setup).await?.bind(mounts).await
    }

    /// Checks the configuration and opens the daemon's files. `setup` configures the daemon's lock
    /// client, above all its policies.
    ///
    /// # Errors
    /// The configuration would admit unidentified callers from other machines, or a file cannot be
    /// used.
    pub async fn open(
        config: Config,
        store: SharedStore,
        setup: impl FnOnce(LocksBuilder) -> LocksBuilder,
    ) -> Result<UnboundServer, StartError> {
        Self::open_with(config, store, setup, Environment::default()).await
    }

    /// [`open`](Self::open) with another clock, source of randomness and database writer.
    ///
    /// # Errors
    /// As for [`open`](Self::open).
    pub async fn open_with(
        config: Config,
        store: SharedStore,
        setup: impl FnOnce(LocksBuilder) -> LocksBuilder,
        parts: Environment,
    ) -> Result<UnboundServer, StartError> {
        // First of all: nothing is opened for a configuration that would be refused.
        config.check().map_err(StartError::Config)?;
        let Environment { clock, random, timer: timing, writer } = parts;
        let folder = config.state_dir.as_deref();
        if let Some(folder) = folder {
            restore_private_modes(folder);
        }
        let ledger = match writer {
            Some(writer) => Ok(StateDb::with_writer(writer)),
            None => StateDb::open(folder),
        };
        let ledger = Arc::new(ledger.map_err(StartError::Config)?);
        let limits =
            SegmentLimits { max_bytes: config.audit_segment_bytes, max_segments: config.max_audit_segments };
        let audit = Audit::open(folder, &ledger, Arc::clone(&clock), &random, limits).await;
        let audit = audit.map_err(StartError::Config)?;
        let key = TokenKey::load_or_create(&ledger, &random).await.map_err(StartError::Config)?;
        // Random, not counted: runs without a state directory must differ too.
        let epoch = random.bits();
        let recorder = Recorder::new(
            Arc::clone(&clock),
            store.capabilities().kind,
            Feed::new(epoch, config.resumable_events),
            History::new(Arc::clone(&ledger), epoch),
        );
        let observer: Arc<dyn Observer> = Arc::clone(&recorder) as _;
        let builder = Locks::builder(store).clock(clock).random(Arc::clone(&random)).observer(observer);
        let locks = setup(builder).build();
        let locks = locks.map_err(|invalid| StartError::Config(invalid.to_string()))?;
        recorder.metrics_registry.init_series(&locks, false);
        recorder.metrics_registry.set_damaged_audit_segments(audit.set_aside);
        let setup = ServerSetup {
            token_key: key,
            random,
            timer: timing,
            recorder,
            audit,
            state_db: ledger,
            plane: None,
        };
        Ok(UnboundServer { config, locks, setup })
    }
}

impl Server {
    /// [`run`](Self::run) as a boxed future, so that the code of the connections is generated and optimized with this
    /// crate and not with each program that runs a daemon.
    pub fn run_boxed(
        self,
        stop: Pin<Box<dyn Future<Output = ()> + Send>>,
    ) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        Box::pin(self.run(stop))
    }
}

impl<D: ConnectionListener> Server<D> {
    /// The bound address.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The URL that clients use.
    #[must_use]
    pub fn url(&self) -> String {
        let scheme = if self.app.config.tls.is_some() { "https" } else { "http" };
        format!("{scheme}://{}", self.address)
    }

    /// The dashboard's URL with a one-time code for the owner's token, which expires after ten minutes;
    /// `None` without an owner token.
    #[must_use]
    pub fn dashboard_url(&self) -> Option<String> {
        let token = self.app.config.owner_token.as_ref()?;
        let (random, now) = (&*self.app.random, self.app.clock.now());
        let code = self.app.dashboard_codes.make(Principal::local().id(), token.expose(), random, now);
        Some(dashboard_url(&self.url(), &code))
    }

    /// All routes with their rules.
    #[must_use]
    pub fn rules(&self) -> &Rules {
        &self.rules
    }

    /// Serves until `stop` completes, then drains: idle connections close, waiting requests return,
    /// running requests finish within the configured time. Daemon-kept holds may be released
    /// meanwhile. Holds whose clients may still be working are left to the next run, which resumes
    /// them.
    pub async fn run(self, stop: impl Future<Output = ()>) {
        let watch = tokio::spawn(holds::watch_holds(Arc::clone(&self.app)));
        let end = self.connections.serve(stop).await;
        // From here on only this function ends holds; the watch task would race with it.
        watch.abort();
        let app = self.app;
        // No client waits for these any more, so they are released instead of resumed.
        for key in app.holds.without_client(app.clock.now()) {
            if let Some((hold, name)) = app.holds.remove(&key, "shutdown", app.clock.now()) {
                let outcome = hold.release().await;
                tracing::info!(%name, ?outcome, "a hold without a client was released");
            }
        }
        app.holds.leave_to_next_run();
        let fenced = app.locks.shutdown(Duration::ZERO).await.fenced;
        // Undo what releases and acquires may have left in the store, in the remaining time.
        // Otherwise names stay locked without a holder until the TTL ends.
        let left = app.locks.drain(end.since(app.clock.now())).await;
        // After everything above, which still writes to the log and to the database.
        app.audit.flush().await;
        app.state_db.close().await;
        tracing::info!(fenced, ?left, "stopped");
    }
}

//! The daemon itself: bound, then run until it is told to stop.

use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use leasehold::Locks;
use leasehold::clock::until;
use leasehold::event::Observer;
use leasehold::leasehold_core::Builder;
use leasehold::store::SharedStore;
use leasehold_plane::Plane;
use leasehold_plane::scheduler::Scheduler;
use tokio::net::TcpListener;

use crate::app::{App, Desk, Key};
use crate::audit::Audit;
use crate::auth::{Rules, Tokens};
use crate::config::Config;
use crate::connection::Connections;
use crate::door::Door;
use crate::holds;
use crate::ledger::Ledger;
use crate::parts::Parts;
use crate::plane::Served;
use crate::record::{Feed, History, Recorder};
use crate::routes::{Mount, router};
use crate::tls;

/// How long the holds of the last life are waited for before requests are taken.
const PATIENCE: Duration = Duration::from_secs(5);

/// Why a daemon does not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// It would let strangers in, or a file cannot be used.
    #[error("{0}")]
    Config(String),
    /// The address cannot be listened on.
    #[error("cannot listen on {address}: {error}")]
    Listen {
        /// Where.
        address: SocketAddr,
        /// Why not.
        error: std::io::Error,
    },
}

/// A daemon with its files and its client, not bound yet: for those whose routes need the client.
#[must_use = "nothing is bound until `bind`"]
pub struct Opened {
    config: Config,
    locks: Locks,
    desk: Desk,
}

impl Opened {
    /// The daemon's own client.
    #[must_use]
    pub fn locks(&self) -> &Locks {
        &self.locks
    }

    /// Counts what a control plane has to tell among the daemon's own numbers.
    #[must_use]
    pub fn plane_observer(&self) -> Arc<dyn leasehold_plane::note::Observer> {
        Arc::clone(&self.desk.recorder) as _
    }

    /// Serves this control plane too.
    pub fn with_plane(mut self, plane: Plane, scheduler: Scheduler) -> Self {
        self.desk.recorder.metrics.begin(&self.locks, true);
        self.desk.plane = Some(Served { plane, scheduler });
        self
    }

    /// Takes up what the last life held, and binds.
    ///
    /// # Errors
    /// A file cannot be used, or the address is taken.
    pub async fn bind(self, mounts: Vec<Mount>) -> Result<Server, StartError> {
        let listen = self.config.listen;
        let refuse = |error| StartError::Listen {
            address: listen,
            error,
        };
        let listener = TcpListener::bind(listen).await.map_err(refuse)?;
        let address = listener.local_addr().map_err(refuse)?;
        self.serve_at(listener, address, mounts).await
    }

    /// Takes up what the last life held, and gets ready to serve whoever comes through this door, which is at this address.
    ///
    /// # Errors
    /// A file cannot be used.
    pub async fn serve_at<D: Door>(
        self,
        door: D,
        address: SocketAddr,
        mounts: Vec<Mount>,
    ) -> Result<Server<D>, StartError> {
        let Self { config, locks, desk } = self;
        let acceptor = config.tls.as_ref().map(tls::acceptor).transpose();
        let acceptor = acceptor.map_err(StartError::Config)?;
        let tokens = config
            .tokens
            .as_ref()
            .map(|path| Tokens::open(path, Arc::clone(locks.clock())))
            .transpose()
            .map_err(|error| StartError::Config(error.to_string()))?;
        let app = Arc::new(App::new(config, locks, tokens, desk));
        let (router, rules) = router(&app, mounts);
        // Whatever the last life held has its id again before anyone can ask for it.
        let resuming = holds::resume(&app);
        let end = app.clock.now() + PATIENCE;
        if until(&*app.clock, end, resuming).await.is_none() {
            tracing::warn!("the store does not answer yet: holds of the last life are taken up when it does");
        }
        Ok(Server {
            connections: Connections::new(Arc::clone(&app), router, door, acceptor),
            app,
            rules,
            address,
        })
    }
}

impl std::fmt::Debug for Opened {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Opened")
            .field("config", &self.config)
            .finish_non_exhaustive()
    }
}

/// A daemon that is bound and does not serve yet.
#[derive(Debug)]
#[must_use = "nothing is served until `run`"]
pub struct Server<D = TcpListener> {
    app: Arc<App>,
    rules: Arc<Rules>,
    connections: Connections<D>,
    address: SocketAddr,
}

impl Server {
    /// [`open`](Self::open) and [`bind`](Opened::bind) at once.
    ///
    /// # Errors
    /// As theirs.
    pub async fn bind(
        config: Config,
        store: SharedStore,
        setup: impl FnOnce(Builder) -> Builder,
        mounts: Vec<Mount>,
    ) -> Result<Self, StartError> {
        Self::open(config, store, setup).await?.bind(mounts).await
    }

    /// Checks everything and opens the daemon's own files. `setup` sets up the daemon's client: its policies, above all.
    ///
    /// # Errors
    /// It would let strangers in, or a file cannot be used.
    pub async fn open(
        config: Config,
        store: SharedStore,
        setup: impl FnOnce(Builder) -> Builder,
    ) -> Result<Opened, StartError> {
        Self::open_with(config, store, setup, Parts::default()).await
    }

    /// [`open`](Self::open) with another clock, source of chance and writer than the machine's.
    ///
    /// # Errors
    /// As its.
    pub async fn open_with(
        config: Config,
        store: SharedStore,
        setup: impl FnOnce(Builder) -> Builder,
        parts: Parts,
    ) -> Result<Opened, StartError> {
        config.check().map_err(StartError::Config)?;
        let Parts {
            clock,
            random,
            timing,
            scribe,
        } = parts;
        let folder = config.state.as_deref();
        let ledger = match scribe {
            Some(scribe) => Ok(Ledger::with(scribe)),
            None => Ledger::open(folder),
        };
        let ledger = Arc::new(ledger.map_err(StartError::Config)?);
        let audit = Audit::open(folder, Arc::clone(&clock)).map_err(StartError::Config)?;
        let key = Key::kept(&ledger, &random).await.map_err(StartError::Config)?;
        let epoch = random.bits();
        let recorder = Recorder::new(
            Arc::clone(&clock),
            store.capabilities().kind,
            Feed::new(epoch, config.events),
            History::new(Arc::clone(&ledger), epoch),
        );
        let observer: Arc<dyn Observer> = Arc::clone(&recorder) as _;
        let builder = Locks::builder(store)
            .clock(clock)
            .random(Arc::clone(&random))
            .observer(observer);
        let locks = setup(builder).build();
        let locks = locks.map_err(|invalid| StartError::Config(invalid.to_string()))?;
        recorder.metrics.begin(&locks, false);
        let desk = Desk {
            key,
            random,
            timing,
            recorder,
            audit,
            ledger,
            plane: None,
        };
        Ok(Opened { config, locks, desk })
    }
}

impl<D: Door> Server<D> {
    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The URL to reach it by.
    #[must_use]
    pub fn url(&self) -> String {
        let scheme = if self.app.config.tls.is_some() {
            "https"
        } else {
            "http"
        };
        format!("{scheme}://{}", self.address)
    }

    /// Every route with its rule.
    #[must_use]
    pub fn rules(&self) -> &Rules {
        &self.rules
    }

    /// Serves until `stop` ends, then drains: no new connections, those who wait are told, requests finish within the
    /// configured time.
    /// Holds that the daemon keeps may be let go meanwhile; those whose clients may go on without it are left to the next
    /// life, which takes them up.
    pub async fn run(self, stop: impl Future<Output = ()>) {
        let watch = tokio::spawn(holds::watch(Arc::clone(&self.app)));
        let end = self.connections.serve(stop).await;
        watch.abort();
        let app = self.app;
        for id in app.holds.unattended(app.clock.now()) {
            if let Some((hold, name)) = app.holds.take(&id, "shutdown", app.clock.now()) {
                let outcome = hold.release().await;
                tracing::info!(%name, ?outcome, "a hold without a client was released");
            }
        }
        app.holds.leave();
        let fenced = app.locks.shutdown(Duration::ZERO).await.fenced;
        // What holds and acquires have left behind would keep names shut for nobody: it is undone in the time that is left.
        let left = app.locks.settled(end.since(app.clock.now())).await;
        app.ledger.close().await;
        tracing::info!(fenced, ?left, "stopped");
    }
}

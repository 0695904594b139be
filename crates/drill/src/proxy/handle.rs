//! The proxy as its users see it: an owner that ends it, and handles that give orders.

use std::net::SocketAddr;
use std::ops::Deref;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::catalog::Catalog;
use super::config::Config;
use super::control;
use super::error::Error;
use super::gateway::{self, Port, Shared};
use super::record::{Fault, Record, Stats};
use super::toxic::Toxic;

/// What a proxy has to tell at its end.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Report {
    /// The counters.
    pub stats: Stats,
    /// The faults, in the order in which they hit.
    pub history: Vec<Fault>,
}

/// Gives orders to a proxy. Cheap to clone; does not keep the proxy alive.
#[derive(Debug, Clone)]
pub struct Handle {
    address: SocketAddr,
    shared: Arc<Shared>,
}

impl Handle {
    /// Where clients connect to.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Puts a toxic in force, on open connections too.
    ///
    /// # Errors
    /// [`Error::Invalid`] if it cannot be meant so, [`Error::Taken`] if its name is.
    pub fn add(&self, toxic: Toxic) -> Result<(), Error> {
        toxic.check(self.shared.config.protocol)?;
        tracing::info!(%toxic, "toxic added");
        self.shared.catalog.add(toxic)
    }

    /// Takes a toxic out of force. What it held back goes on at once.
    ///
    /// # Errors
    /// [`Error::Unknown`] if there is none of that name.
    pub fn remove(&self, name: &str) -> Result<(), Error> {
        self.shared.catalog.remove(name)?;
        tracing::info!(toxic = name, "toxic removed");
        Ok(())
    }

    /// The toxics in force, in the order in which they were added.
    #[must_use]
    pub fn toxics(&self) -> Vec<Toxic> {
        let entries = self.shared.catalog.entries();
        entries.iter().map(|entry| entry.toxic.clone()).collect()
    }

    /// Down: from now on connections are refused, and those that were open are closed. The port stays reserved.
    ///
    /// # Errors
    /// [`Error::Stopped`].
    pub async fn disable(&self) -> Result<(), Error> {
        self.switch(false).await
    }

    /// Up again. When this answers, connections are accepted.
    ///
    /// # Errors
    /// [`Error::Stopped`].
    pub async fn enable(&self) -> Result<(), Error> {
        self.switch(true).await
    }

    /// From now on new connections lead there, as after a fail-over that moved the address. Open ones stay where they are.
    pub fn redirect(&self, upstream: SocketAddr) {
        tracing::info!(%upstream, "redirected");
        *self
            .shared
            .upstream
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = upstream;
    }

    async fn switch(&self, on: bool) -> Result<(), Error> {
        self.shared.wanted.send_replace(on);
        let mut up = self.shared.up.subscribe();
        tokio::select! {
            biased;
            () = self.shared.stop.cancelled() => Err(Error::Stopped),
            done = up.wait_for(|up| *up == on) => done.map(drop).map_err(|_| Error::Stopped),
        }
    }

    /// Whether connections are accepted.
    #[must_use]
    pub fn is_enabled(&self) -> bool {
        *self.shared.up.borrow()
    }

    /// The network is well again: no toxics, and up.
    ///
    /// # Errors
    /// [`Error::Stopped`].
    pub async fn heal(&self) -> Result<(), Error> {
        self.shared.catalog.clear();
        tracing::info!("healed: no toxic is in force");
        self.enable().await
    }

    /// What went through so far.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.shared.record.stats()
    }

    /// The faults so far, in the order in which they hit.
    #[must_use]
    pub fn history(&self) -> Vec<Fault> {
        self.shared.record.history()
    }
}

/// Owns a running proxy; orders are given through [`Handle`], to which it derefs.
///
/// Dropping it ends it soon, without waiting: connections are closed by their tasks. [`stop`](Self::stop) waits until
/// nothing is left.
#[derive(Debug)]
pub struct Proxy {
    handle: Handle,
    control: Option<SocketAddr>,
    tasks: Vec<JoinHandle<()>>,
    stop: CancellationToken,
}

impl Proxy {
    /// Listens. When this answers, clients can connect.
    ///
    /// # Errors
    /// [`Error::Exposed`] for an address that others can reach, [`Error::Bind`] for one that is not free.
    pub async fn start(config: Config) -> Result<Self, Error> {
        config.check()?;
        let bind = |address| move |source| Error::Bind { address, source };
        let port = Port::reserve(config.listen).map_err(bind(config.listen))?;
        let listener = port.listen().map_err(bind(config.listen))?;
        let address = port.address();
        let orders = match config.control {
            Some(at) => Some(tokio::net::TcpListener::bind(at).await.map_err(bind(at))?),
            None => None,
        };
        let control = orders.as_ref().and_then(|orders| orders.local_addr().ok());
        let stop = CancellationToken::new();
        let shared = Arc::new(Shared {
            seed: config.random.bits(),
            record: Arc::new(Record::new(Arc::clone(&config.clock), config.history)),
            catalog: Catalog::new(),
            stop: stop.clone(),
            wanted: watch::Sender::new(true),
            up: watch::Sender::new(true),
            upstream: Mutex::new(config.upstream),
            config,
        });
        let handle = Handle {
            address,
            shared: Arc::clone(&shared),
        };
        tracing::info!(%address, upstream = %shared.config.upstream, ?control, "fault proxy listens");
        let clock = Arc::clone(&shared.config.clock);
        let mut tasks = vec![tokio::spawn(gateway::run(shared, port, listener))];
        if let Some(orders) = orders {
            tasks.push(tokio::spawn(control::run(
                orders,
                handle.clone(),
                clock,
                stop.clone(),
            )));
        }
        Ok(Self {
            handle,
            control,
            tasks,
            stop,
        })
    }

    /// For giving orders from elsewhere.
    #[must_use]
    pub fn handle(&self) -> Handle {
        self.handle.clone()
    }

    /// Where orders are taken as text, if anywhere.
    #[must_use]
    pub fn control_address(&self) -> Option<SocketAddr> {
        self.control
    }

    /// Closes everything and waits until no task and no socket is left.
    pub async fn stop(mut self) -> Report {
        self.stop.cancel();
        for task in std::mem::take(&mut self.tasks) {
            // A task that panicked is gone as well.
            let _ = task.await;
        }
        Report {
            stats: self.handle.stats(),
            history: self.handle.history(),
        }
    }
}

impl Deref for Proxy {
    type Target = Handle;

    fn deref(&self) -> &Handle {
        &self.handle
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

/// Runs a proxy until `shutdown` ends, then closes everything. Orders come through [`Config::control`].
///
/// # Errors
/// As for [`Proxy::start`].
pub async fn serve(config: Config, shutdown: impl Future<Output = ()>) -> Result<Report, Error> {
    let proxy = Proxy::start(config).await?;
    shutdown.await;
    Ok(proxy.stop().await)
}

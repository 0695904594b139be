//! The proxy's public API: [`Proxy`] owns it and stops it, [`ProxyHandle`]s control it.

use std::net::SocketAddr;
use std::ops::Deref;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::config::ProxyConfig;
use super::control;
use super::error::Error;
use super::listener::{self, ProxyState, ReservedPort};
use super::recorder::{InjectedFault, ProxyRecorder, ProxyStats};
use super::registry::ToxicRegistry;
use super::toxic::Toxic;

/// Counters and faults of a stopped proxy.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct ProxyReport {
    /// Counters at the time of the stop.
    pub stats: ProxyStats,
    /// The injected faults, in order of time.
    pub history: Vec<InjectedFault>,
}

/// Controls a proxy. Cheap to clone; does not keep the proxy alive.
#[derive(Debug, Clone)]
pub struct ProxyHandle {
    address: SocketAddr,
    shared: Arc<ProxyState>,
}

impl ProxyHandle {
    /// The address for clients.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Puts a toxic in force, also on open connections.
    ///
    /// # Errors
    /// [`Error::Invalid`] for invalid parameters, [`Error::DuplicateToxic`] if its name is in use.
    pub fn add(&self, toxic: Toxic) -> Result<(), Error> {
        toxic.check(self.shared.config.protocol)?;
        tracing::info!(%toxic, "toxic added");
        self.shared.registry.add(toxic)
    }

    /// Removes a toxic. Data that it held back is delivered at once.
    ///
    /// # Errors
    /// [`Error::UnknownToxic`] if no toxic has that name.
    pub fn remove(&self, name: &str) -> Result<(), Error> {
        self.shared.registry.remove(name)?;
        tracing::info!(toxic = name, "toxic removed");
        Ok(())
    }

    /// The toxics in force, in the order of addition.
    #[must_use]
    pub fn toxics(&self) -> Vec<Toxic> {
        let entries = self.shared.registry.entries();
        entries.iter().map(|entry| entry.toxic.clone()).collect()
    }

    /// Refuses new connections and closes the open ones. The port stays reserved.
    ///
    /// # Errors
    /// [`Error::Stopped`].
    pub async fn disable(&self) -> Result<(), Error> {
        self.set_enabled(false).await
    }

    /// Accepts connections again. They are accepted by the time this returns.
    ///
    /// # Errors
    /// [`Error::Stopped`].
    pub async fn enable(&self) -> Result<(), Error> {
        self.set_enabled(true).await
    }

    /// Sends new connections to another server, as after a fail-over that moved the address. Open
    /// connections stay.
    pub fn redirect(&self, upstream: SocketAddr) {
        tracing::info!(%upstream, "redirected");
        *self.shared.upstream.lock().unwrap_or_else(PoisonError::into_inner) = upstream;
    }

    async fn set_enabled(&self, on: bool) -> Result<(), Error> {
        self.shared.listen_wanted.send_replace(on);
        // Waits for the listener task: callers rely on the port being open or closed afterwards.
        let mut up = self.shared.is_listening.subscribe();
        tokio::select! {
            biased;
            () = self.shared.stop.cancelled() => Err(Error::Stopped),
            done = up.wait_for(|up| *up == on) => done.map(drop).map_err(|_| Error::Stopped),
        }
    }

    /// Whether connections are accepted.
    #[must_use]
    pub fn is_enabled(&self) -> bool {
        *self.shared.is_listening.borrow()
    }

    /// Removes all toxics and enables the proxy.
    ///
    /// # Errors
    /// [`Error::Stopped`].
    pub async fn heal(&self) -> Result<(), Error> {
        self.shared.registry.clear();
        tracing::info!("healed: no toxic is in force");
        self.enable().await
    }

    /// The counters so far.
    #[must_use]
    pub fn stats(&self) -> ProxyStats {
        self.shared.recorder.stats()
    }

    /// The injected faults so far, in order of time.
    #[must_use]
    pub fn history(&self) -> Vec<InjectedFault> {
        self.shared.recorder.history()
    }
}

/// Owns a running proxy. Derefs to [`ProxyHandle`], which controls it.
///
/// Dropping it stops the proxy without waiting: its tasks close their connections shortly after.
/// [`stop`](Self::stop) waits until no task is left.
#[derive(Debug)]
pub struct Proxy {
    handle: ProxyHandle,
    control: Option<SocketAddr>,
    tasks: Vec<JoinHandle<()>>,
    stop: CancellationToken,
}

impl Proxy {
    /// Starts to listen. Clients can connect as soon as this returns.
    ///
    /// # Errors
    /// [`Error::Exposed`] for an address that other machines can reach, [`Error::Bind`] for one
    /// that is in use.
    pub async fn start(config: ProxyConfig) -> Result<Self, Error> {
        config.check()?;
        let bind = |address| move |source| Error::Bind { address, source };
        let port = ReservedPort::reserve(config.listen).map_err(bind(config.listen))?;
        let listener = port.listen().map_err(bind(config.listen))?;
        let address = port.address();
        let orders = match config.control {
            Some(at) => Some(tokio::net::TcpListener::bind(at).await.map_err(bind(at))?),
            None => None,
        };
        let control = orders.as_ref().and_then(|orders| orders.local_addr().ok());
        let stop = CancellationToken::new();
        let shared = Arc::new(ProxyState {
            seed: config.random.bits(),
            recorder: Arc::new(ProxyRecorder::new(Arc::clone(&config.clock), config.history)),
            registry: ToxicRegistry::new(),
            stop: stop.clone(),
            listen_wanted: watch::Sender::new(true),
            is_listening: watch::Sender::new(true),
            upstream: Mutex::new(config.upstream),
            config,
        });
        let handle = ProxyHandle { address, shared: Arc::clone(&shared) };
        tracing::info!(%address, upstream = %shared.config.upstream, ?control, "fault proxy listens");
        let clock = Arc::clone(&shared.config.clock);
        let mut tasks = vec![tokio::spawn(listener::run(shared, port, listener))];
        if let Some(orders) = orders {
            tasks.push(tokio::spawn(control::run(orders, handle.clone(), clock, stop.clone())));
        }
        Ok(Self { handle, control, tasks, stop })
    }

    /// A handle for other tasks.
    #[must_use]
    pub fn handle(&self) -> ProxyHandle {
        self.handle.clone()
    }

    /// The address of the control socket, if there is one.
    #[must_use]
    pub fn control_address(&self) -> Option<SocketAddr> {
        self.control
    }

    /// Closes everything and waits until no task and no socket is left.
    pub async fn stop(mut self) -> ProxyReport {
        self.stop.cancel();
        for task in std::mem::take(&mut self.tasks) {
            // A task that panicked has also ended, and its sockets are closed.
            let _ = task.await;
        }
        ProxyReport { stats: self.handle.stats(), history: self.handle.history() }
    }
}

impl Deref for Proxy {
    type Target = ProxyHandle;

    fn deref(&self) -> &ProxyHandle {
        &self.handle
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

/// Runs a proxy until `shutdown` completes, then stops it. It is controlled through
/// [`ProxyConfig::control`].
///
/// # Errors
/// As for [`Proxy::start`].
pub async fn serve(config: ProxyConfig, shutdown: impl Future<Output = ()>) -> Result<ProxyReport, Error> {
    let proxy = Proxy::start(config).await?;
    shutdown.await;
    Ok(proxy.stop().await)
}

//! The daemon itself: bound, then run until it is told to stop.

use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;

use leasehold::Locks;
use leasehold::leasehold_core::rng::OsRandom;
use tokio::net::TcpListener;

use crate::app::{App, Key};
use crate::auth::{Rules, Tokens};
use crate::config::Config;
use crate::connection::Connections;
use crate::routes::{Mount, router};
use crate::tls;

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

/// A daemon that is bound and does not serve yet.
#[derive(Debug)]
#[must_use = "nothing is served until `run`"]
pub struct Server {
    app: Arc<App>,
    rules: Arc<Rules>,
    connections: Connections,
    address: SocketAddr,
}

impl Server {
    /// Checks everything, and binds.
    ///
    /// # Errors
    /// It would let strangers in, a file cannot be used, or the address is taken.
    pub async fn bind(config: Config, locks: Locks, mounts: Vec<Mount>) -> Result<Self, StartError> {
        config.check().map_err(StartError::Config)?;
        let acceptor = config.tls.as_ref().map(tls::acceptor).transpose();
        let acceptor = acceptor.map_err(StartError::Config)?;
        let tokens = config
            .tokens
            .as_ref()
            .map(|path| Tokens::open(path, Arc::clone(locks.clock())))
            .transpose()
            .map_err(|error| StartError::Config(error.to_string()))?;
        let listen = config.listen;
        let refuse = |error| StartError::Listen {
            address: listen,
            error,
        };
        let listener = TcpListener::bind(listen).await.map_err(refuse)?;
        let address = listener.local_addr().map_err(refuse)?;
        let key = Key::fresh(&OsRandom::shared());
        let app = Arc::new(App::new(config, locks, tokens, key));
        let (router, rules) = router(&app, mounts);
        Ok(Self {
            connections: Connections::new(Arc::clone(&app), router, listener, acceptor),
            app,
            rules,
            address,
        })
    }

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
    pub async fn run(self, stop: impl Future<Output = ()>) {
        self.connections.serve(stop).await;
    }
}

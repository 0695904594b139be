//! A daemon in this process, on a free port that it keeps across a restart.

use std::net::SocketAddr;
use std::sync::Arc;

use leasehold::store::SharedStore;
use leasehold_http::{HttpOptions, HttpStore};
use leasehold_server::{Config, Server};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

pub(crate) struct ServedStore {
    address: SocketAddr,
    stop: CancellationToken,
    running: JoinHandle<()>,
}

impl ServedStore {
    pub(crate) async fn start(store: SharedStore) -> Self {
        Self::at("127.0.0.1:0".parse().unwrap(), store).await
    }

    async fn at(address: SocketAddr, store: SharedStore) -> Self {
        let mut config = Config::new(address);
        config.unauthenticated = true;
        let server = Server::bind(config, store, |locks| locks.without_log(), Vec::new()).await;
        let server = server.unwrap();
        let (address, stop) = (server.address(), CancellationToken::new());
        let stopped = stop.clone().cancelled_owned();
        Self { address, stop, running: tokio::spawn(server.run(stopped)) }
    }

    /// Starts another daemon on the same port.
    pub(crate) async fn restart(&mut self, store: SharedStore) {
        self.stop.cancel();
        let _ = (&mut self.running).await;
        *self = Self::at(self.address, store).await;
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }
}

pub(crate) fn open(url: &str) -> anyhow::Result<SharedStore> {
    Ok(Arc::new(HttpStore::open(HttpOptions::parse(url)?)?))
}

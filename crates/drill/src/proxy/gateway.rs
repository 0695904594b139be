//! The listening socket and the connections behind it.

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use leasehold_core::clock::ClockExt;
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::active::branch;
use super::catalog::Catalog;
use super::config::{Config, Protocol};
use super::lane::{End, Lane};
use super::link::{Link, Tap};
use super::record::{Record, count};
use super::resp::{Commands, Ledger, Replies};
use super::toxic::Stream;

/// How long to wait after the operating system refused a socket: it may be out of them for a moment.
const BREATH: Duration = Duration::from_millis(20);
/// How many connections may wait to be accepted.
const BACKLOG: u32 = 1024;

/// What all connections of a proxy share.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) config: Config,
    /// Where new connections lead: [`Config::raw`]'s address until somebody redirects.
    pub(super) upstream: Mutex<SocketAddr>,
    pub(super) seed: u64,
    pub(super) catalog: Catalog,
    pub(super) record: Arc<Record>,
    pub(super) stop: CancellationToken,
    /// Whether the proxy shall listen.
    pub(super) wanted: watch::Sender<bool>,
    /// Whether it does; false means that all its connections are gone, too.
    pub(super) up: watch::Sender<bool>,
}

/// A port that stays ours while nobody listens on it.
#[derive(Debug)]
pub(super) struct Port {
    address: SocketAddr,
    /// Bound and never listening: with it alone, connections are refused, and no other process gets the port.
    _placeholder: TcpSocket,
}

impl Port {
    pub(super) fn reserve(wanted: SocketAddr) -> io::Result<Self> {
        if wanted.port() != 0 {
            // Sockets that share a port would take each other's clients: the first one is alone there.
            socket(wanted, true, false)?;
        }
        let placeholder = socket(wanted, false, true)?;
        Ok(Self {
            address: placeholder.local_addr()?,
            _placeholder: placeholder,
        })
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(super) fn listen(&self) -> io::Result<TcpListener> {
        socket(self.address, true, true)?.listen(BACKLOG)
    }
}

/// Bound. `reuse` allows it where closed connections still linger, if those allowed it, too; `share` beside another socket
/// that shares. The placeholder does not allow reuse, so nobody else gets the port while it is there.
fn socket(address: SocketAddr, reuse: bool, share: bool) -> io::Result<TcpSocket> {
    let socket = if address.is_ipv4() {
        TcpSocket::new_v4()?
    } else {
        TcpSocket::new_v6()?
    };
    socket.set_reuseaddr(reuse)?;
    socket.set_reuseport(share)?;
    socket.bind(address)?;
    Ok(socket)
}

/// Listens whenever that is wanted, until the proxy is stopped.
pub(super) async fn run(shared: Arc<Shared>, port: Port, first: TcpListener) {
    let mut wanted = shared.wanted.subscribe();
    let mut ready = Some(first);
    let seats = Arc::new(Semaphore::new(shared.config.connections));
    while !shared.stop.is_cancelled() {
        if !*wanted.borrow() {
            // Put down before this task ran for the first time: the first listener is open already.
            ready = None;
            shared.up.send_replace(false);
        }
        tokio::select! {
            on = wanted.wait_for(|on| *on) => if on.is_err() { return },
            () = shared.stop.cancelled() => return,
        }
        let listener = match ready.take().map_or_else(|| port.listen(), Ok) {
            Ok(listener) => listener,
            Err(error) => {
                tracing::warn!(%error, "the proxy cannot listen again yet");
                shared.config.clock.sleep(BREATH).await;
                continue;
            }
        };
        shared.up.send_replace(true);
        let (open, ending) = (TaskTracker::new(), shared.stop.child_token());
        tokio::select! {
            () = accept(&shared, &listener, &seats, &open, &ending) => {}
            _ = wanted.wait_for(|on| !*on) => {}
            () = shared.stop.cancelled() => {}
        }
        drop(listener);
        ending.cancel();
        open.close();
        open.wait().await;
        shared.up.send_replace(false);
    }
}

async fn accept(
    shared: &Arc<Shared>,
    listener: &TcpListener,
    seats: &Arc<Semaphore>,
    open: &TaskTracker,
    ending: &CancellationToken,
) {
    while let Ok(seat) = Arc::clone(seats).acquire_owned().await {
        match listener.accept().await {
            Ok((client, _)) => {
                let number = shared.record.connections.fetch_add(1, Ordering::Relaxed) + 1;
                let (shared, ending) = (Arc::clone(shared), ending.clone());
                open.spawn(async move {
                    count(&shared.record.open, 1);
                    connection(&shared, client, number, &ending).await;
                    shared.record.open.fetch_sub(1, Ordering::Relaxed);
                    drop(seat);
                });
            }
            Err(error) => {
                tracing::warn!(%error, "the proxy could not accept a connection");
                shared.config.clock.sleep(BREATH).await;
            }
        }
    }
}

/// One client, from being accepted to its end.
async fn connection(shared: &Shared, mut client: TcpStream, number: u64, ending: &CancellationToken) {
    let upstream = *shared.upstream.lock().unwrap_or_else(PoisonError::into_inner);
    let server = tokio::select! {
        server = TcpStream::connect(upstream) => server,
        () = ending.cancelled() => return,
    };
    let mut server = match server {
        Ok(server) => server,
        Err(error) => {
            tracing::debug!(connection = number, %error, "the server behind the proxy cannot be reached");
            count(&shared.record.unreachable, 1);
            // A client that never got through shall not take this for an orderly end.
            let _ = client.set_zero_linger();
            return;
        }
    };
    // A proxy that waits to fill packets would add a latency nobody asked for.
    let _ = client.set_nodelay(true).and_then(|()| server.set_nodelay(true));
    let end = {
        let (up, down) = links(shared, number);
        let (from_client, to_client) = client.split();
        let (from_server, to_server) = server.split();
        let both =
            async { tokio::try_join!(up.run(from_client, to_server), down.run(from_server, to_client)) };
        tokio::select! {
            done = both => done.map(drop),
            () = ending.cancelled() => {
                if !shared.stop.is_cancelled() {
                    shared.record.down(number);
                }
                Err(End::Close)
            }
        }
    };
    match end {
        Ok(()) => {}
        Err(End::Close) => {
            let _ = client.shutdown().await;
            let _ = server.shutdown().await;
        }
        Err(End::Reset) => {
            // Linger 0 makes the kernel send RST when the socket is dropped.
            let _ = client.set_zero_linger();
            let _ = server.set_zero_linger();
        }
    }
}

fn links(shared: &Shared, number: u64) -> (Link, Link) {
    let ledger = Arc::new(Ledger::default());
    let (commands, replies) = match shared.config.protocol {
        Protocol::Raw => (Tap::Raw, Tap::Raw),
        Protocol::Resp => (Tap::Commands(Commands::new()), Tap::Replies(Replies::new())),
    };
    let link = |stream, tap| Link {
        connection: number,
        stream,
        lane: Lane::new(stream, branch(shared.seed, number), shared.config.buffer),
        tap,
        ledger: Arc::clone(&ledger),
        record: Arc::clone(&shared.record),
        clock: Arc::clone(&shared.config.clock),
        toxics: shared.catalog.watch(),
    };
    (
        link(Stream::Upstream, commands),
        link(Stream::Downstream, replies),
    )
}

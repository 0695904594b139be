//! The listening socket, and one task for each accepted connection.

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

use super::active_toxic::derive_seed;
use super::config::{ProxyConfig, ProxyProtocol};
use super::pump::{StreamParser, StreamPump};
use super::recorder::{ProxyRecorder, increment};
use super::registry::ToxicRegistry;
use super::resp::{CommandTracker, ExpectedReplies, ReplyTracker};
use super::stream_machine::{ForcedClose, StreamMachine};
use super::toxic::StreamDirection;

// The operating system may be out of sockets for a moment.
const LISTEN_RETRY_DELAY: Duration = Duration::from_millis(20);
const LISTEN_BACKLOG: u32 = 1024;

/// State that all connections of a proxy share.
#[derive(Debug)]
pub(super) struct ProxyState {
    pub(super) config: ProxyConfig,
    /// Address of the server for new connections. Set by [`ProxyConfig::raw`], changed by
    /// `ProxyHandle::redirect`.
    pub(super) upstream: Mutex<SocketAddr>,
    pub(super) seed: u64,
    pub(super) registry: ToxicRegistry,
    pub(super) recorder: Arc<ProxyRecorder>,
    pub(super) stop: CancellationToken,
    /// Whether the user wants the proxy to listen.
    pub(super) listen_wanted: watch::Sender<bool>,
    /// Whether it does. False also means that all its connections have ended.
    pub(super) is_listening: watch::Sender<bool>,
}

/// A port that stays reserved while the proxy does not listen on it.
#[derive(Debug)]
pub(super) struct ReservedPort {
    address: SocketAddr,
    /// Bound, but never listening: clients are refused, and no other process can take the port.
    _placeholder: TcpSocket,
}

impl ReservedPort {
    pub(super) fn reserve(wanted: SocketAddr) -> io::Result<Self> {
        if wanted.port() != 0 {
            // Sockets that share a port take each other's clients. Fails here if another process
            // listens on this port.
            bind_socket(wanted, true, false)?;
        }
        let placeholder = bind_socket(wanted, false, true)?;
        Ok(Self { address: placeholder.local_addr()?, _placeholder: placeholder })
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(super) fn listen(&self) -> io::Result<TcpListener> {
        bind_socket(self.address, true, true)?.listen(LISTEN_BACKLOG)
    }
}

/// Binds a socket. `reuse` (`SO_REUSEADDR`) ignores closed connections in TIME_WAIT, `share`
/// (`SO_REUSEPORT`) allows a second socket on the port. The placeholder is bound without `reuse`,
/// so no other process gets the port.
fn bind_socket(address: SocketAddr, reuse: bool, share: bool) -> io::Result<TcpSocket> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    socket.set_reuseaddr(reuse)?;
    socket.set_reuseport(share)?;
    socket.bind(address)?;
    Ok(socket)
}

/// Listens while the proxy is enabled, until it is stopped.
pub(super) async fn run(shared: Arc<ProxyState>, port: ReservedPort, first: TcpListener) {
    let mut wanted = shared.listen_wanted.subscribe();
    let mut ready = Some(first);
    let seats = Arc::new(Semaphore::new(shared.config.connections));
    while !shared.stop.is_cancelled() {
        if !*wanted.borrow() {
            // Disabled before this task ran for the first time: the first listener is already open
            // and must be closed.
            ready = None;
            shared.is_listening.send_replace(false);
        }
        tokio::select! {
            on = wanted.wait_for(|on| *on) => if on.is_err() { return },
            () = shared.stop.cancelled() => return,
        }
        let listener = match ready.take().map_or_else(|| port.listen(), Ok) {
            Ok(listener) => listener,
            Err(error) => {
                tracing::warn!(%error, "the proxy cannot listen again yet");
                shared.config.clock.sleep(LISTEN_RETRY_DELAY).await;
                continue;
            }
        };
        shared.is_listening.send_replace(true);
        let (open, ending) = (TaskTracker::new(), shared.stop.child_token());
        tokio::select! {
            () = accept_connections(&shared, &listener, &seats, &open, &ending) => {}
            _ = wanted.wait_for(|on| !*on) => {}
            () = shared.stop.cancelled() => {}
        }
        drop(listener);
        // Connections end before `up` turns false: `disable` promises that none is open when it
        // returns.
        ending.cancel();
        open.close();
        open.wait().await;
        shared.is_listening.send_replace(false);
    }
}

async fn accept_connections(
    shared: &Arc<ProxyState>,
    listener: &TcpListener,
    seats: &Arc<Semaphore>,
    open: &TaskTracker,
    ending: &CancellationToken,
) {
    while let Ok(seat) = Arc::clone(seats).acquire_owned().await {
        match listener.accept().await {
            Ok((client, _)) => {
                let number = shared.recorder.connections.fetch_add(1, Ordering::Relaxed) + 1;
                let (shared, ending) = (Arc::clone(shared), ending.clone());
                open.spawn(async move {
                    increment(&shared.recorder.open, 1);
                    serve_connection(&shared, client, number, &ending).await;
                    shared.recorder.open.fetch_sub(1, Ordering::Relaxed);
                    drop(seat);
                });
            }
            Err(error) => {
                tracing::warn!(%error, "the proxy could not accept a connection");
                shared.config.clock.sleep(LISTEN_RETRY_DELAY).await;
            }
        }
    }
}

/// Serves one client connection until it ends.
async fn serve_connection(
    shared: &ProxyState,
    mut client: TcpStream,
    number: u64,
    ending: &CancellationToken,
) {
    // Read once per connection: a redirect affects new connections only, as a real fail-over does.
    let upstream = *shared.upstream.lock().unwrap_or_else(PoisonError::into_inner);
    let server = tokio::select! {
        server = TcpStream::connect(upstream) => server,
        () = ending.cancelled() => return,
    };
    let mut server = match server {
        Ok(server) => server,
        Err(error) => {
            tracing::debug!(connection = number, %error, "the server behind the proxy cannot be reached");
            increment(&shared.recorder.unreachable, 1);
            // RST instead of FIN: a client that was never connected must not take this for an
            // orderly end.
            let _ = client.set_zero_linger();
            return;
        }
    };
    // Nagle's algorithm would add latency that no toxic asked for.
    let _ = client.set_nodelay(true).and_then(|()| server.set_nodelay(true));
    let end = {
        let (up, down) = build_pumps(shared, number);
        let (from_client, to_client) = client.split();
        let (from_server, to_server) = server.split();
        let both =
            async { tokio::try_join!(up.run(from_client, to_server), down.run(from_server, to_client)) };
        tokio::select! {
            done = both => done.map(drop),
            () = ending.cancelled() => {
                // Stopping the proxy is no fault: only a disabled proxy is part of the drill's
                // history.
                if !shared.stop.is_cancelled() {
                    shared.recorder.record_disabled(number);
                }
                Err(ForcedClose::Close)
            }
        }
    };
    match end {
        Ok(()) => {}
        Err(ForcedClose::Close) => {
            let _ = client.shutdown().await;
            let _ = server.shutdown().await;
        }
        Err(ForcedClose::Reset) => {
            // Linger 0 makes the kernel send RST when the socket is dropped.
            let _ = client.set_zero_linger();
            let _ = server.set_zero_linger();
        }
    }
}

fn build_pumps(shared: &ProxyState, number: u64) -> (StreamPump, StreamPump) {
    let ledger = Arc::new(ExpectedReplies::default());
    let (commands, replies) = match shared.config.protocol {
        ProxyProtocol::Raw => (StreamParser::Raw, StreamParser::Raw),
        ProxyProtocol::Resp => {
            (StreamParser::Commands(CommandTracker::new()), StreamParser::Replies(ReplyTracker::new()))
        }
    };
    let link = |stream, tap| StreamPump {
        connection: number,
        stream,
        // Seeded by the connection's number: its draws do not depend on what other connections do.
        machine: StreamMachine::new(stream, derive_seed(shared.seed, number), shared.config.buffer),
        parser: tap,
        expected_replies: Arc::clone(&ledger),
        recorder: Arc::clone(&shared.recorder),
        clock: Arc::clone(&shared.config.clock),
        toxics: shared.registry.watch(),
    };
    (link(StreamDirection::Upstream, commands), link(StreamDirection::Downstream, replies))
}

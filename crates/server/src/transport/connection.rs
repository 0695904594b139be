//! Accepts and serves connections, with limits on their number, on silence, and on the drain at the
//! end.

use std::fmt;
use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use leasehold::clock::{ClockExt, Moment, SharedClock, run_until};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tower::Service;

use crate::state::app::App;
use crate::transport::client_certificate::ClientCertificate;
use crate::transport::listener::ConnectionListener;
use crate::transport::peer::Peer;
use crate::transport::tls::FollowedTls;
use crate::transport::unidentified::UnidentifiedConnections;
use crate::transport::write_timeout::{MIN_WRITE_BYTES_PER_SECOND, WriteTimeout};

// hyper answers 431 beyond this; it also bounds the read-ahead per connection.
const MAX_HEAD_BYTES: usize = 16 * 1024;
// What TLS keeps of a response that the peer has not taken yet.
const MAX_TLS_BUFFER_BYTES: usize = 16 * 1024;
// The time for a whole request on a reserved connection; shorter than the configured timeouts.
pub(crate) const RESERVED_REQUEST_TIMEOUT: Duration = Duration::from_secs(2);
// A failed accept usually means that file descriptors ran out. Without a pause the loop would spin.
const ACCEPT_RETRY_PAUSE: Duration = Duration::from_millis(50);

/// The accept loop and what it needs to serve a connection.
pub(crate) struct Connections<D> {
    app: Arc<App>,
    router: Router,
    listener: D,
    tls: Option<Arc<FollowedTls>>,
    permits: Arc<Semaphore>,
    /// `None` if callers are not identified at all.
    unidentified: Option<Arc<UnidentifiedConnections>>,
}

impl<D: ConnectionListener> Connections<D> {
    pub(crate) fn new(app: Arc<App>, router: Router, listener: D, tls: Option<FollowedTls>) -> Self {
        Self {
            permits: Arc::new(Semaphore::new(app.config.max_connections)),
            unidentified: (!app.config.unauthenticated)
                .then(|| UnidentifiedConnections::new(app.config.max_unidentified())),
            app,
            router,
            listener,
            tls: tls.map(Arc::new),
        }
    }

    /// Serves until `stop` completes, then lets running requests finish. Returns the time by which
    /// the daemon must have stopped.
    pub(crate) async fn serve(self, stop: impl Future<Output = ()>) -> Moment {
        let tasks = TaskTracker::new();
        let abort = CancellationToken::new();
        let mut stop = std::pin::pin!(stop);
        let stopping = self.app.stopping.clone();
        loop {
            let accepted = tokio::select! {
                biased;
                // `biased`: a steady stream of connections must not delay the stop.
                () = &mut stop => break,
                accepted = self.listener.accept() => accepted,
            };
            match accepted {
                Ok((stream, from)) => self.spawn_connection(stream, from, &tasks, &abort),
                Err(error) => {
                    tracing::warn!(%error, "a connection could not be accepted");
                    self.app.clock.sleep(ACCEPT_RETRY_PAUSE).await;
                }
            }
        }
        // Waiting requests return an error, event streams end, and idle connections close.
        stopping.cancel();
        let end = self.app.clock.now() + self.app.config.drain_timeout;
        // Keep accepting while there are daemon-kept holds: their clients may want to release them.
        while self.app.holds.len() > 0 && self.app.clock.now() < end {
            let soon = (self.app.clock.now() + ACCEPT_RETRY_PAUSE).min(end);
            if let Some(Ok((stream, from))) = run_until(&*self.app.clock, soon, self.listener.accept()).await
            {
                self.spawn_connection(stream, from, &tasks, &abort);
            }
        }
        // Close the socket now: the kernel then refuses clients instead of queueing them.
        drop(self.listener);
        tasks.close();
        if run_until(&*self.app.clock, end, tasks.wait()).await.is_none() {
            tracing::warn!(connections = tasks.len(), "connections did not finish in time and are cut");
        }
        abort.cancel();
        // Before the undos, which these may still cause.
        self.app.store_calls.close();
        run_until(&*self.app.clock, end, self.app.store_calls.wait()).await;
        // Finish pending undos in the remaining time.
        self.app.undo_queue.drain(&*self.app.clock, end).await;
        end
    }

    fn spawn_connection(
        &self,
        stream: D::Stream,
        from: SocketAddr,
        tasks: &TaskTracker,
        abort: &CancellationToken,
    ) {
        let Ok(place) = Arc::clone(&self.permits).try_acquire_owned() else {
            // Answered without reading: nothing of the request has taken effect.
            D::reject(&stream, OVERLOADED_RESPONSE);
            return;
        };
        D::prepare(&stream);
        let timeout = ConnectionLimits::new(&self.app, self.permits.available_permits());
        let (app, router, tls, abort) =
            (Arc::clone(&self.app), self.router.clone(), self.tls.clone(), abort.clone());
        let unidentified = self.unidentified.as_ref().map(|all| all.add(from.ip()));
        tasks.spawn(async move {
            let _place = place;
            let (clock, config) = (SharedClock::clone(&app.clock), &app.config);
            let unidentified_timeout = config.unidentified_timeout;
            let (timeout_clock, min_rate) = (SharedClock::clone(&clock), MIN_WRITE_BYTES_PER_SECOND);
            let stream = WriteTimeout::new(stream, timeout_clock, config.write_timeout, min_rate);
            let peer =
                Peer { address: Some(from.ip()), unidentified: unidentified.clone(), ..Peer::default() };
            let must_end = async {
                if let Some(connection) = &unidentified {
                    // Boxed, so that it is freed once the peer is identified: most connections are idle then.
                    let cut = Box::pin(connection.must_be_cut(&*clock, unidentified_timeout)).await;
                    if cut {
                        return;
                    }
                }
                std::future::pending().await
            };
            tokio::select! {
                biased;
                () = abort.cancelled() => {}
                () = must_end => tracing::debug!(%from, "a connection without an identity is cut"),
                () = serve_stream(app, router, stream, tls, peer, timeout) => {}
            }
            tracing::trace!(%from, "connection over");
        });
    }
}

/// The response to a connection beyond the limit. The padding keeps the announced length.
const OVERLOADED_RESPONSE: &[u8] = b"HTTP/1.1 503 Service Unavailable\r\ncontent-type: application/problem+json\r\nretry-after: 1\r\n\
connection: close\r\ncontent-length: 163\r\n\r\n\
{\"type\":\"urn:leasehold:problem:overloaded\",\"title\":\"overloaded\",\"status\":503,\"detail\":\"too many connections; \
retry later\",\"code\":\"overloaded\",\"unknown\":false    }\n";

/// The time limits of one connection.
#[derive(Debug, Clone, Copy)]
struct ConnectionLimits {
    /// Whether the connection may be used for another request.
    keep_alive: bool,
    handshake_timeout: Duration,
    head_timeout: Duration,
    /// Set on a reserved connection: the time limit for the request body; no request may wait
    /// there.
    reserved_timeout: Option<Duration>,
}

impl ConnectionLimits {
    /// The last quarter of the connections is reserved: one request each, answered at once. A
    /// client that stays silent or waits there would keep a renewal out.
    fn new(app: &App, free: usize) -> Self {
        let config = &app.config;
        let short = free < config.max_connections - config.max_waiters();
        let most = |time: Duration| {
            if short { time.min(RESERVED_REQUEST_TIMEOUT) } else { time }
        };
        Self {
            // While the daemon drains, a connection also serves one request only.
            keep_alive: !short && !app.stopping.is_cancelled(),
            handshake_timeout: most(config.handshake_timeout),
            head_timeout: most(config.head_timeout),
            reserved_timeout: short.then_some(RESERVED_REQUEST_TIMEOUT),
        }
    }
}

async fn serve_stream<S>(
    app: Arc<App>,
    router: Router,
    stream: S,
    tls: Option<Arc<FollowedTls>>,
    peer: Peer,
    timeout: ConnectionLimits,
) where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    match tls {
        None => serve_http(app, router, stream, peer, timeout).await,
        // Boxed as a whole: a TLS session is large, and connections without one do not pay for its size.
        Some(tls) => Box::pin(serve_tls(app, router, stream, tls, peer, timeout)).await,
    }
}

async fn serve_tls<S>(
    app: Arc<App>,
    router: Router,
    stream: S,
    tls: Arc<FollowedTls>,
    peer: Peer,
    timeout: ConnectionLimits,
) where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let end = app.clock.now() + timeout.handshake_timeout;
    let (acceptor, generation) = tls.acceptor();
    // Boxed, like the future below: the handshake's state is freed when it is over.
    let accepting = Box::pin(acceptor.accept(stream));
    let Some(Ok(mut stream)) = run_until(&*app.clock, end, accepting).await else {
        return;
    };
    let session = stream.get_mut().1;
    session.set_buffer_limit(Some(MAX_TLS_BUFFER_BYTES));
    let chain = session.peer_certificates().unwrap_or_default();
    let certificate = ClientCertificate::new(chain, &tls, generation);
    Box::pin(serve_http(app, router, stream, Peer { certificate, ..peer }, timeout)).await;
}

async fn serve_http<S>(app: Arc<App>, router: Router, stream: S, peer: Peer, timeout: ConnectionLimits)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let hurry = timeout.reserved_timeout;
    let peer = Peer { reserved_timeout: hurry, ..peer };
    let service = service_fn(move |mut request: hyper::Request<Incoming>| {
        request.extensions_mut().insert(peer.clone());
        let mut router = router.clone();
        async move { router.call(request).await }
    });
    let draining = app.stopping.is_cancelled();
    let connection = http1::Builder::new()
        .timer(app.timer.clone())
        .header_read_timeout(timeout.head_timeout)
        .max_buf_size(MAX_HEAD_BYTES)
        .keep_alive(timeout.keep_alive)
        .serve_connection(TokioIo::new(stream), service);
    let mut connection = std::pin::pin!(connection);
    let ended = tokio::select! {
        biased;
        ended = connection.as_mut() => ended,
        // A connection accepted during the drain must not be shut down before its one request.
        () = app.stopping.cancelled(), if !draining => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "a connection ended early");
    }
}

impl<D> fmt::Debug for Connections<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connections")
            .field("tls", &self.tls.is_some())
            .field("room", &self.permits.available_permits())
            .finish_non_exhaustive()
    }
}

//! Connections: bounded in number, in time to say something, and in time to die.

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
use leasehold::clock::{ClockExt, Moment, until};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::Semaphore;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tower::Service;

use crate::app::App;
use crate::door::Door;
use crate::peer::Peer;

/// The largest head of a request, and the most that is read ahead.
const HEAD: usize = 16 * 1024;
/// What a connection that came when room was short may take to say what it wants.
const SOON: Duration = Duration::from_secs(2);
/// After an accept that failed: the machine is short of something.
const PAUSE: Duration = Duration::from_millis(50);

/// What accepts and serves.
pub(crate) struct Connections<D> {
    app: Arc<App>,
    router: Router,
    door: D,
    tls: Option<TlsAcceptor>,
    room: Arc<Semaphore>,
}

impl<D: Door> Connections<D> {
    pub(crate) fn new(app: Arc<App>, router: Router, door: D, tls: Option<TlsAcceptor>) -> Self {
        Self {
            room: Arc::new(Semaphore::new(app.config.connections)),
            app,
            router,
            door,
            tls,
        }
    }

    /// Until `stop`; then requests that are under way may finish. Answers by when the daemon is to have ended.
    pub(crate) async fn serve(self, stop: impl Future<Output = ()>) -> Moment {
        let tasks = TaskTracker::new();
        let abort = CancellationToken::new();
        let mut stop = std::pin::pin!(stop);
        let stopping = self.app.stopping.clone();
        loop {
            let accepted = tokio::select! {
                biased;
                () = &mut stop => break,
                accepted = self.door.accept() => accepted,
            };
            match accepted {
                Ok((stream, from)) => self.begin(stream, from, &tasks, &abort),
                Err(error) => {
                    tracing::warn!(%error, "a connection could not be accepted");
                    self.app.clock.sleep(PAUSE).await;
                }
            }
        }
        // Those who wait are told to ask again, streams end, idle connections close.
        stopping.cancel();
        let end = self.app.clock.now() + self.app.config.drain;
        // Clients of holds that the daemon keeps may say that they are done.
        while self.app.holds.len() > 0 && self.app.clock.now() < end {
            let soon = (self.app.clock.now() + PAUSE).min(end);
            if let Some(Ok((stream, from))) = until(&*self.app.clock, soon, self.door.accept()).await {
                self.begin(stream, from, &tasks, &abort);
            }
        }
        drop(self.door);
        tasks.close();
        if until(&*self.app.clock, end, tasks.wait()).await.is_none() {
            tracing::warn!(
                connections = tasks.len(),
                "connections did not finish in time and are cut"
            );
        }
        abort.cancel();
        // What callers have left behind is told to the store in the time that is left.
        self.app.leavings.end(&*self.app.clock, end).await;
        end
    }

    fn begin(&self, stream: D::Stream, from: SocketAddr, tasks: &TaskTracker, abort: &CancellationToken) {
        let Ok(place) = Arc::clone(&self.room).try_acquire_owned() else {
            // Said without reading: whoever is one too many has sent nothing that counts.
            D::turn_away(&stream, FULL);
            return;
        };
        D::prepare(&stream);
        let patience = Patience::new(&self.app, self.room.available_permits());
        let (app, router, tls, abort) = (
            Arc::clone(&self.app),
            self.router.clone(),
            self.tls.clone(),
            abort.clone(),
        );
        tasks.spawn(async move {
            let _place = place;
            tokio::select! {
                biased;
                () = abort.cancelled() => {}
                () = talk(app, router, stream, tls, patience) => {}
            }
            tracing::trace!(%from, "connection over");
        });
    }
}

/// What one connection too many hears.
const FULL: &[u8] = b"HTTP/1.1 503 Service Unavailable\r\ncontent-type: application/problem+json\r\nretry-after: 1\r\n\
connection: close\r\ncontent-length: 168\r\n\r\n\
{\"type\":\"urn:leasehold:problem:overloaded\",\"title\":\"overloaded\",\"status\":503,\"detail\":\"too many connections; \
come again later\",\"code\":\"overloaded\",\"unknown\":false    }\n";

/// What a connection may take.
#[derive(Debug, Clone, Copy)]
struct Patience {
    /// It may stay for another request.
    stays: bool,
    handshake: Duration,
    head: Duration,
    /// For a body, and whatever else would keep others out, if room is short.
    hurry: Option<Duration>,
}

impl Patience {
    /// The last quarter of the connections, which those that wait leave free, is for one request each, asked and answered at once:
    /// whoever says nothing there, or waits, would keep a renewal out.
    fn new(app: &App, free: usize) -> Self {
        let config = &app.config;
        let short = free < config.connections - config.waiters();
        let most = |time: Duration| if short { time.min(SOON) } else { time };
        Self {
            // While the daemon drains, a connection is for one request, too.
            stays: !short && !app.stopping.is_cancelled(),
            handshake: most(config.handshake_timeout),
            head: most(config.head_timeout),
            hurry: short.then_some(SOON),
        }
    }
}

async fn talk<S>(app: Arc<App>, router: Router, stream: S, tls: Option<TlsAcceptor>, patience: Patience)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    match tls {
        None => http(app, router, stream, Peer::default(), patience).await,
        Some(acceptor) => {
            let end = app.clock.now() + patience.handshake;
            // Boxed, as what follows: connections without TLS do not carry its size.
            let accepting = Box::pin(acceptor.accept(stream));
            let Some(Ok(stream)) = until(&*app.clock, end, accepting).await else {
                return;
            };
            let shown = stream.get_ref().1.peer_certificates();
            let peer = shown.and_then(|chain| chain.first()).map(Peer::of);
            Box::pin(http(app, router, stream, peer.unwrap_or_default(), patience)).await;
        }
    }
}

async fn http<S>(app: Arc<App>, router: Router, stream: S, peer: Peer, patience: Patience)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let hurry = patience.hurry;
    let peer = Peer { hurry, ..peer };
    let service = service_fn(move |mut request: hyper::Request<Incoming>| {
        request.extensions_mut().insert(peer.clone());
        let mut router = router.clone();
        async move { router.call(request).await }
    });
    let draining = app.stopping.is_cancelled();
    let connection = http1::Builder::new()
        .timer(app.timing.clone())
        .header_read_timeout(patience.head)
        .max_buf_size(HEAD)
        .keep_alive(patience.stays)
        .serve_connection(TokioIo::new(stream), service);
    let mut connection = std::pin::pin!(connection);
    let ended = tokio::select! {
        biased;
        ended = connection.as_mut() => ended,
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
            .field("room", &self.room.available_permits())
            .finish_non_exhaustive()
    }
}

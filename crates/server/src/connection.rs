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
use hyper_util::rt::{TokioIo, TokioTimer};
use leasehold::clock::{ClockExt, until};
use rustix::net::sockopt;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tower::Service;

use crate::app::App;
use crate::peer::Peer;

/// The largest head of a request, and the most that is read ahead.
const HEAD: usize = 16 * 1024;
/// A peer that has acknowledged nothing for so long is gone, whatever its side of the connection says.
const SILENCE: Duration = Duration::from_secs(30);
/// After an accept that failed: the machine is short of something.
const PAUSE: Duration = Duration::from_millis(50);

/// What accepts and serves.
pub(crate) struct Connections {
    app: Arc<App>,
    router: Router,
    listener: TcpListener,
    tls: Option<TlsAcceptor>,
    room: Arc<Semaphore>,
}

impl Connections {
    pub(crate) fn new(
        app: Arc<App>,
        router: Router,
        listener: TcpListener,
        tls: Option<TlsAcceptor>,
    ) -> Self {
        Self {
            room: Arc::new(Semaphore::new(app.config.connections)),
            app,
            router,
            listener,
            tls,
        }
    }

    /// Until `stop`; then requests that are under way may finish.
    pub(crate) async fn serve(self, stop: impl Future<Output = ()>) {
        let tasks = TaskTracker::new();
        let abort = CancellationToken::new();
        let mut stop = std::pin::pin!(stop);
        let stopping = self.app.stopping.clone();
        loop {
            let accepted = tokio::select! {
                () = &mut stop => break,
                accepted = self.listener.accept() => accepted,
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
            if let Some(Ok((stream, from))) = until(&*self.app.clock, soon, self.listener.accept()).await {
                self.begin(stream, from, &tasks, &abort);
            }
        }
        drop(self.listener);
        tasks.close();
        if until(&*self.app.clock, end, tasks.wait()).await.is_none() {
            tracing::warn!(
                connections = tasks.len(),
                "connections did not finish in time and are cut"
            );
        }
        abort.cancel();
    }

    fn begin(&self, stream: TcpStream, from: SocketAddr, tasks: &TaskTracker, abort: &CancellationToken) {
        let Ok(place) = Arc::clone(&self.room).try_acquire_owned() else {
            // Said without reading: whoever is one too many has sent nothing that counts.
            let _ = stream.try_write(FULL);
            return;
        };
        prepare(&stream);
        let (app, router, tls, abort) = (
            Arc::clone(&self.app),
            self.router.clone(),
            self.tls.clone(),
            abort.clone(),
        );
        tasks.spawn(async move {
            let _place = place;
            tokio::select! {
                () = abort.cancelled() => {}
                () = talk(app, router, stream, tls) => {}
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

/// Answers are small and must not wait; peers that died must be noticed.
fn prepare(stream: &TcpStream) {
    let _ = stream.set_nodelay(true);
    let _ = sockopt::set_socket_keepalive(stream, true);
    let _ = sockopt::set_tcp_keepidle(stream, SILENCE);
    let _ = sockopt::set_tcp_user_timeout(stream, u32::try_from(SILENCE.as_millis()).unwrap_or(30_000));
}

async fn talk(app: Arc<App>, router: Router, stream: TcpStream, tls: Option<TlsAcceptor>) {
    match tls {
        None => http(app, router, stream, Peer::default()).await,
        Some(acceptor) => {
            let end = app.clock.now() + app.config.handshake_timeout;
            // Boxed, as what follows: connections without TLS do not carry its size.
            let accepting = Box::pin(acceptor.accept(stream));
            let Some(Ok(stream)) = until(&*app.clock, end, accepting).await else {
                return;
            };
            let shown = stream.get_ref().1.peer_certificates();
            let peer = shown.and_then(|chain| chain.first()).map(Peer::of);
            Box::pin(http(app, router, stream, peer.unwrap_or_default())).await;
        }
    }
}

async fn http<S>(app: Arc<App>, router: Router, stream: S, peer: Peer)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let service = service_fn(move |mut request: hyper::Request<Incoming>| {
        request.extensions_mut().insert(peer.clone());
        let mut router = router.clone();
        async move { router.call(request).await }
    });
    // While the daemon drains, a connection is for one request.
    let draining = app.stopping.is_cancelled();
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(app.config.head_timeout)
        .max_buf_size(HEAD)
        .keep_alive(!draining)
        .serve_connection(TokioIo::new(stream), service);
    let mut connection = std::pin::pin!(connection);
    let ended = tokio::select! {
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

impl fmt::Debug for Connections {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connections")
            .field("tls", &self.tls.is_some())
            .field("room", &self.room.available_permits())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A peer whose machine is gone says nothing ever again: only these make the system notice.
    #[tokio::test]
    async fn the_system_is_told_to_notice_peers_that_are_gone() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let _peer = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (stream, _) = listener.accept().await.unwrap();
        prepare(&stream);
        assert!(sockopt::socket_keepalive(&stream).unwrap());
        assert_eq!(sockopt::tcp_keepidle(&stream).unwrap(), SILENCE);
        assert_eq!(sockopt::tcp_user_timeout(&stream).unwrap(), 30_000);
        assert!(stream.nodelay().unwrap());
    }
}

//! A listener for metrics only: `/metrics` and `/healthz`, on this machine.
//!
//! Callers are not identified here, so the same checks apply as for a daemon without tokens: a
//! loopback address, a `Host` that DNS cannot point here, and no page of another origin.
//! Connections are limited in number and time.

use std::convert::Infallible;
use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::response::{IntoResponse, Response};
use http::header::CONTENT_TYPE;
use http::{HeaderValue, Method};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use leasehold::clock::ClockExt;
use leasehold_plane::Plane;
use leasehold_wire::ErrorCode;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;

use crate::api::document::JsonBody;
use crate::api::health::Health;
use crate::problem::Refusal;
use crate::server::StartError;
use crate::state::metrics_registry::MetricsRegistry;
use crate::transport::browser;
use crate::transport::listener::ConnectionListener;

// Enough for a few Prometheus servers and an operator with curl.
const MAX_SCRAPE_CONNECTIONS: usize = 32;
/// The time for a request head to arrive, and for a connection to be idle.
const SCRAPE_HEAD_TIMEOUT: Duration = Duration::from_secs(30);
// A failed accept usually means that file descriptors ran out. Without a pause the loop would spin.
const SCRAPE_RETRY_PAUSE: Duration = Duration::from_millis(50);

/// A listener that serves a replica's metrics to Prometheus.
#[derive(Debug)]
#[must_use = "nothing is served until `run`"]
pub struct MetricsListener {
    listener: TcpListener,
    address: SocketAddr,
    metrics: Arc<MetricsRegistry>,
    plane: Plane,
}

impl MetricsListener {
    /// Binds a listener for the metrics of this plane's process.
    ///
    /// # Errors
    /// The address is not a loopback address, or is in use.
    pub async fn bind(
        address: SocketAddr,
        numbers: Arc<MetricsRegistry>,
        plane: Plane,
    ) -> Result<Self, StartError> {
        if !address.ip().is_loopback() {
            return Err(StartError::Config(format!(
                "{address} can be reached from other machines, and callers would not be authenticated\n\
                 listen on 127.0.0.1 or [::1], and let something in front of it ask and speak TLS"
            )));
        }
        let refuse = |error| StartError::Listen { address, error };
        let listener = TcpListener::bind(address).await.map_err(refuse)?;
        Ok(Self { address: listener.local_addr().map_err(refuse)?, listener, metrics: numbers, plane })
    }

    /// The bound address.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves until `stop` completes. Requests in progress are cut off then.
    pub async fn run(self, stop: impl Future<Output = ()>) {
        let this = Arc::new(self);
        let room = Arc::new(Semaphore::new(MAX_SCRAPE_CONNECTIONS));
        let mut talks = tokio::task::JoinSet::new();
        let mut stop = std::pin::pin!(stop);
        loop {
            // Take a permit before accepting: connections beyond the limit wait in the kernel's
            // queue.
            let accepted = async {
                let place = Arc::clone(&room).acquire_owned().await;
                (place, this.listener.accept().await)
            };
            let (place, accepted) = tokio::select! {
                () = &mut stop => return,
                accepted = accepted => accepted,
                // Finished tasks must be collected, or the set would grow for ever.
                Some(_) = talks.join_next() => continue,
            };
            match accepted {
                Ok((stream, _)) => {
                    let this = Arc::clone(&this);
                    talks.spawn(async move {
                        let _place = place;
                        this.serve_stream(stream).await;
                    });
                }
                Err(error) => {
                    tracing::warn!(%error, "a connection for metrics could not be accepted");
                    this.plane.locks().clock().sleep(SCRAPE_RETRY_PAUSE).await;
                }
            }
        }
    }

    async fn serve_stream(self: Arc<Self>, stream: TcpStream) {
        TcpListener::prepare(&stream);
        let service = service_fn(move |request| {
            let this = Arc::clone(&self);
            async move { Ok::<_, Infallible>(this.respond(request).await) }
        });
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(SCRAPE_HEAD_TIMEOUT)
            .max_buf_size(16 * 1024)
            .serve_connection(TokioIo::new(stream), service);
        if let Err(error) = connection.await {
            tracing::debug!(%error, "a connection for metrics ended early");
        }
    }

    async fn respond<B>(&self, request: http::Request<B>) -> Response {
        let (parts, _) = request.into_parts();
        if let Err(refusal) = browser::check_origin(&parts, true) {
            return refusal.into_response();
        }
        match (parts.uri.path(), &parts.method) {
            ("/metrics", &Method::GET) => {
                let kind = HeaderValue::from_static(leasehold_metrics::CONTENT_TYPE);
                let text = self.metrics.text(Some(&self.plane)).await;
                ([(CONTENT_TYPE, kind)], text).into_response()
            }
            ("/healthz", &Method::GET) => {
                let store = self.plane.locks().store().capabilities().kind;
                JsonBody(Health::new(store)).into_response()
            }
            ("/metrics" | "/healthz", _) => {
                Refusal::new(ErrorCode::MethodNotAllowed, "only GET is taken here")
                    .allow("GET".into())
                    .into_response()
            }
            _ => Refusal::new(ErrorCode::NotFound, "only /metrics and /healthz are served here")
                .into_response(),
        }
    }
}

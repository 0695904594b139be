//! A process's numbers for Prometheus and nothing else: `/metrics` and `/healthz`, on this machine only.
//!
//! Nobody is asked who they are here, so what the daemon demands without tokens is demanded too: a loopback address, a `Host`
//! that no DNS can point here, and no page of another origin. Connections are bounded in number and in time.

use std::convert::Infallible;
use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::response::{IntoResponse, Response};
use http::header::CONTENT_TYPE;
use http::{HeaderValue, Method, StatusCode};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use leasehold::clock::ClockExt;
use leasehold_plane::Plane;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;

use crate::auth::browser;
use crate::document::Doc;
use crate::door::Door;
use crate::health::Health;
use crate::numbers::Numbers;
use crate::problem::Refusal;
use crate::server::StartError;

/// The most connections at once: a few Prometheis, and someone with curl.
const CONNECTIONS: usize = 32;
/// How long a head may take to arrive, and how long a connection may be idle.
const HEAD: Duration = Duration::from_secs(30);
/// After an accept that failed: the machine is short of something.
const PAUSE: Duration = Duration::from_millis(50);

/// A listener for Prometheus.
#[derive(Debug)]
#[must_use = "nothing is served until `run`"]
pub struct Scrape {
    listener: TcpListener,
    address: SocketAddr,
    numbers: Arc<Numbers>,
    plane: Plane,
}

impl Scrape {
    /// Listens for those who want the numbers of this plane's process.
    ///
    /// # Errors
    /// The address is not this machine's own, or is taken.
    pub async fn bind(address: SocketAddr, numbers: Arc<Numbers>, plane: Plane) -> Result<Self, StartError> {
        if !address.ip().is_loopback() {
            return Err(StartError::Config(format!(
                "{address} can be reached from other machines, and nobody would be asked who they are\n\
                 listen on 127.0.0.1 or [::1], and let something in front of it ask and speak TLS"
            )));
        }
        let refuse = |error| StartError::Listen { address, error };
        let listener = TcpListener::bind(address).await.map_err(refuse)?;
        Ok(Self {
            address: listener.local_addr().map_err(refuse)?,
            listener,
            numbers,
            plane,
        })
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves until `stop` ends. Whoever is in the middle of a question then is cut off.
    pub async fn run(self, stop: impl Future<Output = ()>) {
        let this = Arc::new(self);
        let room = Arc::new(Semaphore::new(CONNECTIONS));
        let mut talks = tokio::task::JoinSet::new();
        let mut stop = std::pin::pin!(stop);
        loop {
            // A place first: whoever is one too many waits in the system's queue.
            let accepted = async {
                let place = Arc::clone(&room).acquire_owned().await;
                (place, this.listener.accept().await)
            };
            let (place, accepted) = tokio::select! {
                () = &mut stop => return,
                accepted = accepted => accepted,
                Some(_) = talks.join_next() => continue,
            };
            match accepted {
                Ok((stream, _)) => {
                    let this = Arc::clone(&this);
                    talks.spawn(async move {
                        let _place = place;
                        this.talk(stream).await;
                    });
                }
                Err(error) => {
                    tracing::warn!(%error, "a connection for metrics could not be accepted");
                    this.plane.locks().clock().sleep(PAUSE).await;
                }
            }
        }
    }

    async fn talk(self: Arc<Self>, stream: TcpStream) {
        TcpListener::prepare(&stream);
        let service = service_fn(move |request| {
            let this = Arc::clone(&self);
            async move { Ok::<_, Infallible>(this.answer(request).await) }
        });
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(HEAD)
            .max_buf_size(16 * 1024)
            .serve_connection(TokioIo::new(stream), service);
        if let Err(error) = connection.await {
            tracing::debug!(%error, "a connection for metrics ended early");
        }
    }

    async fn answer<B>(&self, request: http::Request<B>) -> Response {
        let (parts, _) = request.into_parts();
        if let Err(refusal) = browser::check(&parts, true) {
            return refusal.into_response();
        }
        match (parts.uri.path(), &parts.method) {
            ("/metrics", &Method::GET) => {
                let kind = HeaderValue::from_static(leasehold_metrics::CONTENT_TYPE);
                let text = self.numbers.text(Some(&self.plane)).await;
                ([(CONTENT_TYPE, kind)], text).into_response()
            }
            ("/healthz", &Method::GET) => {
                let store = self.plane.locks().store().capabilities().kind;
                Doc(Health::of(store)).into_response()
            }
            ("/metrics" | "/healthz", _) => Refusal::new(
                StatusCode::METHOD_NOT_ALLOWED,
                "method_not_allowed",
                "only GET is taken here",
            )
            .allow("GET".into())
            .into_response(),
            _ => Refusal::new(
                StatusCode::NOT_FOUND,
                "not_found",
                "only /metrics and /healthz are served here",
            )
            .into_response(),
        }
    }
}

//! Connections to the daemon: a pool with one request at a time on each connection.
//!
//! No request is sent twice, unless the daemon refused it and the token in its file is a new one. A
//! request that was never sent, because the daemon had closed the idle connection, goes out on a new
//! one. A request that may have reached the daemon is *unknown* if no
//! response comes. A machine that vanishes leaves dead connections that look alive. So a request
//! without a response also drops all connections that have been silent since it was sent. Otherwise
//! the next request could fail on another dead one.

use std::fmt;
use std::mem;
use std::pin::Pin;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HOST};
use http::{HeaderValue, Method, Request};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Bytes;
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use leasehold_core::clock::Moment;
use leasehold_core::store::{StoreError, StoreErrorKind};
use leasehold_core::url_options::misconfigured;
use rustls::pki_types::ServerName;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::TlsConnector;

use crate::credentials::{Credentials, Generation};
use crate::environment::{Environment, Stream};
use crate::error;
use crate::options::HttpOptions;
use crate::wire::{ErrorCode, PROBLEM_MEDIA_TYPE, Problem};

// Below the daemon's idle timeout of 30 s: reusing a connection that is about to close would fail
// the request.
const MAX_IDLE_TIME: Duration = Duration::from_secs(20);
const MAX_IDLE_CONNECTIONS: usize = 64;
// Room for a listing of ten thousand locks, and a bound for a faulty peer.
const MAX_RESPONSE_BYTES: usize = 16 * 1024 * 1024;

/// A connection that can carry a request.
pub(crate) struct RequestSender {
    pub(crate) http: SendRequest<Full<Bytes>>,
    generation: Generation,
}

/// A response of the daemon, read to its end.
pub(crate) struct HttpResponse {
    pub(crate) status: u16,
    /// The content type says that the body is a problem document.
    pub(crate) is_problem: bool,
    pub(crate) body: Bytes,
}

impl HttpResponse {
    /// Parses the body as the expected document.
    pub(crate) fn parse_document<T: DeserializeOwned>(&self, what: &str) -> Result<T, StoreError> {
        serde_json::from_slice(&self.body).map_err(|_| error::malformed_response(what))
    }

    /// The problem document, if the response is one.
    pub(crate) fn problem(&self) -> Option<Problem> {
        self.is_problem.then(|| serde_json::from_slice(&self.body).ok()).flatten()
    }

    /// The code of the problem document, if the response is one and has the code's status.
    pub(crate) fn error_code(&self) -> Option<ErrorCode> {
        let code = self.problem()?.error_code()?;
        // Code and status must both match: a proxy may forward one of them under another meaning.
        (code.status() == self.status).then_some(code)
    }
}

/// A document as the body of a request.
pub(crate) fn to_json(document: &impl Serialize) -> Result<Vec<u8>, StoreError> {
    serde_json::to_vec(document)
        .map_err(|err| misconfigured(format!("the question cannot be written as JSON: {err}")))
}

impl fmt::Debug for HttpResponse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The body may contain a token.
        f.debug_struct("HttpResponse").field("status", &self.status).field("bytes", &self.body.len()).finish()
    }
}

/// A pool of idle connections to one daemon, and how to open more.
pub(crate) struct Connections {
    pub(crate) options: HttpOptions,
    pub(crate) environment: Environment,
    host: HeaderValue,
    credentials: Credentials,
    tls: Option<(TlsConnector, ServerName<'static>)>,
    idle: Mutex<Vec<(Moment, RequestSender)>>,
}

impl Connections {
    pub(crate) fn new(options: HttpOptions, parts: Environment) -> Result<Self, StoreError> {
        let host = HeaderValue::from_str(&options.authority())
            .map_err(|_| misconfigured("the host cannot be sent in a header"))?;
        // Read the token file once now, so that a mistake in it shows at start and not at the first
        // lock.
        options.token()?;
        Ok(Self {
            tls: crate::tls::connector(&options)?,
            credentials: Credentials::new(&options, parts.connector.is_none()),
            host,
            options,
            environment: parts,
            idle: Mutex::default(),
        })
    }

    /// Sends a document with POST and reads the response.
    pub(crate) async fn post<T: Serialize>(
        &self,
        path: &str,
        document: &T,
    ) -> Result<HttpResponse, StoreError> {
        self.call(Method::POST, path, "application/json", Bytes::from(to_json(document)?)).await
    }

    /// Sends GET and reads the response.
    pub(crate) async fn get(&self, path: &str) -> Result<HttpResponse, StoreError> {
        self.call(Method::GET, path, "application/json", Bytes::new()).await
    }

    /// Sends a body of this media type, or none if it is empty, and reads the response.
    pub(crate) async fn call(
        &self,
        method: Method,
        path: &str,
        kind: &'static str,
        body: Bytes,
    ) -> Result<HttpResponse, StoreError> {
        let prepare = || {
            let mut request = self.request(method.clone(), path, body.clone())?;
            if !body.is_empty() {
                request.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
            }
            Ok(request)
        };
        let request = prepare()?;
        let sent = request.headers().get(AUTHORIZATION).cloned();
        let answer = self.send(request).await?;
        // The daemon was started again, or the token was rotated, between reading the token and the
        // request. A refused request has not taken effect, so it can be sent again.
        if answer.status == 401 && self.credentials.has_changed(sent.as_ref(), &self.options) {
            return self.send(prepare()?).await;
        }
        Ok(answer)
    }

    async fn send(&self, request: Request<Full<Bytes>>) -> Result<HttpResponse, StoreError> {
        // The time is taken before sending, so a connection that is returned meanwhile counts as
        // alive.
        let doubt = PendingRequest { connections: self, sent_at: self.environment.clock.now() };
        let answer = self.exchange(request).await;
        if answer.is_ok() {
            // A response came, so the pooled connections are not suspect.
            mem::forget(doubt);
        }
        answer
    }

    async fn exchange(&self, mut request: Request<Full<Bytes>>) -> Result<HttpResponse, StoreError> {
        while let Some(mut sender) = self.take_idle() {
            match sender.http.try_send_request(request).await {
                Ok(response) => return self.read(sender, response).await,
                Err(mut failed) => match failed.take_message() {
                    // Never sent: the daemon had closed the connection. Retrying is safe.
                    Some(message) => request = message,
                    None => return Err(response_lost(failed.into_error())),
                },
            }
        }
        let mut sender = self.connect().await?;
        match sender.http.try_send_request(request).await {
            Ok(response) => self.read(sender, response).await,
            Err(mut failed) => Err(match failed.take_message() {
                // The message came back unsent, so the request is definitely not done.
                Some(_) => {
                    let why = "the daemon closed the connection before the question was sent";
                    StoreError::not_done(StoreErrorKind::Unreachable, why).with_source(failed.into_error())
                }
                None => response_lost(failed.into_error()),
            }),
        }
    }

    pub(crate) fn request(
        &self,
        method: Method,
        path: &str,
        body: Bytes,
    ) -> Result<Request<Full<Bytes>>, StoreError> {
        let mut request = Request::builder()
            .method(method)
            .uri(format!("{}{path}", self.options.path))
            .header(HOST, self.host.clone())
            .header(ACCEPT, "application/json");
        if let Some(value) = self.credentials.header(&self.options)? {
            request = request.header(AUTHORIZATION, value);
        }
        request
            .body(Full::new(body))
            .map_err(|err| misconfigured(format!("the question cannot be sent: {err}")))
    }

    pub(crate) async fn read(
        &self,
        sender: RequestSender,
        response: hyper::Response<hyper::body::Incoming>,
    ) -> Result<HttpResponse, StoreError> {
        let status = response.status().as_u16();
        let problem = response
            .headers()
            .get(CONTENT_TYPE)
            .is_some_and(|kind| kind.as_bytes().starts_with(PROBLEM_MEDIA_TYPE.as_bytes()));
        let body = Limited::new(response.into_body(), MAX_RESPONSE_BYTES)
            .collect()
            .await
            .map_err(|err| {
                StoreError::unknown(StoreErrorKind::Unreachable, format!("the answer was cut off: {err}"))
            })?
            .to_bytes();
        // Only now, after the body was read to its end, can the connection carry another request.
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        if idle.len() < MAX_IDLE_CONNECTIONS {
            idle.push((self.environment.clock.now(), sender));
        }
        Ok(HttpResponse { status, is_problem: problem, body })
    }

    /// Takes the connection that was used last. The others can then grow old and be dropped.
    fn take_idle(&self) -> Option<RequestSender> {
        let now = self.environment.clock.now();
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        let generation = self.credentials.generation();
        idle.retain(|(since, sender)| {
            now.since(*since) < MAX_IDLE_TIME && !sender.http.is_closed() && sender.generation == generation
        });
        // A connection is ready once its last response was read to the end and its task has noticed
        // that.
        let at = idle.iter().rposition(|(_, sender)| sender.http.is_ready())?;
        Some(idle.remove(at).1)
    }

    pub(crate) async fn connect(&self) -> Result<RequestSender, StoreError> {
        let options = &self.options;
        // Nothing is sent before the connection is up, so every failure here is definitely not
        // done.
        let unreachable = |what: &str, err: &dyn fmt::Display| {
            StoreError::not_done(
                StoreErrorKind::Unreachable,
                format!("{what} {}: {err}", options.authority()),
            )
        };
        let refused = |err: std::io::Error| unreachable("cannot connect to", &err);
        // Read before connecting: the connection must not be younger than its generation.
        let generation = self.credentials.generation();
        let (host, port) = (self.credentials.host_to_dial(options), options.port);
        let http = match &self.environment.connector {
            None => {
                let stream = crate::tcp::connect(&host, port).await.map_err(refused)?;
                self.tls_handshake(stream, unreachable).await?
            }
            Some(dial) => {
                let stream: Pin<Box<dyn Stream>> = dial.connect(&host, port).await.map_err(refused)?;
                self.tls_handshake(stream, unreachable).await?
            }
        };
        Ok(RequestSender { http, generation })
    }

    /// Performs the TLS handshake, if the URL is `https`.
    async fn tls_handshake<S>(
        &self,
        stream: S,
        unreachable: impl Fn(&str, &dyn fmt::Display) -> StoreError,
    ) -> Result<SendRequest<Full<Bytes>>, StoreError>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        match &self.tls {
            None => self.http_handshake(TokioIo::new(stream)).await,
            Some((connector, name)) => {
                let stream = connector
                    .connect(name.clone(), stream)
                    .await
                    .map_err(|err| unreachable("no TLS with", &err))?;
                self.http_handshake(TokioIo::new(stream)).await
            }
        }
    }

    async fn http_handshake<T>(&self, io: T) -> Result<SendRequest<Full<Bytes>>, StoreError>
    where
        T: hyper::rt::Read + hyper::rt::Write + Unpin + Send + 'static,
    {
        let (sender, connection) = http1::handshake(io)
            .await
            .map_err(|err| StoreError::not_done(StoreErrorKind::Unreachable, format!("no HTTP: {err}")))?;
        tokio::spawn(async move {
            if let Err(error) = connection.await {
                tracing::debug!(%error, "a connection to the daemon ended");
            }
        });
        Ok(sender)
    }
}

/// A request without a response yet. Dropped without one, because the connection broke or the
/// caller stopped waiting, it drops the idle connections that have been silent since.
struct PendingRequest<'a> {
    connections: &'a Connections,
    sent_at: Moment,
}

impl Drop for PendingRequest<'_> {
    fn drop(&mut self) {
        let mut idle = self.connections.idle.lock().unwrap_or_else(PoisonError::into_inner);
        idle.retain(|(since, _)| *since > self.sent_at);
    }
}

/// The request was sent and no response came, so its outcome is unknown.
fn response_lost(err: hyper::Error) -> StoreError {
    StoreError::unknown(StoreErrorKind::Unreachable, "the connection ended before the answer")
        .with_source(err)
}

impl fmt::Debug for Connections {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner).len();
        f.debug_struct("Connections")
            .field("options", &self.options)
            .field("idle", &idle)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;

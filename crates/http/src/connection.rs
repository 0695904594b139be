//! The way to the daemon: one request at a time on each connection, connections kept for the next.
//!
//! Nothing is sent twice. A request that never left, because the daemon had closed the idle connection, goes out on a
//! new one; whatever may have reached it is *unknown* if its answer does not come. A machine that vanishes without a word leaves
//! dead connections behind that look alive: a question that goes unanswered takes down with it all that have been silent since it
//! was asked, so that the next one does not end on another of them.

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
use leasehold_core::store::{Cause, Failure};
use rustls::pki_types::ServerName;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::TlsConnector;

use crate::error;
use crate::options::HttpOptions;
use crate::parts::{Parts, Stream};
use crate::wire::{PROBLEM, Problem};

/// A connection that was idle for longer is not used again: the daemon may be about to close it.
const IDLE: Duration = Duration::from_secs(20);
/// How many idle connections are kept.
const KEPT: usize = 64;
/// The largest answer that is read: a listing of some ten thousand locks.
const LARGEST: usize = 16 * 1024 * 1024;

pub(crate) type Sender = SendRequest<Full<Bytes>>;

/// A daemon's answer.
pub(crate) struct Answer {
    pub(crate) status: u16,
    /// It says that it is a problem document.
    pub(crate) problem: bool,
    pub(crate) body: Bytes,
}

impl Answer {
    /// What was asked for.
    pub(crate) fn document<T: DeserializeOwned>(&self, what: &str) -> Result<T, Failure> {
        serde_json::from_slice(&self.body).map_err(|_| error::nonsense(what))
    }

    /// The refusal, if it is one of a daemon's.
    pub(crate) fn problem(&self) -> Option<Problem> {
        self.problem
            .then(|| serde_json::from_slice(&self.body).ok())
            .flatten()
    }

    /// The code of the refusal, if it is one.
    pub(crate) fn code(&self) -> Option<String> {
        self.problem().map(|problem| problem.code)
    }
}

impl fmt::Debug for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The body may have a token in it.
        f.debug_struct("Answer")
            .field("status", &self.status)
            .field("bytes", &self.body.len())
            .finish()
    }
}

/// Idle connections to one daemon, and how to make more.
pub(crate) struct Connections {
    pub(crate) options: HttpOptions,
    pub(crate) parts: Parts,
    host: HeaderValue,
    tls: Option<(TlsConnector, ServerName<'static>)>,
    idle: Mutex<Vec<(Moment, Sender)>>,
}

impl Connections {
    pub(crate) fn new(options: HttpOptions, parts: Parts) -> Result<Self, Failure> {
        let host = HeaderValue::from_str(&options.authority())
            .map_err(|_| crate::options::refuse("the host cannot be sent in a header"))?;
        // A mistake in a file should show now, not at the first lock.
        options.token()?;
        Ok(Self {
            tls: crate::tls::connector(&options)?,
            host,
            options,
            parts,
            idle: Mutex::default(),
        })
    }

    /// Sends a document and reads the answer.
    pub(crate) async fn post<T: Serialize>(&self, path: &str, document: &T) -> Result<Answer, Failure> {
        let body = serde_json::to_vec(document).map_err(|err| {
            crate::options::refuse(format!("the question cannot be written as JSON: {err}"))
        })?;
        self.ask(Method::POST, path, Bytes::from(body)).await
    }

    /// Puts a text of this media type there.
    pub(crate) async fn put(&self, path: &str, kind: &'static str, text: String) -> Result<Answer, Failure> {
        let mut request = self.request(Method::PUT, path, Bytes::from(text))?;
        let kind = HeaderValue::from_static(kind);
        request.headers_mut().insert(CONTENT_TYPE, kind);
        self.send(request).await
    }

    /// Reads a document.
    pub(crate) async fn get(&self, path: &str) -> Result<Answer, Failure> {
        self.ask(Method::GET, path, Bytes::new()).await
    }

    /// Ends what stands at this path.
    pub(crate) async fn delete(&self, path: &str) -> Result<Answer, Failure> {
        self.ask(Method::DELETE, path, Bytes::new()).await
    }

    async fn ask(&self, method: Method, path: &str, body: Bytes) -> Result<Answer, Failure> {
        self.send(self.request(method, path, body)?).await
    }

    async fn send(&self, request: Request<Full<Bytes>>) -> Result<Answer, Failure> {
        let doubt = Doubt {
            connections: self,
            asked: self.parts.clock.now(),
        };
        let answer = self.exchange(request).await;
        if answer.is_ok() {
            mem::forget(doubt);
        }
        answer
    }

    async fn exchange(&self, mut request: Request<Full<Bytes>>) -> Result<Answer, Failure> {
        while let Some(mut sender) = self.kept() {
            match sender.try_send_request(request).await {
                Ok(response) => return self.read(sender, response).await,
                Err(mut failed) => match failed.take_message() {
                    // It never left: the daemon had closed the connection.
                    Some(message) => request = message,
                    None => return Err(lost(failed.into_error())),
                },
            }
        }
        let mut sender = self.connect().await?;
        match sender.try_send_request(request).await {
            Ok(response) => self.read(sender, response).await,
            Err(mut failed) => Err(match failed.take_message() {
                Some(_) => {
                    let why = "the daemon closed the connection before the question was sent";
                    Failure::not_done(Cause::Unreachable, why).with_source(failed.into_error())
                }
                None => lost(failed.into_error()),
            }),
        }
    }

    pub(crate) fn request(
        &self,
        method: Method,
        path: &str,
        body: Bytes,
    ) -> Result<Request<Full<Bytes>>, Failure> {
        let mut request = Request::builder()
            .method(method)
            .uri(format!("{}{path}", self.options.path))
            .header(HOST, self.host.clone())
            .header(ACCEPT, "application/json");
        if !body.is_empty() {
            request = request.header(CONTENT_TYPE, "application/json");
        }
        if let Some(token) = self.options.token()? {
            let value = HeaderValue::from_str(&format!("Bearer {token}"));
            let mut value =
                value.map_err(|_| crate::options::refuse("the API token cannot be sent in a header"))?;
            value.set_sensitive(true);
            request = request.header(AUTHORIZATION, value);
        }
        request
            .body(Full::new(body))
            .map_err(|err| crate::options::refuse(format!("the question cannot be sent: {err}")))
    }

    pub(crate) async fn read(
        &self,
        sender: Sender,
        response: hyper::Response<hyper::body::Incoming>,
    ) -> Result<Answer, Failure> {
        let status = response.status().as_u16();
        let problem = response
            .headers()
            .get(CONTENT_TYPE)
            .is_some_and(|kind| kind.as_bytes().starts_with(PROBLEM.as_bytes()));
        let body = Limited::new(response.into_body(), LARGEST)
            .collect()
            .await
            .map_err(|err| Failure::unknown(Cause::Unreachable, format!("the answer was cut off: {err}")))?
            .to_bytes();
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        if idle.len() < KEPT {
            idle.push((self.parts.clock.now(), sender));
        }
        Ok(Answer {
            status,
            problem,
            body,
        })
    }

    /// The connection that was used last: the others may then become old and go.
    fn kept(&self) -> Option<Sender> {
        let now = self.parts.clock.now();
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        idle.retain(|(since, sender)| now.since(*since) < IDLE && !sender.is_closed());
        // A connection is ready once its last answer has been read to the end and its task has seen that.
        let at = idle.iter().rposition(|(_, sender)| sender.is_ready())?;
        Some(idle.remove(at).1)
    }

    pub(crate) async fn connect(&self) -> Result<Sender, Failure> {
        let options = &self.options;
        let unreachable = |what: &str, err: &dyn fmt::Display| {
            Failure::not_done(
                Cause::Unreachable,
                format!("{what} {}: {err}", options.authority()),
            )
        };
        let refused = |err: std::io::Error| unreachable("cannot connect to", &err);
        let (host, port) = (options.host.as_str(), options.port);
        match &self.parts.dial {
            None => {
                let stream = crate::tcp::connect(host, port).await.map_err(refused)?;
                self.secure(stream, unreachable).await
            }
            Some(dial) => {
                let stream: Pin<Box<dyn Stream>> = dial.dial(host, port).await.map_err(refused)?;
                self.secure(stream, unreachable).await
            }
        }
    }

    /// Speaks TLS first, if that was asked for.
    async fn secure<S>(
        &self,
        stream: S,
        unreachable: impl Fn(&str, &dyn fmt::Display) -> Failure,
    ) -> Result<Sender, Failure>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        match &self.tls {
            None => self.greet(TokioIo::new(stream)).await,
            Some((connector, name)) => {
                let stream = connector
                    .connect(name.clone(), stream)
                    .await
                    .map_err(|err| unreachable("no TLS with", &err))?;
                self.greet(TokioIo::new(stream)).await
            }
        }
    }

    async fn greet<T>(&self, io: T) -> Result<Sender, Failure>
    where
        T: hyper::rt::Read + hyper::rt::Write + Unpin + Send + 'static,
    {
        let (sender, connection) = http1::handshake(io)
            .await
            .map_err(|err| Failure::not_done(Cause::Unreachable, format!("no HTTP: {err}")))?;
        tokio::spawn(async move {
            if let Err(error) = connection.await {
                tracing::debug!(%error, "a connection to the daemon ended");
            }
        });
        Ok(sender)
    }
}

/// A question that has no answer yet. Dropped without one, because the connection broke or because its caller stopped waiting, it
/// takes the idle connections down of which nothing was heard since.
struct Doubt<'a> {
    connections: &'a Connections,
    asked: Moment,
}

impl Drop for Doubt<'_> {
    fn drop(&mut self) {
        let mut idle = self
            .connections
            .idle
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        idle.retain(|(since, _)| *since > self.asked);
    }
}

/// It was sent, and no answer came.
fn lost(err: hyper::Error) -> Failure {
    Failure::unknown(Cause::Unreachable, "the connection ended before the answer").with_source(err)
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

//! The operator's client: requests that go beyond the store trait.

use http::Method;
use hyper::body::Bytes;
use leasehold_core::Name;
use leasehold_core::store::{StoreError, StoreErrorKind};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::connection::{self, Connections, HttpResponse};
use crate::environment::Environment;
use crate::error;
use crate::options::HttpOptions;
use crate::store::{escape_segment, lock_path};
use crate::wire::{Break, BreakView, Problem};

/// A client of a daemon's whole HTTP API.
#[derive(Debug)]
pub struct DaemonClient {
    connections: Connections,
}

/// The outer error means that no usable response came; the inner one is the daemon's refusal.
pub type DaemonResult<T> = Result<Result<T, Box<Problem>>, StoreError>;

impl DaemonClient {
    /// Reads the files that the options name. No connection is opened yet.
    ///
    /// # Errors
    /// One of the files cannot be used.
    pub fn open(options: HttpOptions) -> Result<Self, StoreError> {
        Self::open_with(options, Environment::default())
    }

    /// [`open`](Self::open) with another clock, source of randomness and connector.
    ///
    /// # Errors
    /// As for the method above.
    pub fn open_with(options: HttpOptions, parts: Environment) -> Result<Self, StoreError> {
        Ok(Self { connections: Connections::new(options, parts)? })
    }

    /// The daemon's URL without secrets.
    #[must_use]
    pub fn describe(&self) -> String {
        self.connections.options.describe()
    }

    pub(crate) fn connections(&self) -> &Connections {
        &self.connections
    }

    /// Breaks the lease of another holder.
    ///
    /// # Errors
    /// No response came; the lease may have been broken.
    pub async fn break_lock(&self, name: &Name, want: &Break) -> DaemonResult<BreakView> {
        let answer = self.connections.post(&lock_path(name, "/break"), want).await?;
        read_response(&answer, "a break")
    }

    /// Sends a request and reads the response with its status: for a POST, 200 means done before, 201
    /// done now, 202 accepted.
    ///
    /// # Errors
    /// No usable response came. A request that is not read-only may have taken effect.
    pub async fn send<T: DeserializeOwned>(&self, request: &ApiRequest) -> DaemonResult<(u16, T)> {
        let ApiRequest { method, kind, body, what, .. } = request;
        let (uri, body) = (request.uri(), Bytes::from(body.clone()));
        let answer = self.connections.call(method.clone(), &uri, kind, body).await.and_then(|answer| {
            let document = read_response(&answer, what)?;
            Ok(document.map(|document| (answer.status, document)))
        });
        // A read changes nothing, so none of its failures is *unknown*.
        if request.is_read_only() { answer.map_err(error::mark_read_only) } else { answer }
    }

    /// Reads a document below `/v1/`. Each path segment is escaped.
    ///
    /// # Errors
    /// No usable response came.
    pub async fn get<T: DeserializeOwned>(&self, path: &[&str]) -> DaemonResult<T> {
        Ok(self.send(&ApiRequest::get(path)).await?.map(|(_, document)| document))
    }

    /// Reads the text at this path, query included: `/metrics`, a page of `/v1/history`.
    ///
    /// # Errors
    /// No usable response came.
    pub async fn get_text(&self, path: &str) -> DaemonResult<String> {
        let answer = self.connections.get(path).await.map_err(error::mark_read_only)?;
        if (200..300).contains(&answer.status) {
            return Ok(Ok(String::from_utf8_lossy(&answer.body).into_owned()));
        }
        read_response::<serde::de::IgnoredAny>(&answer, "a question")
            .map_err(error::mark_read_only)
            .map(|refused| refused.map(|_| String::new()))
    }

    /// Sends a document below `/v1/` and reads the response.
    ///
    /// # Errors
    /// No usable response came; the request may have taken effect.
    pub async fn post<D: Serialize, T: DeserializeOwned>(
        &self,
        path: &[&str],
        document: &D,
    ) -> DaemonResult<T> {
        Ok(self.send(&ApiRequest::post(path, document)?).await?.map(|(_, document)| document))
    }

    /// Sends DELETE below `/v1/` and reads the response.
    ///
    /// # Errors
    /// No usable response came; the resource may have been deleted.
    pub async fn delete<T: DeserializeOwned>(&self, path: &[&str]) -> DaemonResult<T> {
        Ok(self.send(&ApiRequest::delete(path)).await?.map(|(_, document)| document))
    }
}

/// A request below `/v1/`.
#[derive(Debug)]
pub struct ApiRequest {
    method: Method,
    path: Vec<String>,
    /// Escaped, with its `?`.
    query: String,
    /// The media type of the body.
    kind: &'static str,
    body: Vec<u8>,
    /// What the response answers, for errors.
    what: &'static str,
}

impl ApiRequest {
    fn new(method: Method, path: &[&str], body: Vec<u8>, what: &'static str) -> Self {
        let path = path.iter().map(|part| (*part).to_owned()).collect();
        Self { method, path, query: String::new(), kind: "application/json", body, what }
    }

    /// Reads a document. Each path segment is escaped.
    #[must_use]
    pub fn get(path: &[&str]) -> Self {
        Self::new(Method::GET, path, Vec::new(), "a question")
    }

    /// Sends a document.
    ///
    /// # Errors
    /// The document cannot be written as JSON.
    pub fn post(path: &[&str], document: &impl Serialize) -> Result<Self, StoreError> {
        Ok(Self::new(Method::POST, path, connection::to_json(document)?, "a document"))
    }

    /// Sends a text of this media type with PUT.
    #[must_use]
    pub fn put(path: &[&str], kind: &'static str, text: String) -> Self {
        Self { kind, ..Self::new(Method::PUT, path, text.into_bytes(), "a file") }
    }

    /// Deletes a resource.
    #[must_use]
    pub fn delete(path: &[&str]) -> Self {
        Self::new(Method::DELETE, path, Vec::new(), "an end")
    }

    /// Adds a query. Keys and values are escaped.
    #[must_use]
    pub fn query(mut self, query: &[(&str, &str)]) -> Self {
        for (key, value) in query {
            self.query.push(if self.query.is_empty() { '?' } else { '&' });
            self.query.push_str(&format!("{}={}", escape_segment(key), escape_segment(value)));
        }
        self
    }

    /// The HTTP method.
    #[must_use]
    pub fn method(&self) -> &Method {
        &self.method
    }

    /// The segments of the path after `/v1/`, not escaped.
    #[must_use]
    pub fn path(&self) -> &[String] {
        &self.path
    }

    /// The body; empty if there is none.
    #[must_use]
    pub fn body(&self) -> &[u8] {
        &self.body
    }

    /// Whether the request changes nothing, so that it can be repeated safely.
    #[must_use]
    pub fn is_read_only(&self) -> bool {
        self.method == Method::GET
    }

    fn uri(&self) -> String {
        let parts: Vec<_> = self.path.iter().map(|part| escape_segment(part)).collect();
        format!("/v1/{}{}", parts.join("/"), self.query)
    }
}

fn read_response<T: DeserializeOwned>(answer: &HttpResponse, what: &str) -> DaemonResult<T> {
    if (200..300).contains(&answer.status) {
        return answer.parse_document(what).map(Ok);
    }
    match answer.problem() {
        Some(problem) => Ok(Err(Box::new(problem))),
        // Without a problem document the response may be from a proxy, so nothing is known about
        // the request.
        None => Err(StoreError::unknown(
            StoreErrorKind::Unreachable,
            format!(
                "status {} without a document of a Leasehold daemon: is something else at this address?",
                answer.status
            ),
        )),
    }
}

//! The operator's client: requests that go beyond the store trait.

use leasehold_core::Name;
use leasehold_core::store::{StoreError, StoreErrorKind};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::connection::{Connections, HttpResponse};
use crate::environment::Environment;
use crate::error;
use crate::options::HttpOptions;
use crate::store::{escape_segment, lock_path};
use crate::wire::{Break, Broken, Problem};

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
    pub async fn break_lock(&self, name: &Name, want: &Break) -> DaemonResult<Broken> {
        let answer = self.connections.post(&lock_path(name, "/break"), want).await?;
        read_response(&answer, "a break")
    }

    /// Reads a document below `/v1/`. Each path segment is escaped.
    ///
    /// # Errors
    /// No usable response came.
    pub async fn get<T: DeserializeOwned>(&self, path: &[&str]) -> DaemonResult<T> {
        let answer = self.connections.get(&v1_path(path)).await.map_err(error::mark_read_only)?;
        // A read changes nothing, so none of its failures is *unknown*.
        read_response(&answer, "a question").map_err(error::mark_read_only)
    }

    /// Reads a document below `/v1/` with a query. Path and query are escaped.
    ///
    /// # Errors
    /// No usable response came.
    pub async fn get_with_query<T: DeserializeOwned>(
        &self,
        path: &[&str],
        query: &[(&str, &str)],
    ) -> DaemonResult<T> {
        let query: Vec<_> = query
            .iter()
            .map(|(key, value)| format!("{}={}", escape_segment(key), escape_segment(value)))
            .collect();
        let path = format!("{}?{}", v1_path(path), query.join("&"));
        let answer = self.connections.get(&path).await.map_err(error::mark_read_only)?;
        read_response(&answer, "a question").map_err(error::mark_read_only)
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
        let answer = self.connections.post(&v1_path(path), document).await?;
        read_response(&answer, "a document")
    }

    /// [`post`](Self::post) that also returns the status: 200 means done before, 201 done now, 202
    /// accepted.
    ///
    /// # Errors
    /// As for the method above.
    pub async fn post_with_status<D: Serialize, T: DeserializeOwned>(
        &self,
        path: &[&str],
        document: &D,
    ) -> DaemonResult<(u16, T)> {
        let answer = self.connections.post(&v1_path(path), document).await?;
        let told = read_response(&answer, "a document")?;
        Ok(told.map(|document| (answer.status, document)))
    }

    /// Sends a text of this media type with PUT below `/v1/` and reads the response.
    ///
    /// # Errors
    /// No usable response came; the request may have taken effect.
    pub async fn put<T: DeserializeOwned>(
        &self,
        path: &[&str],
        kind: &'static str,
        text: String,
    ) -> DaemonResult<T> {
        let answer = self.connections.put(&v1_path(path), kind, text).await?;
        read_response(&answer, "a file")
    }

    /// Sends DELETE below `/v1/` and reads the response.
    ///
    /// # Errors
    /// No usable response came; the resource may have been deleted.
    pub async fn delete<T: DeserializeOwned>(&self, path: &[&str]) -> DaemonResult<T> {
        let answer = self.connections.delete(&v1_path(path)).await?;
        read_response(&answer, "an end")
    }
}

fn v1_path(path: &[&str]) -> String {
    let parts: Vec<_> = path.iter().map(|part| escape_segment(part)).collect();
    format!("/v1/{}", parts.join("/"))
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

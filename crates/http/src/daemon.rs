//! The daemon beyond its locks: what an operator asks of it that no store can answer.

use leasehold_core::Name;
use leasehold_core::store::{Cause, Failure};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::connection::{Answer, Connections};
use crate::error;
use crate::options::HttpOptions;
use crate::parts::Parts;
use crate::store::{route, segment};
use crate::wire::{Break, Broken, Problem};

/// A daemon and the way to it.
#[derive(Debug)]
pub struct Daemon {
    connections: Connections,
}

/// What was asked for, or the daemon's refusal.
pub type Asked<T> = Result<Result<T, Box<Problem>>, Failure>;

impl Daemon {
    /// Reads the files that the options name, and gets ready. Nothing is connected to yet.
    ///
    /// # Errors
    /// One of the files cannot be used.
    pub fn open(options: HttpOptions) -> Result<Self, Failure> {
        Self::open_with(options, Parts::default())
    }

    /// [`open`](Self::open) with another clock, source of chance and way to connect than the machine's.
    ///
    /// # Errors
    /// As its.
    pub fn open_with(options: HttpOptions, parts: Parts) -> Result<Self, Failure> {
        Ok(Self {
            connections: Connections::new(options, parts)?,
        })
    }

    /// Where it is, without anything secret.
    #[must_use]
    pub fn describe(&self) -> String {
        self.connections.options.describe()
    }

    pub(crate) fn connections(&self) -> &Connections {
        &self.connections
    }

    /// Ends someone's lease.
    ///
    /// # Errors
    /// No answer came; it may have been broken.
    pub async fn break_lock(&self, name: &Name, want: &Break) -> Asked<Broken> {
        let answer = self.connections.post(&route(name, "/break"), want).await?;
        settle(&answer, "a break")
    }

    /// Reads a document below `/v1/`. Each part of the path is escaped.
    ///
    /// # Errors
    /// No answer came.
    pub async fn get<T: DeserializeOwned>(&self, path: &[&str]) -> Asked<T> {
        let answer = self
            .connections
            .get(&below(path))
            .await
            .map_err(error::read_only)?;
        settle(&answer, "a question").map_err(error::read_only)
    }

    /// Reads a document below `/v1/` that a query narrows down. Path and query are escaped.
    ///
    /// # Errors
    /// No answer came.
    pub async fn get_where<T: DeserializeOwned>(&self, path: &[&str], query: &[(&str, &str)]) -> Asked<T> {
        let query: Vec<_> = query
            .iter()
            .map(|(key, value)| format!("{}={}", segment(key), segment(value)))
            .collect();
        let path = format!("{}?{}", below(path), query.join("&"));
        let answer = self.connections.get(&path).await.map_err(error::read_only)?;
        settle(&answer, "a question").map_err(error::read_only)
    }

    /// Reads what stands at this path, query included, as text: `/metrics`, a page of `/v1/history`.
    ///
    /// # Errors
    /// No answer came.
    pub async fn text(&self, path: &str) -> Asked<String> {
        let answer = self.connections.get(path).await.map_err(error::read_only)?;
        if (200..300).contains(&answer.status) {
            return Ok(Ok(String::from_utf8_lossy(&answer.body).into_owned()));
        }
        settle::<serde::de::IgnoredAny>(&answer, "a question")
            .map_err(error::read_only)
            .map(|refused| refused.map(|_| String::new()))
    }

    /// Sends a document below `/v1/` and reads the answer.
    ///
    /// # Errors
    /// No answer came; it may have taken effect.
    pub async fn post<D: Serialize, T: DeserializeOwned>(&self, path: &[&str], document: &D) -> Asked<T> {
        let answer = self.connections.post(&below(path), document).await?;
        settle(&answer, "a document")
    }

    /// [`post`](Self::post), answered with the status too: 200 may say *before*, 201 *now*, 202 *soon*.
    ///
    /// # Errors
    /// As its.
    pub async fn post_told<D: Serialize, T: DeserializeOwned>(
        &self,
        path: &[&str],
        document: &D,
    ) -> Asked<(u16, T)> {
        let answer = self.connections.post(&below(path), document).await?;
        let told = settle(&answer, "a document")?;
        Ok(told.map(|document| (answer.status, document)))
    }

    /// Puts a text of this media type below `/v1/` and reads the answer.
    ///
    /// # Errors
    /// No answer came; it may have taken effect.
    pub async fn put<T: DeserializeOwned>(
        &self,
        path: &[&str],
        kind: &'static str,
        text: String,
    ) -> Asked<T> {
        let answer = self.connections.put(&below(path), kind, text).await?;
        settle(&answer, "a file")
    }

    /// Ends what stands below `/v1/`.
    ///
    /// # Errors
    /// No answer came; it may have ended.
    pub async fn delete<T: DeserializeOwned>(&self, path: &[&str]) -> Asked<T> {
        let answer = self.connections.delete(&below(path)).await?;
        settle(&answer, "an end")
    }
}

fn below(path: &[&str]) -> String {
    let parts: Vec<_> = path.iter().map(|part| segment(part)).collect();
    format!("/v1/{}", parts.join("/"))
}

fn settle<T: DeserializeOwned>(answer: &Answer, what: &str) -> Asked<T> {
    if (200..300).contains(&answer.status) {
        return answer.document(what).map(Ok);
    }
    match answer.problem() {
        Some(problem) => Ok(Err(Box::new(problem))),
        None => Err(Failure::unknown(
            Cause::Unreachable,
            format!(
                "status {} without a document of a Leasehold daemon: is something else at this address?",
                answer.status
            ),
        )),
    }
}

//! Refusals as problem documents (RFC 9457).

use std::sync::Arc;

use http::header::{CONTENT_TYPE, HeaderValue, RETRY_AFTER};
use http::{Response, StatusCode};
use leasehold_core::Name;
use leasehold_core::store::StoreError;
use serde_json::{Value, json};

use super::MalformedHeader;
use crate::StaleFence;

/// Why a request was refused. In every case the handler was not called.
#[derive(Debug)]
pub(super) enum Problem {
    /// The headers are required but missing.
    Missing,
    /// The headers cannot be parsed.
    Malformed(MalformedHeader),
    /// Another lock guards what the request writes.
    WrongName {
        /// The lock in the headers.
        given: Name,
    },
    /// The fence is older than the newest one.
    Stale(StaleFence),
    /// The marks could not be checked.
    Unchecked(StoreError),
}

impl Problem {
    fn status(&self) -> StatusCode {
        match self {
            Self::Missing | Self::Malformed(_) | Self::WrongName { .. } => StatusCode::BAD_REQUEST,
            // 412: the fence is a precondition that the client has sent, and it no longer holds.
            Self::Stale(_) => StatusCode::PRECONDITION_FAILED,
            // 503 invites a retry, so only for errors that may pass by themselves.
            Self::Unchecked(failure) if failure.is_transient() => StatusCode::SERVICE_UNAVAILABLE,
            Self::Unchecked(_) => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }

    fn document(&self) -> Value {
        let about = |kind: &str, title: &str, detail: String| {
            json!({
                "type": format!("urn:leasehold:problem:{kind}"),
                "title": title,
                "status": self.status().as_u16(),
                "detail": detail,
            })
        };
        match self {
            Self::Missing => about(
                "fence-missing",
                "This request needs a fence",
                "send Leasehold-Name and Leasehold-Fence from the lease under which you write".into(),
            ),
            Self::Malformed(malformed) => {
                about("fence-malformed", "The fence headers cannot be read", malformed.to_string())
            }
            Self::WrongName { given } => {
                let mut problem = about(
                    "fence-wrong-name",
                    "Another lock guards this resource",
                    "the lock in Leasehold-Name does not guard what this request writes".into(),
                );
                problem["name"] = json!(given.as_str());
                problem
            }
            Self::Stale(stale) => {
                let mut problem = about("stale-fence", "The fence is stale", stale.to_string());
                problem["name"] = json!(stale.resource);
                // As strings: many JSON readers lose digits of such large numbers.
                problem["offered"] = json!(stale.offered.to_string());
                problem["newest"] = json!(stale.newest.to_string());
                problem
            }
            // The error's own text may name files and hosts, which a client must not see.
            Self::Unchecked(failure) => about(
                "fence-unchecked",
                "The fence could not be checked",
                format!(
                    "the memory of fences is {}; nothing was written, and the fence was neither refused nor admitted",
                    failure.kind
                ),
            ),
        }
    }

    /// The response. For outer layers that count or log, its extensions carry [`StaleFence`],
    /// [`MalformedHeader`] or `Arc<StoreError>`.
    pub(super) fn into_response<B: From<String>>(self) -> Response<B> {
        let mut response = Response::new(B::from(self.document().to_string()));
        *response.status_mut() = self.status();
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        if self.status() == StatusCode::SERVICE_UNAVAILABLE {
            headers.insert(RETRY_AFTER, HeaderValue::from_static("1"));
        }
        match self {
            Self::Stale(stale) => drop(response.extensions_mut().insert(stale)),
            Self::Malformed(malformed) => drop(response.extensions_mut().insert(malformed)),
            Self::Unchecked(failure) => drop(response.extensions_mut().insert(Arc::new(failure))),
            Self::Missing | Self::WrongName { .. } => {}
        }
        response
    }
}

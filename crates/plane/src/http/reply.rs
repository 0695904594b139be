//! What handlers take and give: JSON documents, and refusals as problems.

use axum::body::Bytes;
use axum::http::StatusCode;
use axum::http::header::{CONTENT_TYPE, RETRY_AFTER};
use axum::response::{IntoResponse, Response};
use leasehold_core::Invalid;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::error::PlaneError;

/// A JSON document with its status.
pub(super) struct Doc(pub(super) StatusCode, pub(super) Value);

impl IntoResponse for Doc {
    fn into_response(self) -> Response {
        (self.0, [(CONTENT_TYPE, "application/json")], self.1.to_string()).into_response()
    }
}

impl From<Value> for Doc {
    fn from(value: Value) -> Self {
        Self(StatusCode::OK, value)
    }
}

/// What a handler answers.
pub(super) type Reply = Result<Doc, PlaneError>;

impl IntoResponse for PlaneError {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let (code, after) = (self.code(), self.retry_after());
        let mut problem = json!({
            "type": format!("urn:leasehold:problem:{code}"),
            "title": code.replace('_', " "),
            "status": status.as_u16(),
            "detail": self.to_string(),
            "code": code,
        });
        if let Self::Busy { busy, .. } = &self {
            problem["holder"] = json!(busy.holder);
        }
        let kind = [(CONTENT_TYPE, "application/problem+json")];
        let body = problem.to_string();
        match after {
            // Whole seconds on the wire, never less than what is meant.
            Some(after) => {
                let seconds = after.as_millis().div_ceil(1000).max(1).to_string();
                (status, kind, [(RETRY_AFTER, seconds)], body).into_response()
            }
            None => (status, kind, body).into_response(),
        }
    }
}

/// Reads a document; an empty body is an empty document.
pub(super) fn read<T: DeserializeOwned>(body: &Bytes) -> Result<T, PlaneError> {
    let bytes: &[u8] = if body.is_empty() { b"{}" } else { body };
    // The error names the field; it does not repeat the body.
    serde_json::from_slice(bytes).map_err(|error| Invalid::new("body", "…", error.to_string()).into())
}

/// The value of a query's key.
pub(super) fn asked(query: Option<&str>, key: &str) -> Vec<String> {
    let pairs = url::form_urlencoded::parse(query.unwrap_or_default().as_bytes());
    pairs
        .filter(|(name, _)| name == key)
        .map(|(_, value)| value.into_owned())
        .collect()
}

/// How many are wanted.
pub(super) fn limit(query: Option<&str>) -> Result<usize, PlaneError> {
    match asked(query, "limit").pop() {
        None => Ok(100),
        Some(text) => match text.parse() {
            Ok(limit @ 1..=1000) => Ok(limit),
            _ => Err(Invalid::new("limit", text, "must be a number from 1 to 1000").into()),
        },
    }
}

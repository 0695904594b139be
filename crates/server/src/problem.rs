//! Refusals: `application/problem+json` everywhere, with a code for programs and a sentence for people.

use std::time::Duration;

use axum::response::{IntoResponse, Response};
use http::header::{ALLOW, CONNECTION, CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use http::{HeaderValue, StatusCode};
use leasehold::Invalid;
use leasehold::store::{Busy, Cause, Failure};
use leasehold_http::wire::{PROBLEM, Problem, millis};

/// What a caller is told to wait when nobody knows better.
const SOON: Duration = Duration::from_secs(1);

/// A refusal with its headers.
#[derive(Debug, Clone)]
pub struct Refusal {
    problem: Box<Problem>,
    retry_after: Option<Duration>,
    allow: Option<String>,
    close: bool,
}

impl Refusal {
    /// A refusal with this code and sentence.
    #[must_use]
    pub fn new(status: StatusCode, code: &str, detail: impl Into<String>) -> Self {
        Self {
            problem: Box::new(Problem {
                kind: format!("urn:leasehold:problem:{code}"),
                title: code.replace('_', " "),
                status: status.as_u16(),
                detail: detail.into(),
                code: code.to_owned(),
                ..Problem::default()
            }),
            retry_after: None,
            allow: None,
            close: false,
        }
    }

    /// With a time to come again.
    #[must_use]
    pub fn retry_after(mut self, after: Duration) -> Self {
        self.retry_after = Some(after);
        self
    }

    /// With the methods that would be taken.
    #[must_use]
    pub fn allow(mut self, methods: String) -> Self {
        self.allow = Some(methods);
        self
    }

    /// With the end of the connection.
    #[must_use]
    pub(crate) fn close(mut self) -> Self {
        self.close = true;
        self
    }

    /// With more fields.
    #[must_use]
    pub fn with(mut self, more: impl FnOnce(&mut Problem)) -> Self {
        more(&mut self.problem);
        self
    }

    /// What it says.
    #[must_use]
    pub fn code(&self) -> &str {
        &self.problem.code
    }

    /// Someone else has it.
    #[must_use]
    pub fn busy(name: &str, busy: &Busy) -> Self {
        let left = busy.remaining;
        // A holder may let go at any time: come again soon, but not sooner than the lease of one about to end.
        let after = left.map_or(SOON, |left| left.clamp(SOON, Duration::from_secs(30)));
        let detail = match left {
            Some(left) => format!(
                "{name} is held by {} for {:.1}s unless renewed; come again, or wait with wait_ms",
                busy.holder,
                left.as_secs_f64()
            ),
            None => format!(
                "{name} is held by {}; come again, or wait with wait_ms",
                busy.holder
            ),
        };
        Self::new(StatusCode::CONFLICT, "busy", detail)
            .retry_after(after)
            .with(|problem| {
                problem.holder = Some(busy.holder.clone());
                problem.class.clone_from(&busy.class);
                problem.fence = busy.fence;
                problem.remaining_ms = left.map(millis);
                problem.queued = Some(busy.queued);
            })
    }

    /// The token's lease is over, or was never its.
    #[must_use]
    pub fn not_owned(name: &str) -> Self {
        Self::new(
            StatusCode::GONE,
            "not_owned",
            format!("{name} is not held with this token (any more): stop what was done under it"),
        )
    }

    /// The token was undone.
    #[must_use]
    pub fn void(name: &str) -> Self {
        Self::new(
            StatusCode::GONE,
            "void",
            format!("this token or id has been used for {name} and given back: acquire with a new one"),
        )
    }

    /// The store did not answer.
    #[must_use]
    pub fn unavailable(failure: &Failure) -> Self {
        if failure.cause == Cause::Unsupported && !failure.unknown {
            return Self::new(StatusCode::UNPROCESSABLE_ENTITY, "unsupported", failure.message());
        }
        Self::new(
            StatusCode::SERVICE_UNAVAILABLE,
            "unavailable",
            format!("the store did not answer: {failure}"),
        )
        .retry_after(SOON)
        .with(|problem| {
            problem.cause = Some(failure.cause.to_string());
            problem.unknown = Some(failure.unknown);
        })
    }

    /// No identity.
    #[must_use]
    pub fn unauthorized(detail: &str) -> Self {
        Self::new(StatusCode::UNAUTHORIZED, "unauthorized", detail)
    }

    /// No right. Says nothing about what is there.
    #[must_use]
    pub fn forbidden(action: &str) -> Self {
        Self::new(
            StatusCode::FORBIDDEN,
            "forbidden",
            format!("you have no right to {action} here; ask for a grant on this namespace"),
        )
    }

    /// No such thing.
    #[must_use]
    pub fn not_found(what: &str) -> Self {
        Self::new(StatusCode::NOT_FOUND, "not_found", what)
    }

    /// Input that cannot be used.
    #[must_use]
    pub fn invalid(field: &str, detail: impl Into<String>) -> Self {
        Self::new(StatusCode::UNPROCESSABLE_ENTITY, "invalid", detail)
            .with(|problem| problem.field = Some(field.to_owned()))
    }

    /// The daemon is stopping.
    #[must_use]
    pub fn stopping() -> Self {
        Self::new(
            StatusCode::SERVICE_UNAVAILABLE,
            "stopping",
            "the daemon is stopping; ask again once it is back",
        )
        .retry_after(SOON)
    }
}

impl From<Invalid> for Refusal {
    fn from(invalid: Invalid) -> Self {
        Self::invalid(&invalid.field, invalid.to_string())
    }
}

impl From<Failure> for Refusal {
    fn from(failure: Failure) -> Self {
        Self::unavailable(&failure)
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.problem.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let body = serde_json::to_vec(&self.problem).unwrap_or_default();
        let mut response = (status, body).into_response();
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(PROBLEM));
        if let Some(after) = self.retry_after {
            // Whole seconds, rounded up: a caller that comes too early comes twice.
            let seconds = after.as_millis().div_ceil(1000).max(1);
            if let Ok(value) = HeaderValue::from_str(&seconds.to_string()) {
                headers.insert(RETRY_AFTER, value);
            }
        }
        if let Some(allow) = self.allow.and_then(|allow| HeaderValue::from_str(&allow).ok()) {
            headers.insert(ALLOW, allow);
        }
        if self.close {
            headers.insert(CONNECTION, HeaderValue::from_static("close"));
        }
        if status == StatusCode::UNAUTHORIZED {
            headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response
    }
}

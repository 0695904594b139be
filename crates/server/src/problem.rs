//! Error responses: `application/problem+json` with a code for programs and a sentence for people.

use std::time::Duration;

use axum::response::{IntoResponse, Response};
use http::header::{ALLOW, CONNECTION, CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use http::{HeaderValue, StatusCode};
use leasehold::InvalidInput;
use leasehold::store::{BusyLease, StoreError, StoreErrorKind};
use leasehold_wire::{ErrorCode, PROBLEM_MEDIA_TYPE, Problem, millis};

use crate::auth::Right;

// The Retry-After when no better estimate exists.
const DEFAULT_RETRY_AFTER: Duration = Duration::from_secs(1);

/// An error response with its headers.
#[derive(Debug, Clone)]
pub struct Refusal {
    problem: Box<Problem>,
    retry_after: Option<Duration>,
    allow: Option<String>,
    close: bool,
}

impl Refusal {
    /// An error response with this code and detail.
    #[must_use]
    pub fn new(code: ErrorCode, detail: impl Into<String>) -> Self {
        let text = code.as_str();
        Self {
            problem: Box::new(Problem {
                kind: format!("urn:leasehold:problem:{text}"),
                title: text.replace('_', " "),
                status: code.status(),
                detail: detail.into(),
                code: text.to_owned(),
                ..Problem::default()
            }),
            retry_after: None,
            allow: None,
            close: false,
        }
    }

    /// Adds a `Retry-After` header.
    #[must_use]
    pub fn retry_after(mut self, after: Duration) -> Self {
        self.retry_after = Some(after);
        self
    }

    /// Adds an `Allow` header.
    #[must_use]
    pub fn allow(mut self, methods: String) -> Self {
        self.allow = Some(methods);
        self
    }

    /// Closes the connection after the response.
    #[must_use]
    pub(crate) fn close(mut self) -> Self {
        self.close = true;
        self
    }

    /// Sets further fields of the problem document.
    #[must_use]
    pub fn with(mut self, more: impl FnOnce(&mut Problem)) -> Self {
        more(&mut self.problem);
        self
    }

    /// The error code.
    #[must_use]
    pub fn code(&self) -> &str {
        &self.problem.code
    }

    /// The lock is held by another client.
    #[must_use]
    pub fn busy(name: &str, busy: &BusyLease) -> Self {
        let left = busy.remaining;
        // The holder may release at any time, so cap the delay at 30 s. At least a second, so that
        // a lease about to expire is over by then.
        let after =
            left.map_or(DEFAULT_RETRY_AFTER, |left| left.clamp(DEFAULT_RETRY_AFTER, Duration::from_secs(30)));
        let detail = match left {
            Some(left) => format!(
                "{name} is held by {} for {:.1}s unless renewed; retry later, or wait with wait_ms",
                busy.holder,
                left.as_secs_f64()
            ),
            None => format!("{name} is held by {}; retry later, or wait with wait_ms", busy.holder),
        };
        Self::new(ErrorCode::Busy, detail).retry_after(after).with(|problem| {
            problem.holder = Some(busy.holder.clone());
            problem.class.clone_from(&busy.class);
            problem.fence = busy.fence;
            problem.remaining_ms = left.map(millis);
            problem.queued = Some(busy.queued);
        })
    }

    /// The token does not own the lease.
    #[must_use]
    pub fn not_owned(name: &str) -> Self {
        Self::new(
            ErrorCode::NotOwned,
            format!("{name} is not held with this token (any more): stop what was done under it"),
        )
    }

    /// The token was used before and is tombstoned.
    #[must_use]
    pub fn void(name: &str) -> Self {
        Self::new(
            ErrorCode::Void,
            format!("this token or id has been used for {name} and given back: acquire with a new one"),
        )
    }

    /// The store failed or timed out.
    #[must_use]
    pub fn unavailable(failure: &StoreError) -> Self {
        if failure.kind == StoreErrorKind::Unsupported && !failure.unknown {
            return Self::new(ErrorCode::Unsupported, failure.message());
        }
        Self::new(ErrorCode::Unavailable, format!("the store did not answer: {failure}"))
            .retry_after(DEFAULT_RETRY_AFTER)
            .with(|problem| {
                problem.cause = Some(failure.kind.to_string());
                problem.unknown = Some(failure.unknown);
            })
    }

    /// The caller has as many of these as one identity may have.
    #[must_use]
    pub fn quota_reached(quota: &str, limit: usize) -> Self {
        Self::new(
            ErrorCode::QuotaReached,
            format!("you have {limit} {quota} through this daemon, as many as one identity may have; release some first"),
        )
        .retry_after(DEFAULT_RETRY_AFTER)
    }

    /// The caller is not identified.
    #[must_use]
    pub fn unauthorized(detail: &str) -> Self {
        Self::new(ErrorCode::Unauthorized, detail)
    }

    /// The caller lacks the right. Does not reveal whether the target exists.
    #[must_use]
    pub fn forbidden(action: &str) -> Self {
        Self::new(
            ErrorCode::Forbidden,
            format!("you have no right to {action} here; ask for a grant on this namespace"),
        )
    }

    /// The caller lacks a right on a name that the request touches besides its target.
    #[must_use]
    pub fn forbidden_on(right: Right, name: &str) -> Self {
        let grant = format!("{right}:{name}");
        let detail =
            format!("you have no right to {right} {name}, which this takes; ask for the grant {grant}");
        Self::new(ErrorCode::Forbidden, detail).with(|problem| problem.grant = Some(grant))
    }

    /// The target does not exist, or the caller may not see it.
    #[must_use]
    pub fn not_found(what: &str) -> Self {
        Self::new(ErrorCode::NotFound, what)
    }

    /// A field of the request is invalid.
    #[must_use]
    pub fn invalid(field: &str, detail: impl Into<String>) -> Self {
        Self::new(ErrorCode::Invalid, detail).with(|problem| problem.field = Some(field.to_owned()))
    }

    /// The daemon is stopping and takes no new work.
    #[must_use]
    pub fn stopping() -> Self {
        Self::new(ErrorCode::Stopping, "the daemon is stopping; retry once it is back")
            .retry_after(DEFAULT_RETRY_AFTER)
    }
}

impl From<InvalidInput> for Refusal {
    fn from(invalid: InvalidInput) -> Self {
        Self::invalid(&invalid.field, invalid.to_string())
    }
}

impl From<StoreError> for Refusal {
    fn from(failure: StoreError) -> Self {
        Self::unavailable(&failure)
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.problem.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let body = serde_json::to_vec(&self.problem).unwrap_or_default();
        let mut response = (status, body).into_response();
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(PROBLEM_MEDIA_TYPE));
        if let Some(after) = self.retry_after {
            // `Retry-After` has whole seconds. Rounded up: a caller that comes too early must come
            // twice.
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

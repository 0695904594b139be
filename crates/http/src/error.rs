//! What each error response means for the request: a closed table.
//!
//! A response in the table means *definitely not done*. Everything else may have taken effect: a
//! missing response, a proxy's error page, an unknown code of a newer daemon, a status without a
//! problem document.

use leasehold_core::store::{StoreError, StoreErrorKind};

use crate::connection::HttpResponse;
use crate::wire::{ErrorCode, Problem};

/// Codes that a daemon returns *instead of* calling its store.
const NOT_DONE: &[(ErrorCode, StoreErrorKind)] = &[
    (ErrorCode::BadRequest, StoreErrorKind::Misconfigured),
    (ErrorCode::Unauthorized, StoreErrorKind::Denied),
    (ErrorCode::Forbidden, StoreErrorKind::Denied),
    (ErrorCode::NotFound, StoreErrorKind::Misconfigured),
    (ErrorCode::MethodNotAllowed, StoreErrorKind::Misconfigured),
    (ErrorCode::RequestTimeout, StoreErrorKind::TimedOut),
    (ErrorCode::TooLarge, StoreErrorKind::Misconfigured),
    (ErrorCode::UnsupportedMediaType, StoreErrorKind::Misconfigured),
    (ErrorCode::WrongHost, StoreErrorKind::Misconfigured),
    (ErrorCode::Invalid, StoreErrorKind::Misconfigured),
    (ErrorCode::RateLimited, StoreErrorKind::Overloaded),
    (ErrorCode::QuotaReached, StoreErrorKind::Overloaded),
    (ErrorCode::TooManyBodies, StoreErrorKind::Overloaded),
    (ErrorCode::TooManyResponses, StoreErrorKind::Overloaded),
    (ErrorCode::TooManyWaiters, StoreErrorKind::Overloaded),
    (ErrorCode::Unsupported, StoreErrorKind::Unsupported),
    (ErrorCode::Overloaded, StoreErrorKind::Overloaded),
    (ErrorCode::Stopping, StoreErrorKind::Unreachable),
];

/// All causes. The problem document spells them as their `Display` does.
const ALL_CAUSES: &[StoreErrorKind] = &[
    StoreErrorKind::Unreachable,
    StoreErrorKind::TimedOut,
    StoreErrorKind::Overloaded,
    StoreErrorKind::ReadOnly,
    StoreErrorKind::Denied,
    StoreErrorKind::Misconfigured,
    StoreErrorKind::Unsupported,
    StoreErrorKind::Corrupt,
];

/// Parses a cause.
pub(crate) fn parse_cause(word: &str) -> Option<StoreErrorKind> {
    ALL_CAUSES.iter().copied().find(|cause| cause.to_string() == word)
}

/// Converts an error response into a store error.
pub(crate) fn error_from_response(answer: &HttpResponse) -> StoreError {
    let status = answer.status;
    let Some(problem) = answer.problem() else {
        return StoreError::unknown(
            StoreErrorKind::Unreachable,
            format!(
                "status {status} without a document of a Leasehold daemon: is something else at this address?"
            ),
        );
    };
    let code = answer.error_code();
    if let Some((_, cause)) = NOT_DONE.iter().find(|(listed, _)| Some(*listed) == code) {
        return StoreError::not_done(*cause, message(&problem));
    }
    // The daemon's store failed; the document says whether the outcome is unknown.
    if code == Some(ErrorCode::Unavailable) {
        let cause = problem.cause.as_deref().and_then(parse_cause);
        // Only an explicit `false` means that nothing happened.
        return if problem.unknown == Some(false) {
            StoreError::not_done(cause.unwrap_or(StoreErrorKind::Unreachable), message(&problem))
        } else {
            StoreError::unknown(cause.unwrap_or(StoreErrorKind::Unreachable), message(&problem))
        };
    }
    StoreError::unknown(
        StoreErrorKind::Unreachable,
        format!("the daemon answered {status}: {}", message(&problem)),
    )
}

/// The response is not the expected document.
pub(crate) fn malformed_response(what: &str) -> StoreError {
    StoreError::unknown(StoreErrorKind::Corrupt, format!("the daemon's answer to {what} makes no sense"))
}

/// Marks an error of a read-only request: nothing can have happened.
pub(crate) fn mark_read_only(mut failure: StoreError) -> StoreError {
    // Change the error in place; wrapping it would show the same message twice.
    failure.unknown = false;
    failure
}

/// The daemon's message, cut to a length that fits a log line.
fn message(problem: &Problem) -> String {
    let text = if problem.detail.is_empty() { &problem.title } else { &problem.detail };
    // Control characters could forge lines in a log.
    text.chars().filter(|ch| !ch.is_control()).take(300).collect::<String>()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(status: u16, body: &str) -> HttpResponse {
        HttpResponse { status, is_problem: true, body: body.as_bytes().to_vec().into() }
    }

    fn problem(status: u16, code: &str) -> HttpResponse {
        answer(status, &format!(r#"{{"code":"{code}","status":{status},"detail":"d"}}"#))
    }

    #[test]
    fn listed_codes_mean_not_done() {
        for (code, cause) in NOT_DONE {
            let failure = error_from_response(&problem(code.status(), code.as_str()));
            assert_eq!((failure.unknown, failure.kind), (false, *cause), "{code:?}");
        }
    }

    #[test]
    fn unlisted_responses_are_unknown() {
        for other in [
            problem(500, "internal"),
            problem(503, "rate_limited"),
            problem(429, "forbidden"),
            problem(502, "bad_gateway"),
            problem(503, "unavailable"),
            answer(503, "<html>Service Unavailable</html>"),
            answer(404, "{}"),
            answer(200, ""),
        ] {
            let failure = error_from_response(&other);
            assert!(failure.unknown, "{other:?}: {failure}");
        }
        // The same document, but the content type does not say that it is a problem document.
        let mut proxy = problem(403, "forbidden");
        proxy.is_problem = false;
        assert!(error_from_response(&proxy).unknown);
    }

    #[test]
    fn unavailable_says_whether_the_outcome_is_unknown() {
        let body = |unknown| format!(r#"{{"code":"unavailable","cause":"read-only","unknown":{unknown}}}"#);
        let failure = error_from_response(&answer(503, &body(false)));
        assert_eq!((failure.unknown, failure.kind), (false, StoreErrorKind::ReadOnly));
        assert!(error_from_response(&answer(503, &body(true))).unknown);
    }

    #[test]
    fn every_cause_round_trips_as_text() {
        for known in ALL_CAUSES {
            assert_eq!(parse_cause(&known.to_string()), Some(*known));
        }
        assert_eq!(parse_cause("tired"), None);
    }
}

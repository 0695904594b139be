//! What each failure on the way to the daemon means: a closed table.
//!
//! A refusal in the table says *definitely not done*. Whatever is not in it may have taken effect: an answer that did
//! not come, a proxy's error page, a newer daemon's refusal, a status without our own document behind it.

use leasehold_core::store::{Cause, Failure};

use crate::connection::Answer;
use crate::wire::Problem;

/// Codes that a daemon answers *instead of* asking its store, with the status they come with.
const NOT_DONE: &[(&str, u16, Cause)] = &[
    ("bad_request", 400, Cause::Misconfigured),
    ("unauthorized", 401, Cause::Denied),
    ("forbidden", 403, Cause::Denied),
    ("not_found", 404, Cause::Misconfigured),
    ("method_not_allowed", 405, Cause::Misconfigured),
    ("request_timeout", 408, Cause::TimedOut),
    ("too_large", 413, Cause::Misconfigured),
    ("unsupported_media_type", 415, Cause::Misconfigured),
    ("wrong_host", 421, Cause::Misconfigured),
    ("invalid", 422, Cause::Misconfigured),
    ("rate_limited", 429, Cause::Overloaded),
    ("too_many_waiters", 429, Cause::Overloaded),
    ("unsupported", 422, Cause::Unsupported),
    ("overloaded", 503, Cause::Overloaded),
    ("stopping", 503, Cause::Unreachable),
];

/// The daemon's store did not answer; the document says whether it may have happened.
const STORE: (&str, u16) = ("unavailable", 503);

/// Causes as the wire spells them: their own words.
const CAUSES: &[Cause] = &[
    Cause::Unreachable,
    Cause::TimedOut,
    Cause::Overloaded,
    Cause::ReadOnly,
    Cause::Denied,
    Cause::Misconfigured,
    Cause::Unsupported,
    Cause::Corrupt,
];

/// A cause from its word.
pub(crate) fn cause(word: &str) -> Option<Cause> {
    CAUSES.iter().copied().find(|cause| cause.to_string() == word)
}

/// What a refusal means that is no answer to the question.
pub(crate) fn refused(answer: &Answer) -> Failure {
    let status = answer.status;
    let Some(problem) = answer.problem() else {
        return Failure::unknown(
            Cause::Unreachable,
            format!(
                "status {status} without a document of a Leasehold daemon: is something else at this address?"
            ),
        );
    };
    if let Some((_, _, cause)) = NOT_DONE
        .iter()
        .find(|(code, with, _)| *code == problem.code && *with == status)
    {
        return Failure::not_done(*cause, message(&problem));
    }
    if STORE == (problem.code.as_str(), status) {
        let cause = problem.cause.as_deref().and_then(cause);
        // A daemon that does not say that nothing happened has not said it.
        return if problem.unknown == Some(false) {
            Failure::not_done(cause.unwrap_or(Cause::Unreachable), message(&problem))
        } else {
            Failure::unknown(cause.unwrap_or(Cause::Unreachable), message(&problem))
        };
    }
    Failure::unknown(
        Cause::Unreachable,
        format!("the daemon answered {status}: {}", message(&problem)),
    )
}

/// The daemon answered, but not with what was asked for.
pub(crate) fn nonsense(what: &str) -> Failure {
    Failure::unknown(
        Cause::Corrupt,
        format!("the daemon's answer to {what} makes no sense"),
    )
}

/// For questions that change nothing, nothing has happened whatever went wrong.
pub(crate) fn read_only(mut failure: Failure) -> Failure {
    // The same failure, not one around it: what went wrong is said once.
    failure.unknown = false;
    failure
}

/// The daemon's own words, cut to a length that fits a message.
fn message(problem: &Problem) -> String {
    let text = if problem.detail.is_empty() {
        &problem.title
    } else {
        &problem.detail
    };
    text.chars()
        .filter(|ch| !ch.is_control())
        .take(300)
        .collect::<String>()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(status: u16, body: &str) -> Answer {
        Answer {
            status,
            problem: true,
            body: body.as_bytes().to_vec().into(),
        }
    }

    fn problem(status: u16, code: &str) -> Answer {
        answer(
            status,
            &format!(r#"{{"code":"{code}","status":{status},"detail":"d"}}"#),
        )
    }

    #[test]
    fn what_is_in_the_table_did_not_happen() {
        for (code, status, cause) in NOT_DONE {
            let failure = refused(&problem(*status, code));
            assert_eq!((failure.unknown, failure.cause), (false, *cause), "{code}");
        }
    }

    #[test]
    fn what_is_not_in_the_table_is_unknown() {
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
            let failure = refused(&other);
            assert!(failure.unknown, "{other:?}: {failure}");
        }
        // The very document, but from someone who does not say that it is one.
        let mut proxy = problem(403, "forbidden");
        proxy.problem = false;
        assert!(refused(&proxy).unknown);
    }

    #[test]
    fn the_daemons_store_says_itself_whether_it_happened() {
        let body = |unknown| format!(r#"{{"code":"unavailable","cause":"read-only","unknown":{unknown}}}"#);
        let failure = refused(&answer(503, &body(false)));
        assert_eq!((failure.unknown, failure.cause), (false, Cause::ReadOnly));
        assert!(refused(&answer(503, &body(true))).unknown);
    }

    #[test]
    fn every_cause_has_a_word_of_its_own() {
        for known in CAUSES {
            assert_eq!(cause(&known.to_string()), Some(*known));
        }
        assert_eq!(cause("tired"), None);
    }
}

//! What each of Redis's errors says about the write: surely not done, or unknown.
//!
//! The table is closed: an error that is not in it is unknown.

use leasehold_core::Invalid;
use leasehold_core::store::{Cause, Failure};
use redis::{ErrorKind, RedisError};

/// The server refused the command before running it, for this reason.
fn not_run(code: &str) -> Option<(Cause, &'static str)> {
    Some(match code {
        "NOSCRIPT" => (Cause::Overloaded, "its script cache is flushed constantly"),
        "LOADING" => (Cause::Overloaded, "it is loading its data; try again soon"),
        "BUSY" => (Cause::Overloaded, "it is busy with someone's long script"),
        "TRYAGAIN" => (Cause::Overloaded, "the hash slot is on the move; try again soon"),
        "OOM" => (Cause::Overloaded, "it is out of memory; make room"),
        "NOREPLICAS" => (Cause::Overloaded, "too few replicas are connected"),
        "MISCONF" => (
            Cause::Misconfigured,
            "it cannot save to its disk and takes no writes",
        ),
        "MASTERDOWN" => (Cause::Unreachable, "its primary is down"),
        "CLUSTERDOWN" => (Cause::Unreachable, "the cluster is down"),
        "MOVED" | "ASK" => (Cause::Misconfigured, "it is a cluster; use a cluster connection"),
        "CROSSSLOT" => (
            Cause::Misconfigured,
            "the keys are in other hash slots than the resource; give them its hash tag",
        ),
        "READONLY" => (Cause::ReadOnly, "it is a replica; ask the primary"),
        "NOAUTH" | "WRONGPASS" => (Cause::Denied, "it wants other credentials"),
        "NOPERM" => (Cause::Denied, "this user may not do this; see the documented ACL"),
        "WRONGTYPE" => (Cause::Corrupt, "there is something else where the mark should be"),
        _ => return None,
    })
}

/// The command failed.
pub(super) fn of_error(error: RedisError) -> Failure {
    let detail = error.detail().unwrap_or_default();
    // An error from *inside* the script names the script: the mark was set, and some writes may have been done.
    let inside = detail.contains(" script: ");
    let known = error.code().filter(|_| !inside).and_then(not_run);
    let failure = match known {
        Some((cause, why)) => Failure::not_done(cause, format!("Redis refused to do it: {why}")),
        None if error.is_timeout() => Failure::unknown(Cause::TimedOut, "Redis did not answer in time"),
        None if error.kind() == ErrorKind::Io => {
            Failure::unknown(Cause::Unreachable, "the connection to Redis failed")
        }
        None if inside => Failure::unknown(
            Cause::Misconfigured,
            "Redis stopped the fenced write half-way: older fences are refused, but some keys may not be written; \
             mend the cause and write again with the same fence",
        ),
        None => Failure::unknown(Cause::Corrupt, "Redis answered with an error not known here"),
    };
    failure.with_source(error)
}

/// The script could not read or set the mark, so it wrote nothing.
pub(super) fn unmarked(error: &str) -> Failure {
    let error = error.trim_start_matches('-');
    let code = error.split(' ').next().unwrap_or_default();
    // Redis 7.0 has no code for this one.
    let code = if error.contains("The user executing the script can't") {
        "NOPERM"
    } else {
        code
    };
    let (cause, why) = not_run(code).unwrap_or((Cause::Misconfigured, "see its own words"));
    Failure::not_done(
        cause,
        format!("Redis did not take the fence's mark: {why}: {error}"),
    )
}

/// What is stored as the mark is not a fence.
pub(super) fn corrupt(resource: &str, found: &str) -> Failure {
    let Invalid { given, .. } = Invalid::new("mark", found, "");
    Failure::not_done(
        Cause::Corrupt,
        format!(
            "the mark of `{resource}` is {given}, which is no fence; find out who wrote it before it is deleted"
        ),
    )
}

/// Refused before anything was sent.
pub(super) fn invalid(invalid: Invalid) -> Failure {
    Failure::not_done(Cause::Misconfigured, invalid.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As the server says it: `-CODE detail`.
    fn said(code: &'static str, detail: &str) -> RedisError {
        let line = format!("-{code} {detail}\r\n");
        redis::parse_redis_value(line.as_bytes())
            .and_then(redis::Value::extract_error)
            .unwrap_err()
    }

    #[test]
    fn refusals_before_the_script_are_definite() {
        for code in [
            "NOSCRIPT",
            "LOADING",
            "BUSY",
            "TRYAGAIN",
            "OOM",
            "NOREPLICAS",
            "MISCONF",
            "MASTERDOWN",
            "CLUSTERDOWN",
            "MOVED",
            "ASK",
            "CROSSSLOT",
            "READONLY",
            "NOAUTH",
            "WRONGPASS",
            "NOPERM",
            "WRONGTYPE",
        ] {
            let failure = of_error(said(code, "1 some detail"));
            assert!(!failure.unknown, "{code}: {failure}");
        }
    }

    #[test]
    fn errors_from_inside_the_script_and_unheard_of_ones_are_unknown() {
        for (code, detail) in [
            (
                "NOPERM",
                "ACL failure in script: no permissions script: ab12, on @user_script:24.",
            ),
            (
                "READONLY",
                "You can't write against a read only replica. script: ab12, on @user_script:20.",
            ),
            (
                "ERR",
                "Error running script (call to f_ab12): @user_script:20: OOM command not allowed",
            ),
            ("ERR", "something"),
            ("NEWCODE", "from a later version"),
            ("UNKILLABLE", "…"),
        ] {
            let failure = of_error(said(code, detail));
            assert!(failure.unknown, "{code}: {failure}");
        }
    }

    #[test]
    fn a_lost_connection_or_a_late_answer_is_unknown() {
        for kind in [
            std::io::ErrorKind::TimedOut,
            std::io::ErrorKind::BrokenPipe,
            std::io::ErrorKind::ConnectionReset,
            std::io::ErrorKind::ConnectionRefused,
        ] {
            let failure = of_error(RedisError::from(std::io::Error::from(kind)));
            assert!(failure.unknown, "{kind}: {failure}");
        }
    }
}

//! Maps Redis errors to store errors: definitely not done, or unknown.
//!
//! The table is closed: an error that is not in it is unknown.

use leasehold_core::InvalidInput;
use leasehold_core::store::{StoreError, StoreErrorKind};
use redis::{ErrorKind, RedisError};

/// The kind and reason of an error with which the server refuses a command before running it.
fn not_run_reason(code: &str) -> Option<(StoreErrorKind, &'static str)> {
    Some(match code {
        "NOSCRIPT" => (StoreErrorKind::Overloaded, "its script cache is flushed constantly"),
        "LOADING" => (StoreErrorKind::Overloaded, "it is loading its data; try again soon"),
        "BUSY" => (StoreErrorKind::Overloaded, "it is busy with a long script of another client"),
        "TRYAGAIN" => (StoreErrorKind::Overloaded, "the hash slot is on the move; try again soon"),
        "OOM" => (StoreErrorKind::Overloaded, "it is out of memory; make room"),
        "NOREPLICAS" => (StoreErrorKind::Overloaded, "too few replicas are connected"),
        "MISCONF" => (StoreErrorKind::Misconfigured, "it cannot save to its disk and takes no writes"),
        "MASTERDOWN" => (StoreErrorKind::Unreachable, "its primary is down"),
        "CLUSTERDOWN" => (StoreErrorKind::Unreachable, "the cluster is down"),
        "MOVED" | "ASK" => (StoreErrorKind::Misconfigured, "it is a cluster; use a cluster connection"),
        "CROSSSLOT" => (
            StoreErrorKind::Misconfigured,
            "the keys are in other hash slots than the resource; give them its hash tag",
        ),
        "READONLY" => (StoreErrorKind::ReadOnly, "it is a replica; ask the primary"),
        "NOAUTH" | "WRONGPASS" => (StoreErrorKind::Denied, "it wants other credentials"),
        "NOPERM" => (StoreErrorKind::Denied, "this user may not do this; see the documented ACL"),
        // Raised by the GET of the mark, before anything is written.
        "WRONGTYPE" => (StoreErrorKind::Corrupt, "there is something else where the mark should be"),
        _ => return None,
    })
}

/// Converts the error of a command.
pub(super) fn command_error(error: RedisError) -> StoreError {
    let detail = error.detail().unwrap_or_default();
    // An error from *inside* the script names the script. The mark was set, and
    // some writes may have been done.
    let inside = detail.contains(" script: ");
    let known = error.code().filter(|_| !inside).and_then(not_run_reason);
    let failure = match known {
        Some((cause, why)) => StoreError::not_done(cause, format!("Redis refused to do it: {why}")),
        None if error.is_timeout() => {
            StoreError::unknown(StoreErrorKind::TimedOut, "Redis did not answer in time")
        }
        None if error.kind() == ErrorKind::Io => {
            StoreError::unknown(StoreErrorKind::Unreachable, "the connection to Redis failed")
        }
        None if inside => StoreError::unknown(
            StoreErrorKind::Misconfigured,
            "Redis stopped the fenced write half-way: older fences are refused, but some keys may not be written; \
             fix the cause and write again with the same fence",
        ),
        None => StoreError::unknown(StoreErrorKind::Corrupt, "Redis answered with an error not known here"),
    };
    failure.with_source(error)
}

/// The script could not read or set the mark, so it wrote nothing.
pub(super) fn unmarked_error(error: &str) -> StoreError {
    let error = error.trim_start_matches('-');
    let code = error.split(' ').next().unwrap_or_default();
    // Redis 7.0 has no code for this error.
    let code = if error.contains("The user executing the script can't") { "NOPERM" } else { code };
    let (cause, why) = not_run_reason(code).unwrap_or((StoreErrorKind::Misconfigured, "see its own words"));
    StoreError::not_done(cause, format!("Redis did not take the fence's mark: {why}: {error}"))
}

/// The stored mark is not a fence.
pub(super) fn corrupt_error(resource: &str, found: &str) -> StoreError {
    let InvalidInput { given, .. } = InvalidInput::new("mark", found, "");
    StoreError::not_done(
        StoreErrorKind::Corrupt,
        format!(
            "the mark of `{resource}` is {given}, which is no fence; find out who wrote it before it is deleted"
        ),
    )
}

/// Invalid input, refused before anything was sent.
pub(super) fn invalid_input_error(invalid: InvalidInput) -> StoreError {
    StoreError::not_done(StoreErrorKind::Misconfigured, invalid.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An error in the server's format: `-CODE detail`.
    fn server_error(code: &'static str, detail: &str) -> RedisError {
        let line = format!("-{code} {detail}\r\n");
        redis::parse_redis_value(line.as_bytes()).and_then(redis::Value::extract_error).unwrap_err()
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
            let failure = command_error(server_error(code, "1 some detail"));
            assert!(!failure.unknown, "{code}: {failure}");
        }
    }

    #[test]
    fn errors_inside_the_script_and_unlisted_ones_are_unknown() {
        for (code, detail) in [
            ("NOPERM", "ACL failure in script: no permissions script: ab12, on @user_script:24."),
            ("READONLY", "You can't write against a read only replica. script: ab12, on @user_script:20."),
            ("ERR", "Error running script (call to f_ab12): @user_script:20: OOM command not allowed"),
            ("ERR", "something"),
            ("NEWCODE", "from a later version"),
            ("UNKILLABLE", "…"),
        ] {
            let failure = command_error(server_error(code, detail));
            assert!(failure.unknown, "{code}: {failure}");
        }
    }

    #[test]
    fn lost_connection_or_late_response_is_unknown() {
        for kind in [
            std::io::ErrorKind::TimedOut,
            std::io::ErrorKind::BrokenPipe,
            std::io::ErrorKind::ConnectionReset,
            std::io::ErrorKind::ConnectionRefused,
        ] {
            let failure = command_error(RedisError::from(std::io::Error::from(kind)));
            assert!(failure.unknown, "{kind}: {failure}");
        }
    }
}

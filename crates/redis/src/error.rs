//! Maps each server error to a store error, by a closed table.
//!
//! An error in the table means *definitely not done*. Any other error may have taken effect (hazard
//! R12): it may come from a proxy, a newer server, or the middle of a script.

use redis::{ErrorKind, RedisError, ServerError};

use leasehold_core::store::{StoreError, StoreErrorKind};

/// Codes that a server returns instead of executing anything, with their kind and advice.
// A script's first write can raise `READONLY`, `OOM`, `MISCONF` and `NOREPLICAS`. Later ones
// cannot: once a script has written, Redis lets it finish.
const NOT_DONE_CODES: &[(&str, StoreErrorKind, &str)] = &[
    ("READONLY", StoreErrorKind::ReadOnly, "this server is a replica; connect to the primary"),
    (
        "MASTERDOWN",
        StoreErrorKind::ReadOnly,
        "this server is a replica without its primary; connect to the primary",
    ),
    ("LOADING", StoreErrorKind::Overloaded, "the server is loading its data; wait until it has finished"),
    (
        "CLUSTERDOWN",
        StoreErrorKind::Overloaded,
        "the cluster does not serve this slot now; look at CLUSTER INFO",
    ),
    ("TRYAGAIN", StoreErrorKind::Overloaded, "the slot is being moved; retry"),
    ("BUSY", StoreErrorKind::Overloaded, "the server is busy with a script; end it with SCRIPT KILL"),
    (
        "NOREPLICAS",
        StoreErrorKind::Overloaded,
        "too few replicas are connected for min-replicas-to-write; fix replication",
    ),
    (
        "MISCONF",
        StoreErrorKind::Overloaded,
        "the server cannot write to its disk and so accepts no writes; free space on it",
    ),
    (
        "OOM",
        StoreErrorKind::Overloaded,
        "the server is out of memory; raise maxmemory or move other data away",
    ),
    (
        "NOSCRIPT",
        StoreErrorKind::Overloaded,
        "the server forgot a script as soon as it had it; see who runs SCRIPT FLUSH",
    ),
    ("NOAUTH", StoreErrorKind::Denied, "the server wants a password; name its file with password_file="),
    ("WRONGPASS", StoreErrorKind::Denied, "user or password are wrong; check user= and the password file"),
    (
        "NOPERM",
        StoreErrorKind::Denied,
        "the user's rights do not suffice; give it the ACL line of the documentation",
    ),
    (
        "DENIED",
        StoreErrorKind::Denied,
        "the server is in protected mode; set a password or bind address there",
    ),
    (
        "EXECABORT",
        StoreErrorKind::Misconfigured,
        "a transaction was refused; something between us rewrites commands",
    ),
    (
        "MOVED",
        StoreErrorKind::Misconfigured,
        "this is a node of a Redis Cluster, and the key lives on another node",
    ),
    (
        "ASK",
        StoreErrorKind::Misconfigured,
        "this is a node of a Redis Cluster, and the key is moving to another node",
    ),
    (
        "CROSSSLOT",
        StoreErrorKind::Misconfigured,
        "this is a node of a Redis Cluster that found keys in two slots",
    ),
    // Returned by our own scripts, before they write.
    (
        "LHFULL",
        StoreErrorKind::Corrupt,
        "no higher fence fits; a floor far beyond the clock was once brought in",
    ),
    ("LHCOUNTER", StoreErrorKind::Corrupt, "something else writes under the reserved prefix lh1:"),
];

/// The same for errors with the general code `ERR`, by the start of their text.
const NOT_DONE_MESSAGES: &[(&str, StoreErrorKind, &str)] = &[
    (
        "max number of clients reached",
        StoreErrorKind::Overloaded,
        "the server has no connection left; raise maxclients",
    ),
    (
        "unknown command",
        StoreErrorKind::Unsupported,
        "the server does not know or has renamed a command that is needed",
    ),
    (
        "DB index is out of range",
        StoreErrorKind::Misconfigured,
        "the server has fewer databases than the URL's number",
    ),
];

/// Text by which Redis 7 and Valkey mark an error raised inside a script.
const SCRIPT_ERROR_MARK: &str = " script: ";

/// Converts a server error.
pub(crate) fn from_server(err: &ServerError) -> StoreError {
    classify(err.code(), err.details().unwrap_or_default())
}

fn classify(code: &str, detail: &str) -> StoreError {
    let message = redact(&format!("{code} {detail}"));
    let inside = detail.contains(SCRIPT_ERROR_MARK);
    let known = NOT_DONE_CODES
        .iter()
        // Rights are checked per command: a script may have written before it
        // reached a forbidden one.
        .filter(|(known, ..)| !(inside && *known == "NOPERM"))
        .find(|(known, ..)| *known == code)
        .or_else(|| {
            let general = || NOT_DONE_MESSAGES.iter().find(|(start, ..)| detail.starts_with(start));
            (code == "ERR" && !inside).then(general).flatten()
        });
    if let Some((_, cause, help)) = known {
        return StoreError::not_done(*cause, format!("Redis answered `{message}`: {help}"));
    }
    let cause = if detail.starts_with("The user executing the script") || code == "NOPERM" {
        StoreErrorKind::Denied
    } else {
        StoreErrorKind::Corrupt
    };
    StoreError::unknown(
        cause,
        format!("Redis answered `{message}`, which is not in the table of known errors"),
    )
}

/// Converts an error of a call that may have been sent: always unknown.
pub(crate) fn from_transport(err: RedisError) -> StoreError {
    match err.kind() {
        ErrorKind::Io => {
            StoreError::unknown(StoreErrorKind::Unreachable, "the connection to Redis broke during the call")
                .with_source(err)
        }
        ErrorKind::Parse => StoreError::unknown(
            StoreErrorKind::Corrupt,
            "what came back is not the Redis protocol; check host and port",
        ),
        _ => StoreError::unknown(
            StoreErrorKind::Corrupt,
            format!("the call to Redis failed: {}", err.category()),
        ),
    }
}

/// Converts an error while connecting: no command was sent, so nothing was done.
pub(crate) fn from_connect(err: RedisError, place: &str) -> StoreError {
    if let Ok(server) = ServerError::try_from(err.clone()) {
        let failure = from_server(&server);
        return StoreError::not_done(failure.kind, failure.message().to_owned());
    }
    let text = redact(&err.to_string());
    match err.kind() {
        ErrorKind::AuthenticationFailed => StoreError::not_done(
            StoreErrorKind::Denied,
            format!("{place} refused user or password; check user= and the password file"),
        ),
        ErrorKind::RESP3NotSupported => StoreError::not_done(
            StoreErrorKind::Unsupported,
            format!("{place} is older than Redis 6, which is the oldest that serves"),
        ),
        ErrorKind::InvalidClientConfig => {
            StoreError::not_done(StoreErrorKind::Misconfigured, format!("cannot connect to {place}: {text}"))
        }
        _ if text.contains("certificate") => StoreError::not_done(
            StoreErrorKind::Misconfigured,
            format!("{place} has a certificate that is not trusted ({text}); name its CA with ca_file="),
        ),
        _ => StoreError::not_done(
            StoreErrorKind::Unreachable,
            format!("no connection to {place} ({text}); is it running, and is the way open?"),
        ),
    }
}

/// Copies an error for one more item of a batch.
pub(crate) fn repeat_error(failure: &StoreError) -> StoreError {
    if failure.unknown {
        StoreError::unknown(failure.kind, failure.message())
    } else {
        StoreError::not_done(failure.kind, failure.message())
    }
}

/// For requests that change nothing: any error means that nothing was done.
pub(crate) fn into_not_done(failure: StoreError) -> StoreError {
    StoreError::not_done(failure.kind, failure.message())
}

/// The error for a response that none of our scripts gives.
pub(crate) fn unexpected_response(verb: &str) -> StoreError {
    StoreError::unknown(
        StoreErrorKind::Corrupt,
        format!("Redis answered {verb} in a form that its script does not give; does a proxy stand between?"),
    )
}

/// Removes secrets: error texts may repeat arguments, which contain tokens. Cuts arguments
/// off and hides long hex numbers.
fn redact(text: &str) -> String {
    let text = text.split(", with args").next().unwrap_or_default();
    let mut out = String::new();
    for part in text.split_inclusive(|ch: char| !ch.is_ascii_hexdigit()) {
        let hex = part.trim_end_matches(|ch: char| !ch.is_ascii_hexdigit());
        if hex.len() >= 32 {
            out.push('…');
            out.push_str(part.get(hex.len()..).unwrap_or_default());
        } else {
            out.push_str(part);
        }
    }
    // Logs and messages stay readable even if a proxy returns a whole page as its error.
    out.chars().take(200).collect::<String>().trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn r12_the_whole_table() {
        for (code, cause, _) in NOT_DONE_CODES {
            let failure = classify(code, "some detail");
            assert_eq!((failure.kind, failure.unknown), (*cause, false), "{code}");
        }
        for (text, cause, _) in NOT_DONE_MESSAGES {
            let failure = classify("ERR", text);
            assert_eq!((failure.kind, failure.unknown), (*cause, false), "{text}");
        }
    }

    #[test]
    fn r12_what_hazards_name_is_in_the_table() {
        for code in [
            "READONLY",
            "LOADING",
            "MASTERDOWN",
            "CLUSTERDOWN",
            "BUSY",
            "NOREPLICAS",
            "MISCONF",
            "OOM",
            "NOAUTH",
            "WRONGPASS",
            "NOPERM",
            "NOSCRIPT",
            "EXECABORT",
            "MOVED",
            "ASK",
            "TRYAGAIN",
        ] {
            assert!(!classify(code, "").unknown, "{code}");
        }
        assert!(!classify("ERR", "max number of clients reached").unknown);
    }

    #[test]
    fn r12_errors_from_the_middle_of_a_script_stay_unknown() {
        for (code, detail) in [
            (
                "ERR",
                "The user executing the script can't run this command or subcommand script: 47ac, on @user_script:1.",
            ),
            ("ERR", "unknown command called from Lua script: 47ac, on @user_script:1."),
            ("NOPERM", "this user has no permissions script: 47ac, on @user_script:1."),
            ("WRONGTYPE", "Operation against a key holding the wrong kind of value script: 47ac"),
        ] {
            assert!(classify(code, detail).unknown, "{code} {detail}");
        }
        // Only the first write can raise these.
        assert!(!classify("OOM", "command not allowed script: 47ac, on @user_script:1.").unknown);
        assert!(!classify("READONLY", "You can't write script: 47ac, on @user_script:1.").unknown);
    }

    #[test]
    fn tokens_in_error_texts_are_hidden() {
        let secret = "0123456789abcdef0123456789abcdef";
        for detail in [
            format!("odd thing near web|job|{secret}|17"),
            format!("unknown command 'EVALSHA', with args beginning with: 'web|job|{secret}'"),
        ] {
            let message = classify("ERR", &detail).to_string();
            assert!(!message.contains(secret), "{message}");
        }
    }

    proptest! {
        #[test]
        fn r12_anything_else_is_unknown(code in "[A-Z]{1,12}", detail in ".{0,60}") {
            let listed = NOT_DONE_CODES.iter().any(|(known, ..)| *known == code)
                || NOT_DONE_MESSAGES.iter().any(|(start, ..)| detail.starts_with(start));
            prop_assume!(!listed);
            prop_assert!(classify(&code, &detail).unknown);
        }
    }
}

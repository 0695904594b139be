//! What each of the server's errors means: a closed table.
//!
//! An error in the table says *definitely not done*. Whatever is not in it may have taken effect (hazard R12): a
//! proxy's error, a newer server's, an error raised in the middle of a script.

use redis::{ErrorKind, RedisError, ServerError};

use leasehold_core::store::{Cause, Failure};

/// Codes that a server answers instead of executing anything, what they mean, and what helps.
///
/// Those that a script's first write can raise (`READONLY`, `OOM`, `MISCONF`, `NOREPLICAS`) are never raised after
/// it: once a script has written, Redis lets it finish.
const NOT_DONE: &[(&str, Cause, &str)] = &[
    (
        "READONLY",
        Cause::ReadOnly,
        "this server is a replica; connect to the primary",
    ),
    (
        "MASTERDOWN",
        Cause::ReadOnly,
        "this server is a replica without its primary; connect to the primary",
    ),
    (
        "LOADING",
        Cause::Overloaded,
        "the server is loading its data; wait until it has finished",
    ),
    (
        "CLUSTERDOWN",
        Cause::Overloaded,
        "the cluster does not serve this slot now; look at CLUSTER INFO",
    ),
    (
        "TRYAGAIN",
        Cause::Overloaded,
        "the slot is being moved; ask again",
    ),
    (
        "BUSY",
        Cause::Overloaded,
        "the server is busy with a script; end it with SCRIPT KILL",
    ),
    (
        "NOREPLICAS",
        Cause::Overloaded,
        "too few replicas are connected for min-replicas-to-write; mend replication",
    ),
    (
        "MISCONF",
        Cause::Overloaded,
        "the server cannot write to its disk and so accepts no writes; free space on it",
    ),
    (
        "OOM",
        Cause::Overloaded,
        "the server is out of memory; raise maxmemory or move other data away",
    ),
    (
        "NOSCRIPT",
        Cause::Overloaded,
        "the server forgot a script as soon as it had it; see who runs SCRIPT FLUSH",
    ),
    (
        "NOAUTH",
        Cause::Denied,
        "the server wants a password; name its file with password_file=",
    ),
    (
        "WRONGPASS",
        Cause::Denied,
        "user or password are wrong; check user= and the password file",
    ),
    (
        "NOPERM",
        Cause::Denied,
        "the user's rights do not suffice; give it the ACL line of the documentation",
    ),
    (
        "DENIED",
        Cause::Denied,
        "the server is in protected mode; set a password or bind address there",
    ),
    (
        "EXECABORT",
        Cause::Misconfigured,
        "a transaction was refused; something between us rewrites commands",
    ),
    (
        "MOVED",
        Cause::Misconfigured,
        "this is a node of a Redis Cluster, and the key lives on another node",
    ),
    (
        "ASK",
        Cause::Misconfigured,
        "this is a node of a Redis Cluster, and the key is moving to another node",
    ),
    (
        "CROSSSLOT",
        Cause::Misconfigured,
        "this is a node of a Redis Cluster that found keys in two slots",
    ),
    // Our own scripts answer these before they write.
    (
        "LHFULL",
        Cause::Corrupt,
        "no higher fence fits; a floor far beyond the clock was once brought in",
    ),
    (
        "LHCOUNTER",
        Cause::Corrupt,
        "something else writes under the reserved prefix lh1:",
    ),
];

/// The same for errors with the general code `ERR`, by how their text begins.
const NOT_DONE_ERR: &[(&str, Cause, &str)] = &[
    (
        "max number of clients reached",
        Cause::Overloaded,
        "the server has no connection left; raise maxclients",
    ),
    (
        "unknown command",
        Cause::Unsupported,
        "the server does not know or has renamed a command that is needed",
    ),
    (
        "DB index is out of range",
        Cause::Misconfigured,
        "the server has fewer databases than the URL's number",
    ),
];

/// How Redis 7 and Valkey mark an error that was raised inside a script.
const IN_SCRIPT: &str = " script: ";

/// The failure that a server's error means.
pub(crate) fn from_server(err: &ServerError) -> Failure {
    classify(err.code(), err.details().unwrap_or_default())
}

fn classify(code: &str, detail: &str) -> Failure {
    let said = redact(&format!("{code} {detail}"));
    let inside = detail.contains(IN_SCRIPT);
    let known = NOT_DONE
        .iter()
        // Rights are checked call by call: a script may have written before it met a call it may not make.
        .filter(|(known, ..)| !(inside && *known == "NOPERM"))
        .find(|(known, ..)| *known == code)
        .or_else(|| {
            let general = || NOT_DONE_ERR.iter().find(|(start, ..)| detail.starts_with(start));
            (code == "ERR" && !inside).then(general).flatten()
        });
    if let Some((_, cause, help)) = known {
        return Failure::not_done(*cause, format!("Redis answered `{said}`: {help}"));
    }
    let cause = if detail.starts_with("The user executing the script") || code == "NOPERM" {
        Cause::Denied
    } else {
        Cause::Corrupt
    };
    Failure::unknown(
        cause,
        format!("Redis answered `{said}`, which is not in the table of known errors"),
    )
}

/// The failure of a call whose bytes may have left: always unknown.
pub(crate) fn from_transport(err: RedisError) -> Failure {
    match err.kind() {
        ErrorKind::Io => Failure::unknown(
            Cause::Unreachable,
            "the connection to Redis broke during the call",
        )
        .with_source(err),
        ErrorKind::Parse => Failure::unknown(
            Cause::Corrupt,
            "what came back is not the Redis protocol; check host and port",
        ),
        _ => Failure::unknown(
            Cause::Corrupt,
            format!("the call to Redis failed: {}", err.category()),
        ),
    }
}

/// The failure of a connection that did not come about: nothing was asked, so nothing was done.
pub(crate) fn from_connect(err: RedisError, place: &str) -> Failure {
    if let Ok(server) = ServerError::try_from(err.clone()) {
        let failure = from_server(&server);
        return Failure::not_done(failure.cause, failure.message().to_owned());
    }
    let text = redact(&err.to_string());
    match err.kind() {
        ErrorKind::AuthenticationFailed => Failure::not_done(
            Cause::Denied,
            format!("{place} refused user or password; check user= and the password file"),
        ),
        ErrorKind::RESP3NotSupported => Failure::not_done(
            Cause::Unsupported,
            format!("{place} is older than Redis 6, which is the oldest that serves"),
        ),
        ErrorKind::InvalidClientConfig => {
            Failure::not_done(Cause::Misconfigured, format!("cannot connect to {place}: {text}"))
        }
        _ if text.contains("certificate") => Failure::not_done(
            Cause::Misconfigured,
            format!("{place} has a certificate that is not trusted ({text}); name its CA with ca_file="),
        ),
        _ => Failure::not_done(
            Cause::Unreachable,
            format!("no connection to {place} ({text}); is it running, and is the way open?"),
        ),
    }
}

/// The same failure for another item of a batch.
pub(crate) fn again(failure: &Failure) -> Failure {
    if failure.unknown {
        Failure::unknown(failure.cause, failure.message())
    } else {
        Failure::not_done(failure.cause, failure.message())
    }
}

/// For questions that change nothing: whatever went wrong, nothing was done.
pub(crate) fn read_only(failure: Failure) -> Failure {
    Failure::not_done(failure.cause, failure.message())
}

/// An answer that no script of ours gives.
pub(crate) fn nonsense(verb: &str) -> Failure {
    Failure::unknown(
        Cause::Corrupt,
        format!("Redis answered {verb} in a form that its script does not give; does a proxy stand between?"),
    )
}

/// Error texts may repeat arguments, and arguments contain tokens: cut those off and hide long hex numbers.
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
    out.chars().take(200).collect::<String>().trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn r12_the_whole_table() {
        for (code, cause, _) in NOT_DONE {
            let failure = classify(code, "some detail");
            assert_eq!((failure.cause, failure.unknown), (*cause, false), "{code}");
        }
        for (text, cause, _) in NOT_DONE_ERR {
            let failure = classify("ERR", text);
            assert_eq!((failure.cause, failure.unknown), (*cause, false), "{text}");
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
            (
                "ERR",
                "unknown command called from Lua script: 47ac, on @user_script:1.",
            ),
            (
                "NOPERM",
                "this user has no permissions script: 47ac, on @user_script:1.",
            ),
            (
                "WRONGTYPE",
                "Operation against a key holding the wrong kind of value script: 47ac",
            ),
        ] {
            assert!(classify(code, detail).unknown, "{code} {detail}");
        }
        // These are raised by the first write only.
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
            let said = classify("ERR", &detail).to_string();
            assert!(!said.contains(secret), "{said}");
        }
    }

    proptest! {
        #[test]
        fn r12_anything_else_is_unknown(code in "[A-Z]{1,12}", detail in ".{0,60}") {
            let listed = NOT_DONE.iter().any(|(known, ..)| *known == code)
                || NOT_DONE_ERR.iter().any(|(start, ..)| detail.starts_with(start));
            prop_assume!(!listed);
            prop_assert!(classify(&code, &detail).unknown);
        }
    }
}

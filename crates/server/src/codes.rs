//! Every code that a refusal may have, for the documentation.

/// One code of a problem document.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Code {
    /// The word for programs.
    pub code: &'static str,
    /// The HTTP status it comes with.
    pub status: u16,
    /// What it says, and what to do.
    pub means: &'static str,
}

const fn code(code: &'static str, status: u16, means: &'static str) -> Code {
    Code { code, status, means }
}

/// All of them, the control plane's included. A test holds this list against the sources.
pub const CODES: &[Code] = &[
    code(
        "admission_busy",
        429,
        "The organisation is being admitted to by somebody else: come again after `Retry-After`",
    ),
    code(
        "already_approved",
        409,
        "Somebody approved it before: their yes stands, and the text names them",
    ),
    code(
        "already_rejected",
        409,
        "Somebody rejected it before: their no stands, and the text names them",
    ),
    code(
        "approval_retryable_lock",
        409,
        "Somebody is deciding at this very moment: come again after `Retry-After`",
    ),
    code("bad_request", 400, "The request cannot be read as JSON or HTTP"),
    code(
        "busy",
        409,
        "Somebody else has it: `holder`, `remaining_ms` and `Retry-After` say who and for how long at most",
    ),
    code(
        "commands_need_admin",
        403,
        "A job that runs a command needs the admin role",
    ),
    code("conflict", 409, "It has changed since it was read: read it again"),
    code(
        "different_job",
        409,
        "A job of this id is there and asks for something else",
    ),
    code(
        "different_run",
        409,
        "A run of this id is there and is of something else",
    ),
    code(
        "forbidden",
        403,
        "Your grants do not cover this name or this action",
    ),
    code(
        "foreign",
        409,
        "The key is held by something that is not Leasehold, so there is no lease to break",
    ),
    code(
        "holder_alive",
        409,
        "The holder renews: it was asked to let go; `force` breaks it all the same",
    ),
    code(
        "id_taken",
        409,
        "This hold id is in use for another name, or by another client",
    ),
    code(
        "in_progress",
        409,
        "The same id is being acquired at this moment: ask again",
    ),
    code("internal", 500, "A defect of the daemon; its log has more"),
    code(
        "invalid",
        422,
        "A field cannot be used: `field` names it, the text says what is allowed",
    ),
    code("limit_reached", 429, "As much as is allowed is waiting already"),
    code(
        "lock_unavailable",
        503,
        "The lock store did not answer and the class is fail-closed",
    ),
    code("lost", 410, "The hold is over: stop what is done under it"),
    code(
        "method_not_allowed",
        405,
        "The route is there, for the methods in `Allow`",
    ),
    code(
        "no_plane",
        404,
        "This daemon does not serve the control plane: start it with `leasehold serve --plane`",
    ),
    code(
        "no_such_step",
        409,
        "The run has no step of this id; the text lists those it has",
    ),
    code("not_actionable", 409, "The job does not wait for a decision"),
    code(
        "not_dead",
        409,
        "The job is not a dead letter, so there is nothing to bring back",
    ),
    code(
        "not_found",
        404,
        "There is nothing of this name, or nothing that you may see",
    ),
    code(
        "not_held",
        404,
        "Nobody holds this name, so there is nothing to break",
    ),
    code(
        "not_owned",
        410,
        "The lease is not held with this token (any more): stop what was done under it",
    ),
    code(
        "overloaded",
        503,
        "More of these at once than the daemon takes: come again",
    ),
    code(
        "rate_limited",
        429,
        "Faster than your rate: come again after `Retry-After`",
    ),
    code("request_timeout", 408, "The request did not arrive whole in time"),
    code(
        "stale_claim",
        409,
        "The job was claimed anew since: this worker's result is not taken",
    ),
    code(
        "stale_fence",
        412,
        "A newer fence was seen: somebody else owns it now",
    ),
    code(
        "stale_snapshot",
        409,
        "The job has changed since it was looked at: look again, then decide",
    ),
    code("still_running", 409, "The run has not ended yet"),
    code(
        "stopping",
        503,
        "The daemon is stopping: ask again once it is back",
    ),
    code(
        "store_unavailable",
        503,
        "The control plane's store did not answer",
    ),
    code("terminal", 409, "It has ended, and an end is not changed"),
    code("too_large", 413, "The body is larger than is taken"),
    code(
        "too_many_holds",
        429,
        "As many holds as one daemon keeps are kept already",
    ),
    code(
        "too_many_waiters",
        429,
        "As many requests as one daemon lets wait are waiting already, or as many of one identity; or it came over one of the last connections, where nothing waits",
    ),
    code("unauthorized", 401, "No token, or one that is not known"),
    code(
        "unavailable",
        503,
        "The store did not answer: `cause` says why, `unknown` whether it may have happened all the same",
    ),
    code("unsupported", 422, "The store cannot do this at all"),
    code(
        "unsupported_media_type",
        415,
        "The body must be `application/json`, a workflow `application/toml`",
    ),
    code("void", 410, "This token or id was given back: use a new one"),
    code(
        "wrong_host",
        421,
        "The `Host` is not this daemon's: a page of another origin may have sent it",
    ),
];

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::Path;

    use super::CODES;

    fn sources(folder: &Path, into: &mut String) {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                sources(&path, into);
            } else if path.extension().is_some_and(|ending| ending == "rs") {
                let text = std::fs::read_to_string(&path).unwrap();
                into.extend(text.split_whitespace());
            }
        }
    }

    /// The first literal after each of these places, if it comes before the place's end.
    fn literals<'a>(text: &'a str, place: &'a str, end: char) -> impl Iterator<Item = &'a str> {
        text.split(place).skip(1).filter_map(move |rest| {
            let (before, literal) = rest.split_once('"')?;
            let literal = literal.split('"').next()?;
            let word = literal.chars().all(|c| c.is_ascii_lowercase() || c == '_');
            (word && !before.contains(end) && !literal.is_empty()).then_some(literal)
        })
    }

    #[test]
    fn every_code_of_the_sources_is_described_and_no_other() {
        let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        let mut found = BTreeSet::new();
        let mut text = String::new();
        sources(&crates.join("server/src"), &mut text);
        found.extend(literals(&text, "Refusal::new(", ';'));
        found.extend(literals(&text, "Self::new(StatusCode", ';'));
        let mut plane = String::new();
        sources(&crates.join("plane/src"), &mut plane);
        found.extend(literals(&plane, "code:", ','));
        found.extend(literals(&plane, "refuse(", ','));
        // The codes that an error has by itself: a match without a default.
        let error = std::fs::read_to_string(crates.join("plane/src/error.rs")).unwrap();
        let codes = error.split("fn code(&self)").nth(1).unwrap();
        found.extend(literals(codes.split("fn status").next().unwrap(), "=> ", ','));
        let approvals = std::fs::read_to_string(crates.join("plane/src/approval.rs")).unwrap();
        found.extend(literals(&approvals, "pub const ", ';'));
        let listed: BTreeSet<_> = CODES.iter().map(|code| code.code).collect();
        let missing: Vec<_> = found.difference(&listed).collect();
        let unused: Vec<_> = listed.difference(&found).collect();
        assert!(
            missing.is_empty() && unused.is_empty(),
            "missing {missing:?}, nowhere {unused:?}"
        );
        assert!(
            CODES.windows(2).all(|pair| pair[0].code < pair[1].code),
            "in order"
        );
    }
}

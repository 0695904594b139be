//! The error codes of problem documents, one row each: name, text on the wire, status, meaning.

/// Declares the enum and its tables, so that a code cannot lack a status or a meaning.
macro_rules! error_codes {
    ($($variant:ident, $text:literal, $status:literal, $meaning:literal;)+) => {
        /// The code of an error response, ordered by its text.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum ErrorCode {
            $(#[doc = $meaning] $variant,)+
        }

        impl ErrorCode {
            /// All codes, the control plane's included.
            pub const ALL: &'static [Self] = &[$(Self::$variant),+];

            /// The value of the problem document's `code` field.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => $text,)+
                }
            }

            /// The HTTP status that accompanies the code.
            #[must_use]
            pub const fn status(self) -> u16 {
                match self {
                    $(Self::$variant => $status,)+
                }
            }

            /// What the code means and what the caller should do, in Markdown.
            #[must_use]
            pub const fn meaning(self) -> &'static str {
                match self {
                    $(Self::$variant => $meaning,)+
                }
            }
        }
    };
}

error_codes! {
    AdmissionBusy, "admission_busy", 429, "Another request is being admitted for the organisation: retry after `Retry-After`";
    AlreadyApproved, "already_approved", 409, "It was approved before: that decision stands, and the text names who made it";
    AlreadyRejected, "already_rejected", 409, "It was rejected before: that decision stands, and the text names who made it";
    ApprovalRetryableLock, "approval_retryable_lock", 409, "Another decision is being made at this moment: retry after `Retry-After`";
    BadRequest, "bad_request", 400, "The request cannot be read as JSON or HTTP";
    Busy, "busy", 409, "Another client holds it: `holder`, `remaining_ms` and `Retry-After` say who and for how long at most";
    CommandRightRequired, "command_right_required", 403, "A job that runs a command needs the right `command`: submit it at `/v1/jobs/commands`";
    Conflict, "conflict", 409, "It has changed since it was read: read it again";
    DifferentJob, "different_job", 409, "A job of this id is there and asks for something else";
    DifferentRun, "different_run", 409, "A run of this id is there and is of something else";
    Forbidden, "forbidden", 403, "Your grants do not cover this name or this action";
    Foreign, "foreign", 409, "The key is held by something that is not Leasehold, so there is no lease to break";
    HolderAlive, "holder_alive", 409, "The holder renews: it was asked to let go; `force` breaks it all the same";
    IdTaken, "id_taken", 409, "This hold id of yours is in use for another name";
    InProgress, "in_progress", 409, "The same id is being acquired at this moment: retry";
    Internal, "internal", 500, "A defect of the daemon; its log has more";
    Invalid, "invalid", 422, "A field cannot be used: `field` names it, the text says what is allowed";
    LimitReached, "limit_reached", 429, "As much as is allowed is waiting already";
    LockUnavailable, "lock_unavailable", 503, "The lock store did not answer and the class is fail-closed";
    Lost, "lost", 410, "The hold is over: stop what is done under it";
    MethodNotAllowed, "method_not_allowed", 405, "The route is there, for the methods in `Allow`";
    NoPlane, "no_plane", 404, "This daemon does not serve the control plane: start it with `leasehold serve --plane`";
    NoSuchStep, "no_such_step", 409, "The run has no step of this id; the text lists those it has";
    NotActionable, "not_actionable", 409, "The job does not wait for a decision";
    NotDead, "not_dead", 409, "The job is not a dead letter, so there is nothing to bring back";
    NotFound, "not_found", 404, "There is nothing of this name, or nothing that you may see";
    NotHeld, "not_held", 404, "No client holds this name, so there is nothing to break";
    NotOwned, "not_owned", 410, "The lease is not held with this token (any more): stop what was done under it";
    Overloaded, "overloaded", 503, "More of these at once than the daemon takes: retry later";
    QuotaReached, "quota_reached", 429, "You have as many of these as one identity may have: the text names the quota and its limit";
    RateLimited, "rate_limited", 429, "Faster than your rate: retry after `Retry-After`";
    RequestTimeout, "request_timeout", 408, "The request did not arrive whole in time";
    SelfApproval, "self_approval", 403, "You submitted this job yourself: another principal must decide, unless the daemon runs with `--allow-self-approval`";
    StaleClaim, "stale_claim", 409, "The job was claimed again since: this worker's result is not taken";
    StaleFence, "stale_fence", 412, "A newer fence was seen: another client owns it now";
    StaleSnapshot, "stale_snapshot", 409, "The job has changed since it was looked at: look again, then decide";
    StillRunning, "still_running", 409, "The run has not ended yet";
    Stopping, "stopping", 503, "The daemon is stopping: retry once it is back";
    StoreUnavailable, "store_unavailable", 503, "The control plane's store did not answer";
    Terminal, "terminal", 409, "It has ended, and an end is not changed";
    TooLarge, "too_large", 413, "The body is larger than is taken";
    TooManyBodies, "too_many_bodies", 429, "The bodies that arrive at this moment are too much in sum, or those of one identity: retry later";
    TooManyHolds, "too_many_holds", 429, "As many holds as one daemon keeps are kept already";
    TooManyResponses, "too_many_responses", 429, "The responses that were not taken yet are too much in sum, or those of one identity: read them, or ask for fewer entries with `limit`";
    TooManyWaiters, "too_many_waiters", 429, "As many requests as one daemon lets wait are waiting already, or as many of one identity; or it came over one of the last connections, where nothing waits";
    Unauthorized, "unauthorized", 401, "No token, or one that is not known";
    Unavailable, "unavailable", 503, "The store did not answer: `cause` says why, `unknown` whether it may have happened all the same";
    Unsupported, "unsupported", 422, "The store cannot do this at all";
    UnsupportedMediaType, "unsupported_media_type", 415, "The body must be `application/json`, a workflow `application/toml`";
    Void, "void", 410, "This token or id was given back: use a new one";
    WrongHost, "wrong_host", 421, "The `Host` is not this daemon's: a page of another origin may have sent it";
}

impl ErrorCode {
    /// The code with this text; `None` for one of a newer daemon.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|code| code.as_str() == text)
    }
}

#[cfg(test)]
mod tests {
    use super::ErrorCode;

    #[test]
    fn codes_are_ordered_unique_and_parsed() {
        let ordered = |pair: &[ErrorCode]| pair[0].as_str() < pair[1].as_str();
        assert!(ErrorCode::ALL.windows(2).all(ordered));
        for code in ErrorCode::ALL {
            assert_eq!(ErrorCode::parse(code.as_str()), Some(*code));
            assert!((400..600).contains(&code.status()), "{code:?}");
        }
        assert_eq!(ErrorCode::parse("tired"), None);
    }
}

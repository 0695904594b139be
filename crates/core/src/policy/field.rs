//! The fields of a class: their paths, allowed values, and suggestions for mistyped names.
//!
//! One table serves the file, runtime overrides, requests and printing, so they cannot disagree.

use std::time::Duration;

use super::setting::Keyword;

const MILLI: Duration = Duration::from_millis(1);
const DAY: Duration = Duration::from_secs(24 * 60 * 60);
const YEAR: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// A field of a class.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
#[allow(missing_docs, reason = "each variant is the field whose path Field::path gives")]
pub enum Field {
    Ttl,
    Poll,
    Requires,
    StopGrace,
    Drift,
    MaxHold,
    Mode,
    AcquireWait,
    AcquireRetry,
    AcquireTimeout,
    AcquireOnError,
    AcquireRetryAfter,
    AcquireOnHealConflict,
    RenewEvery,
    RenewTimeout,
    RenewMaxFailures,
    RenewOnFailure,
    ReleaseAttempts,
    ReleaseTimeout,
    ReleaseLockDelay,
    ReleaseWhen,
    Escalate,
}

/// The allowed values of a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shape {
    /// A duration within bounds, and which other forms are allowed.
    Span { min: Duration, max: Duration, ttl_over: bool, poll_times: bool, never: bool, auto: bool },
    /// A whole number within bounds.
    Count { min: u32, max: u32 },
    /// One of these keywords.
    Word(&'static [Keyword]),
    /// The list of escalation rules.
    Rules,
}

// A duration within bounds and no other form.
const fn span(min: Duration, max: Duration) -> Shape {
    Shape::Span { min, max, ttl_over: false, poll_times: false, never: false, auto: false }
}

impl Field {
    /// All fields, in the order in which they are printed.
    pub const ALL: [Self; 22] = [
        Self::Ttl,
        Self::Poll,
        Self::Requires,
        Self::StopGrace,
        Self::Drift,
        Self::MaxHold,
        Self::Mode,
        Self::AcquireWait,
        Self::AcquireRetry,
        Self::AcquireTimeout,
        Self::AcquireOnError,
        Self::AcquireRetryAfter,
        Self::AcquireOnHealConflict,
        Self::RenewEvery,
        Self::RenewTimeout,
        Self::RenewMaxFailures,
        Self::RenewOnFailure,
        Self::ReleaseAttempts,
        Self::ReleaseTimeout,
        Self::ReleaseLockDelay,
        Self::ReleaseWhen,
        Self::Escalate,
    ];

    /// The field with a path such as `renew.every`.
    #[must_use]
    pub fn find(path: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|field| field.path() == path)
    }

    /// The path below the class, as in the file and in overrides.
    #[must_use]
    pub const fn path(self) -> &'static str {
        match self {
            Self::Ttl => "ttl",
            Self::Poll => "poll",
            Self::Requires => "requires",
            Self::StopGrace => "stop_grace",
            Self::Drift => "drift",
            Self::MaxHold => "max_hold",
            Self::Mode => "mode",
            Self::AcquireWait => "acquire.wait",
            Self::AcquireRetry => "acquire.retry",
            Self::AcquireTimeout => "acquire.timeout",
            Self::AcquireOnError => "acquire.on_error",
            Self::AcquireRetryAfter => "acquire.retry_after",
            Self::AcquireOnHealConflict => "acquire.on_heal_conflict",
            Self::RenewEvery => "renew.every",
            Self::RenewTimeout => "renew.timeout",
            Self::RenewMaxFailures => "renew.max_failures",
            Self::RenewOnFailure => "renew.on_failure",
            Self::ReleaseAttempts => "release.attempts",
            Self::ReleaseTimeout => "release.timeout",
            Self::ReleaseLockDelay => "release.lock_delay",
            Self::ReleaseWhen => "release.when",
            Self::Escalate => "escalate",
        }
    }

    pub(crate) const fn shape(self) -> Shape {
        match self {
            // `Draft::resolve` checks the bounds of a computed value such as `2*poll`.
            Self::Ttl => Shape::Span {
                min: Duration::from_millis(100),
                max: DAY,
                ttl_over: false,
                poll_times: true,
                never: false,
                auto: false,
            },
            Self::Poll => span(MILLI, DAY),
            Self::Requires => Shape::Word(&[Keyword::Any, Keyword::Durable, Keyword::Consensus]),
            Self::StopGrace => Shape::Span {
                min: Duration::ZERO,
                max: DAY,
                ttl_over: true,
                poll_times: false,
                never: false,
                auto: false,
            },
            Self::Drift => Shape::Span {
                min: MILLI,
                max: DAY,
                ttl_over: false,
                poll_times: false,
                never: false,
                auto: true,
            },
            Self::MaxHold => Shape::Span {
                min: MILLI,
                max: YEAR,
                ttl_over: false,
                poll_times: false,
                never: true,
                auto: false,
            },
            Self::Mode => Shape::Word(&[Keyword::Enforce, Keyword::Shadow]),
            Self::AcquireWait | Self::ReleaseLockDelay => span(Duration::ZERO, DAY),
            Self::AcquireRetry | Self::AcquireTimeout | Self::ReleaseTimeout => span(MILLI, DAY),
            Self::AcquireOnError => Shape::Word(&[Keyword::FailClosed, Keyword::FailOpen]),
            Self::AcquireRetryAfter => Shape::Span {
                min: MILLI,
                max: DAY,
                ttl_over: false,
                poll_times: true,
                never: false,
                auto: false,
            },
            Self::AcquireOnHealConflict | Self::RenewOnFailure => {
                Shape::Word(&[Keyword::Fence, Keyword::Continue])
            }
            Self::RenewEvery => Shape::Span {
                min: MILLI,
                max: DAY,
                ttl_over: true,
                poll_times: false,
                never: true,
                auto: false,
            },
            Self::RenewTimeout => Shape::Span {
                min: MILLI,
                max: DAY,
                ttl_over: true,
                poll_times: false,
                never: false,
                auto: false,
            },
            Self::RenewMaxFailures => Shape::Count { min: 1, max: 1000 },
            // Zero attempts make sense only with `release.when = "expired"`; the checks compare
            // both.
            Self::ReleaseAttempts => Shape::Count { min: 0, max: 1000 },
            Self::ReleaseWhen => Shape::Word(&[Keyword::Finished, Keyword::Expired]),
            Self::Escalate => Shape::Rules,
        }
    }

    /// The allowed values, for messages: `a duration from 100ms to 24h such as "10s", or "2*poll"`.
    #[must_use]
    pub fn allowed(self) -> String {
        use super::duration::human;
        match self.shape() {
            Shape::Span {
                min,
                max,
                ttl_over,
                poll_times,
                never,
                auto,
            } => {
                let mut message = format!("a duration with a unit from {} to {}", human(min), human(max));
                for (on, form) in [
                    (ttl_over, "\"ttl/3\""),
                    (poll_times, "\"2*poll\""),
                    (never, "\"never\""),
                    (auto, "\"auto\""),
                ] {
                    if on {
                        message.push_str(", or ");
                        message.push_str(form);
                    }
                }
                message
            }
            Shape::Count { min, max } => format!("a whole number from {min} to {max}"),
            Shape::Word(words) => {
                let words: Vec<_> = words.iter().map(|word| format!("{:?}", word.as_str())).collect();
                words.join(" or ")
            }
            Shape::Rules => {
                "a list of rules such as [\"fallback rate > 0.1/s for 5m and duplicates rising -> fail-closed\"]"
                    .into()
            }
        }
    }
}

/// The candidate that is most similar to the typed text, if one is.
#[must_use]
pub fn nearest<'a>(typed: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    // The distance costs the product of both lengths: no field name comes near this length.
    if typed.len() > 128 {
        return None;
    }
    known
        .into_iter()
        .map(|candidate| (strsim::damerau_levenshtein(typed, candidate), candidate))
        .filter(|(distance, candidate)| *distance <= (typed.len().max(candidate.len()) / 3).max(1))
        .min()
        .map(|(_, candidate)| candidate)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_path_finds_its_field_and_says_what_is_allowed() {
        for field in Field::ALL {
            assert_eq!(Field::find(field.path()), Some(field));
            assert!(!field.allowed().is_empty());
        }
        assert_eq!(Field::find("renew"), None);
    }

    #[test]
    fn nearest_is_near() {
        let known = ["ttl", "timeout", "max_hold"];
        assert_eq!(nearest("tll", known), Some("ttl"));
        assert_eq!(nearest("time_out", known), Some("timeout"));
        assert_eq!(nearest("colour", known), None);
        assert_eq!(nearest(&"x".repeat(100_000), known), None);
    }
}

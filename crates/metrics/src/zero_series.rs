//! The series that exist before their first event.
//!
//! `increase()` and `rate()` compare two scrapes of a series. A series that appears with its first
//! event hides that event, and an alert on it would not fire. So the series that alert rules use
//! start at zero: for every class and namespace that is known at the start, and for any other at
//! its first event.

/// Metrics that rules compute rates of, with all values of their own label.
pub(crate) const ZERO_SERIES: &[(&str, &[&str])] = &[
    (
        "abandoned_total",
        &[
            "broken",
            "deadline",
            "heal_conflict",
            "keeper_gone",
            "max_failures",
            "max_hold",
            "not_owned",
            "shutdown",
        ],
    ),
    ("acquire_total", &["acquired", "busy", "cancelled", "fell_back", "unavailable"]),
    ("duplicate_terminal_total", &[""]),
    ("fallback_total", &[""]),
    ("fence_refused_total", &[""]),
    ("not_owned_total", &["release", "renew"]),
    ("overlap_confirmed_total", &[""]),
    ("release_failed_total", &[""]),
    ("release_total", &["already_lost", "debt", "kept", "released"]),
    ("renew_remaining_ratio", &[""]),
    ("renew_total", &["failed", "not_owned", "renewed", "unknown"]),
    ("takeover_seconds", &[""]),
];

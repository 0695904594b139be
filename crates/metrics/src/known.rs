//! Which series are there before anything has happened.
//!
//! `increase()` and `rate()` compare two scrapes of a series, so the first step of one that begins with it is lost, and with
//! it the one event that an alert should have told of. What rules look at begins at zero instead: for every class and
//! namespace that is known at the start, and for any other as soon as the first event of it is seen.

/// Metrics that rules compute rates of, with every value of their own label.
pub(crate) const KNOWN: &[(&str, &[&str])] = &[
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
    (
        "acquire_total",
        &["acquired", "busy", "cancelled", "fell_back", "unavailable"],
    ),
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

/// How a number moves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Kind {
    /// Only up.
    Counter,
    /// Up and down.
    Gauge,
    /// Values to be told apart by size.
    Histogram,
}

/// One metric as it is exported: `leasehold_` and its name, with the labels `class`, `namespace`, `store` and its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Described {
    /// Without the `leasehold_` prefix.
    pub name: &'static str,
    /// How it moves.
    pub kind: Kind,
    /// The name of its own label, if it has one.
    pub label: Option<&'static str>,
    /// What it says, in one sentence.
    pub help: &'static str,
}

const fn metric(
    name: &'static str,
    kind: Kind,
    label: Option<&'static str>,
    help: &'static str,
) -> Described {
    Described {
        name,
        kind,
        label,
        help,
    }
}

/// Every metric. Exporters, alerting rules and the documentation are made from this list, and a test holds it against what
/// events really move.
pub const METRICS: &[Described] = &[
    metric(
        "abandoned_total",
        Kind::Counter,
        Some("reason"),
        "Holds that were fenced: their work was stopped",
    ),
    metric(
        "acquire_seconds",
        Kind::Histogram,
        None,
        "From the call of an acquire to its answer",
    ),
    metric(
        "acquire_total",
        Kind::Counter,
        Some("outcome"),
        "Acquires by how they ended: contention and errors apart",
    ),
    metric(
        "broken_total",
        Kind::Counter,
        None,
        "Leases that an operator broke",
    ),
    metric(
        "busy_after_debt_seconds",
        Kind::Histogram,
        None,
        "Time waited for a lease whose work was already done",
    ),
    metric(
        "clock_jump_total",
        Kind::Counter,
        None,
        "Jumps of the store's clock that renewals showed",
    ),
    metric(
        "debt_holds",
        Kind::Gauge,
        None,
        "Leases that outlive their finished work now, because their release is not confirmed",
    ),
    metric(
        "debt_seconds_total",
        Kind::Counter,
        None,
        "Time that leases outlived their finished work",
    ),
    metric(
        "duplicate_terminal_total",
        Kind::Counter,
        None,
        "Ends that were reached twice downstream",
    ),
    metric(
        "fallback_total",
        Kind::Counter,
        None,
        "Acquires that went on with a local lock only, because the store could not be asked",
    ),
    metric(
        "fence_refused_total",
        Kind::Counter,
        None,
        "Writes that a target refused because of a stale fence",
    ),
    metric(
        "healed_total",
        Kind::Counter,
        None,
        "Local-only holds that got their lease after all",
    ),
    metric(
        "held_seconds",
        Kind::Histogram,
        None,
        "How long locks were held: what TTLs are computed from",
    ),
    metric(
        "local_only_holds",
        Kind::Gauge,
        None,
        "Holds that are local-only now",
    ),
    metric(
        "not_owned_total",
        Kind::Counter,
        Some("op"),
        "Renewals and releases that were answered with not owned",
    ),
    metric(
        "overlap_confirmed_total",
        Kind::Counter,
        None,
        "Holds during which somebody else was granted the same name",
    ),
    metric(
        "overlap_seconds_total",
        Kind::Counter,
        None,
        "Time that work went on without a lease it could prove",
    ),
    metric(
        "policy_changed_total",
        Kind::Counter,
        None,
        "Changes of a class: overrides, reverts, files, escalations",
    ),
    metric(
        "policy_refused_total",
        Kind::Counter,
        None,
        "Policy files that were not taken",
    ),
    metric(
        "release_attempts",
        Kind::Histogram,
        None,
        "Attempts that a confirmed release took",
    ),
    metric(
        "release_failed_total",
        Kind::Counter,
        None,
        "Attempts to release that were not answered",
    ),
    metric(
        "release_total",
        Kind::Counter,
        Some("outcome"),
        "Releases by how they ended",
    ),
    metric(
        "renew_remaining_ratio",
        Kind::Histogram,
        None,
        "Share of the usable time that was left when a renewal was confirmed: low is the early warning",
    ),
    metric(
        "renew_seconds",
        Kind::Histogram,
        None,
        "Round trip of confirmed renewals",
    ),
    metric(
        "renew_total",
        Kind::Counter,
        Some("outcome"),
        "Renewals by how they ended",
    ),
    metric(
        "resumed_total",
        Kind::Counter,
        None,
        "Holds of an earlier process that were taken up again",
    ),
    metric(
        "takeover_seconds",
        Kind::Histogram,
        None,
        "From a holder's loss to the next owner's grant",
    ),
    metric(
        "takeover_total",
        Kind::Counter,
        None,
        "Grants of a name whose previous holder was lost",
    ),
    metric(
        "too_late_total",
        Kind::Counter,
        None,
        "Grants that came too late to be used and were given back",
    ),
    metric(
        "undone_total",
        Kind::Counter,
        None,
        "Asks that nobody holds anything by any more and that were undone",
    ),
    metric(
        "unproven_total",
        Kind::Counter,
        None,
        "Holds that went on without a proven lease",
    ),
    metric(
        "would_refuse_total",
        Kind::Counter,
        None,
        "Work that a shadow policy would have refused",
    ),
    metric(
        "would_stop_total",
        Kind::Counter,
        Some("reason"),
        "Work that a shadow policy would have stopped",
    ),
];

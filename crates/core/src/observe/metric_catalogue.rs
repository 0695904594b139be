//! The list of all metrics.

/// The type of a metric.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum MetricKind {
    /// A total that only grows.
    Counter,
    /// A current value that grows and shrinks.
    Gauge,
    /// A distribution of values.
    Histogram,
}

/// One exported metric: `leasehold_` and its name, with the labels `class`, `namespace`, `store`
/// and its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct MetricDescription {
    /// The name without the `leasehold_` prefix.
    pub name: &'static str,
    /// Decides how an exporter registers the metric.
    pub kind: MetricKind,
    /// The name of the metric's own label, if it has one.
    pub label: Option<&'static str>,
    /// The help text of the exporter and of the documentation.
    pub help: &'static str,
}

const fn metric(
    name: &'static str,
    kind: MetricKind,
    label: Option<&'static str>,
    help: &'static str,
) -> MetricDescription {
    MetricDescription { name, kind, label, help }
}

/// All metrics. Exporters, alerting rules and the documentation are made from this list. A test
/// compares it with the metrics that events change.
pub const METRICS: &[MetricDescription] = &[
    metric(
        "abandoned_total",
        MetricKind::Counter,
        Some("reason"),
        "Holds that were fenced: their work was stopped",
    ),
    metric("acquire_seconds", MetricKind::Histogram, None, "Time from the call of an acquire to its outcome"),
    metric(
        "acquire_total",
        MetricKind::Counter,
        Some("outcome"),
        "Acquires by outcome; contention and errors are different outcomes",
    ),
    metric("broken_total", MetricKind::Counter, None, "Leases ended early by an operator"),
    metric(
        "busy_after_debt_seconds",
        MetricKind::Histogram,
        None,
        "Time spent waiting for a lease whose work was already done: the effect of debt on others",
    ),
    metric("clock_jump_total", MetricKind::Counter, None, "Jumps of the store's clock, as seen by renewals"),
    metric(
        "debt_holds",
        MetricKind::Gauge,
        None,
        "Leases that outlive their finished work at present, because their release is not confirmed",
    ),
    metric("debt_seconds_total", MetricKind::Counter, None, "Time that leases outlived their finished work"),
    metric(
        "duplicate_terminal_total",
        MetricKind::Counter,
        None,
        "Jobs that were completed twice, as reported by the work itself",
    ),
    metric(
        "fallback_total",
        MetricKind::Counter,
        None,
        "Acquires that proceeded with a local lock only, because the store was unavailable",
    ),
    metric(
        "fence_refused_total",
        MetricKind::Counter,
        None,
        "Writes that a target refused because of a stale fence",
    ),
    metric("healed_total", MetricKind::Counter, None, "Local-only holds that got their lease after all"),
    metric(
        "held_seconds",
        MetricKind::Histogram,
        None,
        "How long locks were held: what TTLs are computed from",
    ),
    metric("local_only_holds", MetricKind::Gauge, None, "Local-only holds at present"),
    metric(
        "not_owned_total",
        MetricKind::Counter,
        Some("op"),
        "Renewals and releases refused because the lease belongs to another client",
    ),
    metric(
        "overlap_confirmed_total",
        MetricKind::Counter,
        None,
        "Holds during which another client was granted the same name",
    ),
    metric(
        "overlap_seconds_total",
        MetricKind::Counter,
        None,
        "Time during which work continued without a proven lease",
    ),
    metric(
        "policy_changed_total",
        MetricKind::Counter,
        None,
        "Changes of a class: overrides, reverts, files, escalations",
    ),
    metric("policy_refused_total", MetricKind::Counter, None, "Policy files that were rejected"),
    metric("release_attempts", MetricKind::Histogram, None, "Attempts needed until a release was confirmed"),
    metric("release_failed_total", MetricKind::Counter, None, "Attempts to release that got no response"),
    metric("release_total", MetricKind::Counter, Some("outcome"), "Releases by outcome"),
    metric(
        "renew_remaining_ratio",
        MetricKind::Histogram,
        None,
        "Share of the usable time left when a renewal was confirmed; low values are the early warning",
    ),
    metric("renew_seconds", MetricKind::Histogram, None, "Round trip of confirmed renewals"),
    metric("renew_total", MetricKind::Counter, Some("outcome"), "Renewals by outcome"),
    metric("resumed_total", MetricKind::Counter, None, "Holds of an earlier process that were resumed"),
    metric("takeover_seconds", MetricKind::Histogram, None, "From a holder's loss to the next owner's grant"),
    metric(
        "takeover_total",
        MetricKind::Counter,
        None,
        "Grants of a name whose previous holder was lost before it released",
    ),
    metric(
        "too_late_total",
        MetricKind::Counter,
        None,
        "Grants that arrived too late to be used and were released",
    ),
    metric("undone_total", MetricKind::Counter, None, "Abandoned acquire requests that were undone"),
    metric("unproven_total", MetricKind::Counter, None, "Holds that continued without a proven lease"),
    metric("would_refuse_total", MetricKind::Counter, None, "Work that a shadow policy would have refused"),
    metric(
        "would_stop_total",
        MetricKind::Counter,
        Some("reason"),
        "Work that a shadow policy would have stopped",
    ),
];

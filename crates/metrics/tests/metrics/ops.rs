//! Alert rules and dashboards use only metrics and labels that are exported.

use std::collections::BTreeSet;

use leasehold_core::observe::{METRICS, MetricKind};
use leasehold_plane::metrics::METRICS as PLANE;

const ALERTS: &str = include_str!("../../../../ops/prometheus/alerts.yml");
const RECORDING: &str = include_str!("../../../../ops/prometheus/recording.yml");
const DASHBOARD: &str = include_str!("../../../../ops/grafana/leasehold.json");
const CASES: &str = include_str!("../../../../ops/prometheus/tests.yml");

/// Every Leasehold metric in a text, with the label matchers that follow it. Names of recording
/// rules contain a `:` before the metric and are skipped.
fn used_metrics(text: &str) -> Vec<(String, String)> {
    let mut found = Vec::new();
    for (at, _) in text.match_indices("leasehold_") {
        let before = text[..at].chars().next_back();
        if before.is_some_and(|c| c == ':' || c.is_ascii_alphanumeric()) {
            continue;
        }
        let rest = &text[at..];
        let end = rest.find(|c: char| !(c.is_ascii_lowercase() || c == '_')).unwrap_or(rest.len());
        let labels = rest[end..].strip_prefix('{').and_then(|rest| rest.split_once('}'));
        let labels = labels.map_or("", |(labels, _)| labels);
        found.push((rest[..end].to_owned(), labels.replace('\\', "")));
    }
    found
}

#[test]
fn every_name_is_exported_and_every_label_exists() {
    for (file, text) in
        [("alerts", ALERTS), ("recording", RECORDING), ("dashboard", DASHBOARD), ("cases", CASES)]
    {
        let used = used_metrics(text);
        assert!(used.len() > 5, "{file}: nothing found to check");
        for (name, labels) in used {
            let bare = name.trim_start_matches("leasehold_");
            let named = |metric: &str, kind: MetricKind| {
                let own = bare.strip_prefix(metric);
                own == Some("") || (kind == MetricKind::Histogram && own == Some("_bucket"))
            };
            let of_locks = METRICS.iter().find(|metric| named(metric.name, metric.kind));
            let of_plane = PLANE.iter().find(|metric| named(metric.name, metric.kind));
            let labelled: Vec<_> = match (of_locks, of_plane) {
                (Some(metric), _) => ["class", "namespace"].into_iter().chain(metric.label).collect(),
                (_, Some(metric)) => metric.labels.to_vec(),
                // Of the daemon itself: its tests look for it in `/metrics`.
                _ if bare == "audit_damaged_segments" => Vec::new(),
                _ => panic!("{file}: {name} is not exported"),
            };
            for pair in labels.split(',').filter(|pair| !pair.trim().is_empty()) {
                let label = pair.split(['=', '!']).next().unwrap().trim();
                let known = ["store", "instance", "le"].contains(&label) || labelled.contains(&label);
                assert!(known, "{file}: {name} has no label {label}");
            }
        }
    }
}

#[test]
fn every_alert_has_its_case_and_its_runbook() {
    let runbook = include_str!("../../../../docs/operations/alerts.md");
    let alerts: BTreeSet<_> =
        ALERTS.lines().filter_map(|line| line.trim().strip_prefix("- alert: ")).collect();
    assert!(alerts.len() >= 8);
    for alert in alerts {
        assert!(CASES.contains(&format!("alertname: {alert}\n")), "{alert} has no promtool case");
        assert!(
            ALERTS.contains(&format!("alerts.md#{}\n", alert.to_lowercase())),
            "{alert} names no runbook"
        );
        assert!(runbook.contains(&format!("## {alert}\n")), "{alert} has no runbook");
    }
}

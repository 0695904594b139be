//! The page of exported metrics.

use leasehold::observe::{METRICS, MetricKind};
use leasehold_plane::metrics::METRICS as PLANE;

use super::{page_header, table_row};

fn kind_name(kind: MetricKind) -> &'static str {
    match kind {
        MetricKind::Counter => "counter",
        MetricKind::Gauge => "gauge",
        _ => "histogram",
    }
}

pub(super) fn page() -> String {
    let mut text = page_header(
        "Metrics",
        "Each has the labels `class`, `namespace` and `store`, and its own label if one is named. Each event is counted exactly once.",
    );
    text += "| metric | kind | own label | what it says |\n|---|---|---|---|\n";
    for metric in METRICS {
        let label = metric.label.map_or_else(String::new, |label| format!("`{label}`"));
        text += &table_row(&[
            &format!("`leasehold_{}`", metric.name),
            kind_name(metric.kind),
            &label,
            metric.help,
        ]);
    }
    text += "\nThose of the control plane have the label `store` and their own:\n\n| metric | kind | own labels | what it says |\n|---|---|---|---|\n";
    for metric in PLANE {
        let labels: Vec<_> = metric.labels.iter().map(|label| format!("`{label}`")).collect();
        text += &table_row(&[
            &format!("`leasehold_{}`", metric.name),
            kind_name(metric.kind),
            &labels.join(", "),
            metric.help,
        ]);
    }
    text += &format!(
        "\nThe daemon has `leasehold_{}`, a gauge with the label `store`: {}.\n",
        leasehold_server::DAMAGED_AUDIT_SEGMENTS_METRIC,
        leasehold_server::DAMAGED_AUDIT_SEGMENTS_HELP
    );
    text + "\nAlerts and recording rules over them are in `ops/prometheus`, panels in `ops/grafana`; what to do when one fires is in \
            [the runbooks](../operations/alerts.md).\n"
}

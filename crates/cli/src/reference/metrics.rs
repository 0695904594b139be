//! The numbers that are exported.

use leasehold::observe::{Kind, METRICS};

use super::{opening, row};

pub(super) fn page() -> String {
    let mut text = opening(
        "Metrics",
        "Each has the labels `class`, `namespace` and `store`, and its own if one is named. An event moves a number exactly once.",
    );
    text += "| metric | kind | own label | what it says |\n|---|---|---|---|\n";
    for metric in METRICS {
        let kind = match metric.kind {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            _ => "histogram",
        };
        let label = metric
            .label
            .map_or_else(String::new, |label| format!("`{label}`"));
        text += &row(&[&format!("`leasehold_{}`", metric.name), kind, &label, metric.help]);
    }
    text + "\nAlerts and recording rules over them are in `ops/prometheus`, panels in `ops/grafana`; what to do when one fires is in \
            [the runbooks](../operations/alerts.md).\n"
}

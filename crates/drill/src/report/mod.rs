//! Verdicts for people and programs: a terminal table, JSON, and one HTML page with a timeline. The
//! page needs no scripts and loads no other file.

mod html;
mod json;
mod terminal;
mod timeline;

pub use html::page;
pub use json::{SCHEMA_VERSION, document};
pub use terminal::{details, table};

use crate::scenario::Measures;

/// The measures for reports, with readable names.
fn readable_measures(of: &Measures) -> Vec<(&'static str, String)> {
    let seconds = |value: f64| format!("{value:.2} s");
    let maybe = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), seconds);
    let abandoned: Vec<String> = of.abandoned.iter().map(|(why, count)| format!("{count} ({why})")).collect();
    let abandoned = if abandoned.is_empty() { "0".to_owned() } else { abandoned.join(", ") };
    vec![
        ("leases granted", of.grants.to_string()),
        ("answered busy", of.busy.to_string()),
        ("refused, store unavailable", of.unavailable.to_string()),
        ("ran without a store (fail-open)", of.fell_back.to_string()),
        ("renewals", of.renewed.to_string()),
        ("holds fenced", abandoned),
        ("time to fence", maybe(of.time_to_fence_s)),
        ("takeover after a kill", maybe(of.takeover_s)),
        ("overlap", seconds(of.overlap_s)),
        ("debts", format!("{} ({})", of.debts, seconds(of.debt_s))),
        ("writes applied", of.applied.to_string()),
        ("stale writes refused", of.refused.to_string()),
        ("tasks ended twice", of.duplicates.to_string()),
        ("longest gap between grants", seconds(of.longest_gap_s)),
    ]
}

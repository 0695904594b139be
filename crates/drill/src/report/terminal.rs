//! Verdicts as aligned plain text for the terminal.

use crate::invariant::promise_text;
use crate::scenario::{Outcome, Verdict};

/// Returns a table with one line per drill.
#[must_use]
pub fn table(verdicts: &[Verdict]) -> String {
    let head = [
        "DRILL", "STORE", "VERDICT", "TOOK", "GRANTS", "FENCED", "TAKEOVER", "OVERLAP", "DEBT", "STALE",
        "TWICE",
    ];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    for verdict in verdicts {
        let of = &verdict.measures;
        let maybe = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), |value| format!("{value:.2}s"));
        let mut row =
            vec![verdict.drill.to_owned(), verdict.store.to_owned(), verdict.outcome.as_str().to_owned()];
        if verdict.outcome == Outcome::Skipped {
            // A skipped drill has no numbers: its reason takes their place.
            row.push(verdict.skipped.clone().unwrap_or_default());
        } else {
            row.extend([
                format!("{:.1}s", verdict.took.as_secs_f64()),
                of.grants.to_string(),
                of.abandoned.values().sum::<u64>().to_string(),
                maybe(of.takeover_s),
                format!("{:.2}s", of.overlap_s),
                format!("{:.2}s", of.debt_s),
                of.refused.to_string(),
                of.duplicates.to_string(),
            ]);
        }
        rows.push(row);
    }
    aligned(&rows)
}

/// Returns the promises, findings and measures of one drill.
#[must_use]
pub fn details(verdict: &Verdict) -> String {
    let mut out = format!("{} on {}: {}\n", verdict.drill, verdict.store, verdict.outcome.as_str());
    out.push_str(&format!("  {}\n", verdict.about));
    if let Some(why) = &verdict.skipped {
        out.push_str(&format!("  not run: {why}\n"));
        return out;
    }
    for promise in &verdict.promises {
        let mark = if promise.kept { "kept  " } else { "BROKEN" };
        out.push_str(&format!("  {mark}  {}: {}\n", promise.what, promise.seen));
    }
    let judged = &verdict.judgement;
    out.push_str(&format!(
        "  checked {} records: {} grants, {} writes at the target\n",
        judged.records, judged.grants, judged.applied
    ));
    out.push_str(&format!("  judged against {}\n", judged.judged_invariants.join(" ")));
    if let Some(lacks) = &judged.missing {
        out.push_str(&format!("  the history is incomplete: nothing can be called clean: {lacks}\n"));
    }
    let start = verdict.history.records.iter().map(|record| record.at).min().unwrap_or(0);
    for found in judged.findings.iter().take(20) {
        out.push_str(&format!(
            "  {}  at {:.3} s, {}: {} ({})\n",
            found.invariant,
            found.at.saturating_sub(start) as f64 / 1e9,
            found.name,
            found.why,
            promise_text(found.invariant)
        ));
    }
    let hidden = judged.findings.len().saturating_sub(20) + judged.dropped_findings;
    if hidden > 0 {
        out.push_str(&format!("  and {hidden} more findings\n"));
    }
    for (name, value) in super::readable_measures(&verdict.measures) {
        out.push_str(&format!("  {name:<32} {value}\n"));
    }
    out
}

fn aligned(rows: &[Vec<String>]) -> String {
    let mut widths: Vec<usize> = Vec::new();
    for row in rows {
        for (column, cell) in row.iter().enumerate() {
            // The reason of a skipped drill is the last cell of its row and must not widen a
            // column.
            let width = if column + 1 == row.len() { 0 } else { cell.chars().count() };
            match widths.get_mut(column) {
                Some(known) => *known = width.max(*known),
                None => widths.push(width),
            }
        }
    }
    let mut out = String::new();
    for row in rows {
        let mut line = String::new();
        for (column, cell) in row.iter().enumerate() {
            let width = widths.get(column).copied().unwrap_or(0);
            line.push_str(&format!("{cell:<width$}  "));
        }
        out.push_str(line.trim_end());
        out.push('\n');
    }
    out
}

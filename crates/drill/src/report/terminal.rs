//! Verdicts for the terminal: plain text, aligned.

use crate::invariant::promise;
use crate::scenario::{Outcome, Verdict};

/// One line per drill.
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
        let mut row = vec![
            verdict.drill.to_owned(),
            verdict.store.to_owned(),
            verdict.outcome.word().to_owned(),
        ];
        if verdict.outcome == Outcome::Skipped {
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

/// What was promised and what was seen, for one drill.
#[must_use]
pub fn details(verdict: &Verdict) -> String {
    let mut out = format!(
        "{} on {}: {}\n",
        verdict.drill,
        verdict.store,
        verdict.outcome.word()
    );
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
    out.push_str(&format!("  judged against {}\n", judged.judged.join(" ")));
    if let Some(lacks) = &judged.lacks {
        out.push_str(&format!(
            "  the history is incomplete: nothing can be called clean: {lacks}\n"
        ));
    }
    let start = verdict
        .history
        .records
        .iter()
        .map(|record| record.at)
        .min()
        .unwrap_or(0);
    for found in judged.findings.iter().take(20) {
        out.push_str(&format!(
            "  {}  at {:.3} s, {}: {} ({})\n",
            found.invariant,
            found.at.saturating_sub(start) as f64 / 1e9,
            found.name,
            found.why,
            promise(found.invariant)
        ));
    }
    let hidden = judged.findings.len().saturating_sub(20) + judged.more;
    if hidden > 0 {
        out.push_str(&format!("  and {hidden} more findings\n"));
    }
    for (name, value) in super::measures(&verdict.measures) {
        out.push_str(&format!("  {name:<32} {value}\n"));
    }
    out
}

fn aligned(rows: &[Vec<String>]) -> String {
    let mut widths: Vec<usize> = Vec::new();
    for row in rows {
        for (column, cell) in row.iter().enumerate() {
            // A skipped drill's reason is the last cell of its row and must not widen a column.
            let width = if column + 1 == row.len() {
                0
            } else {
                cell.chars().count()
            };
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::read;

    /// What an older worker wrote cannot be judged, and the reader is told which line it is; so is what real drills do not show.
    #[test]
    fn what_is_missing_is_said_wherever_a_verdict_is_shown() {
        let old = r#"{"at":7,"who":"<w>","what":"claimed","attempt":3,"until":9,"proven":true}"#;
        let verdict = Verdict::of_history(read(old.as_bytes()).unwrap());
        assert_eq!(verdict.outcome, Outcome::Violation);
        let why = "line 1 cannot be read: invalid type: boolean";
        let text = details(&verdict);
        assert!(text.contains(why), "{text}");
        assert!(
            text.contains("judged against I1 I2 I3 I5 I6 I8 I9 I10 L4\n"),
            "{text}"
        );
        let page = super::super::page(std::slice::from_ref(&verdict), &[]);
        assert!(page.contains(why), "{page}");
        assert!(page.contains("does not show it: L2, L3, L5, L6."), "{page}");
        let document = super::super::document(&[verdict], &[]);
        let history = &document["drills"][0]["history"];
        assert!(history["lacks"].as_str().unwrap().contains(why), "{history}");
        assert_eq!(history["judged"].as_array().unwrap().len(), 9, "{history}");
    }
}

//! Verdicts as one JSON document.

use serde_json::{Value, json};

use crate::scenario::Verdict;

/// Version of the JSON document. It grows when a field changes its meaning or is removed.
pub const SCHEMA_VERSION: u32 = 1;

/// Builds the document from all verdicts and the drills that could not be run. Histories are saved
/// in separate files.
#[must_use]
pub fn document(verdicts: &[Verdict], failed: &[(String, String)]) -> Value {
    json!({
        "schema_version": SCHEMA_VERSION,
        "failed": failed.iter().map(|(drill, why)| json!({ "drill": drill, "why": why })).collect::<Vec<_>>(),
        "drills": verdicts.iter().map(verdict_json).collect::<Vec<_>>(),
    })
}

fn verdict_json(verdict: &Verdict) -> Value {
    let judged = &verdict.judgement;
    // Boot-clock times mean little to a reader: findings are given in seconds from the first
    // record.
    let start = verdict.history.records.iter().map(|record| record.at).min().unwrap_or(0);
    json!({
        "drill": verdict.drill,
        "about": verdict.about,
        "classes": verdict.classes,
        "store": verdict.store,
        "control": verdict.control,
        // Upper case marks violations for people; programs get lower case throughout.
        "verdict": verdict.outcome.as_str().to_lowercase(),
        "skipped": verdict.skipped,
        "took_s": verdict.took.as_secs_f64(),
        "promises": verdict.promises.iter().map(|promise| json!({
            "promise": promise.what,
            "kept": promise.kept,
            "seen": promise.seen,
        })).collect::<Vec<_>>(),
        "history": {
            "records": judged.records,
            "grants": judged.grants,
            "applied": judged.applied,
            "incomplete": judged.incomplete,
            "lacks": judged.missing,
            "judged": judged.judged_invariants,
        },
        "findings": judged.findings.iter().map(|found| json!({
            "invariant": found.invariant,
            "at_s": found.at.saturating_sub(start) as f64 / 1e9,
            "name": found.name,
            "why": found.why,
        })).collect::<Vec<_>>(),
        "more_findings": judged.dropped_findings,
        "measures": verdict.measures,
    })
}

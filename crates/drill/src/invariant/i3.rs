//! I3: an enforcing target never applies a write with a fence older than the newest admitted one.
//!
//! The target's own list of applied writes is the truth, in commit order. The responses that writers
//! received must agree with it. A confirmed write is in the list, a refused one is not, and only a
//! stale one is refused.

use std::collections::{BTreeMap, HashSet};

use leasehold_core::Fence;

use crate::history::WriteOutcome;
use crate::oracle::{Finding, HistoryIndex};

pub(super) fn check(case: &HistoryIndex<'_>) -> Vec<Finding> {
    let mut found = Vec::new();
    let mut newest: BTreeMap<&str, (Fence, &str)> = BTreeMap::new();
    let mut there: HashSet<(&str, u64)> = HashSet::new();
    case.count_work(case.applied.len());
    for row in &case.applied {
        there.insert((row.writer, row.write));
        let Some(fence) = row.fence else { continue };
        match newest.get(row.name) {
            Some((mark, by)) if fence < *mark => found.push(Finding {
                invariant: "I3",
                at: row.at,
                name: row.name.to_owned(),
                why: format!(
                    "write {} of {} was applied with fence {fence} after {by} had written with {mark}",
                    row.write, row.writer
                ),
            }),
            _ => {
                newest.insert(row.name, (fence, row.writer));
            }
        }
    }
    // Without the target's list, which is read at the end, there is nothing to compare with.
    if case.quiet.is_none() {
        return found;
    }
    for attempt in case.all_attempts() {
        case.count_work(attempt.writes.len());
        for write in &attempt.writes {
            let applied = there.contains(&(attempt.who, write.number));
            let stale =
                newest.get(attempt.name).zip(write.fence).is_some_and(|((mark, _), fence)| fence < *mark);
            let why = match write.answer {
                WriteOutcome::Applied if !applied => "was confirmed and is not in the target's ledger",
                WriteOutcome::Refused if applied => "was refused and is in the target's ledger",
                WriteOutcome::Refused if !stale => "was refused although no newer fence was ever admitted",
                _ => continue,
            };
            found.push(Finding {
                invariant: "I3",
                at: write.at,
                name: attempt.name.to_owned(),
                why: format!("write {} of {} {why}", write.number, attempt.who),
            });
        }
    }
    found
}

//! I3: a write with a fence older than the newest admitted one is never applied by an enforcing target.
//!
//! The target's own ledger is the truth, in the order of its commits. What writers were told must agree with it: an
//! applied write is there, a refused one is not, and only a stale one is refused.

use std::collections::{BTreeMap, HashSet};

use leasehold_core::Fence;

use crate::history::Wrote;
use crate::oracle::{Case, Finding};

pub(super) fn check(case: &Case<'_>) -> Vec<Finding> {
    let mut found = Vec::new();
    let mut newest: BTreeMap<&str, (Fence, &str)> = BTreeMap::new();
    let mut there: HashSet<(&str, u64)> = HashSet::new();
    case.looked(case.applied.len());
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
    // Without the ledger there is nothing to compare with.
    if case.quiet.is_none() {
        return found;
    }
    for attempt in case.all() {
        case.looked(attempt.writes.len());
        for write in &attempt.writes {
            let applied = there.contains(&(attempt.who, write.number));
            let stale = newest
                .get(attempt.name)
                .zip(write.fence)
                .is_some_and(|((mark, _), fence)| fence < *mark);
            let why = match write.answer {
                Wrote::Applied if !applied => "was confirmed and is not in the target's ledger",
                Wrote::Refused if applied => "was refused and is in the target's ledger",
                Wrote::Refused if !stale => "was refused although no newer fence was ever admitted",
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

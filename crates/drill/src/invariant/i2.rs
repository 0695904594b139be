//! I2: fences granted for a name strictly grow in grant order, and none is issued twice.
//!
//! A grant happened between its request and its answer. In the order of fences, no grant may have been
//! answered before one with a smaller fence was even requested.

use std::collections::BTreeMap;

use crate::oracle::{Finding, GrantedLease, HistoryIndex};

pub(super) fn check(case: &HistoryIndex<'_>) -> Vec<Finding> {
    let mut names: BTreeMap<&str, Vec<&GrantedLease<'_>>> = BTreeMap::new();
    for grant in &case.grants {
        names.entry(grant.name).or_default().push(grant);
    }
    let mut found = Vec::new();
    for (name, mut grants) in names {
        // Ties by time, so that two grants of one fence are neighbours and compare as twins.
        grants.sort_by_key(|grant| (grant.fence, grant.at));
        let mut latest: Option<&GrantedLease<'_>> = None;
        let mut before: Option<&GrantedLease<'_>> = None;
        case.count_work(grants.len());
        for grant in grants {
            let broken = |why| Finding { invariant: "I2", at: grant.at, name: name.to_owned(), why };
            if let Some(twin) = before.filter(|twin| twin.fence == grant.fence) {
                found.push(broken(format!(
                    "fence {} was issued to {} (acquire {}) and to {} (acquire {})",
                    grant.fence, twin.who, twin.attempt, grant.who, grant.attempt
                )));
            } else if let Some(later) = latest.filter(|later| grant.at < later.sent) {
                found.push(broken(format!(
                    "fence {} of {} was granted before {} asked, who got the smaller fence {}",
                    grant.fence, grant.who, later.who, later.fence
                )));
            }
            before = Some(grant);
            // The latest request so far is the strictest bound for every later fence.
            if latest.is_none_or(|latest| grant.sent > latest.sent) {
                latest = Some(grant);
            }
        }
    }
    found
}

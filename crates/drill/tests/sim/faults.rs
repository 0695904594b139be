//! What must happen at least once in a slice of histories, or it proves less than it says.

use leasehold_drill::sim::Progress;

/// To clients and their store, with and without a daemon between them.
const ALWAYS: &[&str] = &[
    "client: ends in order",
    "client: is cut off",
    "client: is cut off silently",
    "client: is killed",
    "client: stands still",
    "operator: breaks a lease",
    "operator: overrides a policy",
    "store: a connection is cut under a message",
    "store: a hint is lost",
    "store: a message arrives twice",
    "store: a message is late",
    "store: a message is refused on the way",
    "store: a message vanishes",
    "store: an answer vanishes",
    "store: does not serve",
    "store: fails over",
    "store: its clock is stepped",
    "store: its host boots anew",
    "store: loses everything",
    "store: tells no waiter",
];

/// Each of those has happened, and each of these too.
pub(crate) fn happened(progress: &Progress, also: &[&str]) {
    let faults = progress.faults.lock().unwrap();
    for fault in ALWAYS.iter().chain(also) {
        let times = faults.get(fault).copied().unwrap_or(0);
        assert!(times > 0, "in no history it happened: {fault}");
    }
}

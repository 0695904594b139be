//! Faults that must happen at least once in a sample of histories; without them it proves less.

use leasehold_sim::Progress;

// For clients and their store, with and without a daemon between them.
const EXPECTED_FAULTS: &[&str] = &[
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

/// Asserts that each of these faults and each of `also` has happened.
pub(crate) fn assert_faults_happened(progress: &Progress, also: &[&str]) {
    let faults = progress.faults.lock().unwrap();
    for fault in EXPECTED_FAULTS.iter().chain(also) {
        let times = faults.get(fault).copied().unwrap_or(0);
        assert!(times > 0, "in no history it happened: {fault}");
    }
}

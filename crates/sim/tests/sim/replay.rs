//! A seed determines its history to the last byte.

use leasehold_sim::{Campaign, Mistake, Progress, SimPlan, Topology, find_unrepeatable_seed, run_plan};

#[test]
fn the_seed_is_the_history() {
    let what = Campaign {
        first_seed: 0,
        seed_count: 60,
        threads: 1,
        mistake: Mistake::Nothing,
        topology: Topology::Clients,
    };
    let differs = find_unrepeatable_seed(what, &Progress::default()).unwrap();
    assert_eq!(differs, None, "this seed ran differently the second time");
}

#[test]
fn another_seed_is_another_history() {
    let digests: std::collections::BTreeSet<_> =
        (0..20).map(|seed| run_plan(&SimPlan::new(seed, Mistake::Nothing)).unwrap().digest()).collect();
    assert_eq!(digests.len(), 20);
}

//! The seed is the history, to the last byte.

use leasehold_drill::sim::{Campaign, Mistake, Plan, Progress, World, live, replay};

#[test]
fn the_seed_is_the_history() {
    let what = Campaign {
        from: 0,
        seeds: 60,
        threads: 1,
        mistake: Mistake::Nothing,
        world: World::Clients,
    };
    let differs = replay(what, &Progress::default()).unwrap();
    assert_eq!(differs, None, "this seed ran differently the second time");
}

#[test]
fn another_seed_is_another_history() {
    let digests: std::collections::BTreeSet<_> = (0..20)
        .map(|seed| live(&Plan::new(seed, Mistake::Nothing)).unwrap().digest())
        .collect();
    assert_eq!(digests.len(), 20);
}

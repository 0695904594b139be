//! Seeds that once broke a promise must stay fixed.

use leasehold_sim::{Mistake, SimPlan, Topology, run_plan};

#[test]
fn fixed_seeds_stay_clean() {
    let mut lived = 0;
    for line in include_str!("seeds.txt").lines() {
        if line.starts_with('#') {
            continue;
        }
        let (world, line) = match line.strip_prefix("daemon ") {
            Some(rest) => (Topology::Daemon, rest),
            None => (Topology::Clients, line),
        };
        let word = line.split_whitespace().next().unwrap_or_default();
        let seed = word.parse().expect("a line begins with a seed, `daemon` or #");
        let run = run_plan(&SimPlan::for_topology(world, seed, Mistake::Nothing)).unwrap();
        assert!(run.judgement.clean(), "{line}: broken again: {:#?}", run.judgement.findings);
        lived += 1;
    }
    assert!(lived > 0);
}

//! Seeds that once broke a promise stay mended.

use leasehold_drill::sim::{Mistake, Plan, World, live};

#[test]
fn what_was_mended_stays_mended() {
    let mut lived = 0;
    for line in include_str!("seeds.txt").lines() {
        if line.starts_with('#') {
            continue;
        }
        let (world, line) = match line.strip_prefix("daemon ") {
            Some(rest) => (World::Daemon, rest),
            None => (World::Clients, line),
        };
        let word = line.split_whitespace().next().unwrap_or_default();
        let seed = word.parse().expect("a line begins with a seed, `daemon` or #");
        let run = live(&Plan::of(world, seed, Mistake::Nothing)).unwrap();
        assert!(
            run.judgement.clean(),
            "{line}: broken again: {:#?}",
            run.judgement.findings
        );
        lived += 1;
    }
    assert!(lived > 0);
}

//! Seeds that once broke a promise stay mended.

use leasehold_drill::sim::{Mistake, Plan, live};

#[test]
fn what_was_mended_stays_mended() {
    let mut lived = 0;
    for line in include_str!("seeds.txt").lines() {
        let Some(word) = line.split_whitespace().next().filter(|word| *word != "#") else {
            continue;
        };
        let seed = word.parse().expect("a line begins with a seed or with #");
        let run = live(&Plan::new(seed, Mistake::Nothing)).unwrap();
        assert!(
            run.judgement.clean(),
            "{line}: broken again: {:#?}",
            run.judgement.findings
        );
        lived += 1;
    }
    assert!(lived > 0);
}

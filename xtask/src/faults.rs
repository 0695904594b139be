//! `leasehold drill faults`: many short drills on real servers.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, ensure};
use serde::Deserialize;

use crate::process::{capture, command};

/// What many drills add up to, as `leasehold drill faults --output json` prints it.
#[derive(Debug, Deserialize)]
pub(crate) struct FaultSums {
    pub(crate) drills: u64,
    /// By seed: drills that could not be run, and why.
    pub(crate) failed: BTreeMap<u64, String>,
    /// By seed: what was broken.
    pub(crate) violations: BTreeMap<u64, Vec<String>>,
    pub(crate) applied: u64,
    pub(crate) refused: u64,
}

impl FaultSums {
    /// For people.
    pub(crate) fn line(&self) -> String {
        format!(
            "{} drills: {} violations, {} could not be run; {} writes applied, {} stale ones refused",
            self.drills,
            self.violations.len(),
            self.failed.len(),
            self.applied,
            self.refused
        )
    }
}

/// Runs the drills of `count` seeds from `seed` on.
pub(crate) fn run(leasehold: &Path, count: u64, seed: u64) -> anyhow::Result<FaultSums> {
    let mut drill = command(leasehold);
    drill.args(["--store", "", "drill", "faults", "--output", "json"]);
    let ended = capture(drill.args(["--count", &count.to_string(), "--seed", &seed.to_string()]))?;
    let sums: FaultSums = serde_json::from_str(&ended.text).with_context(|| {
        format!("the drills ended with {} and without figures: {}", ended.code, ended.tail(20))
    })?;
    ensure!(
        ended.success() || !sums.violations.is_empty() || !sums.failed.is_empty(),
        "the drills ended with {}, but no drill has failed",
        ended.code
    );
    Ok(sums)
}

/// Drills that could not be run, of 300, above which the machine is too slow to say anything.
const MAX_RETRIED: usize = 30;

/// Runs them for the gate; an error unless every drill was run and no promise was broken.
///
/// A drill that could not be run, because the machine did not keep up, is run once more by itself. If it cannot be run then either, the
/// gate fails.
pub(crate) fn run_strictly(leasehold: &Path, count: u64, seed: u64) -> anyhow::Result<()> {
    let sums = run(leasehold, count, seed)?;
    println!("{}", sums.line());
    ensure!(
        sums.violations.is_empty(),
        "{} drills broke a promise: {:?}",
        sums.violations.len(),
        sums.violations
    );
    ensure!(
        sums.failed.len() <= MAX_RETRIED,
        "{} of {count} drills could not be run, because the machine did not keep up; at most {MAX_RETRIED} are retried",
        sums.failed.len()
    );
    for (seed, why) in &sums.failed {
        println!("seed {seed} could not be run ({why}); it is run once more");
        let again = run(leasehold, 1, *seed)?;
        ensure!(again.violations.is_empty(), "seed {seed} broke a promise: {:?}", again.violations);
        ensure!(again.failed.is_empty(), "seed {seed} could not be run twice: {:?}", again.failed);
    }
    ensure!(sums.drills + sums.failed.len() as u64 == count, "{} of {count} drills were run", sums.drills);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_are_read_by_seed() {
        let text = r#"{"drills":2,"failed":{"7":"no port"},"late":{},"violations":{"8":["I1"]},"faults":{"redis/kill":2},
            "grants":3,"fenced":0,"applied":5,"refused":1,"unavailable":0,"debts":0,"schema_version":1}"#;
        let sums: FaultSums = serde_json::from_str(text).unwrap();
        assert_eq!(sums.failed.keys().copied().collect::<Vec<_>>(), [7]);
        assert_eq!(sums.violations[&8], ["I1"]);
    }
}

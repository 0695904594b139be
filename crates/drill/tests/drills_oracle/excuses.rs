//! What a loss, a kill or a lease taken away excuses, and that it excuses no more than that.

use leasehold_core::Fence;
use leasehold_drill::history::Entry;

use crate::script::{NAME, Script};

/// Taken away by an operator.
fn broke(script: &mut Script, at: u64, name: &str, fence: u64) {
    let (name, fence) = (name.into(), Fence::new(fence).unwrap());
    script.line(at, "director", Entry::Broke { name, fence });
}

fn two_at_once(name: &str, fence: u64) -> Script {
    let mut script = Script::new();
    script.hold(0, "a", 1, 7);
    script.claim(10, "a", 1, 900, 7);
    broke(&mut script, 100, name, fence);
    script.hold(110, "b", 1, 8);
    script.claim(120, "b", 1, 1000, 8);
    script
}

#[test]
fn i1_a_lease_that_was_taken_away_excuses_its_own_holder_only() {
    two_at_once(NAME, 7).breaks(&[]);
    two_at_once("job:2", 7).breaks(&["I1"]);
    two_at_once(NAME, 6).breaks(&["I1"]);
}

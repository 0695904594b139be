//! The model of the protocol: one test for each configuration that must hold or must break,
//! and a comparison of the model with the real client and store.
//!
//! Run with `--nocapture` (or `--no-capture` under nextest) for the counts and the counterexamples in words.

// Clippy's exception for tests covers test functions only, not the helpers they share.
#![allow(clippy::expect_used)]

mod conformance;

use leasehold_sim::model::catalogue::{MUST_BREAK, MUST_HOLD, find_config};
use leasehold_sim::model::check::{explore, shortest_counterexample};
use leasehold_sim::model::config::ExpectedResult;

/// Asserts that every promise holds, that the run reached its events, and that it has not shrunk.
fn holds(name: &str) {
    let config = find_config(name).unwrap_or_else(|| panic!("{name} is not in the catalogue"));
    let ExpectedResult::AllHold { promises, sights, transitions } = config.expect else {
        panic!("{name} is expected to break");
    };
    let explored = explore(config, 2);
    println!(
        "{name}: {} transitions, {} states, depth {}, {} promises",
        explored.transitions,
        explored.states,
        explored.depth,
        promises.len()
    );
    for (promise, steps) in &explored.broken {
        println!("{promise} is broken:\n  {}", steps.join("\n  "));
    }
    assert!(explored.broken.is_empty(), "{name}: {}", config.about);
    for sight in sights {
        assert!(explored.covered(*sight), "{name} proves nothing: it never met {sight:?}");
    }
    assert_eq!(
        Some(explored.transitions),
        transitions,
        "{name}: the model has changed; if that was meant, set the new count in the catalogue"
    );
}

/// Asserts that each promise of the configuration has a counterexample, and prints it.
fn breaks(name: &str) {
    let config = find_config(name).unwrap_or_else(|| panic!("{name} is not in the catalogue"));
    let ExpectedResult::AllBreak(promises) = config.expect else {
        panic!("{name} is expected to hold");
    };
    assert!(!promises.is_empty());
    for promise in promises {
        let found = shortest_counterexample(config, *promise).unwrap_or_else(|| {
            panic!("{name}: {promise:?} holds, so the checker is blind to: {}", config.about)
        });
        println!(
            "{name}: {} breaks in {} steps\n  {}",
            promise.name(),
            found.steps.len(),
            found.steps.join("\n  ")
        );
    }
}

macro_rules! configurations {
    ($($run:ident { $($name:ident)* })*) => {
        $($(
            #[test]
            fn $name() {
                $run(stringify!($name));
            }
        )*)*

        const TESTED: &[&str] = &[$($(stringify!($name)),*),*];
    };
}

configurations! {
    holds {
        holds_while_renewing_and_writing
        holds_for_three_clients
        holds_for_clients_that_come_back
        holds_when_asks_are_late
        holds_when_messages_are_lost_and_repeated
        holds_all_but_i6_when_asks_are_repeated
        holds_fences_over_a_flush
        holds_fences_over_a_lossy_failover
        holds_fences_when_the_stores_clock_steps_ahead
        holds_all_but_i6_when_the_stores_clock_steps_back
        holds_for_a_class_that_continues
        holds_for_worse_clocks
    }
    breaks {
        breaks_with_a_deadline_from_the_reply
        breaks_with_a_deadline_from_the_latest_ask
        breaks_with_a_margin_of_one_clock_error
        breaks_without_a_margin
        breaks_with_cached_validity
        breaks_without_a_fence_at_the_target
        breaks_without_a_fence_over_a_failover
        breaks_with_a_fence_repeated_to_its_owner
        breaks_with_a_plain_counter_after_a_flush
        breaks_with_a_plain_counter_after_a_failover
        breaks_with_the_askers_floor_instead_of_time
        breaks_when_the_store_forgets_and_its_clock_goes_back
        breaks_exclusion_when_the_store_forgets
        breaks_exclusion_when_the_stores_clock_steps_ahead
        breaks_when_release_does_not_compare
        breaks_when_renew_does_not_compare
        breaks_when_renew_revives
        breaks_without_an_undo
        breaks_without_a_tombstone
        breaks_without_a_tombstone_at_the_release
        breaks_i6_when_asks_are_repeated
        breaks_i6_when_the_stores_clock_steps_back
        breaks_without_an_expiry
    }
}

#[test]
fn every_configuration_is_tested() {
    let listed: Vec<_> = MUST_HOLD.iter().chain(MUST_BREAK).map(|config| config.name).collect();
    assert_eq!(listed, TESTED);
}

/// The number of transitions required of a CI run. Each `holds_…` test compares its own count exactly,
/// so the sum of the catalogue's counts is the number that was explored.
#[test]
fn ten_million_transitions_are_explored() {
    let total: u64 = MUST_HOLD
        .iter()
        .map(|config| match config.expect {
            ExpectedResult::AllHold { transitions, .. } => transitions.unwrap_or(0),
            ExpectedResult::AllBreak(_) => 0,
        })
        .sum();
    println!("{total} transitions in {} configurations that must hold", MUST_HOLD.len());
    assert!(total >= 10_000_000, "only {total} transitions");
}

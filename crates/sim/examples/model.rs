//! Runs configurations of the protocol's model and prints what came out, counterexamples in words.
//!
//! ```text
//! cargo run --release -p leasehold-sim --example model             # what CI runs
//! cargo run --release -p leasehold-sim --example model -- wide     # the wider bounds of a release
//! cargo run --release -p leasehold-sim --example model -- margin   # all whose names contain "margin"
//! ```

use std::process::ExitCode;

use leasehold_core::clock::{BootClock, Clock};
use leasehold_sim::model::catalogue::{MUST_BREAK, MUST_HOLD, WIDE_BOUNDS};
use leasehold_sim::model::check::{explore, shortest_counterexample};
use leasehold_sim::model::config::{ExpectedResult, ModelConfig};

fn main() -> ExitCode {
    let wanted: Vec<String> = std::env::args().skip(1).collect();
    let chosen = |config: &&ModelConfig| wanted.iter().any(|part| config.name.contains(part.as_str()));
    let configs: Vec<_> = if wanted.is_empty() {
        MUST_HOLD.iter().chain(MUST_BREAK).collect()
    } else {
        MUST_HOLD.iter().chain(MUST_BREAK).chain(WIDE_BOUNDS).filter(chosen).collect()
    };
    let as_expected = configs.iter().filter(|config| run(config)).count();
    println!("{as_expected} of {} configurations came out as expected", configs.len());
    if as_expected == configs.len() && !configs.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Whether what must come out came out.
fn run(config: &ModelConfig) -> bool {
    println!("{}: {}", config.name, config.about);
    match config.expect {
        ExpectedResult::AllHold { sights, .. } => {
            let began = BootClock.now();
            let explored = explore(config, std::thread::available_parallelism().map_or(1, usize::from));
            let took = BootClock.now().since(began).as_secs_f64();
            println!(
                "  {} transitions, {} states, depth {}, {took:.1} s",
                explored.transitions, explored.states, explored.depth
            );
            for (promise, steps) in &explored.broken {
                println!("  {promise} is BROKEN:\n    {}", steps.join("\n    "));
            }
            let unseen: Vec<_> = sights.iter().filter(|sight| !explored.covered(**sight)).collect();
            if !unseen.is_empty() {
                println!("  never met: {unseen:?}");
            }
            explored.broken.is_empty() && unseen.is_empty()
        }
        ExpectedResult::AllBreak(promises) => {
            promises.iter().all(|promise| match shortest_counterexample(config, *promise) {
                Some(found) => {
                    println!(
                        "  {} breaks in {} steps:\n    {}",
                        promise.name(),
                        found.steps.len(),
                        found.steps.join("\n    ")
                    );
                    true
                }
                None => {
                    println!("  {} was NOT broken", promise.name());
                    false
                }
            })
        }
    }
}

//! Runs configurations of the protocol's model and prints what came out, counterexamples in words.
//!
//! ```text
//! cargo run --release -p leasehold-drill --example model             # what CI runs
//! cargo run --release -p leasehold-drill --example model -- wide     # the wider bounds of a release
//! cargo run --release -p leasehold-drill --example model -- margin   # all whose names contain "margin"
//! ```

use std::process::ExitCode;

use leasehold_core::clock::{BootClock, Clock};
use leasehold_drill::model::catalogue::{BREAKS, HOLDS, WIDE};
use leasehold_drill::model::check::{explore, shortest};
use leasehold_drill::model::config::{Config, Expect};

fn main() -> ExitCode {
    let wanted: Vec<String> = std::env::args().skip(1).collect();
    let chosen = |config: &&Config| wanted.iter().any(|part| config.name.contains(part.as_str()));
    let configs: Vec<_> = if wanted.is_empty() {
        HOLDS.iter().chain(BREAKS).collect()
    } else {
        HOLDS.iter().chain(BREAKS).chain(WIDE).filter(chosen).collect()
    };
    let as_expected = configs.iter().filter(|config| run(config)).count();
    println!(
        "{as_expected} of {} configurations came out as expected",
        configs.len()
    );
    if as_expected == configs.len() && !configs.is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

/// Whether what must come out came out.
fn run(config: &Config) -> bool {
    println!("{}: {}", config.name, config.about);
    match config.expect {
        Expect::Holds { sights, .. } => {
            let began = BootClock.now();
            let explored = explore(
                config,
                std::thread::available_parallelism().map_or(1, usize::from),
            );
            let took = BootClock.now().since(began).as_secs_f64();
            println!(
                "  {} transitions, {} states, depth {}, {took:.1} s",
                explored.transitions, explored.states, explored.depth
            );
            for (promise, steps) in &explored.broken {
                println!("  {promise} is BROKEN:\n    {}", steps.join("\n    "));
            }
            let unseen: Vec<_> = sights.iter().filter(|sight| !explored.saw(**sight)).collect();
            if !unseen.is_empty() {
                println!("  never met: {unseen:?}");
            }
            explored.broken.is_empty() && unseen.is_empty()
        }
        Expect::Breaks(promises) => promises.iter().all(|promise| match shortest(config, *promise) {
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
        }),
    }
}

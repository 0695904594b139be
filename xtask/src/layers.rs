//! `proof`: runs a layer and records the result, passed or failed.

mod built_program;
mod recorded_run;

use anyhow::bail;
use clap::Subcommand;

use self::recorded_run::RecordedRun;
use crate::ledger::Ledger;
use crate::{ci, page, process};

#[derive(Debug, Clone, Subcommand)]
pub(crate) enum ProofLayer {
    /// What every change has to pass after scripts/test; fixed work, nothing is recorded
    Ci,
    /// Short histories of the client with many faults, from the first free seed
    Sim { histories: u64 },
    /// Histories of the real client in a simulated world, from the first free seed
    Client { histories: u64 },
    /// Histories of the real daemon and its clients over a simulated network, from the first free seed
    Daemon { histories: u64 },
    /// Histories of the machines, of the client and of the daemon, each run twice and compared
    Replay { histories: u64 },
    /// Every fuzz target, or those that are named, for so many seconds each, with a new seed
    Fuzz { seconds: u64, targets: Vec<String> },
    /// Every configuration of the protocol's model
    Model,
    /// Every drill on every store; further arguments are passed on, e.g. --outage 30s
    Drills {
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
    /// Short drills with one real fault each, from the first free seed
    Faults { drills: u64 },
    /// One fleet with a fault every 5 s, with a new seed
    Soak {
        #[arg(default_value = "5m")]
        duration: String,
        #[arg(default_value = "redis")]
        store: String,
    },
    /// Every seeded bug; writes docs/proof/seeded-bugs.md
    Bugs,
    /// Mutants: guards, slice, all or diff of core, or those of the stores' scripts and statements (redis, sqlite)
    Mutants {
        #[arg(default_value = "guards")]
        part: String,
        /// With diff: mutate what has changed since this revision
        since: Option<String>,
        /// Try at most so many of core's, chosen by the commit's hash, as the gate does
        #[arg(long)]
        sample: Option<u32>,
        /// Choose them by this commit's hash: tries a sample again after what survived in it has got tests
        #[arg(long, requires = "sample")]
        chosen_by: Option<String>,
    },
    /// Every test, so many times; one that fails once is flaky
    Reruns { runs: u64 },
    /// What a release has to pass; takes several days
    Release,
    /// Print the sums
    Show,
    /// Write docs/proof/README.md from the ledger
    Page,
    /// Check that the ledger is valid and that docs/proof/README.md matches it
    Check,
}

/// What a release has to pass, in this order.
const RELEASE: [&str; 16] = [
    "model",
    "sim 5000000",
    "client 500000",
    "daemon 500000",
    "replay 10000",
    "faults 20000",
    "drills --outage 30s",
    "drills --outage 120s",
    "soak 72h redis",
    "soak 24h sqlite",
    "bugs",
    "mutants all",
    "mutants redis",
    "mutants sqlite",
    "fuzz 36000",
    "reruns 20",
];

pub(crate) fn run(layer: &ProofLayer) -> anyhow::Result<bool> {
    match layer {
        ProofLayer::Ci => ci::main(),
        ProofLayer::Release => release(),
        ProofLayer::Show => {
            print!("{}", Ledger::read()?.show());
            Ok(true)
        }
        ProofLayer::Page => {
            page::write(&Ledger::read()?)?;
            Ok(true)
        }
        ProofLayer::Check => {
            page::check(&Ledger::read()?)?;
            Ok(true)
        }
        _ => recorded(layer),
    }
}

/// Each layer in turn, whatever the result of the one before: the ledger has all of them.
fn release() -> anyhow::Result<bool> {
    let mut passed = true;
    for layer in RELEASE {
        // Another process, so that a layer that cannot run does not end the rest.
        let status = process::words(&format!("scripts/proof {layer}")).status()?;
        passed &= status.success();
    }
    Ok(passed)
}

fn recorded(layer: &ProofLayer) -> anyhow::Result<bool> {
    let run = RecordedRun::new(layer)?;
    let passed = match layer {
        ProofLayer::Sim { histories } => run.simulated("machines", " --machines", *histories),
        ProofLayer::Client { histories } => run.simulated("client", "", *histories),
        ProofLayer::Daemon { histories } => run.simulated("daemon", " --daemon", *histories),
        ProofLayer::Replay { histories } => run.replays(*histories),
        ProofLayer::Fuzz { seconds, targets } => run.fuzz(*seconds, targets),
        ProofLayer::Model => run.model(),
        ProofLayer::Drills { arguments } => run.drills(arguments),
        ProofLayer::Faults { drills } => run.faults(*drills),
        ProofLayer::Soak { duration, store } => run.soak(duration, store),
        ProofLayer::Bugs => run.bugs(),
        ProofLayer::Mutants { part, since, sample, chosen_by } => {
            run.mutants(part, since.as_deref(), *sample, chosen_by.as_deref())
        }
        ProofLayer::Reruns { runs } => run.reruns(*runs),
        ProofLayer::Ci | ProofLayer::Release | ProofLayer::Show | ProofLayer::Page | ProofLayer::Check => {
            bail!("this is not recorded")
        }
    };
    page::write(&Ledger::read()?)?;
    passed
}

/// The code that a layer runs.
fn code_of(layer: &ProofLayer) -> &'static [&'static str] {
    match layer {
        ProofLayer::Fuzz { .. } => &["crates", "fuzz", "rust-toolchain.toml"],
        ProofLayer::Bugs => &["crates", "proof/bugs", "Cargo.lock", "rust-toolchain.toml"],
        ProofLayer::Mutants { .. } => &["crates", "proof/mutants", "Cargo.lock", "rust-toolchain.toml"],
        _ => &["crates", "Cargo.lock", "rust-toolchain.toml"],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_layers_of_a_release_are_commands_of_proof() {
        use clap::FromArgMatches;
        for line in RELEASE {
            let command = ProofLayer::augment_subcommands(clap::Command::new("proof"));
            let matches =
                command.try_get_matches_from(format!("proof {line}").split(' ').map(str::to_owned)).unwrap();
            ProofLayer::from_arg_matches(&matches).unwrap();
        }
    }
}

//! Runs and records the proof: the gate's fixed work, seeded bugs, mutants, fuzzing, and the ledger of results.
//!
//! `scripts/NAME` calls `cargo xtask NAME`. Every command works on the root of the workspace, wherever it is called.

mod advisories;
mod check_docs;
mod check_features;
mod ci;
mod counts;
mod faults;
mod fuzz;
mod layers;
mod ledger;
mod mutants;
mod page;
mod process;
mod public_api;
mod sample;
mod seeded_bugs;
mod simulate;
mod store_mutants;
mod test_copy;

use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

#[derive(Debug, Parser)]
#[command(name = "cargo xtask", about = "Runs and records the proof")]
struct Cli {
    #[command(subcommand)]
    task: Task,
}

#[derive(Debug, Subcommand)]
enum Task {
    /// Run a layer of the proof and append the result to proof/ledger.jsonl
    Proof {
        #[command(subcommand)]
        layer: layers::ProofLayer,
    },
    /// Put known mistakes back into the code, one at a time, and check that the tests catch them
    SeededBugs(seeded_bugs::SeededBugsArgs),
    /// Mutate leasehold-core with cargo-mutants and check that its tests catch each mutant
    Mutants(mutants::MutantsArgs),
    /// Mutate the Lua scripts of Redis and the SQL statements of SQLite and check that the store's tests catch each mutant
    StoreMutants(store_mutants::StoreMutantsArgs),
    /// Fuzz the parsers of untrusted input
    Fuzz(fuzz::FuzzArgs),
    /// Check that the tests named in the docs exist and that docs/proof/README.md matches the ledger
    CheckDocs,
    /// Look for known vulnerabilities of crates and npm packages, and say so if that cannot be done
    Advisories,
    /// Check that the release binary contains no simulator, no model and no test double
    CheckFeatures,
    /// Compare the public API of the libraries with crates/*/public-api.txt
    PublicApi(public_api::PublicApiArgs),
    /// Run the real client in a simulated world, seed by seed, until a promise breaks
    #[command(disable_help_flag = true)]
    Simulate {
        /// Passed on: --help lists them
        #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "ARGUMENTS")]
        arguments: Vec<OsString>,
    },
    /// Count what makes the code hard or easy to read
    Counts(counts::CountsArgs),
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    match run(cli.task) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        // 2 is apart from 1, so that a caller can tell "could not run" from "ran and failed".
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::from(2)
        }
    }
}

/// Returns whether everything passed; an error means that the task could not be run.
fn run(task: Task) -> anyhow::Result<bool> {
    let caller_dir = std::env::current_dir()?;
    // Every path below is relative to the root of the workspace.
    std::env::set_current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join(".."))?;
    match task {
        Task::Proof { layer } => layers::run(&layer),
        Task::SeededBugs(args) => seeded_bugs::main(&args),
        Task::Mutants(args) => mutants::main(&args),
        Task::StoreMutants(args) => store_mutants::main(&args),
        Task::Fuzz(args) => fuzz::main(&args),
        Task::CheckDocs => check_docs::main(),
        Task::Advisories => advisories::main(),
        Task::CheckFeatures => check_features::main(),
        Task::PublicApi(args) => public_api::main(&args),
        Task::Simulate { arguments } => simulate::main(&arguments, &caller_dir),
        Task::Counts(args) => counts::main(&args),
    }
}

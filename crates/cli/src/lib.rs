//! The `leasehold` command: locks, leases and the control plane from the command line.
//!
//! `main` parses the arguments and calls one module per verb. The modules behind several verbs:
//!
//! - `args`, `config`, `resolve`: arguments, configuration files, and the store and policies they select.
//! - `session`: an open store with a runtime; the verbs that make single store calls use it.
//! - `token_file`: shared by `acquire`, `renew` and `release`.
//! - `changes`: differences between two listings; shared by `watch`, `break` and `top`.
//! - `plane`: the control plane, on its own store or through a daemon.
//! - `output`, `message`, `usage`, `exit`: standard output, texts on standard error, usage errors, exit codes.
//!
//! Terms: see `docs/glossary.md`.

mod acquire;
mod advise;
mod approval;
mod args;
mod audit;
mod break_lease;
mod changes;
mod complete;
mod config;
mod daemon;
mod dashboard;
mod dev;
mod doctor;
mod drill;
mod elect;
mod events;
mod exit;
mod job;
mod lease;
mod list;
mod log;
mod man;
mod message;
mod metrics_file;
mod output;
mod plane;
mod policy;
mod reference;
mod release;
mod renew;
mod resolve;
mod run;
mod serve;
mod session;
mod show;
mod span;
mod store;
#[doc(hidden)]
pub mod testing;
mod timestamp;
mod token_file;
mod top;
mod trace;
mod usage;
mod watch;
mod workflow;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::parser::ValueSource;
use clap::{CommandFactory, FromArgMatches};

use crate::args::{Cli, Command, GlobalArgs};
use crate::config::{ConfigCommand, Settings, StoreUse};
use crate::policy::PolicyCommand;
use crate::store::StoreCommand;

/// The whole command: parses the arguments of this process and runs its verb. A program that adds a
/// store of its own calls [`leasehold::register`] first.
pub fn main() -> ExitCode {
    // Hidden helper processes of `run`, `elect`, the plane and `drill`. They are matched before clap so that flags, files
    // and environment variables cannot change them.
    let mut helper_args = std::env::args_os().skip(1);
    match helper_args.next().as_deref().and_then(|word| word.to_str()) {
        Some(leasehold_supervise::HELPER_ARGUMENT) => {
            return leasehold_supervise::helper_main(helper_args, message::print_message);
        }
        Some(leasehold_drill::fleet::BOUND_ARG) => return leasehold_drill::fleet::bound_main(helper_args),
        Some(leasehold_drill::fleet::WORKER_ARG) => return leasehold_drill::fleet::worker_main(),
        _ => {}
    }
    complete::answer_shell();
    let words: Vec<_> = std::env::args_os().collect();
    let cli = match parse(&words) {
        Ok(cli) => cli,
        Err(error) => return exit::from_usage_error(error, &words),
    };
    log::start(&cli.command);
    let global = &cli.place;
    match cli.command {
        Command::Run(args) => run::main(Settings::load(global, StoreUse::Exclude), args),
        Command::Elect(args) => elect::main(Settings::load(global, StoreUse::Exclude), args),
        Command::Acquire(args) => {
            with_settings(global, StoreUse::Exclude, |settings| acquire::main(settings, &args))
        }
        // The token file names the store of `renew` and `release`; a lease must not run out because of a folder's file.
        Command::Renew(args) => {
            with_settings(global, StoreUse::Inspect, |settings| renew::main(settings, &args))
        }
        Command::Release(args) => {
            with_settings(global, StoreUse::Inspect, |settings| release::main(settings, &args))
        }
        Command::List(args) => {
            with_settings(global, StoreUse::Inspect, |settings| list::main(settings, &args))
        }
        Command::Show(args) => {
            with_settings(global, StoreUse::Inspect, |settings| show::main(settings, &args))
        }
        Command::Watch(args) => {
            with_settings(global, StoreUse::Inspect, |settings| watch::main(settings, &args))
        }
        Command::Break(args) => {
            with_settings(global, StoreUse::Change, |settings| break_lease::main(settings, &args))
        }
        Command::Top(args) => with_settings(global, StoreUse::Inspect, |settings| top::main(settings, &args)),
        Command::Doctor(args) => {
            with_settings(global, StoreUse::Inspect, |settings| doctor::main(settings, &args))
        }
        Command::Drill(args) => exit::from_answer(drill::main(global, args.command)),
        Command::Advise(args) => {
            with_settings(global, StoreUse::Inspect, |settings| advise::main(settings, &args))
        }
        Command::Serve(args) => {
            with_settings(global, StoreUse::Change, |settings| serve::main(settings, args))
        }
        Command::Dev(args) => with_settings(global, StoreUse::Change, |settings| dev::main(settings, &args)),
        Command::Dashboard(_) => with_settings(global, StoreUse::Inspect, dashboard::main),
        Command::Token(args) => exit::from_answer(serve::token(args)),
        Command::Audit(args) => exit::from_answer(serve::audit(&args)),
        Command::Job(args) => with_settings(global, StoreUse::Change, |settings| job::main(settings, args)),
        Command::Workflow(args) => {
            with_settings(global, StoreUse::Change, |settings| workflow::main(settings, args))
        }
        Command::Approval(args) => {
            with_settings(global, StoreUse::Change, |settings| approval::main(settings, args))
        }
        Command::Plane(args) => {
            with_settings(global, StoreUse::Change, |settings| plane::main(settings, args))
        }
        Command::Policy(args) => match args.command {
            // Without settings: the file to check may be an invalid configuration file.
            PolicyCommand::Check { file } => exit::from_answer(policy::check::main(&file)),
            command => {
                let shows = matches!(command, PolicyCommand::Show { .. });
                let store_use = if shows { StoreUse::Inspect } else { StoreUse::Change };
                with_settings(global, store_use, |settings| policy::main(settings, &command))
            }
        },
        Command::Store(args) => {
            let creates = matches!(args.command, StoreCommand::Init);
            let store_use = if creates { StoreUse::Change } else { StoreUse::Inspect };
            with_settings(global, store_use, |settings| store::main(settings, &args))
        }
        Command::Config(args) => match args.command {
            ConfigCommand::Show { origin, output } => {
                with_settings(global, StoreUse::Inspect, |settings| config::show(settings, origin, output))
            }
            // Without settings: the file to trust may have a store that cannot be used.
            ConfigCommand::Trust { path, list } => exit::from_answer(config::trust(path.as_ref(), list)),
            ConfigCommand::Untrust { path } => exit::from_answer(config::untrust(path.as_ref())),
        },
        Command::Completions(args) => exit::from_answer(complete::main(&args)),
        Command::Man(args) => exit::from_answer(man::main(&args)),
    }
}

/// Resolves the settings and runs a verb with them. This is the only read of the configuration files.
fn with_settings(
    global: &GlobalArgs,
    store_use: StoreUse,
    verb: impl FnOnce(&Settings) -> anyhow::Result<bool>,
) -> ExitCode {
    exit::from_answer(Settings::load(global, store_use).and_then(|settings| verb(&settings)))
}

/// Parses argv (with the program name) and notes which global options came from the environment.
fn parse(words: &[OsString]) -> Result<Cli, clap::Error> {
    let matches = Cli::command().try_get_matches_from(words)?;
    let mut cli = Cli::from_arg_matches(&matches)?;
    let by_env = |id: &str| matches.value_source(id) == Some(ValueSource::EnvVariable);
    cli.place.store_by_env = by_env("store");
    cli.place.policies_by_env = by_env("policies");
    Ok(cli)
}

// Runs the README's code as a test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

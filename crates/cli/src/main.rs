//! The `leasehold` command: locks from the command line.
//!
//! `args` is what people type, `config` and `place` where the store and the policies are, `desk` a verb's way to the store.
//! One file or folder per verb. `ticket` and `taking` are what `acquire`, `renew` and `release` share, `changes` what `watch`,
//! `break` and `top` share. `guardian` and `gate` are the two small processes that `run` puts beside and before its command;
//! `family` is how a command is ended with everything it has started.

mod acquire;
mod advise;
mod approval;
mod args;
mod audit;
#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod book;
mod breaking;
mod changes;
mod complete;
mod config;
mod desk;
mod dev;
mod doctor;
mod drill;
mod elect;
mod events;
mod exit;
mod family;
mod gate;
mod guardian;
mod job;
mod lease;
mod list;
mod log;
mod man;
mod place;
mod plane;
mod policy;
mod reference;
mod release;
mod renew;
mod run;
mod say;
mod serve;
mod show;
mod span;
mod stamp;
mod store;
mod taking;
mod textfile;
mod ticket;
mod top;
mod trace;
#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod typed;
mod usage;
mod watch;
mod workflow;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::parser::ValueSource;
use clap::{CommandFactory, FromArgMatches};

use crate::args::{Cli, Command};

/// Who is called, and with which code each of them ends: see `exit`.
fn main() -> ExitCode {
    // These are started by `run` and by `drill` and must not depend on flags, files or the environment.
    let mut words = std::env::args_os().skip(1);
    match words.next().as_deref().and_then(|word| word.to_str()) {
        Some(guardian::WORD) => return guardian::main(words),
        Some(gate::WORD) => return gate::main(words),
        Some(leasehold_plane::work::warden::WORD) => return leasehold_plane::work::warden::main(words),
        Some(leasehold_drill::fleet::BOUND) => return leasehold_drill::fleet::bound_main(words),
        Some(leasehold_drill::fleet::WORD) => return leasehold_drill::fleet::worker_main(),
        _ => {}
    }
    complete::answer();
    let words: Vec<_> = std::env::args_os().collect();
    let cli = match parse(&words) {
        Ok(cli) => cli,
        Err(error) => return exit::of_usage(error, &words),
    };
    log::start(&cli.command);
    let place = &cli.place;
    match cli.command {
        Command::Run(args) => run::main(place, args),
        Command::Elect(args) => elect::main(place, args),
        Command::Acquire(args) => exit::of_answer(acquire::main(place, &args)),
        Command::Renew(args) => exit::of_answer(renew::main(place, &args)),
        Command::Release(args) => exit::of_answer(release::main(place, &args)),
        Command::List(args) => exit::of_answer(list::main(place, &args)),
        Command::Show(args) => exit::of_answer(show::main(place, &args)),
        Command::Watch(args) => exit::of_answer(watch::main(place, &args)),
        Command::Break(args) => exit::of_answer(breaking::main(place, &args)),
        Command::Top(args) => exit::of_answer(top::main(place, &args)),
        Command::Doctor(args) => exit::of_answer(doctor::main(place, &args)),
        Command::Drill(args) => exit::of_answer(drill::main(place, args.command)),
        Command::Advise(args) => exit::of_answer(advise::main(place, &args)),
        Command::Serve(args) => exit::of_answer(serve::main(place, args)),
        Command::Dev(args) => exit::of_answer(dev::main(place, &args)),
        Command::Token(args) => exit::of_answer(serve::token(args)),
        Command::Audit(args) => exit::of_answer(serve::audit(&args)),
        Command::Job(args) => exit::of_answer(job::main(place, args)),
        Command::Workflow(args) => exit::of_answer(workflow::main(place, args)),
        Command::Approval(args) => exit::of_answer(approval::main(place, args)),
        Command::Plane(args) => exit::of_answer(plane::main(place, args)),
        Command::Policy(args) => exit::of_answer(policy::main(place, &args.command)),
        Command::Store(args) => exit::of_answer(store::main(place, &args)),
        Command::Config(args) => exit::of_answer(config::main(place, &args)),
        Command::Completions(args) => exit::of_answer(complete::main(&args)),
        Command::Man(args) => exit::of_answer(man::main(&args)),
    }
}

/// What was typed, our own name first, with where the store and the policies were named.
fn parse(words: &[OsString]) -> Result<Cli, clap::Error> {
    let matches = Cli::command().try_get_matches_from(words)?;
    let mut cli = Cli::from_arg_matches(&matches)?;
    let by_env = |id: &str| matches.value_source(id) == Some(ValueSource::EnvVariable);
    cli.place.store_by_env = by_env("store");
    cli.place.policies_by_env = by_env("policies");
    Ok(cli)
}

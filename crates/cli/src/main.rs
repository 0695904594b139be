//! The `leasehold` command: run work under a lease, list and show locks, look at policies, serve, drill.
//!
//! `args` is what people type, `place` where the store and the policies are. One file per command: `list`, `show`,
//! `policy`, `dev`, `run/`, `serve/` and `drill/` with their parts. `guardian` and `gate` are the two small processes that `run` puts beside and
//! before its command; `family` is how a command is ended with everything it has started.

mod advise;
mod approval;
mod args;
mod dev;
mod drill;
mod exit;
mod family;
mod gate;
mod guardian;
mod job;
mod lease;
mod list;
mod log;
mod place;
mod plane;
mod policy;
mod run;
mod say;
mod serve;
mod show;
mod workflow;

use std::process::ExitCode;

use clap::Parser;

use crate::args::{Cli, Command};

/// Who is called, and with which code each of them ends: see `exit`.
fn main() -> ExitCode {
    // These are started by `run` and by `drill` and must not depend on flags, files or the environment.
    let mut words = std::env::args_os().skip(1);
    match words.next().as_deref().and_then(|word| word.to_str()) {
        Some(guardian::WORD) => return guardian::main(words),
        Some(gate::WORD) => return gate::main(words),
        Some(leasehold_plane::work::warden::WORD) => return leasehold_plane::work::warden::main(words),
        Some(leasehold_drill::fleet::WORD) => return leasehold_drill::fleet::worker_main(),
        _ => {}
    }
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return exit::of_usage(&error),
    };
    log::start(&cli.command);
    match cli.command {
        Command::Run(args) => run::main(&cli.place, args),
        Command::List(args) => exit::of_answer(list::main(&cli.place, &args)),
        Command::Show(args) => exit::of_answer(show::main(&cli.place, &args)),
        Command::Drill(args) => exit::of_answer(drill::main(&cli.place, args.command)),
        Command::Advise(args) => exit::of_answer(advise::main(&cli.place, &args)),
        Command::Serve(args) => exit::of_answer(serve::main(&cli.place, args)),
        Command::Dev(args) => exit::of_answer(dev::main(&cli.place, &args)),
        Command::Token(args) => exit::of_answer(serve::token(args)),
        Command::Audit(args) => exit::of_answer(serve::audit(&args)),
        Command::Job(args) => exit::of_answer(job::main(&cli.place, args)),
        Command::Workflow(args) => exit::of_answer(workflow::main(&cli.place, args)),
        Command::Approval(args) => exit::of_answer(approval::main(&cli.place, args)),
        Command::Plane(args) => exit::of_answer(plane::main(&cli.place, args)),
        Command::Policy(args) => exit::of_answer(policy::main(&cli.place, &args.command)),
    }
}

//! `leasehold policy`: show the classes, check a file, change a running daemon's classes for a while.

pub(crate) mod check;
mod remote;
mod show;

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};
use clap_complete::engine::{ArgValueCompleter, PathCompleter};

use crate::args::ReportFormat;
use crate::complete;
use crate::config::Settings;

/// Arguments of `leasehold policy`.
#[derive(Debug, Args)]
pub(crate) struct PolicyArgs {
    #[command(subcommand)]
    pub(crate) command: PolicyCommand,
}

/// What to do with policies.
#[derive(Debug, Subcommand)]
pub(crate) enum PolicyCommand {
    /// Check a policy file: 0 good, 1 not, 2 error
    #[command(after_help = "\
Examples:
  leasehold policy check leasehold.toml")]
    Check {
        /// The policy file to read
        #[arg(add = ArgValueCompleter::new(PathCompleter::file()))]
        file: PathBuf,
    },
    /// Show classes with the origin of every value
    #[command(after_help = "\
Examples:
  leasehold policy show
  leasehold policy show scheduler
  leasehold --store http://127.0.0.1:7420 policy show scheduler    # as it is in force there
  leasehold --policies leasehold.toml policy show report -o json")]
    Show {
        /// Only this class
        #[arg(add = ArgValueCompleter::new(complete::classes))]
        class: Option<String>,
        /// How to print
        #[arg(short, long, value_enum, default_value_t = ReportFormat::Text)]
        output: ReportFormat,
    },
    /// Change one field of a class in a running daemon, for a while and with a reason
    #[command(after_help = "\
The change is in force at once, for holds that are held too, reverts by itself, and is recorded as an event.

Examples:
  leasehold --store http://127.0.0.1:7420 policy set workflow acquire.on_error fail-closed --for 30m --reason 'INC-7'")]
    Set {
        /// The class to show
        #[arg(add = ArgValueCompleter::new(complete::classes))]
        class: String,
        /// The field, e.g. acquire.on_error
        field: String,
        /// Its value, as a policy file would have it
        value: String,
        /// For how long
        #[arg(long = "for", value_name = "DURATION", value_parser = crate::span::parse)]
        lasting: Duration,
        /// Why: goes into the record
        #[arg(long, value_name = "TEXT")]
        reason: String,
    },
    /// Show how a running daemon's classes were changed, by whom and why
    #[command(after_help = "\
Examples:
  leasehold --store http://127.0.0.1:7420 policy history
  leasehold --store http://127.0.0.1:7420 policy history -o json")]
    History {
        /// How to print
        #[arg(short, long, value_enum, default_value_t = ReportFormat::Text)]
        output: ReportFormat,
    },
}

pub(crate) fn main(settings: &Settings, command: &PolicyCommand) -> anyhow::Result<bool> {
    match command {
        PolicyCommand::Check { file } => check::main(file),
        // A daemon has its own classes, including changes made while it runs.
        PolicyCommand::Show { class, output } => match remote::open_daemon(settings)? {
            Some((daemon, session)) => remote::print_classes(&daemon, &session, class.as_deref(), *output),
            None => show::main(settings, class.as_deref(), *output),
        },
        PolicyCommand::Set { .. } => remote::set_override(settings, command),
        PolicyCommand::History { output } => remote::print_history(settings, *output),
    }
}

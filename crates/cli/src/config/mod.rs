//! Settings: flags, then `LEASEHOLD_*`, then `./leasehold.toml`, then the user's file, then the system's, then defaults.
//!
//! Every value remembers where it came from (`show`). `file` reads one file; `layers` puts them one over the other.

mod file;
mod layers;
mod show;

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};

pub(crate) use self::file::problems;
pub(crate) use self::layers::{Config, Valued};
pub(crate) use self::show::main;
use crate::args::Form;

/// The configuration file of a folder.
pub(crate) const HERE: &str = "leasehold.toml";

/// `leasehold config`.
#[derive(Debug, Args)]
pub(crate) struct ConfigArgs {
    #[command(subcommand)]
    pub(crate) command: ConfigCommand,
}

/// What to do with settings.
#[derive(Debug, Subcommand)]
pub(crate) enum ConfigCommand {
    /// Show every setting in force
    #[command(after_help = "\
A setting counts from the first of these that names it:
  the command line, LEASEHOLD_* in the environment, ./leasehold.toml,
  $XDG_CONFIG_HOME/leasehold/config.toml (or ~/.config/leasehold/config.toml),
  /etc/leasehold/config.toml, and what is built in.

Settings stand at the top of the file, before its [class.NAME] tables:
  store = \"redis://127.0.0.1\"     where the locks are
  policies = \"classes.toml\"       another file for the classes, seen from this one
  holder = \"web-1\"                who you are to others
  timeout = \"5s\"                  how long a store may take to answer you
  audit_file = \"/var/log/lh.jsonl\" where `break` writes down who did it and why

Examples:
  leasehold config show
  leasehold config show --origin
  leasehold config show -o json")]
    Show {
        /// With the place each one comes from
        #[arg(long)]
        origin: bool,
        /// How to print
        #[arg(short, long, value_enum, default_value_t = Form::Text)]
        output: Form,
    },
}

/// What can be set.
#[derive(Debug, Clone, Default)]
pub(crate) struct Settings {
    /// Where the locks are.
    pub(crate) store: Option<Valued<String>>,
    /// Where the classes are.
    pub(crate) policies: Option<Valued<PathBuf>>,
    /// Who we are.
    pub(crate) holder: Option<Valued<String>>,
    /// How long a store may take.
    pub(crate) timeout: Option<Valued<Duration>>,
    /// Where `break` is written down.
    pub(crate) audit_file: Option<Valued<PathBuf>>,
}

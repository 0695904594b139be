//! Settings and their sources.
//!
//! Precedence: flags, `LEASEHOLD_*`, `./leasehold.toml`, the user's file, the system's file, defaults. Every
//! value keeps its origin for `config show`. `file` reads one file; `layers` merges them. Each file is read once per
//! command, so that all parts of the command see the same settings. `trust` decides which files may set more than classes.

mod file;
mod layers;
mod restricted;
mod show;
mod trust;

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};
use clap_complete::engine::{ArgValueCompleter, PathCompleter};

pub(crate) use self::file::settings_problems;
pub(crate) use self::layers::{Settings, WithOrigin};
pub(crate) use self::restricted::StoreUse;
pub(crate) use self::show::show;
pub(crate) use self::trust::{trust, untrust};
use crate::args::ReportFormat;

/// The configuration file in the current folder.
pub(crate) const LOCAL_CONFIG_FILE: &str = "leasehold.toml";

/// Arguments of `leasehold config`.
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

Settings count only if the file is trusted: ./leasehold.toml after `leasehold config trust`, the other two if they
are yours or root's and no other user can write them. Classes count at once.

Examples:
  leasehold config show
  leasehold config show --origin
  leasehold config show -o json")]
    Show {
        /// With the place each one comes from
        #[arg(long)]
        origin: bool,
        /// How to print
        #[arg(short, long, value_enum, default_value_t = ReportFormat::Text)]
        output: ReportFormat,
    },
    /// Let a folder's leasehold.toml name the store and other settings, as long as it is not changed
    #[command(after_help = "\
A leasehold.toml comes with its folder, for example with a cloned repository. Its store could be a host that collects
passwords. So it sets classes at once, and everything else only after you trusted it.

Examples:
  leasehold config trust                 # ./leasehold.toml
  leasehold config trust ~/src/shop
  leasehold config trust --list")]
    Trust {
        /// The file or its folder; ./leasehold.toml if not given
        #[arg(value_name = "PATH", add = ArgValueCompleter::new(PathCompleter::any()))]
        path: Option<PathBuf>,
        /// List the files that are trusted
        #[arg(long, conflicts_with = "path")]
        list: bool,
    },
    /// Take the trust back: 0 done, 1 it was not trusted
    #[command(after_help = "\
Examples:
  leasehold config untrust
  leasehold config untrust ~/src/shop")]
    Untrust {
        /// The file or its folder; ./leasehold.toml if not given
        #[arg(value_name = "PATH", add = ArgValueCompleter::new(PathCompleter::any()))]
        path: Option<PathBuf>,
    },
}

/// The settings of one layer.
#[derive(Debug, Clone, Default)]
pub(crate) struct LayerSettings {
    pub(crate) store: Option<WithOrigin<String>>,
    pub(crate) policies: Option<WithOrigin<PathBuf>>,
    pub(crate) holder: Option<WithOrigin<String>>,
    pub(crate) timeout: Option<WithOrigin<Duration>>,
    pub(crate) audit_file: Option<WithOrigin<PathBuf>>,
}

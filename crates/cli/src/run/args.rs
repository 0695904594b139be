//! The arguments of `leasehold run`.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use clap_complete::engine::ArgValueCompleter;

use crate::complete;

/// Arguments of `leasehold run`.
#[derive(Debug, Args)]
#[command(
    override_usage = "leasehold run [OPTIONS] NAME [--] COMMAND [ARG]...\n       leasehold run [OPTIONS] -c STRING NAME"
)]
#[command(after_long_help = RUN_HELP, after_help = "See --help for exit codes, environment and examples.")]
pub(crate) struct RunArgs {
    /// Do not wait: if another holder has the lock, end at once
    #[arg(short = 'n', long = "nonblock", visible_alias = "nb", conflicts_with = "wait")]
    pub(crate) nonblock: bool,
    /// Wait at most this long for the lock, e.g. 30s; as long as the class says if not given
    #[arg(short = 'w', long, visible_alias = "timeout", value_name = "DURATION", value_parser = crate::span::parse)]
    pub(crate) wait: Option<Duration>,
    /// A shared lock (no store supports it yet)
    #[arg(short = 's', long)]
    pub(crate) shared: bool,
    /// The exit code when another holder has the lock
    #[arg(short = 'E', long, value_name = "CODE", default_value_t = crate::exit::BUSY)]
    pub(crate) conflict_exit_code: u8,
    /// Run this string with /bin/sh -c instead of a command
    #[arg(short = 'c', long = "command", value_name = "STRING")]
    pub(crate) shell: Option<OsString>,
    /// The risk class: what happens when the store fails
    #[arg(long, default_value = "scheduler", add = ArgValueCompleter::new(complete::classes))]
    pub(crate) class: String,
    /// The lease's time to live instead of the class's
    #[arg(long, value_name = "DURATION", value_parser = crate::span::parse)]
    pub(crate) ttl: Option<Duration>,
    /// From TERM to KILL when the lease is lost; if neither this nor the class says, the smaller of 5s and ttl/6
    #[arg(long, value_name = "DURATION", value_parser = crate::span::parse)]
    pub(crate) stop_grace: Option<Duration>,
    /// Write the lock's metrics to this file, for node_exporter's textfile collector (NAME.prom)
    #[arg(long, value_name = "PATH")]
    pub(crate) metrics_file: Option<PathBuf>,
    /// What to lock, e.g. job:42
    #[arg(add = ArgValueCompleter::new(complete::names))]
    pub(crate) name: String,
    /// The command and its arguments, run as they are, without a shell. Options end here
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "COMMAND")]
    pub(crate) argv: Vec<OsString>,
}

const RUN_HELP: &str = "\
How it ends:
  The command runs in a process group of its own, with standard input, output and error passed through. The lease is
  renewed meanwhile. If it is lost, the group gets TERM at the deadline and KILL within stop-grace after it: both before
  anyone else can be granted the lock. If the store says that the lease is already not ours, KILL comes at once. A
  guardian process does the same if leasehold itself is stopped or killed. Processes the command leaves behind are ended
  before the lock is released. A class's max_hold ends the command too (scheduler: 15m). In a class with
  on_failure = \"continue\" (workflow) the command goes on without a lease, and how long is reported.
  Suspending (ctrl-Z) suspends renewal too: the guardian ends the command when the lease runs out.

Signals:
  INT, TERM, HUP, QUIT, USR1 and USR2 are passed to the group; a second INT or TERM kills it. If standard input is
  a terminal, the command's group gets the terminal, so the keyboard's signals reach it directly.

Exit codes:
  the command's own; 128+N if it died of signal N
  121  the lease was lost and the command was stopped
  124  another client holds the lock (see -E); the command did not run
  125  leasehold failed: store unavailable, bad policy, bad usage; the command did not run
  126  the command could not be run      127  there is no such command

Environment of the command:
  LEASEHOLD_NAME, LEASEHOLD_CLASS, LEASEHOLD_HOLDER, LEASEHOLD_STORE
  LEASEHOLD_FENCE  grows with every grant: send it with each write. Missing if the lock is local only (fail-open)
  LEASEHOLD_RUN    tells this run's processes from others

Examples:
  leasehold run backup -- rsync -a /data /mnt/backup
  leasehold run -n nightly ./report.sh              # not if it is already running
  leasehold run -w 10m --ttl 30s deploy -- make deploy
  leasehold run -c 'echo \"fence $LEASEHOLD_FENCE\"' demo
  leasehold --store redis://127.0.0.1 run --class workflow import -- ./import";

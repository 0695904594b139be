//! What people type.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};

/// Leases with explicit failure policy.
///
/// Locks that expire, renew themselves, carry a fencing number, and have a stated answer to "what if the store
/// fails": a class. See `leasehold policy show`.
#[derive(Debug, Parser)]
#[command(name = "leasehold", version, max_term_width = 100, subcommand_required = true)]
#[command(after_help = "\
Examples:
  leasehold run backup -- rsync -a /data /mnt/backup
  leasehold run -n nightly -- ./report.sh || echo \"busy or failed: $?\"
  leasehold list
  leasehold show backup")]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) place: Place,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// Where the store and the policies are.
#[derive(Debug, Args)]
pub(crate) struct Place {
    /// Where the locks are: sqlite:PATH, redis://HOST, rediss://HOST, memory:, or a daemon at http://HOST:PORT or https://HOST
    ///
    /// Without it: $XDG_STATE_HOME/leasehold/leasehold.db, or ~/.local/state/leasehold/leasehold.db, a SQLite file that
    /// all your processes on this host share.
    #[arg(
        long,
        global = true,
        value_name = "URL",
        env = "LEASEHOLD_STORE",
        hide_env_values = true,
        help_heading = "Where"
    )]
    pub(crate) store: Option<String>,
    /// The classes, as this file changes and adds to the built-in ones; ./leasehold.toml if it is there
    #[arg(
        long,
        global = true,
        value_name = "FILE",
        env = "LEASEHOLD_POLICIES",
        hide_env_values = true,
        help_heading = "Where"
    )]
    pub(crate) policies: Option<PathBuf>,
    /// Who holds, as others see it; host:pid if not given
    #[arg(long, global = true, value_name = "TEXT", help_heading = "Where")]
    pub(crate) holder: Option<String>,
}

/// The verbs.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run a command while holding a lock
    Run(RunArgs),
    /// List the locks that are held
    List(ListArgs),
    /// Show who holds one lock: exit code 0 held, 1 free, 2 error
    Show(ShowArgs),
    /// Look at the classes in force
    Policy(PolicyArgs),
    /// Compute a TTL, renewal interval and takeover bound from recorded data
    Advise(crate::advise::AdviseArgs),
    /// Serve the locks over HTTP, to programs in any language and on other machines
    Serve(crate::serve::ServeArgs),
    /// Try Leasehold out: the daemon on a local file, and what to type next
    Dev(crate::dev::DevArgs),
    /// Make API tokens for the daemon
    Token(crate::serve::TokenArgs),
    /// Check a daemon's audit log
    Audit(crate::serve::AuditArgs),
    /// Submit jobs, look at them, call them off
    Job(crate::job::JobArgs),
    /// Define workflows, start and watch their runs
    Workflow(crate::workflow::WorkflowArgs),
    /// Decide about jobs that wait for a person
    Approval(crate::approval::ApprovalArgs),
    /// Run a replica of the control plane
    Plane(crate::plane::PlaneArgs),
    /// Break things on purpose and see whether the promises hold: 0 clean, 1 violation, 2 could not run
    Drill(crate::drill::DrillArgs),
}

/// `leasehold run`.
#[derive(Debug, Args)]
#[command(
    override_usage = "leasehold run [OPTIONS] NAME [--] COMMAND [ARG]...\n       leasehold run [OPTIONS] -c STRING NAME"
)]
#[command(after_long_help = RUN_HELP, after_help = "See --help for exit codes, environment and examples.")]
pub(crate) struct RunArgs {
    /// Do not wait: if someone else has the lock, end at once
    #[arg(short = 'n', long = "nonblock", visible_alias = "nb", conflicts_with = "wait")]
    pub(crate) nonblock: bool,
    /// Wait at most this long for the lock, e.g. 30s; as long as the class says if not given
    #[arg(short = 'w', long, visible_alias = "timeout", value_name = "DURATION", value_parser = leasehold::policy::duration::parse)]
    pub(crate) wait: Option<Duration>,
    /// A shared lock (no store supports it yet)
    #[arg(short = 's', long)]
    pub(crate) shared: bool,
    /// The exit code when someone else has the lock
    #[arg(short = 'E', long, value_name = "CODE", default_value_t = crate::exit::BUSY)]
    pub(crate) conflict_exit_code: u8,
    /// Run this string with /bin/sh -c instead of a command
    #[arg(short = 'c', long = "command", value_name = "STRING")]
    pub(crate) shell: Option<OsString>,
    /// The risk class: what happens when the store fails
    #[arg(long, default_value = "scheduler")]
    pub(crate) class: String,
    /// The lease's time to live instead of the class's
    #[arg(long, value_name = "DURATION", value_parser = leasehold::policy::duration::parse)]
    pub(crate) ttl: Option<Duration>,
    /// From TERM to KILL when the lease is lost; if neither this nor the class says, the smaller of 5s and ttl/6
    #[arg(long, value_name = "DURATION", value_parser = leasehold::policy::duration::parse)]
    pub(crate) stop_grace: Option<Duration>,
    /// What to lock, e.g. job:42
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
  124  someone else has the lock (see -E); the command did not run
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

/// `leasehold list`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  leasehold list              every held lock
  leasehold list job:         names that begin with job:
  leasehold list -o name | xargs -n1 leasehold show")]
pub(crate) struct ListArgs {
    /// Only names that begin with this
    #[arg(default_value = "")]
    pub(crate) prefix: String,
    /// How to print
    #[arg(short, long, value_enum, default_value_t = Output::Table)]
    pub(crate) output: Output,
    /// At most this many
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) limit: u32,
}

/// `leasehold show`.
#[derive(Debug, Args)]
pub(crate) struct ShowArgs {
    /// What is locked, e.g. job:42
    pub(crate) name: String,
    /// How to print
    #[arg(short, long, value_enum, default_value_t = Output::Table)]
    pub(crate) output: Output,
}

/// How to print.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Output {
    /// Columns for people
    Table,
    /// More columns
    Wide,
    /// One JSON document
    Json,
    /// One JSON document a line
    Jsonl,
    /// Names only
    Name,
}

/// `leasehold policy`.
#[derive(Debug, Args)]
pub(crate) struct PolicyArgs {
    #[command(subcommand)]
    pub(crate) command: PolicyCommand,
}

/// What to do with policies.
#[derive(Debug, Subcommand)]
pub(crate) enum PolicyCommand {
    /// Check a policy file: exit code 0 good, 1 not, 2 error
    Check {
        /// The file
        file: PathBuf,
    },
    /// Show classes with the origin of every value
    Show {
        /// Only this class
        class: Option<String>,
    },
}

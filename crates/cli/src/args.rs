//! Command-line arguments. Each verb's own arguments are defined in the verb's module.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::ops::Deref;
use std::path::PathBuf;

use clap::builder::{OsStringValueParser, TypedValueParser};
use clap::{Args, Parser, Subcommand, ValueEnum};
use clap_complete::engine::{ArgValueCompleter, PathCompleter};

/// Leases with explicit failure policy.
///
/// Locks that expire, renew themselves, carry a fencing number, and have a stated answer to "what if the store
/// fails": a class. See `leasehold policy show`.
#[derive(Debug, Parser)]
#[command(name = "leasehold", version, max_term_width = 100, subcommand_required = true)]
#[command(after_help = "\
Exit codes:
  0 yes, 1 no, 2 an error; `run` and `elect` pass their command's on (see `leasehold run --help`)

Examples:
  leasehold run backup -- rsync -a /data /mnt/backup
  leasehold run -n nightly -- ./report.sh || echo \"busy or failed: $?\"
  leasehold list
  leasehold show backup
  leasehold doctor")]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) place: GlobalArgs,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// Where the store and the policies are.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct GlobalArgs {
    #[arg(
        long,
        global = true,
        value_name = "URL",
        env = "LEASEHOLD_STORE",
        hide_env_values = true,
        help_heading = "Where",
        help = store_help(),
        long_help = format!("{}\n\n{DEFAULT_STORE_HELP}", store_help())
    )]
    pub(crate) store: Option<Redacted<String>>,
    /// The classes, as this file changes and adds to the built-in ones; ./leasehold.toml if it is there
    #[arg(
        long,
        global = true,
        value_name = "FILE",
        env = "LEASEHOLD_POLICIES",
        hide_env_values = true,
        help_heading = "Where",
        // clap's own parser refuses an empty path. LEASEHOLD_POLICIES= must mean "not set".
        value_parser = path(),
        add = ArgValueCompleter::new(PathCompleter::file())
    )]
    pub(crate) policies: Option<PathBuf>,
    /// Who holds, as others see it; host:pid if not given
    #[arg(long, global = true, value_name = "TEXT", help_heading = "Where")]
    pub(crate) holder: Option<String>,
    // Both are set after parsing, from clap's value source: errors and `config show` name the origin.
    #[arg(skip)]
    pub(crate) store_by_env: bool,
    #[arg(skip)]
    pub(crate) policies_by_env: bool,
}

const DEFAULT_STORE_HELP: &str = "\
Without it, what `store` says in ./leasehold.toml (if you trust it, see `leasehold config trust`), the user's or the \
system's configuration; without that, \
$XDG_STATE_HOME/leasehold/leasehold.db or ~/.local/state/leasehold/leasehold.db, a SQLite file that all your \
processes on this host share. See `leasehold config show --origin`.";

/// Lists the URLs of every store, registered ones too.
fn store_help() -> String {
    format!("Where the locks are: {}", leasehold::known_urls("or"))
}

/// An argument that may contain a URL with a password. `Debug` redacts it.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Redacted<T>(T);

impl<T> Deref for Redacted<T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T: AsRef<OsStr>> fmt::Debug for Redacted<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", leasehold::redact(&self.0.as_ref().to_string_lossy()))
    }
}

impl From<String> for Redacted<String> {
    fn from(typed: String) -> Self {
        Self(typed)
    }
}

impl From<OsString> for Redacted<PathBuf> {
    fn from(typed: OsString) -> Self {
        Self(typed.into())
    }
}

/// A parser for paths that accepts an empty value.
pub(crate) fn path() -> impl TypedValueParser<Value = PathBuf> {
    OsStringValueParser::new().map(PathBuf::from)
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run a command while holding a lock
    Run(crate::run::RunArgs),
    /// Take a lock and leave it to you to renew and release it: 0 taken, 1 another holder has it
    Acquire(crate::acquire::AcquireArgs),
    /// Extend a lock that `acquire` took: 0 extended, 1 lost
    Renew(crate::renew::RenewArgs),
    /// Release a lock that `acquire` took: 0 released, 1 it was not yours any more
    Release(crate::release::ReleaseArgs),
    /// Show who holds one lock: 0 held, 1 free
    Show(crate::show::ShowArgs),
    /// List the locks that are held
    List(crate::list::ListArgs),
    /// Print what happens to locks, one line per change
    Watch(crate::watch::WatchArgs),
    /// End another holder's lease: 0 broken, 1 not (it is free, or its holder is alive)
    Break(crate::break_lease::BreakArgs),
    /// Stand for election: run a command whenever you are the leader
    Elect(crate::elect::ElectArgs),
    /// See locks, holders and what happens to them, live
    Top(crate::top::TopArgs),
    /// Look at the classes in force, check a file, change a running daemon's
    Policy(crate::policy::PolicyArgs),
    /// Find what is wrong with a store: 0 clean, 1 a promise can be broken, 2 could not look
    Doctor(crate::doctor::DoctorArgs),
    /// Compute a TTL, renewal interval and takeover bound from recorded data
    Advise(crate::advise::AdviseArgs),
    /// Serve the locks over HTTP, to programs in any language and on other machines
    Serve(crate::serve::ServeArgs),
    /// Try Leasehold out: the daemon on a local file, and what to type next
    Dev(crate::dev::DevArgs),
    /// Print a link that opens the dashboard of a running daemon
    Dashboard(crate::dashboard::DashboardArgs),
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
    /// Make a store ready, or say what it is and can do
    Store(crate::store::StoreArgs),
    /// Show every setting and where it comes from
    Config(crate::config::ConfigArgs),
    /// Print the script that makes your shell complete verbs, options, lock names and classes
    Completions(crate::complete::CompletionsArgs),
    /// Print the manual, or write one page per verb into a folder
    Man(crate::man::ManArgs),
}

/// How to print locks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ListFormat {
    /// Columns for people
    Table,
    /// A table with more columns
    Wide,
    /// One JSON document
    Json,
    /// One JSON document a line
    Jsonl,
    /// One name per line
    Name,
}

/// How to print one answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ReportFormat {
    /// A table for people
    Text,
    /// One JSON document
    Json,
}

//! What people type. Each verb's own words stand with the verb.

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
  0 yes, 1 an honest no, 2 an error; `run` and `elect` pass their command's on (see `leasehold run --help`)

Examples:
  leasehold run backup -- rsync -a /data /mnt/backup
  leasehold run -n nightly -- ./report.sh || echo \"busy or failed: $?\"
  leasehold list
  leasehold show backup
  leasehold doctor")]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) place: Place,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// Where the store and the policies are.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct Place {
    /// Where the locks are: sqlite:PATH, redis://HOST, rediss://HOST, memory:, or a daemon at http://HOST:PORT or https://HOST
    ///
    /// Without it, what `store` says in ./leasehold.toml, the user's or the system's configuration; without that,
    /// $XDG_STATE_HOME/leasehold/leasehold.db or ~/.local/state/leasehold/leasehold.db, a SQLite file that all your
    /// processes on this host share. See `leasehold config show --origin`.
    #[arg(
        long,
        global = true,
        value_name = "URL",
        env = "LEASEHOLD_STORE",
        hide_env_values = true,
        help_heading = "Where"
    )]
    pub(crate) store: Option<Discreet<String>>,
    /// The classes, as this file changes and adds to the built-in ones; ./leasehold.toml if it is there
    #[arg(
        long,
        global = true,
        value_name = "FILE",
        env = "LEASEHOLD_POLICIES",
        hide_env_values = true,
        help_heading = "Where",
        // An empty one is as good as none.
        value_parser = path(),
        add = ArgValueCompleter::new(PathCompleter::file())
    )]
    pub(crate) policies: Option<PathBuf>,
    /// Who holds, as others see it; host:pid if not given
    #[arg(long, global = true, value_name = "TEXT", help_heading = "Where")]
    pub(crate) holder: Option<String>,
    /// The store was named by the environment, not on the command line.
    #[arg(skip)]
    pub(crate) store_by_env: bool,
    /// So were the policies.
    #[arg(skip)]
    pub(crate) policies_by_env: bool,
}

/// What was typed where a URL may stand. A password can be in it, which is not shown to whoever looks at the whole.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Discreet<T>(T);

impl<T> Deref for Discreet<T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T: AsRef<OsStr>> fmt::Debug for Discreet<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", leasehold::redact(&self.0.as_ref().to_string_lossy()))
    }
}

impl From<String> for Discreet<String> {
    fn from(typed: String) -> Self {
        Self(typed)
    }
}

impl From<OsString> for Discreet<PathBuf> {
    fn from(typed: OsString) -> Self {
        Self(typed.into())
    }
}

/// Reads a path, which may be empty.
pub(crate) fn path() -> impl TypedValueParser<Value = PathBuf> {
    OsStringValueParser::new().map(PathBuf::from)
}

/// The verbs.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run a command while holding a lock
    Run(crate::run::RunArgs),
    /// Take a lock and leave it to you to renew and release it: 0 taken, 1 someone else has it
    Acquire(crate::acquire::AcquireArgs),
    /// Extend a lock that `acquire` took: 0 extended, 1 lost
    Renew(crate::renew::RenewArgs),
    /// Give a lock back that `acquire` took: 0 given back, 1 it was not yours any more
    Release(crate::release::ReleaseArgs),
    /// Show who holds one lock: 0 held, 1 free
    Show(crate::show::ShowArgs),
    /// List the locks that are held
    List(crate::list::ListArgs),
    /// Print what happens to locks, one line per change
    Watch(crate::watch::WatchArgs),
    /// End someone else's lease: 0 broken, 1 not (it is free, or its holder is alive)
    Break(crate::breaking::BreakArgs),
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

/// How to print one answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Form {
    /// For people
    Text,
    /// One JSON document
    Json,
}

//! What people type after `leasehold drill`.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

/// `leasehold drill`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  leasehold drill list
  leasehold drill run forced-kill
  leasehold drill run all --html drills.html --history histories/
  leasehold drill run store-outage --store redis://staging    (needs the key leasehold:drillable there)
  leasehold drill report histories/forced-kill-redis.jsonl
  leasehold drill simulate --seeds 2000
  leasehold drill proxy --upstream 127.0.0.1:6379 --resp 'latency latency=200 jitter=50'")]
pub(crate) struct DrillArgs {
    #[command(subcommand)]
    pub(crate) command: DrillCommand,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub(crate) enum DrillCommand {
    /// List the drills and what each promises
    List,
    /// Run drills, on throw-away stores unless --store names one that is marked as drillable
    Run(RunArgs),
    /// Break replicas of the control plane under load
    Plane(Box<crate::plane::proof::ProofArgs>),
    /// Judge a history that `run --history` kept
    Report(ReportArgs),
    /// Run the real client in a simulated world, seed by seed, until a promise breaks
    Simulate(SimulateArgs),
    /// Run the fault proxy by itself until ctrl-C
    Proxy(ProxyArgs),
}

/// `leasehold drill run`.
#[derive(Debug, Args)]
pub(crate) struct RunArgs {
    /// Names from `drill list`, or all
    #[arg(required = true, value_name = "NAME")]
    pub(crate) names: Vec<String>,
    /// Only on this kind of throw-away store
    #[arg(long, value_enum, value_name = "KIND")]
    pub(crate) on: Option<Kind>,
    /// Write a page with timelines here
    #[arg(long, value_name = "FILE")]
    pub(crate) html: Option<PathBuf>,
    /// Keep each drill's history in this folder, as DRILL-STORE.jsonl
    #[arg(long, value_name = "FOLDER")]
    pub(crate) history: Option<PathBuf>,
    /// How to print
    #[arg(short, long, value_enum, default_value_t = Output::Table)]
    pub(crate) output: Output,
}

/// `leasehold drill report`.
#[derive(Debug, Args)]
pub(crate) struct ReportArgs {
    /// A history: one JSON record a line
    #[arg(value_name = "FILE")]
    pub(crate) history: PathBuf,
    /// Write a page with a timeline here
    #[arg(long, value_name = "FILE")]
    pub(crate) html: Option<PathBuf>,
    /// How to print
    #[arg(short, long, value_enum, default_value_t = Output::Table)]
    pub(crate) output: Output,
}

/// `leasehold drill simulate`.
#[derive(Debug, Args)]
pub(crate) struct SimulateArgs {
    /// How many histories
    #[arg(long, value_name = "NUMBER", default_value_t = 1_000, value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) seeds: u64,
    /// The first seed: the same seed is the same history
    #[arg(long, value_name = "SEED", default_value_t = 0)]
    pub(crate) from: u64,
    /// On so many threads instead of one for each core
    #[arg(long, value_name = "NUMBER")]
    pub(crate) threads: Option<usize>,
    /// Live each history twice and compare them to the last byte
    #[arg(long)]
    pub(crate) replay: bool,
    /// Put this mistake back, which must be found
    #[arg(long, value_name = "NAME")]
    pub(crate) mistake: Option<String>,
    /// Write the short history of a failure here instead of to sim-SEED.jsonl
    #[arg(long, value_name = "FILE")]
    pub(crate) history: Option<PathBuf>,
}

/// `leasehold drill proxy`.
#[derive(Debug, Args)]
pub(crate) struct ProxyArgs {
    /// Where it leads, e.g. 127.0.0.1:6379
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) upstream: SocketAddr,
    /// Where it listens; a free port of 127.0.0.1 if not given
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) listen: Option<SocketAddr>,
    /// Take orders as lines of text here
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) control: Option<SocketAddr>,
    /// The server speaks Redis's protocol: commands can be cut and repeated
    #[arg(long)]
    pub(crate) resp: bool,
    /// Allow addresses that other machines can reach
    #[arg(long)]
    pub(crate) expose: bool,
    /// The same seed hits the same connections and commands
    #[arg(long, value_name = "NUMBER")]
    pub(crate) seed: Option<u64>,
    /// Toxics in force from the start, each as one argument
    #[arg(value_name = "TOXIC")]
    pub(crate) toxics: Vec<String>,
}

/// A kind of throw-away store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Kind {
    /// A SQLite file in a temporary folder
    Sqlite,
    /// A redis-server on a free port, behind the fault proxy
    Redis,
}

/// How to print.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Output {
    /// For people
    Table,
    /// One JSON document
    Json,
}

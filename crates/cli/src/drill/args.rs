//! The arguments of `leasehold drill`.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::{Args, Subcommand, ValueEnum};
use leasehold::testbed::TestbedFactory;
use leasehold_drill::scenario::DrillOptions;

/// Arguments of `leasehold drill`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  leasehold drill list
  leasehold drill run forced-kill
  leasehold drill all                                         (about six minutes; report in leasehold-drills/)
  leasehold drill run store-outage --outage 30s
  leasehold drill run store-outage --store redis://staging    (needs the key leasehold:drillable there)
  leasehold drill faults --count 300 --seed 1
  leasehold drill soak --for 5m --every 5s --on redis
  leasehold drill report leasehold-drills/forced-kill-redis.jsonl
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
    Run(DrillRunArgs),
    /// Break replicas of the control plane under load
    Plane(Box<super::plane::PlaneDrillArgs>),
    /// Attack a daemon with floods, silent connections and slow readers, beside the holds of another tenant
    HostileClients(super::hostile_clients::HostileClientsArgs),
    /// Run every drill and write a report: a page with timelines, JSON, and each drill's history
    All(AllArgs),
    /// Run many short drills, one fault each, chosen by seed: kills, pauses, lost replies, restarts, clocks
    Faults(FaultsArgs),
    /// Run one fleet for as long as wished, with a fault every few seconds, judged window by window
    Soak(SoakArgs),
    /// Judge a history that `run --history` kept
    Report(ReportArgs),
    /// Run the fault proxy by itself until ctrl-C
    Proxy(ProxyArgs),
}

/// `leasehold drill run`.
#[derive(Debug, Args)]
pub(crate) struct DrillRunArgs {
    /// Names from `drill list`, or all
    #[arg(required = true, value_name = "NAME")]
    pub(crate) names: Vec<String>,
    /// Only on this kind of throw-away store
    #[arg(long, value_parser = store_kinds(), value_name = "KIND")]
    pub(crate) on: Option<StoreKind>,
    #[command(flatten)]
    pub(crate) sizes: DrillSizes,
    /// Write a page with timelines here
    #[arg(long, value_name = "FILE")]
    pub(crate) html: Option<PathBuf>,
    /// Keep each drill's history in this folder, as DRILL-STORE.jsonl
    #[arg(long, value_name = "FOLDER")]
    pub(crate) history: Option<PathBuf>,
    /// How to print
    #[arg(short, long, value_enum, default_value_t = DrillFormat::Table)]
    pub(crate) output: DrillFormat,
}

/// How large some drills are.
#[derive(Debug, Clone, Copy, Args)]
pub(crate) struct DrillSizes {
    /// How long the store does not answer in store-outage, from 4s to 10m
    #[arg(long, value_name = "DURATION", value_parser = parse_outage, default_value = "8s")]
    pub(crate) outage: Duration,
    /// How many clients want one name in contention-storm
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(10..=1000), default_value_t = 500)]
    pub(crate) waiters: u32,
}

impl From<DrillSizes> for DrillOptions {
    fn from(sizes: DrillSizes) -> Self {
        Self { outage: sizes.outage, waiters: sizes.waiters }
    }
}

// An outage shorter than the TTL has no visible effect.
fn parse_outage(text: &str) -> Result<Duration, String> {
    let span = crate::span::parse(text)?;
    if DrillOptions::OUTAGE_RANGE.contains(&span) {
        return Ok(span);
    }
    Err("an outage lasts from 4s (the drills' leases live 3s) to 10m; the articles ask for 30s to 120s"
        .to_owned())
}

/// `leasehold drill all`.
#[derive(Debug, Args)]
pub(crate) struct AllArgs {
    /// Where the report goes: report.html, report.json and DRILL-STORE.jsonl
    #[arg(long, value_name = "FOLDER", default_value = "leasehold-drills")]
    pub(crate) out: PathBuf,
    /// Only on this kind of throw-away store
    #[arg(long, value_parser = store_kinds(), value_name = "KIND")]
    pub(crate) on: Option<StoreKind>,
    #[command(flatten)]
    pub(crate) sizes: DrillSizes,
    /// How to print
    #[arg(short, long, value_enum, default_value_t = DrillFormat::Table)]
    pub(crate) output: DrillFormat,
}

/// `leasehold drill faults`.
#[derive(Debug, Args)]
pub(crate) struct FaultsArgs {
    /// How many faults to inject
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u64).range(1..=1_000_000), default_value_t = 300)]
    pub(crate) count: u64,
    /// The first seed; each drill has the next one
    #[arg(long, value_name = "NUMBER", default_value_t = 0)]
    pub(crate) seed: u64,
    /// How many at a time; two for each processor if not given
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u16).range(1..=64))]
    pub(crate) lanes: Option<u16>,
    /// Only on this kind of store
    #[arg(long, value_parser = store_kinds(), value_name = "KIND")]
    pub(crate) on: Option<StoreKind>,
    /// Keep the histories of violations in this folder, as SEED.jsonl
    #[arg(long, value_name = "FOLDER", default_value = "leasehold-drills")]
    pub(crate) keep: PathBuf,
    /// How to print
    #[arg(short, long, value_enum, default_value_t = DrillFormat::Table)]
    pub(crate) output: DrillFormat,
}

/// `leasehold drill soak`.
#[derive(Debug, Args)]
pub(crate) struct SoakArgs {
    /// For how long
    #[arg(long = "for", value_name = "DURATION", value_parser = crate::span::parse, default_value = "5m")]
    pub(crate) lasts: Duration,
    /// How often something is broken, from 1s to 10m
    #[arg(long, value_name = "DURATION", value_parser = parse_fault_interval, default_value = "5s")]
    pub(crate) every: Duration,
    /// How much is judged at a time, from 5s to 1h
    #[arg(long, value_name = "DURATION", value_parser = parse_window, default_value = "1m")]
    pub(crate) window: Duration,
    /// What chooses the faults
    #[arg(long, value_name = "NUMBER", default_value_t = 0)]
    pub(crate) seed: u64,
    /// On this kind of store
    #[arg(long, value_parser = store_kinds(), value_name = "KIND", default_value = kind_with_most_faults())]
    pub(crate) on: StoreKind,
    /// Keep the histories of windows with violations in this folder, as SEED-WINDOW.jsonl
    #[arg(long, value_name = "FOLDER", default_value = "leasehold-drills")]
    pub(crate) keep: PathBuf,
    /// How to print
    #[arg(short, long, value_enum, default_value_t = DrillFormat::Table)]
    pub(crate) output: DrillFormat,
}

fn parse_fault_interval(text: &str) -> Result<Duration, String> {
    parse_bounded(text, 1, 600, "from 1s to 10m")
}

fn parse_window(text: &str) -> Result<Duration, String> {
    parse_bounded(text, 5, 3600, "from 5s to 1h")
}

fn parse_bounded(text: &str, least: u64, most: u64, words: &str) -> Result<Duration, String> {
    let span = crate::span::parse(text)?;
    if (Duration::from_secs(least)..=Duration::from_secs(most)).contains(&span) {
        return Ok(span);
    }
    Err(format!("must be {words}"))
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
    #[arg(short, long, value_enum, default_value_t = DrillFormat::Table)]
    pub(crate) output: DrillFormat,
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

/// A kind of throw-away store: one of those that are registered.
pub(crate) type StoreKind = &'static dyn TestbedFactory;

/// Accepts the names of the registered kinds, and describes them in the help.
pub(crate) fn store_kinds() -> impl TypedValueParser<Value = StoreKind> {
    let value = |kind: &StoreKind| PossibleValue::new(kind.info().name).help(kind.info().summary);
    let names = PossibleValuesParser::new(leasehold::testbeds().iter().map(value));
    names.try_map(|name| {
        let found = leasehold::testbeds().into_iter().find(|kind| kind.info().name == name);
        found.ok_or("no such store is registered")
    })
}

/// A soak is worth most where most can go wrong.
fn kind_with_most_faults() -> &'static str {
    let kinds = leasehold::testbeds().into_iter().map(|kind| kind.info());
    kinds.max_by_key(|info| info.faults.len()).map_or("", |info| info.name)
}

/// How to print.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum DrillFormat {
    /// Text for people
    Table,
    /// One JSON document
    Json,
}

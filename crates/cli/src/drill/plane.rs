//! `leasehold drill plane`: the flags, and the printed report.

use std::io::Write;
use std::time::Duration;

use anyhow::bail;
use clap::{Args, ValueEnum};
use leasehold_drill::fleet::WorkerProgram;
use leasehold_drill::plane::{PlaneDrillOptions, PlaneFault};

use super::args::{StoreKind, store_kinds};
use super::{finish_verdict, unless_interrupted};
use crate::message::print_message;

/// `leasehold drill plane`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  leasehold drill plane                                    1,000 jobs, 100 runs, three replicas, all faults
  leasehold drill plane --jobs 100 --runs 10               a quick look
  leasehold drill plane --faults term                      a rolling restart under load
  leasehold drill plane --on redis --faults kill,stop
  leasehold drill plane --outage 30s --faults none         the lock store is down for a while; jobs are kept elsewhere")]
pub(crate) struct PlaneDrillArgs {
    /// Where locks and jobs are kept
    #[arg(long, value_parser = store_kinds(), value_name = "KIND", default_value = first_kind())]
    on: StoreKind,
    /// How many jobs
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u32).range(..=1_000_000))]
    jobs: u32,
    /// How many workflow runs, each with parallel steps, a delay and an approval
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(..=1_000_000))]
    runs: u32,
    /// How many replicas
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u16).range(1..=64))]
    replicas: u16,
    /// The leases' time to live
    #[arg(long, value_name = "DURATION", default_value = "2s", value_parser = crate::span::parse)]
    ttl: Duration,
    /// How often the loops tick
    #[arg(long, value_name = "DURATION", default_value = "500ms", value_parser = crate::span::parse)]
    poll: Duration,
    /// How long one job works
    #[arg(long, value_name = "DURATION", default_value = "100ms", value_parser = crate::span::parse)]
    work: Duration,
    /// What is done to the replicas in turn
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = [FaultArg::Kill, FaultArg::Stop, FaultArg::Term])]
    faults: Vec<FaultArg>,
    /// The lock store is down for this long, once; if the kind of --on cannot be stopped, locks are on one that can
    #[arg(long, value_name = "DURATION", value_parser = crate::span::parse)]
    outage: Option<Duration>,
    /// What a busy machine may add to a takeover before it counts as late
    #[arg(long, value_name = "DURATION", default_value = "500ms", value_parser = crate::span::parse)]
    slack: Duration,
    /// Everything must have ended by then
    #[arg(long, value_name = "DURATION", default_value = "15m", value_parser = crate::span::parse)]
    within: Duration,
    /// Leave the stores and the replicas' logs in this folder
    #[arg(long, value_name = "FOLDER")]
    keep: Option<std::path::PathBuf>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum FaultArg {
    /// Killed with -9, and started again
    Kill,
    /// Stopped for longer than its leases live, and continued
    Stop,
    /// Told to end, and started again: a rolling restart
    Term,
    /// No fault is injected
    None,
}

fn first_kind() -> &'static str {
    leasehold::testbeds().first().map_or("", |kind| kind.info().name)
}

impl FaultArg {
    fn fault(self) -> Option<PlaneFault> {
        match self {
            Self::Kill => Some(PlaneFault::Kill),
            Self::Stop => Some(PlaneFault::Stop),
            Self::Term => Some(PlaneFault::Term),
            Self::None => None,
        }
    }
}

impl PlaneDrillArgs {
    pub(crate) fn options(&self) -> PlaneDrillOptions {
        PlaneDrillOptions {
            on: self.on,
            jobs: self.jobs,
            runs: self.runs,
            replicas: self.replicas,
            ttl: self.ttl,
            poll: self.poll,
            work: self.work,
            faults: self.faults.iter().filter_map(|fault| fault.fault()).collect(),
            outage: self.outage,
            slack: self.slack,
            within: self.within,
            keep: self.keep.clone(),
        }
    }
}

/// Runs the drill. Returns false if a promise was broken.
pub(super) fn main(args: &PlaneDrillArgs) -> anyhow::Result<bool> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let (options, program) = (args.options(), WorkerProgram::current()?);
    let drill = leasehold_drill::plane::run(&options, &program, &print_message);
    let Some(judged) = runtime.block_on(unless_interrupted(drill))? else {
        bail!("interrupted: every replica and server of the drill is gone");
    };
    let judged = judged?;
    // All is judged before anything is printed: a closed pipe must not hide a broken promise.
    let printed = crate::output::stdout().write_all(&judged.report);
    finish_verdict(judged.kept, printed.map_err(Into::into))
}

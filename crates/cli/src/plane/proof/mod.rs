//! `leasehold drill plane`: replicas as processes, broken in turn under load, and a verdict.
//!
//! `stage` is the throw-away stores and the policy, `crew` the replicas and what is done to them, `load` the jobs, runs
//! and approvals, `lock` sees who keeps a SQLite file locked, `verdict` reads the stores afterwards, and `report` judges: every job and
//! every step ended once, none is lost, takeovers came in time.

mod crew;
mod load;
mod lock;
mod report;
mod stage;
mod verdict;

use std::time::Duration;

use anyhow::bail;
use clap::Args;
use leasehold::clock::{BootClock, Clock, ClockExt, until};

use crate::drill::unless_interrupted;
use crate::say::say;
use crew::Crew;
use load::Load;
use lock::Watch;
use stage::Stage;

pub(crate) use stage::Kind;

/// `leasehold drill plane`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  leasehold drill plane                                    1,000 jobs, 100 runs, three replicas, all faults
  leasehold drill plane --jobs 100 --runs 10               a quick look
  leasehold drill plane --faults term                      a rolling restart under load
  leasehold drill plane --on redis --faults kill,stop
  leasehold drill plane --outage 30s --faults none         the lock store is down for a while; jobs are kept elsewhere")]
pub(crate) struct ProofArgs {
    /// Where locks and jobs are kept
    #[arg(long, value_enum, value_name = "KIND", default_value_t = Kind::Sqlite)]
    pub(crate) on: Kind,
    /// How many jobs
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u32).range(..=1_000_000))]
    pub(crate) jobs: u32,
    /// How many workflow runs, each with parallel steps, a delay and an approval
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(..=1_000_000))]
    pub(crate) runs: u32,
    /// How many replicas
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u16).range(1..=64))]
    pub(crate) replicas: u16,
    /// The leases' time to live
    #[arg(long, value_name = "DURATION", default_value = "2s", value_parser = crate::span::parse)]
    pub(crate) ttl: Duration,
    /// How often the loops tick
    #[arg(long, value_name = "DURATION", default_value = "500ms", value_parser = crate::span::parse)]
    pub(crate) poll: Duration,
    /// How long one job works
    #[arg(long, value_name = "DURATION", default_value = "100ms", value_parser = crate::span::parse)]
    pub(crate) work: Duration,
    /// What is done to the replicas in turn
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = [Fault::Kill, Fault::Stop, Fault::Term])]
    pub(crate) faults: Vec<Fault>,
    /// The lock store is down for this long, once: locks on Redis, jobs on SQLite
    #[arg(long, value_name = "DURATION", value_parser = crate::span::parse)]
    pub(crate) outage: Option<Duration>,
    /// What a busy machine may add to a takeover before it counts as late
    #[arg(long, value_name = "DURATION", default_value = "500ms", value_parser = crate::span::parse)]
    pub(crate) slack: Duration,
    /// Everything must have ended by then
    #[arg(long, value_name = "DURATION", default_value = "15m", value_parser = crate::span::parse)]
    pub(crate) within: Duration,
    /// Leave the stores and the replicas' logs in this folder
    #[arg(long, value_name = "FOLDER")]
    pub(crate) keep: Option<std::path::PathBuf>,
}

impl ProofArgs {
    /// A replica's jobs are taken over within this time: its leases run out, and the next tick finds them. The loop that
    /// ticks may have been its own, and then its lease runs out first.
    pub(crate) fn bound(&self) -> Duration {
        self.ttl.max(self.poll * 3) + self.poll
    }
}

/// What is done to a replica.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Fault {
    /// Killed with -9, and started again
    Kill,
    /// Stopped for longer than its leases live, and continued
    Stop,
    /// Told to end, and started again: a rolling restart
    Term,
    /// Nothing
    None,
}

/// Runs the drill; false is a broken promise.
pub(crate) fn main(args: &ProofArgs) -> anyhow::Result<bool> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()?;
    let done = runtime.block_on(unless_interrupted(run(args)))?;
    done.unwrap_or_else(|| bail!("interrupted: every replica and server of the drill is gone"))
}

async fn run(args: &ProofArgs) -> anyhow::Result<bool> {
    let mut stage = Stage::set(args).await?;
    let plane = stage.plane().await?;
    let watch = Watch::on(stage.files())?;
    let crew = Crew::start(args, &stage)?;
    let started = BootClock.now();
    say(&format!(
        "{} jobs and {} runs on {} replicas, TTL {:?}, poll {:?}; logs are in {}",
        args.jobs,
        args.runs,
        args.replicas,
        args.ttl,
        args.poll,
        stage.folder().display()
    ));
    let load = Load::new(args, &stage, &plane);
    let submitting = async {
        load.submit().await?;
        load.approve_until_done().await
    };
    let (done, faults) = {
        let breaking = async {
            let outage = async {
                match args.outage {
                    Some(outage) => stage.lock_store_down(outage, &load).await.map(Some),
                    None => Ok(None),
                }
            };
            tokio::join!(crew.break_things(args, &load, &watch), outage)
        };
        let all = async {
            tokio::select! {
                done = async { tokio::join!(submitting, breaking) } => done,
                never = watch.run() => match never {},
            }
        };
        let Some((done, (faults, outage))) = until(&BootClock, started + args.within, all).await else {
            // What is not done by now is reported as lost below.
            let faults = crew.faults();
            crew.end().await;
            let took = BootClock.now().since(started);
            return verdict::judge(args, &plane, &load, &faults, &watch, None, took).await;
        };
        done?;
        (outage?, faults?)
    };
    let took = BootClock.now().since(started);
    // One more poll, so that what is late and should not be there has time to show.
    BootClock.sleep(args.poll * 2).await;
    crew.end().await;
    verdict::judge(args, &plane, &load, &faults, &watch, done, took).await
}

//! The drill of the control plane: injects faults into replica processes under load, and judges the
//! result. `leasehold drill plane` runs it.
//!
//! `testbed` has the throw-away stores and the policy; `replicas` the replica processes and the faults;
//! `workload` the jobs, runs and approvals. `file_lock` detects which process keeps a SQLite file locked.
//! `verdict` reads the stores afterwards, and `report` judges: every job and every step ended once, none is
//! lost, and takeovers were in time.

mod file_lock;
mod replicas;
mod report;
mod testbed;
mod verdict;
mod workload;

use std::path::PathBuf;
use std::time::Duration;

use leasehold_core::clock::{BootClock, Clock, ClockExt, run_until};
use leasehold_core::testbed::TestbedFactory;

use crate::fleet::WorkerProgram;
use file_lock::LockWatch;
use replicas::ReplicaFleet;
use testbed::PlaneTestbed;
use workload::Workload;

/// The load, the faults, and the limits of one drill.
#[derive(Debug, Clone)]
pub struct PlaneDrillOptions {
    /// Where locks and jobs are kept.
    pub on: &'static dyn TestbedFactory,
    /// The number of jobs.
    pub jobs: u32,
    /// The number of workflow runs, each with parallel steps, a delay and an approval.
    pub runs: u32,
    /// The number of replica processes.
    pub replicas: u16,
    /// The leases' time to live.
    pub ttl: Duration,
    /// How often the loops tick.
    pub poll: Duration,
    /// How long one job works.
    pub work: Duration,
    /// What is done to the replicas in turn; may be empty.
    pub faults: Vec<PlaneFault>,
    /// Stops the lock store once, for this long: the jobs are kept elsewhere if `on` cannot be stopped.
    pub outage: Option<Duration>,
    /// What a busy machine may add to a takeover before it counts as late.
    pub slack: Duration,
    /// Everything must have ended by then.
    pub within: Duration,
    /// Leaves the stores and the replicas' logs in this folder.
    pub keep: Option<PathBuf>,
}

impl PlaneDrillOptions {
    /// The bound for the takeover of a replica's jobs.
    #[must_use]
    pub fn takeover_bound(&self) -> Duration {
        // The jobs' leases expire, and the next tick finds the jobs. If the dead replica also ran the
        // loop, the loop's own lease (three polls) must expire first.
        self.ttl.max(self.poll * 3) + self.poll
    }
}

/// A fault of a replica.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum PlaneFault {
    /// Killed with -9, and started again.
    Kill,
    /// Stopped for longer than its leases live, and continued.
    Stop,
    /// Told to end, and started again: a rolling restart.
    Term,
}

/// The result of a drill.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct PlaneVerdict {
    /// Whether every promise was kept.
    pub kept: bool,
    /// The report as text, complete before a line of it is printed.
    pub report: Vec<u8>,
}

/// Runs the drill. `program` must be the `leasehold` command: replicas are started with it.
///
/// # Errors
/// The drill could not be run; this is no verdict.
pub async fn run(
    options: &PlaneDrillOptions,
    program: &WorkerProgram,
    progress: &dyn Fn(&str),
) -> anyhow::Result<PlaneVerdict> {
    let testbed = PlaneTestbed::create(options, program).await?;
    let plane = testbed.plane().await?;
    let lock_watch = LockWatch::open(testbed.single_writer_files())?;
    let replicas = ReplicaFleet::start(options, program, &testbed)?;
    let started = BootClock.now();
    progress(&format!(
        "{} jobs and {} runs on {} replicas, TTL {:?}, poll {:?}; logs are in {}",
        options.jobs,
        options.runs,
        options.replicas,
        options.ttl,
        options.poll,
        testbed.folder().display()
    ));
    let load = Workload::new(options, &testbed, &plane);
    let submitting = async {
        load.submit().await?;
        load.approve_until_done().await
    };
    let (done, faults) = {
        let breaking = async {
            let outage = async {
                match options.outage {
                    Some(outage) => testbed.stop_lock_store(outage, &load, progress).await.map(Some),
                    None => Ok(None),
                }
            };
            tokio::join!(replicas.inject_faults(options, &load, &lock_watch), outage)
        };
        let all = async {
            tokio::select! {
                done = async { tokio::join!(submitting, breaking) } => done,
                never = lock_watch.run() => match never {},
            }
        };
        let Some((done, (faults, outage))) = run_until(&BootClock, started + options.within, all).await
        else {
            // Unfinished work is reported as lost below.
            let faults = replicas.faults();
            replicas.stop_all().await;
            let took = BootClock.now().since(started);
            return verdict::read_and_judge(options, &plane, &load, &faults, &lock_watch, None, took).await;
        };
        done?;
        (outage?, faults?)
    };
    let took = BootClock.now().since(started);
    // Wait another two polls, so that late duplicate work has time to show.
    BootClock.sleep(options.poll * 2).await;
    replicas.stop_all().await;
    verdict::read_and_judge(options, &plane, &load, &faults, &lock_watch, done, took).await
}

//! Runs many seeds on several threads until one of them breaks a promise.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::mistake::Mistake;
use super::orphans::OrphanStats;
use super::plan::{SimPlan, Topology};
use super::shrink::{ShrunkPlan, shrink};
use super::simulation::{SimRun, run_plan};

/// Which seeds to run, and how.
#[derive(Debug, Clone, Copy)]
pub struct Campaign {
    /// The first seed.
    pub first_seed: u64,
    /// Number of seeds, counted from `from`.
    pub seed_count: u64,
    /// Worker threads; each runs one history at a time.
    pub threads: usize,
    /// The bug to reintroduce; [`Mistake::Nothing`] in a normal run.
    pub mistake: Mistake,
    /// Whether clients use the store directly or through a daemon.
    pub topology: Topology,
}

/// Counters of a running campaign, updated by all of its threads.
#[derive(Debug, Default)]
pub struct Progress {
    /// Histories that have finished.
    pub done: AtomicU64,
    /// Simulated events in all finished histories.
    pub events: AtomicU64,
    /// Leases granted in all finished histories.
    pub grants: AtomicU64,
    /// Writes that the target applied.
    pub applied: AtomicU64,
    /// Simulated time of all finished histories, in milliseconds.
    pub simulated_ms: AtomicU64,
    /// How often each kind of fault happened.
    pub faults: Mutex<BTreeMap<&'static str, u64>>,
    /// How long orphaned leases stood.
    pub orphans: Mutex<OrphanStats>,
    /// Set to stop every thread before its next history.
    pub stop: AtomicBool,
}

impl Progress {
    fn add(&self, run: &SimRun) {
        self.events.fetch_add(run.events, Ordering::Relaxed);
        let (grants, applied) = (run.judgement.grants, run.judgement.applied);
        self.grants.fetch_add(grants as u64, Ordering::Relaxed);
        self.applied.fetch_add(applied as u64, Ordering::Relaxed);
        self.simulated_ms.fetch_add(run.duration_nanos / 1_000_000, Ordering::Relaxed);
        let mut faults = self.faults.lock().unwrap_or_else(PoisonError::into_inner);
        for (fault, times) in &run.faults {
            *faults.entry(fault).or_default() += times;
        }
        let mut orphans = self.orphans.lock().unwrap_or_else(PoisonError::into_inner);
        orphans.add(run.orphans);
    }
}

/// A seed that broke a promise.
#[derive(Debug)]
pub struct FailedSeed {
    /// Rebuilds the plan, together with the campaign's mistake and topology.
    pub seed: u64,
    /// The run that broke a promise, or why the plan could not be run.
    pub run: Result<SimRun, String>,
}

impl FailedSeed {
    /// The first promise that the run broke; `None` if the plan could not be run.
    #[must_use]
    pub fn broken_promise(&self) -> Option<&'static str> {
        let run = self.run.as_ref().ok()?;
        run.judgement.findings.first().map(|found| found.invariant)
    }

    /// Shrinks the plan; `None` if there is no run to judge.
    #[must_use]
    pub fn shrink(self, world: Topology, mistake: Mistake) -> Option<ShrunkPlan> {
        let broken = self.broken_promise()?;
        let plan = SimPlan::for_topology(world, self.seed, mistake);
        self.run.ok().map(|run| shrink(&plan, run, broken))
    }
}

/// Runs histories until one breaks a promise, all are done, or `progress.stop` is set.
///
/// Returns the failure with the lowest seed among those that were seen.
#[must_use]
pub fn run_campaign(campaign: Campaign, progress: &Progress) -> Option<FailedSeed> {
    let next = AtomicU64::new(campaign.first_seed);
    let end = campaign.first_seed.saturating_add(campaign.seed_count);
    let failed: Mutex<Option<FailedSeed>> = Mutex::new(None);
    std::thread::scope(|scope| {
        for _ in 0..campaign.threads.max(1) {
            scope.spawn(|| {
                while !progress.stop.load(Ordering::Relaxed) {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= end {
                        return;
                    }
                    let run = run_plan(&SimPlan::for_topology(campaign.topology, seed, campaign.mistake));
                    if let Ok(run) = &run {
                        progress.add(run);
                    }
                    progress.done.fetch_add(1, Ordering::Relaxed);
                    if run.as_ref().is_ok_and(|run| run.judgement.clean()) {
                        continue;
                    }
                    progress.stop.store(true, Ordering::Relaxed);
                    let mut failed = failed.lock().unwrap_or_else(PoisonError::into_inner);
                    // Threads finish out of order. Reporting the lowest seed makes repeated campaigns
                    // more likely to report the same one.
                    if failed.as_ref().is_none_or(|other| seed < other.seed) {
                        *failed = Some(FailedSeed { seed, run });
                    }
                }
            });
        }
    });
    failed.into_inner().unwrap_or_else(PoisonError::into_inner)
}

/// Runs each history twice and returns the first seed whose two runs differ.
///
/// # Errors
/// A plan cannot be run.
pub fn find_unrepeatable_seed(campaign: Campaign, progress: &Progress) -> Result<Option<u64>, String> {
    for seed in campaign.first_seed..campaign.first_seed.saturating_add(campaign.seed_count) {
        if progress.stop.load(Ordering::Relaxed) {
            break;
        }
        let plan = SimPlan::for_topology(campaign.topology, seed, campaign.mistake);
        let (first, second) = (run_plan(&plan)?, run_plan(&plan)?);
        progress.done.fetch_add(1, Ordering::Relaxed);
        progress.events.fetch_add(first.events, Ordering::Relaxed);
        if (first.digest(), first.events) != (second.digest(), second.events) {
            return Ok(Some(seed));
        }
    }
    Ok(None)
}

//! Many histories: seeds from one number on, on some threads, until one breaks a promise.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::director::{Run, live};
use super::mistake::Mistake;
use super::orphans::Orphans;
use super::plan::{Plan, World};
use super::shrink::{Shrunk, shrink};

/// What is to be lived.
#[derive(Debug, Clone, Copy)]
pub struct Campaign {
    /// The first seed.
    pub from: u64,
    /// How many.
    pub seeds: u64,
    /// On how many threads.
    pub threads: usize,
    /// What is wrong on purpose.
    pub mistake: Mistake,
    /// In which world.
    pub world: World,
}

/// How far it is.
#[derive(Debug, Default)]
pub struct Progress {
    /// Histories that were lived.
    pub done: AtomicU64,
    /// What happened in them.
    pub events: AtomicU64,
    /// Grants in them.
    pub grants: AtomicU64,
    /// Writes that the target applied.
    pub applied: AtomicU64,
    /// How long they lasted, in simulated milliseconds.
    pub lasted: AtomicU64,
    /// How often each kind of fault happened in them.
    pub faults: Mutex<BTreeMap<&'static str, u64>>,
    /// How long leases that nobody wanted stood in them.
    pub orphans: Mutex<Orphans>,
    /// Stop at the next history.
    pub stop: AtomicBool,
}

impl Progress {
    fn add(&self, run: &Run) {
        self.events.fetch_add(run.events, Ordering::Relaxed);
        let (grants, applied) = (run.judgement.grants, run.judgement.applied);
        self.grants.fetch_add(grants as u64, Ordering::Relaxed);
        self.applied.fetch_add(applied as u64, Ordering::Relaxed);
        self.lasted.fetch_add(run.lasted / 1_000_000, Ordering::Relaxed);
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
pub struct Failure {
    /// Which.
    pub seed: u64,
    /// What happened.
    pub run: Result<Run, String>,
}

impl Failure {
    /// The promise that was broken first.
    #[must_use]
    pub fn broken(&self) -> Option<&'static str> {
        let run = self.run.as_ref().ok()?;
        run.judgement.findings.first().map(|found| found.invariant)
    }

    /// The short form of it, if it can be judged at all.
    #[must_use]
    pub fn shrink(self, world: World, mistake: Mistake) -> Option<Shrunk> {
        let broken = self.broken()?;
        let plan = Plan::of(world, self.seed, mistake);
        self.run.ok().map(|run| shrink(&plan, run, broken))
    }
}

/// Lives histories until one breaks a promise, all are done, or it is told to stop; answers with the failure of the lowest
/// seed that was seen.
#[must_use]
pub fn campaign(what: Campaign, progress: &Progress) -> Option<Failure> {
    let next = AtomicU64::new(what.from);
    let end = what.from.saturating_add(what.seeds);
    let failed: Mutex<Option<Failure>> = Mutex::new(None);
    std::thread::scope(|scope| {
        for _ in 0..what.threads.max(1) {
            scope.spawn(|| {
                while !progress.stop.load(Ordering::Relaxed) {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= end {
                        return;
                    }
                    let run = live(&Plan::of(what.world, seed, what.mistake));
                    if let Ok(run) = &run {
                        progress.add(run);
                    }
                    progress.done.fetch_add(1, Ordering::Relaxed);
                    if run.as_ref().is_ok_and(|run| run.judgement.clean()) {
                        continue;
                    }
                    progress.stop.store(true, Ordering::Relaxed);
                    let mut failed = failed.lock().unwrap_or_else(PoisonError::into_inner);
                    if failed.as_ref().is_none_or(|other| seed < other.seed) {
                        *failed = Some(Failure { seed, run });
                    }
                }
            });
        }
    });
    failed.into_inner().unwrap_or_else(PoisonError::into_inner)
}

/// Lives each history twice; answers with the first seed that was not the same to the last byte.
///
/// # Errors
/// A history cannot be lived.
pub fn replay(what: Campaign, progress: &Progress) -> Result<Option<u64>, String> {
    for seed in what.from..what.from.saturating_add(what.seeds) {
        if progress.stop.load(Ordering::Relaxed) {
            break;
        }
        let plan = Plan::of(what.world, seed, what.mistake);
        let (first, second) = (live(&plan)?, live(&plan)?);
        progress.done.fetch_add(1, Ordering::Relaxed);
        progress.events.fetch_add(first.events, Ordering::Relaxed);
        if (first.digest(), first.events) != (second.digest(), second.events) {
            return Ok(Some(seed));
        }
    }
    Ok(None)
}

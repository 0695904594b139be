//! A soak: one store and its workers for a long time, with a fault every few seconds.
//!
//! A run of days cannot keep its whole history, so it is split into windows. At the end of a window
//! the workers end, the remaining leases are read, the window is judged, and its history is
//! dropped. The store, its fence counters and the target live on. So does what promises across
//! windows need: the highest fence of each name, and the target's last rows.

use std::collections::BTreeMap;
use std::time::Duration;

use leasehold_core::clock::{BootClock, Clock};
use leasehold_core::rng::SeededRandom;
use leasehold_core::testbed::TestbedFactory;
use serde::Serialize;

use super::fault::Fault;
use super::fence_growth::check_fence_growth;
use super::inject::inject_fault;
use super::short_drill::{check_history, report_unclean_exits, too_slow_error, wait_for_recovery};
use super::worker_pool::{WorkerPool, pick_random};
use super::{CHAOS_TTL, POLICIES};
use crate::fleet::{DrillError, DrillStore, DrillTestbed, FakeWallClock, FencedTarget, WorkerProgram};
use crate::history::History;
use crate::scenario::context::ScenarioContext;
use crate::scenario::{DrillOptions, HOST_SLACK, Measures};

// A single failed window may be bad luck. More in a row mean that the host or the store cannot run
// the soak.
const MAX_FAILED_WINDOWS: u32 = 2;

/// The parameters of a soak.
#[derive(Debug, Clone, Copy)]
pub struct SoakPlan {
    /// The store to run on.
    pub store: &'static dyn TestbedFactory,
    /// Duration of the soak.
    pub duration: Duration,
    /// Interval from the start of one fault to the start of the next. A fault that takes longer
    /// delays the next one.
    pub fault_interval: Duration,
    /// Length of one window.
    pub window_length: Duration,
    /// Seed that chooses the faults.
    pub seed: u64,
}

/// One judged window of a soak.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct SoakWindow {
    /// Number of the window, counted from 1.
    pub number: u64,
    /// The injected faults, in order.
    pub faults: Vec<Fault>,
    /// The broken promises; empty if the window is clean.
    pub broken: Vec<String>,
    /// Why the window proves nothing: the host was too slow and only time limits were broken, or it
    /// could not be run.
    pub disturbed: Option<String>,
    /// Counts and times from the history.
    pub measures: Measures,
    /// Number of judged records.
    pub records: u64,
    /// The full history of the window.
    pub history: History,
}

impl SoakWindow {
    /// Builds the result. Broken promises count even if the window ended with an error. The window
    /// is disturbed in two cases: the host was too slow and only time limits were broken, or there
    /// was an error and no broken promise.
    fn from_results(
        number: u64,
        (faults, mut broken): (Vec<Fault>, Vec<String>),
        (measures, history): (Measures, History),
        stood_still: Duration,
        error: Option<&DrillError>,
    ) -> Self {
        let late = too_slow_error(stood_still, &broken).map(|late| late.to_string());
        let cut_short = error.filter(|_| broken.is_empty()).map(ToString::to_string);
        let disturbed = late.or(cut_short);
        if disturbed.is_some() {
            broken.clear();
        }
        Self {
            number,
            faults,
            broken,
            disturbed,
            measures,
            records: u64::try_from(history.records.len()).unwrap_or(u64::MAX),
            history,
        }
    }
}

/// The totals of all windows.
#[derive(Debug, Clone, Default, Serialize)]
#[non_exhaustive]
pub struct SoakTotals {
    /// Duration in seconds.
    pub took_s: f64,
    /// Number of judged windows.
    pub windows: u64,
    /// Windows that prove nothing about time: the host was too slow and only time limits were
    /// broken, or the window could not be completed.
    pub disturbed: u64,
    /// Number of faults by name.
    pub faults: BTreeMap<&'static str, u64>,
    /// Number of judged records.
    pub records: u64,
    /// Number of leases granted.
    pub grants: u64,
    /// Number of holds that were fenced.
    pub fenced: u64,
    /// Number of writes that the target applied.
    pub applied: u64,
    /// Number of stale writes that the target refused.
    pub refused: u64,
    /// The first hundred broken promises, each with its window's number.
    pub violations: Vec<(u64, String)>,
    /// Why the soak ended early, if it did.
    pub given_up: Option<String>,
}

impl SoakTotals {
    /// Why the result is too weak to be called clean, if it is: the soak ended early, or too many
    /// windows were disturbed.
    #[must_use]
    pub fn inconclusive(&self) -> Option<String> {
        if let Some(why) = &self.given_up {
            return Some(format!("it was given up after {} windows: {why}", self.windows));
        }
        // One disturbed window, or a tenth of many, is normal on a shared host. All of them would
        // prove nothing.
        let most = (self.windows / 10).max(1);
        let judged = self.windows.saturating_sub(self.disturbed);
        (self.disturbed > most || judged == 0)
            .then(|| format!("{} of {} windows were disturbed and say nothing", self.disturbed, self.windows))
    }

    fn add(&mut self, window: &SoakWindow) {
        self.windows += 1;
        self.disturbed += u64::from(window.disturbed.is_some());
        for fault in &window.faults {
            *self.faults.entry(fault.as_str()).or_default() += 1;
        }
        self.records += window.records;
        self.grants += window.measures.grants;
        self.fenced += window.measures.abandoned.values().sum::<u64>();
        self.applied += window.measures.applied;
        self.refused += window.measures.refused;
        for why in &window.broken {
            if self.violations.len() < 100 {
                self.violations.push((window.number, why.clone()));
            }
        }
    }
}

/// Runs a soak and calls `judged` for each window. Dropping the future ends all processes.
///
/// # Errors
/// The soak could not be started. That is no verdict on the store.
pub async fn run_soak(
    plan: SoakPlan,
    program: &WorkerProgram,
    mut judged: impl FnMut(&SoakWindow),
) -> Result<SoakTotals, DrillError> {
    // Without libfaketime the clock faults are left out; all others still run.
    let skews = FakeWallClock::is_available();
    let random = SeededRandom::new(plan.seed);
    let (mut context, mut clock) = open_context(&plan, program, skews).await?;
    let (started, mut sums) = (BootClock.now(), SoakTotals::default());
    let (mut fences, mut in_vain) = (BTreeMap::new(), 0);
    while BootClock.now().since(started) < plan.duration {
        let number = sums.windows + 1;
        let left = plan.duration.saturating_sub(BootClock.now().since(started));
        let mut found = (Vec::new(), Vec::new());
        let ran = run_window(
            &plan,
            (number, plan.window_length.min(left)),
            &mut context,
            clock.as_ref(),
            &random,
            &mut found,
        )
        .await;
        let (faults, mut broken) = found;
        let error = ran.err();
        // The workers may still run after an error. End them, and judge what the window has shown.
        if error.is_some() {
            report_unclean_exits(&context.end_after_error(CHAOS_TTL + HOST_SLACK).await, &mut broken);
        }
        let history = context.history.take();
        let measures = check_history(&history, &mut broken);
        check_fence_growth(&history, &mut fences, &mut broken);
        let window = SoakWindow::from_results(
            number,
            (faults, broken),
            (measures, history),
            context.load_probe.take_worst_delay(),
            error.as_ref(),
        );
        sums.add(&window);
        judged(&window);
        let error = match error {
            // Later windows need only the last rows. Without this the file would grow for days.
            None => FencedTarget::open(&context.testbed.target_path())
                .and_then(|ledger| ledger.drop_old_rows())
                .err(),
            error => error,
        };
        match AfterWindow::decide(error, &mut in_vain) {
            AfterWindow::Next => {}
            AfterWindow::NewStore => {
                context.discard().await;
                // A new store starts its fence counters again.
                fences.clear();
                (context, clock) = match open_context(&plan, program, skews).await {
                    Ok(begun) => begun,
                    Err(error) => {
                        sums.given_up = Some(error.to_string());
                        sums.took_s = BootClock.now().since(started).as_secs_f64();
                        return Ok(sums);
                    }
                };
            }
            // The results of the earlier windows are returned in any case.
            AfterWindow::GiveUp(error) => {
                sums.given_up = Some(error.to_string());
                break;
            }
        }
    }
    sums.took_s = BootClock.now().since(started).as_secs_f64();
    context.discard().await;
    Ok(sums)
}

/// What to do after a window.
#[derive(Debug)]
enum AfterWindow {
    /// Run the next window.
    Next,
    /// Run the next window on a new store: after an error the state of the old one is unknown.
    NewStore,
    /// End the soak.
    GiveUp(DrillError),
}

impl AfterWindow {
    fn decide(error: Option<DrillError>, in_vain: &mut u32) -> Self {
        match error {
            None => {
                *in_vain = 0;
                Self::Next
            }
            Some(DrillError::WaitTimedOut(_) | DrillError::Store(_) | DrillError::Fault(_))
                if *in_vain < MAX_FAILED_WINDOWS =>
            {
                *in_vain += 1;
                Self::NewStore
            }
            Some(error) => Self::GiveUp(error),
        }
    }
}

/// Creates a testbed, and a fake clock for the workers.
async fn open_context(
    plan: &SoakPlan,
    program: &WorkerProgram,
    skews: bool,
) -> Result<(ScenarioContext, Option<FakeWallClock>), DrillError> {
    let testbed = DrillTestbed::build(&DrillStore::ThrowAway(plan.store), POLICIES, program, skews).await?;
    let context = ScenarioContext::new(testbed, program, DrillOptions::default())?;
    let clock = skews.then(|| FakeWallClock::new(context.testbed.folder(), "client-clock"));
    Ok((context, clock.transpose()?))
}

/// Runs one window: three workers with two clients each on two names, faults at the planned
/// interval, and an orderly end. The injected faults and broken promises are passed out by
/// reference, so they survive an error.
async fn run_window(
    plan: &SoakPlan,
    (number, lasts): (u64, Duration),
    context: &mut ScenarioContext,
    clock: Option<&FakeWallClock>,
    random: &SeededRandom,
    (faults, broken): &mut (Vec<Fault>, Vec<String>),
) -> Result<(), DrillError> {
    let possible = Fault::possible_on(&plan.store.info(), clock.is_some());
    // Client names contain the window's number: rows in the target and records of two windows must
    // not mix.
    let mut fleet = WorkerPool::new(context, &format!("w{number}-"), 3, 2, &["job:1", "job:2"], random);
    fleet.clock = clock.cloned();
    let end = BootClock.now() + lasts;
    fleet.start_missing(context).await?;
    while BootClock.now() < end {
        let next = (BootClock.now() + plan.fault_interval).min(end);
        let fault = pick_random(&possible, random).copied().unwrap_or(Fault::Kill);
        inject_fault(fault, context, &mut fleet, random).await?;
        faults.push(fault);
        if !wait_for_recovery(context).await {
            broken.push(format!("L5: no client was granted a name after {}", fault.as_str()));
        }
        context.sleep(next.since(BootClock.now())).await;
    }
    report_unclean_exits(&context.workers.end_all().await, broken);
    context.record_final_state(CHAOS_TTL + HOST_SLACK).await
}

#[cfg(test)]
mod tests {
    use super::*;

    fn window_with(broken: &[&str], stood_still: Duration, error: Option<&DrillError>) -> SoakWindow {
        let broken = broken.iter().map(|why| (*why).to_owned()).collect();
        let (measures, history) = (Measures::default(), History::default());
        SoakWindow::from_results(1, (vec![Fault::Kill], broken), (measures, history), stood_still, error)
    }

    #[test]
    fn violations_before_an_error_count() {
        let error = DrillError::WaitTimedOut("for a client to work".into());
        let window = window_with(&["L5: no client"], Duration::ZERO, Some(&error));
        assert_eq!(window.broken, ["L5: no client"]);
        assert_eq!((window.disturbed, window.faults), (None, vec![Fault::Kill]));
        let still = crate::fleet::LoadProbe::MAX_DELAY * 2;
        let window = window_with(&["L5: no client"], still, Some(&error));
        assert!(window.broken.is_empty() && window.disturbed.is_some());
        let window = window_with(&["L5: no client", "I1: two"], still, Some(&error));
        assert_eq!((window.broken.len(), window.disturbed), (2, None));
        let window = window_with(&[], Duration::ZERO, Some(&error));
        assert!(window.disturbed.is_some(), "it says nothing");
        assert!(window_with(&[], still, None).disturbed.is_none(), "and this one is clean");
    }

    #[test]
    fn a_mostly_disturbed_soak_is_inconclusive() {
        let soak = |windows, disturbed| SoakTotals { windows, disturbed, ..SoakTotals::default() };
        for (windows, disturbed) in [(3, 3), (1, 1), (0, 0), (3, 2), (40, 5)] {
            assert!(soak(windows, disturbed).inconclusive().is_some(), "{disturbed} of {windows}");
        }
        for (windows, disturbed) in [(3, 0), (3, 1), (40, 4)] {
            assert_eq!(soak(windows, disturbed).inconclusive(), None);
        }
    }

    #[test]
    fn a_failed_window_gets_a_new_store_and_three_in_a_row_end_the_soak() {
        let waited = || Some(DrillError::WaitTimedOut("for a client to work".into()));
        let mut in_vain = 0;
        for _ in 0..3 {
            assert!(matches!(AfterWindow::decide(waited(), &mut in_vain), AfterWindow::NewStore));
            assert!(matches!(AfterWindow::decide(waited(), &mut in_vain), AfterWindow::NewStore));
            assert!(matches!(AfterWindow::decide(None, &mut in_vain), AfterWindow::Next));
        }
        for error in [DrillError::Store("locked".into()), DrillError::Fault("refused".into())] {
            assert!(matches!(AfterWindow::decide(Some(error), &mut in_vain), AfterWindow::NewStore));
        }
        assert!(matches!(AfterWindow::decide(waited(), &mut in_vain), AfterWindow::GiveUp(_)));
        let missing = DrillError::MissingTool("no redis-server".into());
        assert!(matches!(AfterWindow::decide(Some(missing), &mut 0), AfterWindow::GiveUp(_)));
    }

    /// Broken promises are reported even if the soak ends early.
    #[test]
    fn a_soak_that_ended_early_is_inconclusive_and_keeps_violations() {
        let mut sums = SoakTotals::default();
        sums.add(&window_with(&["I1: two"], Duration::ZERO, None));
        sums.add(&window_with(&[], Duration::ZERO, None));
        assert_eq!(sums.inconclusive(), None);
        sums.given_up = Some("no redis-server".into());
        assert!(sums.inconclusive().is_some_and(|why| why.contains("after 2 windows")));
        assert_eq!(sums.violations, [(1, "I1: two".to_owned())]);
    }
}

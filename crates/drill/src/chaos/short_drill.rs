//! One short drill: its own store, two workers, one fault, and a verdict.

use std::time::Duration;

use leasehold_core::clock::{BootClock, Clock};
use leasehold_core::rng::{RandomExt, SeededRandom};
use leasehold_core::testbed::{TestbedFactory, pick_by_share};

use super::fault::Fault;
use super::inject::inject_fault;
use super::worker_pool::{WorkerPool, pick_random};
use super::{CHAOS_TTL, POLICIES};
use crate::fleet::{
    DrillError, DrillStore, DrillTestbed, FakeWallClock, LoadProbe, WorkerExit, WorkerProgram,
};
use crate::history::History;
use crate::oracle::judge;
use crate::scenario::context::{ScenarioContext, transition};
use crate::scenario::{DrillOptions, EVENT_TIMEOUT, HOST_SLACK, Measures, measure};

// Also the suffix by which `only_timing_broken` recognises this message.
pub(super) const NOT_ENDED_IN_ORDER: &str = "did not end in order";

/// The result of a short drill.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct ShortDrillResult {
    /// The seed that chose store, class, fault and delays.
    pub seed: u64,
    /// Name of the store it ran on.
    pub store: &'static str,
    /// The injected fault.
    pub fault: Fault,
    /// The broken promises; empty if the drill is clean.
    pub broken: Vec<String>,
    /// The time limits that the first run broke; empty unless the drill was run twice.
    pub late: Vec<String>,
    /// Duration of the drill.
    pub took: Duration,
    /// Counts and times from the history.
    pub measures: Measures,
    /// The full history.
    pub history: History,
}

/// Runs the drill of this seed, on the given kind of store or on one that the seed chooses.
/// Dropping the future ends all processes.
///
/// # Errors
/// The drill could not be run. That is no verdict on the store.
pub async fn run_short_drill(
    seed: u64,
    on: Option<&'static dyn TestbedFactory>,
    program: &WorkerProgram,
) -> Result<ShortDrillResult, DrillError> {
    let random = SeededRandom::new(seed);
    let started = BootClock.now();
    // Drawn even if `on` is given: the following draws are then the same for every store.
    let drawn = draw_store(&random);
    let none = || DrillError::MissingTool("no store is registered that a seed can choose".to_owned());
    let store = DrillStore::ThrowAway(on.or(drawn).ok_or_else(none)?);
    let possible = Fault::possible_on(&store.info(), FakeWallClock::is_available());
    let fault = pick_random(&possible, &random).copied().unwrap_or(Fault::Kill);
    let testbed = DrillTestbed::build(&store, POLICIES, program, fault.needs_fake_clock()).await?;
    let mut context = ScenarioContext::new(testbed, program, DrillOptions::default())?;
    let mut fleet = WorkerPool::new(&context, "w", 2, 1, &["job:1"], &random);
    if fault == Fault::ClientClock {
        fleet.clock = Some(FakeWallClock::new(context.testbed.folder(), "client-clock")?);
    }
    let mut broken = Vec::new();
    let played = run_fault(fault, &mut context, &mut fleet, &random, &mut broken).await;
    if played.is_err() {
        report_unclean_exits(&context.end_after_error(CHAOS_TTL + HOST_SLACK).await, &mut broken);
    }
    let history = context.history.snapshot();
    let measures = check_history(&history, &mut broken);
    let late = too_slow_error(context.load_probe.take_worst_delay(), &broken);
    context.discard().await;
    // A disturbed run is no result. As an error it is retried by the batch.
    if let Some(error) = late {
        return Err(error);
    }
    // A broken promise counts even if the drill did not complete.
    if let Err(error) = played
        && broken.is_empty()
    {
        return Err(error);
    }
    Ok(ShortDrillResult {
        seed,
        store: store.info().name,
        fault,
        broken,
        late: Vec::new(),
        took: BootClock.now().since(started),
        measures,
        history,
    })
}

/// Draws a registered store by its share of the seeds.
fn draw_store(random: &SeededRandom) -> Option<&'static dyn TestbedFactory> {
    pick_by_share(leasehold::testbeds(), |store| store.info().seed_share, |bound| random.below(bound))
}

async fn run_fault(
    fault: Fault,
    context: &mut ScenarioContext,
    fleet: &mut WorkerPool,
    random: &SeededRandom,
    broken: &mut Vec<String>,
) -> Result<(), DrillError> {
    fleet.start_missing(context).await?;
    inject_fault(fault, context, fleet, random).await?;
    if !wait_for_recovery(context).await {
        broken.push(format!(
            "L5: no client was granted the name within {} s of the fault's end",
            EVENT_TIMEOUT.as_secs()
        ));
    }
    report_unclean_exits(&context.workers.end_all().await, broken);
    context.record_final_state(CHAOS_TTL + HOST_SLACK).await
}

/// Reports workers that did not end cleanly as broken promises.
pub(super) fn report_unclean_exits(others: &[(String, WorkerExit)], broken: &mut Vec<String>) {
    for (who, how) in others {
        match how {
            WorkerExit::Clean => {}
            WorkerExit::Failed(why) => broken.push(format!("{who} ended with an error: {why}")),
            WorkerExit::TimedOut => broken.push(format!("{who} {NOT_ENDED_IN_ORDER}")),
        }
    }
}

/// Whether promises were broken, and all of them are time limits.
pub(super) fn only_timing_broken(broken: &[String]) -> bool {
    let about_time =
        |why: &String| why.starts_with("L4") || why.starts_with("L5") || why.ends_with(NOT_ENDED_IN_ORDER);
    !broken.is_empty() && broken.iter().all(about_time)
}

/// Returns an error if only time limits were broken and the host was too slow.
pub(super) fn too_slow_error(stood_still: Duration, broken: &[String]) -> Option<DrillError> {
    let late = stood_still > LoadProbe::MAX_DELAY && only_timing_broken(broken);
    late.then(|| DrillError::HostTooSlow { stood_still, why: broken.join("; ") })
}

/// Waits until a client is granted a lease again after the fault.
pub(super) async fn wait_for_recovery(context: &ScenarioContext) -> bool {
    let from = context.history.position();
    let granted = context.history.wait_for(from, EVENT_TIMEOUT, |record| {
        transition(record).is_some_and(|seen| seen.event == "acquired")
    });
    granted.await.is_some()
}

/// Judges the history, adds broken promises to `broken`, and returns the measures.
pub(super) fn check_history(history: &History, broken: &mut Vec<String>) -> Measures {
    let (judged, measures) = (judge(history), measure(history));
    // Safety findings come first: the limit of 20 must not drop them in favour of time limits.
    let (late, worse): (Vec<_>, Vec<_>) =
        judged.findings.iter().partition(|found| found.invariant.starts_with('L'));
    for found in worse.into_iter().chain(late).take(20) {
        broken.push(format!("{}: {}: {}", found.invariant, found.name, found.why));
    }
    // An incomplete history may hide violations, so it is never clean.
    if let Some(lacks) = &judged.missing {
        broken.push(format!("the history is incomplete: nothing can be called clean: {lacks}"));
    }
    if measures.duplicates_fenced > 0 {
        broken.push(format!("{} tasks ended twice in classes that fence", measures.duplicates_fenced));
    }
    measures
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::{ClientEvent, HistoryEntry, HistoryRecord, RecordedOutcome};
    use leasehold_core::Fence;

    const SEC: u64 = 1_000_000_000;

    /// The ledger names drills by their seeds: a third of them are on files.
    #[test]
    fn a_seed_keeps_its_store() {
        for seed in 0..100 {
            let expected = if SeededRandom::new(seed).below(3) == 0 { "sqlite" } else { "redis" };
            let drawn = draw_store(&SeededRandom::new(seed)).map(|store| store.info().name);
            assert_eq!(drawn, Some(expected), "seed {seed}");
        }
    }

    /// Twenty holders learn of their loss too late (time limits), and then two clients hold one
    /// name (safety).
    #[test]
    fn time_limits_do_not_hide_safety_violations() {
        let mut records = Vec::new();
        let mut line = |at: u64, who: &str, what| {
            let who = who.to_owned();
            records.push(HistoryRecord { at, who, what });
        };
        let class = || "scheduler".to_owned();
        let terms = HistoryEntry::Class {
            class: class(),
            ttl: SEC,
            usable: SEC / 10 * 9,
            fail_open: false,
            continues: false,
        };
        line(0, "director", terms);
        let mut hold = |at: u64, who: &str, name: &str, number: u64| {
            let (name, fence) = (name.to_owned(), Fence::new(number));
            let (attempt, class) = (1, class());
            let acquired = ClientEvent {
                seq: 0,
                hold: 1,
                event: "acquired".to_owned(),
                name: Some(name.clone()),
                class: class.clone(),
                fence,
                span: None,
                detail: None,
            };
            line(at, who, HistoryEntry::Asked { attempt, name, class });
            line(at, who, HistoryEntry::Event(acquired));
            let (sent, answer) = (at, RecordedOutcome::Held);
            line(at, who, HistoryEntry::Answered { attempt, sent, answer, fence });
            let until = at + SEC / 10 * 9;
            line(at, who, HistoryEntry::Claimed { attempt, until, proven_until: Some(until), fence });
            let (value, lost) = (None, true);
            line(at + 5 * SEC, who, HistoryEntry::Reported { attempt, value, lost });
        };
        for late in 0..20 {
            hold(1, &format!("w{late}"), &format!("job:{late}"), 7);
        }
        hold(90 * SEC, "x", "job:x", 8);
        hold(90 * SEC + 1, "y", "job:x", 9);
        let mut broken = Vec::new();
        let damage = Vec::new();
        check_history(&History { records, damage }, &mut broken);
        assert!(broken.len() >= 20, "{broken:?}");
        assert!(!only_timing_broken(&broken), "{broken:?}");
    }
}

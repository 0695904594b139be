//! One short drill: a store and two workers of its own, one fault, a verdict.

use std::time::Duration;

use leasehold_core::clock::{BootClock, Clock};
use leasehold_core::rng::{RandomExt, SeededRandom};

use super::fault::Fault;
use super::fleet::{Fleet, pick};
use super::strike::strike;
use super::{POLICIES, TTL};
use crate::fleet::{Ended, Error, Program, Pulse, Skew, Stage, StoreKind};
use crate::history::History;
use crate::oracle::judge;
use crate::scenario::scene::{Scene, transition};
use crate::scenario::{Measures, Options, PATIENCE, SLACK, measure};

/// How a worker that had to be killed at the end is told of.
pub(super) const IN_ORDER: &str = "did not end in order";

/// How it came out.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Micro {
    /// Which one: it chooses everything that can be chosen.
    pub seed: u64,
    /// On which store.
    pub store: StoreKind,
    /// What was done.
    pub fault: Fault,
    /// Why it is not clean; empty if it is.
    pub broken: Vec<String>,
    /// What was late when it was run before, and only then; nothing unless it had to be run twice.
    pub late: Vec<String>,
    /// How long it took.
    pub took: Duration,
    /// How many leases were granted, writes applied and stale ones refused, and so on.
    pub measures: Measures,
    /// Every line.
    pub history: History,
}

/// Runs the drill of this seed, on this kind of store or on one that the seed chooses. Dropping the future ends
/// everything.
///
/// # Errors
/// It could not be run: this says nothing about the store.
pub async fn micro(seed: u64, on: Option<StoreKind>, program: &Program) -> Result<Micro, Error> {
    let random = SeededRandom::new(seed);
    let started = BootClock.now();
    // Drawn in any case, so that the rest of the numbers is the same wherever it is run.
    let drawn = match random.below(3) {
        0 => StoreKind::Sqlite,
        _ => StoreKind::Redis,
    };
    let store = on.unwrap_or(drawn);
    let skews = Skew::possible();
    let possible: Vec<Fault> = Fault::ALL
        .iter()
        .copied()
        .filter(|fault| fault.on(store) && (skews || !fault.skews()))
        .collect();
    let fault = pick(&possible, &random).copied().unwrap_or(Fault::Kill);
    let skewed = fault.skews() && store == StoreKind::Redis;
    let stage = Stage::build(store, None, POLICIES, program, skewed).await?;
    let mut scene = Scene::on(stage, program, Options::default())?;
    let mut fleet = Fleet::new(&scene, "w", 2, 1, &["job:1"], &random);
    if fault == Fault::ClientClock {
        fleet.clock = Some(Skew::new(scene.stage.folder(), "client-clock")?);
    }
    let mut broken = Vec::new();
    let played = play(fault, &mut scene, &mut fleet, &random, &mut broken).await;
    if played.is_err() {
        unruly(&scene.wind_up(TTL + SLACK).await, &mut broken);
    }
    let history = scene.tape.history();
    let measures = verdict(&history, &mut broken);
    let late = busy(scene.pulse.take(), &broken);
    scene.strike().await;
    if let Some(error) = late {
        return Err(error);
    }
    // What was broken on the way counts, although it did not come to its end.
    if let Err(error) = played
        && broken.is_empty()
    {
        return Err(error);
    }
    Ok(Micro {
        seed,
        store,
        fault,
        broken,
        late: Vec::new(),
        took: BootClock.now().since(started),
        measures,
        history,
    })
}

async fn play(
    fault: Fault,
    scene: &mut Scene,
    fleet: &mut Fleet,
    random: &SeededRandom,
    broken: &mut Vec<String>,
) -> Result<(), Error> {
    fleet.fill(scene).await?;
    strike(fault, scene, fleet, random).await?;
    if !heals(scene).await {
        broken.push(format!(
            "L5: nobody was granted the name within {} s of the fault's end",
            PATIENCE.as_secs()
        ));
    }
    unruly(&scene.crew.end().await, broken);
    scene.quiet(TTL + SLACK).await
}

/// Those that did not end in order.
pub(super) fn unruly(others: &[(String, Ended)], broken: &mut Vec<String>) {
    for (who, how) in others {
        match how {
            Ended::InOrder => {}
            Ended::Failed(why) => broken.push(format!("{who} ended with an error: {why}")),
            Ended::Late => broken.push(format!("{who} {IN_ORDER}")),
        }
    }
}

/// Something was broken, and nothing but time.
pub(super) fn only_late(broken: &[String]) -> bool {
    let about_time = |why: &String| why.starts_with("L4") || why.starts_with("L5") || why.ends_with(IN_ORDER);
    !broken.is_empty() && broken.iter().all(about_time)
}

/// Nothing but time was broken, and the machine itself stood still.
pub(super) fn busy(stood_still: Duration, broken: &[String]) -> Option<Error> {
    let late = stood_still > Pulse::LATE && only_late(broken);
    late.then(|| Error::Busy {
        stood_still,
        why: broken.join("; "),
    })
}

/// After the fault somebody gets in again.
pub(super) async fn heals(scene: &Scene) -> bool {
    let from = scene.tape.place();
    let granted = scene.tape.wait(from, PATIENCE, |record| {
        transition(record).is_some_and(|seen| seen.event == "acquired")
    });
    granted.await.is_some()
}

/// What the checker and the counts say.
pub(super) fn verdict(history: &History, broken: &mut Vec<String>) -> Measures {
    let (judged, measures) = (judge(history), measure(history));
    for found in judged.findings.iter().take(20) {
        broken.push(format!("{}: {}: {}", found.invariant, found.name, found.why));
    }
    if let Some(lacks) = &judged.lacks {
        broken.push(format!(
            "the history is incomplete: nothing can be called clean: {lacks}"
        ));
    }
    if measures.duplicates_fenced > 0 {
        broken.push(format!(
            "{} tasks ended twice in classes that fence",
            measures.duplicates_fenced
        ));
    }
    measures
}

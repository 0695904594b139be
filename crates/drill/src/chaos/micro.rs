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
    /// What was late when it was run before; nothing unless it had to be run twice.
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
    // What is late must not push out what is worse.
    let (late, worse): (Vec<_>, Vec<_>) = judged
        .findings
        .iter()
        .partition(|found| found.invariant.starts_with('L'));
    for found in worse.into_iter().chain(late).take(20) {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::{Answer, Entry, Record, Transition};
    use leasehold_core::Fence;

    const SEC: u64 = 1_000_000_000;

    /// Twenty holders that learn of their loss much too late, and after that two at once.
    #[test]
    fn what_is_late_does_not_hide_what_is_broken() {
        let mut records = Vec::new();
        let mut line = |at: u64, who: &str, what| {
            let who = who.to_owned();
            records.push(Record { at, who, what });
        };
        let class = || "scheduler".to_owned();
        let terms = Entry::Class {
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
            let acquired = Transition {
                seq: 0,
                hold: 1,
                event: "acquired".to_owned(),
                name: Some(name.clone()),
                class: class.clone(),
                fence,
                span: None,
                detail: None,
            };
            line(at, who, Entry::Asked { attempt, name, class });
            line(at, who, Entry::Event(acquired));
            let (sent, answer) = (at, Answer::Held);
            line(
                at,
                who,
                Entry::Answered {
                    attempt,
                    sent,
                    answer,
                    fence,
                },
            );
            let until = at + SEC / 10 * 9;
            line(
                at,
                who,
                Entry::Claimed {
                    attempt,
                    until,
                    proven_until: Some(until),
                    fence,
                },
            );
            let (value, lost) = (None, true);
            line(at + 5 * SEC, who, Entry::Reported { attempt, value, lost });
        };
        for late in 0..20 {
            hold(1, &format!("w{late}"), &format!("job:{late}"), 7);
        }
        hold(90 * SEC, "x", "job:x", 8);
        hold(90 * SEC + 1, "y", "job:x", 9);
        let mut broken = Vec::new();
        let damage = Vec::new();
        verdict(&History { records, damage }, &mut broken);
        assert!(broken.len() >= 20, "{broken:?}");
        assert!(!only_late(&broken), "{broken:?}");
    }
}

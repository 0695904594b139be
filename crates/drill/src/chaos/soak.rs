//! One fleet for as long as wished, a fault every few seconds.
//!
//! A run of days must not keep its whole history. It goes from window to window: at the end of each, the workers end in order,
//! what is left is read, and the window is judged and forgotten. The store, its counters and the ledger live on, and so
//! does what must hold across windows: the greatest fence of each name, and the last rows of the ledger.

use std::collections::BTreeMap;
use std::time::Duration;

use leasehold_core::Fence;
use leasehold_core::clock::{BootClock, Clock};
use leasehold_core::rng::SeededRandom;
use serde::Serialize;

use super::fault::Fault;
use super::fleet::{Fleet, pick};
use super::micro::{IN_ORDER, busy, heals, verdict};
use super::strike::strike;
use super::{POLICIES, TTL};
use crate::fleet::{Error, Ledger, Program, Skew, Stage, StoreKind};
use crate::history::{Entry, History};
use crate::scenario::scene::Scene;
use crate::scenario::{Measures, Options, SLACK, measure};

/// So many windows in a row may fail to be run before it is given up.
const MOST_IN_VAIN: u32 = 2;

/// What is asked for.
#[derive(Debug, Clone, Copy)]
pub struct Plan {
    /// On which store.
    pub store: StoreKind,
    /// For how long.
    pub lasts: Duration,
    /// From the begin of one fault to the begin of the next; longer ones make the next one late.
    pub every: Duration,
    /// How much is judged at a time.
    pub window: Duration,
    /// What chooses the faults.
    pub seed: u64,
}

/// A part of the run, judged.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Window {
    /// Counted from 1.
    pub number: u64,
    /// What was done in it, in order.
    pub faults: Vec<Fault>,
    /// Why it is not clean; empty if it is.
    pub broken: Vec<String>,
    /// The machine stood still in it, and only time was broken; or it could not be run: why.
    pub disturbed: Option<String>,
    /// Numbers.
    pub measures: Measures,
    /// How many lines were judged.
    pub records: u64,
    /// Every line.
    pub history: History,
}

impl Window {
    /// One that could not be run to its end.
    fn in_vain(number: u64, error: &Error) -> Self {
        let history = History::default();
        Self {
            number,
            faults: Vec::new(),
            broken: Vec::new(),
            disturbed: Some(error.to_string()),
            measures: measure(&history),
            records: 0,
            history,
        }
    }
}

/// What the windows add up to.
#[derive(Debug, Clone, Default, Serialize)]
#[non_exhaustive]
pub struct Soak {
    /// How long it took.
    pub took_s: f64,
    /// Windows judged.
    pub windows: u64,
    /// Windows in which the machine itself stood still and only time was broken, or which could not be run to their end:
    /// they say nothing about time.
    pub disturbed: u64,
    /// Faults by name.
    pub faults: BTreeMap<&'static str, u64>,
    /// Lines judged.
    pub records: u64,
    /// Leases granted.
    pub grants: u64,
    /// Holds that were fenced.
    pub fenced: u64,
    /// Writes that the target applied.
    pub applied: u64,
    /// Stale writes that it refused.
    pub refused: u64,
    /// What was broken, by window; the first hundred.
    pub violations: Vec<(u64, String)>,
}

impl Soak {
    fn add(&mut self, window: &Window) {
        self.windows += 1;
        self.disturbed += u64::from(window.disturbed.is_some());
        for fault in &window.faults {
            *self.faults.entry(fault.word()).or_default() += 1;
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

/// Runs it; `judged` hears of each window. Dropping the future ends everything.
///
/// # Errors
/// It could not be run: this says nothing about the store.
pub async fn soak(plan: Plan, program: &Program, mut judged: impl FnMut(&Window)) -> Result<Soak, Error> {
    let skews = Skew::possible();
    let skewed = skews && plan.store == StoreKind::Redis;
    let random = SeededRandom::new(plan.seed);
    let (mut scene, mut clock) = begin(&plan, program, skewed, skews).await?;
    let (started, mut sums) = (BootClock.now(), Soak::default());
    let (mut fences, mut in_vain) = (BTreeMap::new(), 0);
    while BootClock.now().since(started) < plan.lasts {
        let number = sums.windows + 1;
        let left = plan.lasts.saturating_sub(BootClock.now().since(started));
        let ran = window(
            &plan,
            number,
            plan.window.min(left),
            &mut scene,
            clock.as_ref(),
            &random,
        )
        .await;
        let (faults, mut broken) = match ran {
            Ok(ran) => ran,
            // Nobody knows what was done and what not: the next window has a store of its own.
            Err(error @ (Error::Waited(_) | Error::Store(_))) if in_vain < MOST_IN_VAIN => {
                in_vain += 1;
                scene.strike().await;
                let window = Window::in_vain(number, &error);
                sums.add(&window);
                judged(&window);
                (scene, clock) = begin(&plan, program, skewed, skews).await?;
                fences.clear();
                continue;
            }
            Err(error) => {
                scene.strike().await;
                return Err(error);
            }
        };
        in_vain = 0;
        let history = scene.tape.take();
        let measures = verdict(&history, &mut broken);
        grows(&history, &mut fences, &mut broken);
        let disturbed = busy(&scene, &broken).map(|error| error.to_string());
        if disturbed.is_some() {
            broken.clear();
        }
        let window = Window {
            number,
            faults,
            broken,
            disturbed,
            measures,
            records: u64::try_from(history.records.len()).unwrap_or(u64::MAX),
            history,
        };
        sums.add(&window);
        judged(&window);
        Ledger::open(&scene.stage.ledger())?.forget()?;
    }
    sums.took_s = BootClock.now().since(started).as_secs_f64();
    scene.strike().await;
    Ok(sums)
}

/// A store and a clock for the workers.
async fn begin(
    plan: &Plan,
    program: &Program,
    skewed: bool,
    skews: bool,
) -> Result<(Scene, Option<Skew>), Error> {
    let stage = Stage::build(plan.store, None, POLICIES, program, skewed).await?;
    let scene = Scene::on(stage, program, Options::default())?;
    let clock = skews.then(|| Skew::new(scene.stage.folder(), "client-clock"));
    Ok((scene, clock.transpose()?))
}

/// Three workers with two clients each on two names, a fault every now and then, and an orderly end.
async fn window(
    plan: &Plan,
    number: u64,
    lasts: Duration,
    scene: &mut Scene,
    clock: Option<&Skew>,
    random: &SeededRandom,
) -> Result<(Vec<Fault>, Vec<String>), Error> {
    let (mut faults, mut broken) = (Vec::new(), Vec::new());
    let possible: Vec<Fault> = Fault::ALL
        .iter()
        .copied()
        .filter(|fault| fault.on(plan.store) && (clock.is_some() || !fault.skews()))
        .collect();
    // Names of clients are never used again: rows of the ledger and lines of the history stay apart.
    let mut fleet = Fleet::new(scene, &format!("w{number}-"), 3, 2, &["job:1", "job:2"], random);
    fleet.clock = clock.cloned();
    let end = BootClock.now() + lasts;
    fleet.fill(scene).await?;
    while BootClock.now() < end {
        let next = (BootClock.now() + plan.every).min(end);
        let fault = pick(&possible, random).copied().unwrap_or(Fault::Kill);
        strike(fault, scene, &mut fleet, random).await?;
        faults.push(fault);
        if !heals(scene).await {
            broken.push(format!("L5: nobody was granted a name after {}", fault.word()));
        }
        scene.rest(next.since(BootClock.now())).await;
    }
    let late = scene.crew.end().await;
    if !late.is_empty() {
        broken.push(format!("{} {IN_ORDER}", late.join(", ")));
    }
    scene.quiet(TTL + SLACK).await?;
    Ok((faults, broken))
}

/// Fences grow from window to window.
fn grows(history: &History, greatest: &mut BTreeMap<String, Fence>, broken: &mut Vec<String>) {
    let mut new: BTreeMap<&str, (Fence, Fence)> = BTreeMap::new();
    for record in &history.records {
        let Entry::Event(seen) = &record.what else {
            continue;
        };
        if let ("acquired", Some(name), Some(fence)) = (seen.event.as_str(), seen.name.as_deref(), seen.fence)
        {
            let (least, most) = new.entry(name).or_insert((fence, fence));
            (*least, *most) = ((*least).min(fence), (*most).max(fence));
        }
    }
    for (name, (least, most)) in new {
        if let Some(known) = greatest.get(name).filter(|known| least <= **known) {
            broken.push(format!(
                "I2: {name}: fence {least} was granted after {known} of an earlier window"
            ));
        }
        let known = greatest.entry(name.to_owned()).or_insert(most);
        *known = (*known).max(most);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::{Record, Transition};

    fn granted(fence: u64) -> History {
        let what = Entry::Event(Transition {
            seq: 0,
            hold: 1,
            event: "acquired".into(),
            name: Some("job:1".into()),
            class: "scheduler".into(),
            fence: Fence::new(fence),
            span: None,
            detail: None,
        });
        History {
            records: vec![Record {
                at: 1,
                who: "w".into(),
                what,
            }],
            damage: Vec::new(),
        }
    }

    #[test]
    fn a_fence_that_goes_back_between_windows_is_seen() {
        let (mut greatest, mut broken) = (BTreeMap::new(), Vec::new());
        grows(&granted(5), &mut greatest, &mut broken);
        grows(&granted(6), &mut greatest, &mut broken);
        assert!(broken.is_empty(), "{broken:?}");
        grows(&granted(6), &mut greatest, &mut broken);
        assert_eq!(broken.len(), 1, "issued twice: {broken:?}");
        grows(&granted(4), &mut greatest, &mut broken);
        assert_eq!(broken.len(), 2, "went back: {broken:?}");
    }
}

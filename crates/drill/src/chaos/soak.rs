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
use super::micro::{busy, heals, unruly, verdict};
use super::strike::strike;
use super::{POLICIES, TTL};
use crate::fleet::{Error, Ledger, Program, Skew, Stage, StoreKind};
use crate::history::{Entry, History};
use crate::oracle::granted;
use crate::scenario::scene::Scene;
use crate::scenario::{Measures, Options, SLACK};

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
    /// What was found broken counts, whether the window came to its end or not; only where the machine stood still and
    /// nothing but time was broken, or where there is an error and nothing is broken, it says nothing.
    fn judged(
        number: u64,
        (faults, mut broken): (Vec<Fault>, Vec<String>),
        (measures, history): (Measures, History),
        stood_still: Duration,
        error: Option<&Error>,
    ) -> Self {
        let late = busy(stood_still, &broken).map(|late| late.to_string());
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
    /// Why it was given up before its time, if it was.
    pub given_up: Option<String>,
}

impl Soak {
    /// Why this says too little to be called clean: it was given up, or too many windows were disturbed. One may be, or a tenth of
    /// many; never all.
    #[must_use]
    pub fn inconclusive(&self) -> Option<String> {
        if let Some(why) = &self.given_up {
            return Some(format!("it was given up after {} windows: {why}", self.windows));
        }
        let most = (self.windows / 10).max(1);
        let judged = self.windows.saturating_sub(self.disturbed);
        (self.disturbed > most || judged == 0).then(|| {
            format!(
                "{} of {} windows were disturbed and say nothing",
                self.disturbed, self.windows
            )
        })
    }

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
        let mut found = (Vec::new(), Vec::new());
        let ran = window(
            &plan,
            (number, plan.window.min(left)),
            &mut scene,
            clock.as_ref(),
            &random,
            &mut found,
        )
        .await;
        let (faults, mut broken) = found;
        let error = ran.err();
        if error.is_some() {
            unruly(&scene.wind_up(TTL + SLACK).await, &mut broken);
        }
        let history = scene.tape.take();
        let measures = verdict(&history, &mut broken);
        grows(&history, &mut fences, &mut broken);
        let window = Window::judged(
            number,
            (faults, broken),
            (measures, history),
            scene.pulse.take(),
            error.as_ref(),
        );
        sums.add(&window);
        judged(&window);
        match error {
            None => {
                in_vain = 0;
                Ledger::open(&scene.stage.ledger())?.forget()?;
            }
            // Nobody knows what was done and what not: the next window has a store of its own.
            Some(Error::Waited(_) | Error::Store(_) | Error::Fault(_)) if in_vain < MOST_IN_VAIN => {
                in_vain += 1;
                scene.strike().await;
                fences.clear();
                (scene, clock) = match begin(&plan, program, skewed, skews).await {
                    Ok(begun) => begun,
                    Err(error) => {
                        sums.given_up = Some(error.to_string());
                        sums.took_s = BootClock.now().since(started).as_secs_f64();
                        return Ok(sums);
                    }
                };
            }
            // What the windows before have shown is told all the same.
            Some(error) => {
                sums.given_up = Some(error.to_string());
                break;
            }
        }
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

/// Three workers with two clients each on two names, a fault every now and then, and an orderly end. What was done and what
/// was found broken is there even if it ends with an error.
async fn window(
    plan: &Plan,
    (number, lasts): (u64, Duration),
    scene: &mut Scene,
    clock: Option<&Skew>,
    random: &SeededRandom,
    (faults, broken): &mut (Vec<Fault>, Vec<String>),
) -> Result<(), Error> {
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
    unruly(&scene.crew.end().await, broken);
    scene.quiet(TTL + SLACK).await
}

/// Fences grow from window to window.
fn grows(history: &History, greatest: &mut BTreeMap<String, Fence>, broken: &mut Vec<String>) {
    let mut new: BTreeMap<&str, (Fence, Fence)> = BTreeMap::new();
    for record in &history.records {
        let Entry::Event(seen) = &record.what else {
            continue;
        };
        if let (Some(name), Some(fence)) = (seen.name.as_deref(), granted(seen)) {
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
        told("acquired", None, fence)
    }

    fn told(event: &str, detail: Option<&str>, fence: u64) -> History {
        let what = Entry::Event(Transition {
            seq: 0,
            hold: 1,
            event: event.into(),
            name: Some("job:1".into()),
            class: "scheduler".into(),
            fence: Fence::new(fence),
            span: None,
            detail: detail.map(Into::into),
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

    fn ended(broken: &[&str], stood_still: Duration, error: Option<&Error>) -> Window {
        let broken = broken.iter().map(|why| (*why).to_owned()).collect();
        let (measures, history) = (Measures::default(), History::default());
        Window::judged(
            1,
            (vec![Fault::Kill], broken),
            (measures, history),
            stood_still,
            error,
        )
    }

    #[test]
    fn what_was_broken_before_an_error_counts() {
        let error = Error::Waited("for somebody to work".into());
        let window = ended(&["L5: nobody"], Duration::ZERO, Some(&error));
        assert_eq!(window.broken, ["L5: nobody"]);
        assert_eq!((window.disturbed, window.faults), (None, vec![Fault::Kill]));
        let still = crate::fleet::Pulse::LATE * 2;
        let window = ended(&["L5: nobody"], still, Some(&error));
        assert!(window.broken.is_empty() && window.disturbed.is_some());
        let window = ended(&["L5: nobody", "I1: two"], still, Some(&error));
        assert_eq!((window.broken.len(), window.disturbed), (2, None));
        let window = ended(&[], Duration::ZERO, Some(&error));
        assert!(window.disturbed.is_some(), "it says nothing");
        assert!(
            ended(&[], still, None).disturbed.is_none(),
            "and this one is clean"
        );
    }

    #[test]
    fn a_soak_that_was_mostly_disturbed_shows_nothing() {
        let soak = |windows, disturbed| Soak {
            windows,
            disturbed,
            ..Soak::default()
        };
        for (windows, disturbed) in [(3, 3), (1, 1), (0, 0), (3, 2), (40, 5)] {
            assert!(
                soak(windows, disturbed).inconclusive().is_some(),
                "{disturbed} of {windows}"
            );
        }
        for (windows, disturbed) in [(3, 0), (3, 1), (40, 4)] {
            assert_eq!(soak(windows, disturbed).inconclusive(), None);
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
        grows(&told("renewed", None, 4), &mut greatest, &mut broken);
        grows(&told("proven_again", None, 4), &mut greatest, &mut broken);
        assert_eq!(broken.len(), 2, "nothing was granted: {broken:?}");
        grows(&told("healed", None, 4), &mut greatest, &mut broken);
        assert_eq!(broken.len(), 3, "went back as it healed: {broken:?}");
        let retaken = told("proven_again", Some("retaken"), 4);
        grows(&retaken, &mut greatest, &mut broken);
        assert_eq!(broken.len(), 4, "went back as it was taken again: {broken:?}");
    }
}

//! One fleet for as long as wished, a fault every few seconds.
//!
//! A run of days must not keep its whole history. It goes from window to window: at the end of each, the workers end in order,
//! what is left is read, and the window is judged and forgotten. The store, its counters and the ledger live on, and so
//! does what must hold across windows: the greatest fence of each name, and the last rows of the ledger.

use std::collections::BTreeMap;
use std::time::Duration;

use leasehold_core::clock::{BootClock, Clock};
use leasehold_core::rng::SeededRandom;
use serde::Serialize;

use super::fault::Fault;
use super::fleet::{Fleet, pick};
use super::growth::grows;
use super::micro::{busy, heals, unruly, verdict};
use super::strike::strike;
use super::{POLICIES, TTL};
use crate::fleet::{Error, Ledger, Program, Skew, Stage, StoreKind};
use crate::history::History;
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
        let error = match error {
            None => Ledger::open(&scene.stage.ledger())
                .and_then(|ledger| ledger.forget())
                .err(),
            error => error,
        };
        match Then::after(error, &mut in_vain) {
            Then::Next => {}
            Then::Anew => {
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
            Then::GiveUp(error) => {
                sums.given_up = Some(error.to_string());
                break;
            }
        }
    }
    sums.took_s = BootClock.now().since(started).as_secs_f64();
    scene.strike().await;
    Ok(sums)
}

/// What follows a window.
#[derive(Debug)]
enum Then {
    /// The next one.
    Next,
    /// The next one, on a store of its own: nobody knows what was done to this one and what not.
    Anew,
    /// Nothing.
    GiveUp(Error),
}

impl Then {
    fn after(error: Option<Error>, in_vain: &mut u32) -> Self {
        match error {
            None => {
                *in_vain = 0;
                Self::Next
            }
            Some(Error::Waited(_) | Error::Store(_) | Error::Fault(_)) if *in_vain < MOST_IN_VAIN => {
                *in_vain += 1;
                Self::Anew
            }
            Some(error) => Self::GiveUp(error),
        }
    }
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

#[cfg(test)]
mod tests {
    use super::*;

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
    fn a_window_in_vain_has_another_store_and_the_third_in_a_row_is_the_last() {
        let waited = || Some(Error::Waited("for somebody to work".into()));
        let mut in_vain = 0;
        for _ in 0..3 {
            assert!(matches!(Then::after(waited(), &mut in_vain), Then::Anew));
            assert!(matches!(Then::after(waited(), &mut in_vain), Then::Anew));
            assert!(matches!(Then::after(None, &mut in_vain), Then::Next));
        }
        for error in [Error::Store("locked".into()), Error::Fault("refused".into())] {
            assert!(matches!(Then::after(Some(error), &mut in_vain), Then::Anew));
        }
        assert!(matches!(Then::after(waited(), &mut in_vain), Then::GiveUp(_)));
        let missing = Error::Missing("no redis-server".into());
        assert!(matches!(Then::after(Some(missing), &mut 0), Then::GiveUp(_)));
    }

    /// Whatever ends it, what was broken is told.
    #[test]
    fn a_soak_that_was_given_up_is_inconclusive_and_keeps_its_violations() {
        let mut sums = Soak::default();
        sums.add(&ended(&["I1: two"], Duration::ZERO, None));
        sums.add(&ended(&[], Duration::ZERO, None));
        assert_eq!(sums.inconclusive(), None);
        sums.given_up = Some("no redis-server".into());
        assert!(
            sums.inconclusive()
                .is_some_and(|why| why.contains("after 2 windows"))
        );
        assert_eq!(sums.violations, [(1, "I1: two".to_owned())]);
    }
}

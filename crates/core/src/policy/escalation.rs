//! Watching one rule: counts in, a decision out. Pure and bounded; the time is given with every call.
//!
//! The time a rule looks back on is cut into 20 slots on a fixed grid, and only complete slots are judged. The
//! *rate* at the end of a slot is what was counted in the last part of that time: a tenth of it, or as much more
//! as it takes for the threshold itself to stand for at least 5 events, since with fewer a steady rate looks
//! like noise. "Above the threshold for the whole time" means at the end of every slot of it, from its beginning
//! on. "Rising" means more in the second half than in the first.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::book::PolicyBook;
use super::change::{Change, ChangeKind};
use super::rule::{Action, Rule, Signal};
use super::state::target;
use crate::clock::Moment;

/// Slots that a rule's time is cut into.
const SLOTS: u64 = 20;

/// Over how many slots a rate may be measured; the fewest that make the threshold 5 events.
const PARTS: [u64; 5] = [2, 4, 5, 10, SLOTS];

/// Complete slots that a judgement can need: the time itself, and the longest part before its beginning.
const KEPT: u64 = 2 * SLOTS;

/// What a rule decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Turn {
    /// It takes force.
    On,
    /// It lets go.
    Off,
}

/// One rule of one class, being watched.
#[derive(Debug, Clone)]
pub(crate) struct Watch {
    pub(crate) class: Arc<str>,
    pub(crate) rule: Rule,
    /// The rule as it prints, shared by every origin that names it.
    pub(crate) text: Arc<str>,
    /// In force since.
    pub(crate) since: Option<Moment>,
    counted: Slots,
    rising: Slots,
}

impl Watch {
    pub(crate) fn new(class: Arc<str>, rule: Rule) -> Self {
        Self {
            class,
            text: rule.to_string().into(),
            since: None,
            counted: Slots::new(rule.lasting),
            rising: Slots::new(rule.lasting),
            rule,
        }
    }

    /// One event.
    pub(crate) fn count(&mut self, signal: Signal, now: Moment) {
        // While acquires fail closed nothing falls back any more. What would have fallen back answers
        // `unavailable` now: it keeps the rule in force, or the rule would let go in mid-outage and flap.
        let in_its_stead = self.since.is_some()
            && self.rule.action == Action::FailClosed
            && self.rule.signal == Signal::Fallback
            && signal == Signal::Unavailable;
        if signal == self.rule.signal || in_its_stead {
            self.counted.add(now);
        }
        if Some(signal) == self.rule.rising {
            self.rising.add(now);
        }
    }

    /// Does the rule change its mind? Does not change anything: the caller sets [`Watch::since`].
    pub(crate) fn judge(&self, now: Moment) -> Option<Turn> {
        let above = self.above(now);
        match self.since {
            None => {
                let risen = self.rule.rising.is_none() || self.rising.risen(now);
                (risen && !above.contains(&false)).then_some(Turn::On)
            }
            // It was above when it took force, so to be quiet throughout is to have been in force as long.
            Some(_) => (!above.contains(&true)).then_some(Turn::Off),
        }
    }

    /// At the end of each slot from the beginning of the time looked back on: was the rate above the threshold?
    fn above(&self, now: Moment) -> Vec<bool> {
        let expected = self.rule.above * self.rule.lasting.as_secs_f64() / SLOTS as f64;
        let part = PARTS
            .into_iter()
            .find(|part| expected * *part as f64 >= 5.0)
            .unwrap_or(SLOTS);
        let limit = expected * part as f64;
        (0..=SLOTS)
            .map(|back| self.counted.sum(now, back + part, part) as f64 > limit)
            .collect()
    }
}

impl PolicyBook {
    /// One event of a class, for its rules. Cheap for a class without rules.
    pub fn count(&self, class: &str, signal: Signal, now: Moment) {
        if !self
            .snapshot()
            .classes
            .get(class)
            .is_some_and(|timeline| timeline.watched)
        {
            return;
        }
        let mut state = self.state();
        for watch in state
            .watches
            .iter_mut()
            .filter(|watch| watch.class.as_ref() == class)
        {
            watch.count(signal, now);
        }
    }

    /// Some class has a rule: someone must call [`evaluate`](Self::evaluate) about once a second.
    #[must_use]
    pub fn has_rules(&self) -> bool {
        self.snapshot().classes.values().any(|timeline| timeline.watched)
    }

    /// Lets every rule decide. Call it about once a second; a rule acts as an override without an end, is seen in
    /// [`explain`](Self::explain), and lets go when its signal has been quiet for as long as it had to be loud.
    pub fn evaluate(&self, now: Moment) -> Vec<Change> {
        if self
            .state()
            .watches
            .iter()
            .all(|watch| watch.judge(now).is_none())
        {
            return Vec::new();
        }
        let told = self.change(now, |state| {
            let mut told = Vec::new();
            for index in 0..state.watches.len() {
                let Some((turn, class, rule, text)) = state.watches.get(index).and_then(|watch| {
                    let turn = watch.judge(now)?;
                    Some((
                        turn,
                        Arc::clone(&watch.class),
                        watch.rule.clone(),
                        Arc::clone(&watch.text),
                    ))
                }) else {
                    continue;
                };
                let (field, _) = target(rule.action);
                let from = state.value(&class, field, now);
                if let Some(watch) = state.watches.get_mut(index) {
                    watch.since = (turn == Turn::On).then_some(now);
                }
                let (kind, reason) = match turn {
                    Turn::On => (ChangeKind::Escalated, text.to_string()),
                    Turn::Off => (ChangeKind::Reverted, format!("the signal has been quiet: {text}")),
                };
                told.push(Change {
                    to: state.value(&class, field, now),
                    class,
                    field: field.path().into(),
                    from,
                    kind,
                    reason,
                    until: None,
                });
            }
            Ok(told)
        });
        // A rule only turns `continue` into `fence` or `fail-open` into `fail-closed`; no check depends on those.
        told.unwrap_or_default()
    }
}

/// Counts on a fixed grid of time, no more than are looked back on.
#[derive(Debug, Clone)]
struct Slots {
    width: u64,
    counts: BTreeMap<u64, u64>,
}

impl Slots {
    fn new(lasting: Duration) -> Self {
        let nanos = u64::try_from(lasting.as_nanos()).unwrap_or(u64::MAX);
        Self {
            width: (nanos / SLOTS).max(1),
            counts: BTreeMap::new(),
        }
    }

    fn add(&mut self, now: Moment) {
        let slot = now.as_nanos() / self.width;
        let newest = self
            .counts
            .last_key_value()
            .map_or(slot, |(newest, _)| (*newest).max(slot));
        let count = self.counts.entry(slot).or_default();
        *count = count.saturating_add(1);
        let oldest = newest.saturating_sub(KEPT);
        self.counts = self.counts.split_off(&oldest);
    }

    /// Events in `len` slots, of which the first lies `back` slots before the one that is not complete yet.
    fn sum(&self, now: Moment, back: u64, len: u64) -> u64 {
        // Shifted up, so that slots before the clock's origin are empty instead of the first one again.
        let first = now.as_nanos() / self.width + KEPT - back;
        let (from, to) = (first.saturating_sub(KEPT), (first + len).saturating_sub(KEPT));
        self.counts.range(from..to).map(|(_, count)| count).sum()
    }

    fn risen(&self, now: Moment) -> bool {
        let half = SLOTS / 2;
        self.sum(now, half, half) > self.sum(now, SLOTS, half)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ARTICLE: &str = "fallback rate > 0.1/s for 5m and duplicates rising -> fail-closed";

    fn at(secs: u64) -> Moment {
        Moment::ZERO + Duration::from_secs(secs)
    }

    fn watch(rule: &str) -> Watch {
        Watch::new("workflow".into(), rule.parse().unwrap())
    }

    /// One event every `every` seconds in `range`.
    fn feed(watch: &mut Watch, signal: Signal, range: std::ops::Range<u64>, every: usize) {
        for secs in range.step_by(every) {
            watch.count(signal, at(secs));
        }
    }

    #[test]
    fn acts_after_the_whole_time_and_not_before() {
        let mut watch = watch(ARTICLE);
        // Once a second is far above; twelve events make the last twelve seconds loud already.
        feed(&mut watch, Signal::Fallback, 3000..3400, 1);
        feed(&mut watch, Signal::Duplicates, 3200..3400, 10);
        assert_eq!(watch.judge(at(3300)), None, "above from 3015 on, so for 285 s");
        assert_eq!(
            watch.judge(at(3314)),
            None,
            "the slot from 3300 on is not complete"
        );
        assert_eq!(watch.judge(at(3315)), Some(Turn::On));
    }

    #[test]
    fn a_gap_in_the_time_is_not_the_whole_time() {
        let mut watch = watch(ARTICLE);
        feed(&mut watch, Signal::Fallback, 2700..3120, 2);
        feed(&mut watch, Signal::Fallback, 3195..3300, 2);
        feed(&mut watch, Signal::Duplicates, 3200..3300, 10);
        assert_eq!(
            watch.judge(at(3300)),
            None,
            "quiet for more than a minute in between"
        );
    }

    #[test]
    fn at_the_threshold_is_not_above_it() {
        let mut watch = watch("fallback rate > 0.1/s for 5m -> fail-closed");
        feed(&mut watch, Signal::Fallback, 2700..3300, 10);
        assert_eq!(watch.judge(at(3300)), None);
        feed(&mut watch, Signal::Fallback, 2705..3300, 60);
        assert_eq!(watch.judge(at(3300)), Some(Turn::On));
    }

    #[test]
    fn duplicates_must_rise() {
        let mut flat = watch(ARTICLE);
        feed(&mut flat, Signal::Fallback, 2700..3300, 5);
        feed(&mut flat, Signal::Duplicates, 3000..3300, 10);
        assert_eq!(flat.judge(at(3300)), None, "as many before as after");
        let mut none = watch(ARTICLE);
        feed(&mut none, Signal::Fallback, 2700..3300, 5);
        assert_eq!(none.judge(at(3300)), None, "none at all");
        none.count(Signal::Duplicates, at(3280));
        assert_eq!(none.judge(at(3300)), Some(Turn::On), "the first one");
    }

    #[test]
    fn lets_go_when_quiet_for_as_long() {
        let mut watch = watch("fallback rate > 0.1/s for 5m -> fail-closed");
        feed(&mut watch, Signal::Fallback, 2700..3300, 5);
        assert_eq!(watch.judge(at(3300)), Some(Turn::On));
        watch.since = Some(at(3300));
        feed(&mut watch, Signal::Fallback, 3300..3360, 5);
        assert_eq!(watch.judge(at(3600)), None, "one loud minute in the last five");
        assert_eq!(
            watch.judge(at(3660)),
            None,
            "that minute's rate is still being measured at its end"
        );
        assert_eq!(watch.judge(at(3705)), Some(Turn::Off));
    }

    #[test]
    fn an_outage_that_goes_on_keeps_the_rule_in_force() {
        let mut watch = watch("fallback rate > 0.1/s for 5m -> fail-closed");
        feed(&mut watch, Signal::Unavailable, 3000..3300, 1);
        assert_eq!(
            watch.judge(at(3300)),
            None,
            "unavailable is another signal before"
        );
        watch.since = Some(at(3300));
        feed(&mut watch, Signal::Unavailable, 3300..4000, 5);
        assert_eq!(watch.judge(at(4000)), None);
        assert_eq!(watch.judge(at(4365)), Some(Turn::Off));
    }

    #[test]
    fn rare_signals_are_judged_over_the_whole_time() {
        let mut watch = watch("abandoned rate > 1/h for 2h -> fence");
        feed(&mut watch, Signal::Abandoned, 10_000..24_400, 2_000);
        assert_eq!(watch.judge(at(18_000)), None, "the third came at 14000");
        assert_eq!(watch.judge(at(24_400)), Some(Turn::On), "more than 2 in any 2 h");
    }

    #[test]
    fn memory_is_bounded_and_late_events_are_harmless() {
        let mut watch = watch("fallback rate > 0.1/s for 1s -> fence");
        feed(&mut watch, Signal::Fallback, 0..100_000, 1);
        assert!(watch.counted.counts.len() <= 41);
        watch.count(Signal::Fallback, at(5));
        watch.count(Signal::Fallback, Moment::FAR);
        watch.count(Signal::Fallback, Moment::ZERO);
        assert!(watch.counted.counts.len() <= 41);
        assert_eq!(watch.judge(Moment::ZERO), None);
        let _total = watch.judge(Moment::FAR);
    }
}

//! Evaluates escalation rules: counts in, a decision out. Pure and bounded; every call passes the
//! time.
//!
//! The window of a rule is divided into 20 slots on a fixed grid, and only complete slots are
//! judged. The *rate* at the end of a slot is measured over the last slots: a tenth of the window,
//! or more if the threshold would stand for fewer than 5 events, since with fewer a steady rate
//! looks like noise. "Above the threshold for the whole window" means at the end of every slot.
//! "Rising" means more in the second half than in the first.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::book::PolicyBook;
use super::change::{Change, ChangeKind};
use super::rule::{Action, Rule, Signal};
use super::state::action_target;
use crate::clock::Moment;

// Slots per window.
const WINDOW_SLOTS: u64 = 20;

// Possible lengths of a rate measurement, in slots; the shortest that makes the threshold at least
// 5 events is used.
const RATE_SLOT_CHOICES: [u64; 5] = [2, 4, 5, 10, WINDOW_SLOTS];

// The window itself, and the longest measurement before its beginning.
const SLOTS_KEPT: u64 = 2 * WINDOW_SLOTS;

/// A decision of a rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RuleTransition {
    /// The rule becomes active.
    On,
    /// The rule becomes inactive.
    Off,
}

/// One rule of one class, with its counts.
#[derive(Debug, Clone)]
pub(crate) struct RuleWatch {
    pub(crate) class: Arc<str>,
    pub(crate) rule: Rule,
    // The printed rule, shared by every origin that names it.
    pub(crate) text: Arc<str>,
    // `Some` while the rule is active.
    pub(crate) active_since: Option<Moment>,
    signal_counts: SlotCounts,
    rising_counts: SlotCounts,
}

impl RuleWatch {
    pub(crate) fn new(class: Arc<str>, rule: Rule) -> Self {
        Self {
            class,
            text: rule.to_string().into(),
            active_since: None,
            signal_counts: SlotCounts::new(rule.window),
            rising_counts: SlotCounts::new(rule.window),
            rule,
        }
    }

    pub(crate) fn count_signal(&mut self, signal: Signal, now: Moment) {
        // While the rule makes acquires fail closed, none falls back; they report `unavailable`
        // instead. Counting those keeps the rule active, or it would flap during an outage.
        let in_its_stead = self.active_since.is_some()
            && self.rule.action == Action::FailClosed
            && self.rule.signal == Signal::Fallback
            && signal == Signal::Unavailable;
        if signal == self.rule.signal || in_its_stead {
            self.signal_counts.add(now);
        }
        if Some(signal) == self.rule.rising {
            self.rising_counts.add(now);
        }
    }

    /// Returns the due transition, without applying it: the caller sets
    /// [`RuleWatch::active_since`].
    pub(crate) fn judge(&self, now: Moment) -> Option<RuleTransition> {
        let above = self.slots_above_threshold(now);
        match self.active_since {
            None => {
                let risen = self.rule.rising.is_none() || self.rising_counts.has_risen(now);
                (risen && !above.contains(&false)).then_some(RuleTransition::On)
            }
            // The rate was above when the rule became active, so a quiet window also means that it
            // was active that long.
            Some(_) => (!above.contains(&true)).then_some(RuleTransition::Off),
        }
    }

    /// For the end of each slot of the window: whether the rate was above the threshold.
    fn slots_above_threshold(&self, now: Moment) -> Vec<bool> {
        let expected = self.rule.above * self.rule.window.as_secs_f64() / WINDOW_SLOTS as f64;
        let part =
            RATE_SLOT_CHOICES.into_iter().find(|part| expected * *part as f64 >= 5.0).unwrap_or(WINDOW_SLOTS);
        let limit = expected * part as f64;
        (0..=WINDOW_SLOTS).map(|back| self.signal_counts.sum(now, back + part, part) as f64 > limit).collect()
    }
}

impl PolicyBook {
    /// Counts an event for the rules of its class. Cheap for a class without rules.
    pub fn count_signal(&self, class: &str, signal: Signal, now: Moment) {
        if !self.snapshot().classes.get(class).is_some_and(|timeline| timeline.has_rules) {
            return;
        }
        let mut state = self.state();
        for watch in state.watches.iter_mut().filter(|watch| watch.class.as_ref() == class) {
            watch.count_signal(signal, now);
        }
    }

    /// Returns true if a class has a rule; then [`evaluate`](Self::evaluate) must be called about
    /// once a second.
    #[must_use]
    pub fn has_rules(&self) -> bool {
        self.snapshot().classes.values().any(|timeline| timeline.has_rules)
    }

    /// Evaluates every rule. Call it about once a second. An active rule acts like an override
    /// without an end and appears in [`explain`](Self::explain). It becomes inactive after a quiet
    /// window.
    pub fn evaluate(&self, now: Moment) -> Vec<Change> {
        if self.state().watches.iter().all(|watch| watch.judge(now).is_none()) {
            return Vec::new();
        }
        let changes = self.change(now, |state| {
            let mut changes = Vec::new();
            for index in 0..state.watches.len() {
                let Some((turn, class, rule, text)) = state.watches.get(index).and_then(|watch| {
                    let turn = watch.judge(now)?;
                    Some((turn, Arc::clone(&watch.class), watch.rule.clone(), Arc::clone(&watch.text)))
                }) else {
                    continue;
                };
                let (field, _) = action_target(rule.action);
                let from = state.displayed_value(&class, field, now);
                if let Some(watch) = state.watches.get_mut(index) {
                    watch.active_since = (turn == RuleTransition::On).then_some(now);
                }
                let (kind, reason) = match turn {
                    RuleTransition::On => (ChangeKind::Escalated, text.to_string()),
                    RuleTransition::Off => {
                        (ChangeKind::Reverted, format!("the signal has been quiet: {text}"))
                    }
                };
                changes.push(Change {
                    to: state.displayed_value(&class, field, now),
                    class,
                    field: field.path().into(),
                    from,
                    kind,
                    reason,
                    until: None,
                });
            }
            Ok(changes)
        });
        // A rule only turns `continue` into `fence` or `fail-open` into `fail-closed`. No check
        // depends on those, so the change cannot be refused.
        changes.unwrap_or_default()
    }
}

// Counts per slot of a fixed time grid; only the slots that a judgement needs are kept.
#[derive(Debug, Clone)]
struct SlotCounts {
    width: u64,
    counts: BTreeMap<u64, u64>,
}

impl SlotCounts {
    fn new(lasting: Duration) -> Self {
        let nanos = u64::try_from(lasting.as_nanos()).unwrap_or(u64::MAX);
        Self { width: (nanos / WINDOW_SLOTS).max(1), counts: BTreeMap::new() }
    }

    fn add(&mut self, now: Moment) {
        let slot = now.as_nanos() / self.width;
        let newest = self.counts.last_key_value().map_or(slot, |(newest, _)| (*newest).max(slot));
        let count = self.counts.entry(slot).or_default();
        *count = count.saturating_add(1);
        let oldest = newest.saturating_sub(SLOTS_KEPT);
        self.counts = self.counts.split_off(&oldest);
    }

    /// Events in `len` slots; the first lies `back` slots before the incomplete one.
    fn sum(&self, now: Moment, back: u64, len: u64) -> u64 {
        // Shifted up: slots before the clock's origin must be empty, not slot 0 again.
        let first = now.as_nanos() / self.width + SLOTS_KEPT - back;
        let (from, to) = (first.saturating_sub(SLOTS_KEPT), (first + len).saturating_sub(SLOTS_KEPT));
        self.counts.range(from..to).map(|(_, count)| count).sum()
    }

    fn has_risen(&self, now: Moment) -> bool {
        let half = WINDOW_SLOTS / 2;
        self.sum(now, half, half) > self.sum(now, WINDOW_SLOTS, half)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EXAMPLE_RULE: &str = "fallback rate > 0.1/s for 5m and duplicates rising -> fail-closed";

    fn at(secs: u64) -> Moment {
        Moment::ZERO + Duration::from_secs(secs)
    }

    fn watch(rule: &str) -> RuleWatch {
        RuleWatch::new("workflow".into(), rule.parse().unwrap())
    }

    // One event every `every` seconds in `range`.
    fn feed(watch: &mut RuleWatch, signal: Signal, range: std::ops::Range<u64>, every: usize) {
        for secs in range.step_by(every) {
            watch.count_signal(signal, at(secs));
        }
    }

    #[test]
    fn escalates_only_after_the_whole_window() {
        let mut watch = watch(EXAMPLE_RULE);
        // One event per second is far above; twelve events already put the last twelve seconds
        // above.
        feed(&mut watch, Signal::Fallback, 3000..3400, 1);
        feed(&mut watch, Signal::Duplicates, 3200..3400, 10);
        assert_eq!(watch.judge(at(3300)), None, "above from 3015 on, so for 285 s");
        assert_eq!(watch.judge(at(3314)), None, "the slot from 3300 on is not complete");
        assert_eq!(watch.judge(at(3315)), Some(RuleTransition::On));
    }

    #[test]
    fn a_quiet_gap_prevents_escalation() {
        let mut watch = watch(EXAMPLE_RULE);
        feed(&mut watch, Signal::Fallback, 2700..3120, 2);
        feed(&mut watch, Signal::Fallback, 3195..3300, 2);
        feed(&mut watch, Signal::Duplicates, 3200..3300, 10);
        assert_eq!(watch.judge(at(3300)), None, "quiet for more than a minute in between");
    }

    #[test]
    fn at_the_threshold_is_not_above_it() {
        let mut watch = watch("fallback rate > 0.1/s for 5m -> fail-closed");
        feed(&mut watch, Signal::Fallback, 2700..3300, 10);
        assert_eq!(watch.judge(at(3300)), None);
        feed(&mut watch, Signal::Fallback, 2705..3300, 60);
        assert_eq!(watch.judge(at(3300)), Some(RuleTransition::On));
    }

    #[test]
    fn duplicates_must_rise() {
        let mut flat = watch(EXAMPLE_RULE);
        feed(&mut flat, Signal::Fallback, 2700..3300, 5);
        feed(&mut flat, Signal::Duplicates, 3000..3300, 10);
        assert_eq!(flat.judge(at(3300)), None, "as many before as after");
        let mut none = watch(EXAMPLE_RULE);
        feed(&mut none, Signal::Fallback, 2700..3300, 5);
        assert_eq!(none.judge(at(3300)), None, "none at all");
        none.count_signal(Signal::Duplicates, at(3280));
        assert_eq!(none.judge(at(3300)), Some(RuleTransition::On), "the first one");
    }

    #[test]
    fn reverts_after_an_equally_long_quiet_window() {
        let mut watch = watch("fallback rate > 0.1/s for 5m -> fail-closed");
        feed(&mut watch, Signal::Fallback, 2700..3300, 5);
        assert_eq!(watch.judge(at(3300)), Some(RuleTransition::On));
        watch.active_since = Some(at(3300));
        feed(&mut watch, Signal::Fallback, 3300..3360, 5);
        assert_eq!(watch.judge(at(3600)), None, "one loud minute in the last five");
        assert_eq!(watch.judge(at(3660)), None, "that minute's rate is still being measured at its end");
        assert_eq!(watch.judge(at(3705)), Some(RuleTransition::Off));
    }

    #[test]
    fn an_outage_that_goes_on_keeps_the_rule_in_force() {
        let mut watch = watch("fallback rate > 0.1/s for 5m -> fail-closed");
        feed(&mut watch, Signal::Unavailable, 3000..3300, 1);
        assert_eq!(watch.judge(at(3300)), None, "unavailable is another signal before");
        watch.active_since = Some(at(3300));
        feed(&mut watch, Signal::Unavailable, 3300..4000, 5);
        assert_eq!(watch.judge(at(4000)), None);
        assert_eq!(watch.judge(at(4365)), Some(RuleTransition::Off));
    }

    #[test]
    fn rare_signals_are_measured_over_the_whole_window() {
        let mut watch = watch("abandoned rate > 1/h for 2h -> fence");
        feed(&mut watch, Signal::Abandoned, 10_000..24_400, 2_000);
        assert_eq!(watch.judge(at(18_000)), None, "the third came at 14000");
        assert_eq!(watch.judge(at(24_400)), Some(RuleTransition::On), "more than 2 in any 2 h");
    }

    #[test]
    fn memory_is_bounded_and_late_events_are_harmless() {
        let mut watch = watch("fallback rate > 0.1/s for 1s -> fence");
        feed(&mut watch, Signal::Fallback, 0..100_000, 1);
        assert!(watch.signal_counts.counts.len() <= 41);
        watch.count_signal(Signal::Fallback, at(5));
        watch.count_signal(Signal::Fallback, Moment::FAR);
        watch.count_signal(Signal::Fallback, Moment::ZERO);
        assert!(watch.signal_counts.counts.len() <= 41);
        assert_eq!(watch.judge(Moment::ZERO), None);
        let _total = watch.judge(Moment::FAR);
    }
}

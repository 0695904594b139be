//! The verdict on a drill.

use std::time::Duration;

use super::measure::{Measures, measure};
use super::verdict_builder::VerdictBuilder;
use super::{Scenario, scenario};
use crate::fleet::{DrillError, LoadProbe};
use crate::history::History;
use crate::oracle::{Judgement, judge};

/// A promise of the class in this situation, and what happened.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct PromiseCheck {
    /// The promise, as a sentence.
    pub what: String,
    /// Whether it was kept.
    pub kept: bool,
    /// What happened, as a sentence.
    pub seen: String,
    /// Whether a slow host can break it.
    pub about_time: bool,
}

/// The outcome of a drill.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Outcome {
    /// Every promise was kept.
    Clean,
    /// A promise was broken.
    Violation,
    /// The drill was not run. The field `skipped` of the verdict says why.
    Skipped,
}

impl Outcome {
    /// Its name in reports.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Clean => "clean",
            Self::Violation => "VIOLATION",
            Self::Skipped => "skipped",
        }
    }
}

/// A drill's verdict, with the data it is based on.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Verdict {
    /// Name of the drill.
    pub drill: &'static str,
    /// The fault and the promise.
    pub about: &'static str,
    /// The lock classes it tests.
    pub classes: &'static [&'static str],
    /// Name of the store it ran on.
    pub store: &'static str,
    /// Whether it was a control run, which must show broken invariants.
    pub control: bool,
    /// Clean, violation or skipped.
    pub outcome: Outcome,
    /// Why it was not run, if it was skipped.
    pub skipped: Option<String>,
    /// Duration of the drill.
    pub took: Duration,
    /// The promises of the class, and what happened.
    pub promises: Vec<PromiseCheck>,
    /// The checker's findings.
    pub judgement: Judgement,
    /// Counts and times from the history.
    pub measures: Measures,
    /// The full history.
    pub history: History,
}

impl Verdict {
    /// Judges a saved history. Only the invariants can be checked: the promises of the scenario are
    /// not in the history.
    #[must_use]
    pub fn of_history(history: History) -> Self {
        let times = || history.records.iter().map(|record| record.at);
        let span = times().max().unwrap_or(0) - times().min().unwrap_or(0);
        let about = "a recorded history, judged again against the invariants";
        let verdict = Self::judged(&Scenario { classes: &[], ..scenario("history", about) }, "file", history);
        let outcome = if verdict.judgement.clean() { Outcome::Clean } else { Outcome::Violation };
        Self { outcome, took: Duration::from_nanos(span), ..verdict }
    }

    /// Judges the history; the outcome is not decided yet.
    fn judged(scenario: &Scenario, store: &'static str, history: History) -> Self {
        Self {
            drill: scenario.name,
            about: scenario.about,
            classes: scenario.classes,
            store,
            control: scenario.control,
            outcome: Outcome::Skipped,
            skipped: None,
            took: Duration::ZERO,
            promises: Vec::new(),
            judgement: judge(&history),
            measures: measure(&history),
            history,
        }
    }

    /// Whether the violation consists of broken time limits only, which a slow host also causes.
    pub(super) fn only_timing_broken(&self) -> bool {
        self.outcome == Outcome::Violation && !self.judgement.incomplete && !self.breaks_untimed_promise()
    }

    /// Whether a promise is broken that no delay explains.
    fn breaks_untimed_promise(&self) -> bool {
        let judged = &self.judgement;
        // Findings beyond the limit are not listed, so they may be about safety.
        judged.dropped_findings > 0
            || self.promises.iter().any(|promise| !promise.kept && !promise.about_time)
            || (!self.control && judged.findings.iter().any(|found| !found.invariant.starts_with('L')))
    }

    /// The verdict on a run that ended with this error. Such a run can prove a violation, but never
    /// that all is clean. A control run proves nothing if it ends early, so it returns the error
    /// and is retried.
    pub(super) fn after_error(
        mut self,
        stood_still: Duration,
        error: DrillError,
    ) -> Result<Self, DrillError> {
        let something = self.promises.iter().any(|promise| !promise.kept)
            || !self.judgement.findings.is_empty()
            || self.judgement.dropped_findings > 0;
        let in_time = stood_still <= LoadProbe::MAX_DELAY;
        if self.control || !something || !(in_time || self.breaks_untimed_promise()) {
            return Err(error);
        }
        self.promises.push(PromiseCheck {
            what: "the drill comes to its end".to_owned(),
            kept: false,
            seen: error.to_string(),
            about_time: true,
        });
        Ok(self)
    }

    /// The broken promises and findings as sentences, at most five.
    pub(super) fn broken_promises(&self) -> Vec<String> {
        let promises = self.promises.iter().filter(|promise| !promise.kept);
        let promises = promises.map(|promise| format!("{}: {}", promise.what, promise.seen));
        let findings = self.judgement.findings.iter();
        promises.chain(findings.map(|found| format!("{}: {}", found.invariant, found.why))).take(5).collect()
    }

    pub(super) fn skipped(scenario: &Scenario, store: &'static str, why: &str) -> Self {
        Self { skipped: Some(why.to_owned()), ..Self::judged(scenario, store, History::default()) }
    }

    pub(super) fn from_run(
        scenario: &Scenario,
        store: &'static str,
        took: Duration,
        mut draft: VerdictBuilder,
        history: History,
    ) -> Self {
        let verdict = Self::judged(scenario, store, history);
        let (judgement, duplicates) = (&verdict.judgement, verdict.measures.duplicates);
        if scenario.control {
            let seen = judgement.breaks("I3");
            let how = format!("{} findings", judgement.findings.len() + judgement.dropped_findings);
            draft.promise("the checker sees stale writes where nothing refuses them", seen, how);
        } else {
            draft.promise_untimed("no task ends twice", duplicates == 0, format!("{duplicates} duplicates"));
        }
        let kept = draft.promises.iter().all(|promise| promise.kept);
        let sound = scenario.control || judgement.clean();
        let outcome = if kept && sound { Outcome::Clean } else { Outcome::Violation };
        Self { outcome, took, promises: draft.promises, ..verdict }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::{DamagedLine, HistoryEntry, HistoryRecord};
    use crate::scenario::find;
    use leasehold_core::Fence;

    fn outcome_of(name: &str, kept: bool, history: History) -> Outcome {
        let scenario = find(name).unwrap();
        let mut draft = VerdictBuilder::default();
        draft.promise("something", kept, "seen");
        Verdict::from_run(scenario, "sqlite", Duration::ZERO, draft, history).outcome
    }

    fn rows(of: &[(u64, u64)]) -> History {
        let row = |(place, (fence, task)): (usize, &(u64, u64))| HistoryRecord {
            at: 1,
            who: "target".into(),
            what: HistoryEntry::Applied {
                place: u64::try_from(place).unwrap(),
                name: "job:1".into(),
                writer: "w".into(),
                write: u64::try_from(place).unwrap(),
                task: Some(*task),
                fence: Fence::new(*fence),
            },
        };
        History { records: of.iter().enumerate().map(row).collect(), damage: Vec::new() }
    }

    #[test]
    fn a_broken_promise_of_the_class_is_a_violation() {
        assert_eq!(outcome_of("forced-kill", true, rows(&[(1, 1)])), Outcome::Clean);
        assert_eq!(outcome_of("forced-kill", false, rows(&[(1, 1)])), Outcome::Violation);
    }

    #[test]
    fn broken_invariants_duplicates_and_torn_histories_are_violations() {
        assert_eq!(outcome_of("forced-kill", true, rows(&[(2, 1), (1, 2)])), Outcome::Violation);
        assert_eq!(outcome_of("forced-kill", true, rows(&[(1, 1), (2, 1)])), Outcome::Violation);
        let mut torn = rows(&[(1, 1)]);
        torn.damage.push(DamagedLine { line: 2, why: "torn".into() });
        assert_eq!(outcome_of("forced-kill", true, torn), Outcome::Violation);
    }

    fn outcome_after_error(
        name: &str,
        history: History,
        draft: VerdictBuilder,
        stood_still: Duration,
    ) -> Option<Outcome> {
        let scenario = find(name).unwrap();
        let verdict = Verdict::from_run(scenario, "sqlite", Duration::ZERO, draft, history);
        let error = DrillError::WaitTimedOut("for something".into());
        verdict.after_error(stood_still, error).ok().map(|verdict| verdict.outcome)
    }

    /// A drill that ended with an error reports the violations it has shown until then.
    #[test]
    fn a_broken_promise_before_an_error_is_a_violation() {
        let still = LoadProbe::MAX_DELAY * 2;
        let none = VerdictBuilder::default;
        let overlap = || rows(&[(2, 1), (1, 2)]);
        let late = || {
            let mut draft = VerdictBuilder::default();
            draft.promise("something", false, "late");
            draft
        };
        let violation = Some(Outcome::Violation);
        assert_eq!(outcome_after_error("forced-kill", overlap(), none(), still), violation);
        assert_eq!(outcome_after_error("forced-kill", rows(&[(1, 1)]), late(), Duration::ZERO), violation);
        assert_eq!(outcome_after_error("forced-kill", rows(&[(1, 1)]), late(), still), None);
        assert_eq!(
            outcome_after_error("forced-kill", rows(&[(1, 1)]), none(), Duration::ZERO),
            None,
            "nothing is broken, and it says nothing"
        );
        assert_eq!(outcome_after_error("unfenced-control", overlap(), late(), Duration::ZERO), None);
        let mut torn = rows(&[(1, 1)]);
        torn.damage.push(DamagedLine { line: 2, why: "torn".into() });
        assert_eq!(outcome_after_error("forced-kill", torn, none(), Duration::ZERO), None);
    }

    /// A slow host is no excuse for a broken safety promise.
    #[test]
    fn safety_is_never_about_time() {
        use crate::fleet::WorkerExit;
        use crate::history::RecordedOutcome;
        use crate::scenario::test_history::{event_at, history_of, record_at};
        use crate::scenario::{contention_storm, context, expired_and_stale, failover, rolling_restart};
        let refused =
            HistoryEntry::Answered { attempt: 1, sent: 0, answer: RecordedOutcome::Unavailable, fence: None };
        type Judge<'a> = (&'a str, &'a dyn Fn(&mut VerdictBuilder));
        let judges: [Judge<'_>; 6] = [
            ("a replica's refusal", &|draft| {
                failover::promise_no_contention(Some(RecordedOutcome::Busy), draft)
            }),
            ("durable", &|draft| failover::promise_durable_refused(Err("held".into()), draft)),
            ("a stale release", &|draft| {
                expired_and_stale::promise_new_holder_untouched(
                    &history_of(vec![event_at(1, "new", "not_owned", None)]),
                    draft,
                );
            }),
            ("a restart", &|draft| {
                rolling_restart::promise_nothing_lost(
                    &history_of(vec![event_at(1, "a", "not_owned", None)]),
                    draft,
                );
            }),
            ("an outage", &|draft| {
                contention_storm::promise_no_outage(
                    &history_of(vec![record_at(1, "p", refused.clone())]),
                    draft,
                );
            }),
            ("a worker's error", &|draft| {
                context::promise_clean_exits(
                    draft,
                    &[("w".into(), WorkerExit::Failed("exit status: 2".into()))],
                );
            }),
        ];
        for (what, judge) in judges {
            let mut draft = VerdictBuilder::default();
            judge(&mut draft);
            let broken: Vec<_> = draft.promises.iter().filter(|promise| !promise.kept).collect();
            assert!(
                !broken.is_empty() && broken.iter().any(|promise| !promise.about_time),
                "{what}: {broken:?}"
            );
        }
        let mut draft = VerdictBuilder::default();
        context::promise_clean_exits(&mut draft, &[("w".into(), WorkerExit::TimedOut)]);
        assert!(draft.promises.iter().all(|promise| promise.kept || promise.about_time));
    }

    /// A control run is clean only if the checker found the stale writes.
    #[test]
    fn a_control_run_must_show_stale_writes() {
        assert_eq!(outcome_of("unfenced-control", true, rows(&[(1, 1)])), Outcome::Violation);
        assert_eq!(outcome_of("unfenced-control", true, rows(&[(2, 1), (1, 1)])), Outcome::Clean);
    }
}

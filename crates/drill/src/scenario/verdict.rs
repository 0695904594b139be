//! What a drill says at its end.

use std::time::Duration;

use super::Scenario;
use super::draft::Draft;
use super::measure::{Measures, measure};
use crate::fleet::{Error, Pulse, StoreKind};
use crate::history::History;
use crate::oracle::{Judgement, judge};

/// Something the class promises in this situation, and what was seen of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Promise {
    /// What is promised.
    pub what: String,
    /// It was kept.
    pub kept: bool,
    /// What was seen.
    pub seen: String,
    /// A machine that does not keep up can break it.
    pub about_time: bool,
}

/// How a drill came out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// Every promise was kept.
    Clean,
    /// A promise was broken.
    Violation,
    /// It was not run here, and why is said.
    Skipped,
}

impl Outcome {
    /// The word for it.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Clean => "clean",
            Self::Violation => "VIOLATION",
            Self::Skipped => "skipped",
        }
    }
}

/// A drill's verdict, with everything it rests on.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Verdict {
    /// Which drill.
    pub drill: &'static str,
    /// What it does and promises.
    pub about: &'static str,
    /// Which classes it concerns.
    pub classes: &'static [&'static str],
    /// On which store.
    pub store: &'static str,
    /// It was a control run: the invariants had to be seen broken.
    pub control: bool,
    /// How it came out.
    pub outcome: Outcome,
    /// Why it was not run.
    pub skipped: Option<String>,
    /// How long it took.
    pub took: Duration,
    /// What the class promises, and what was seen.
    pub promises: Vec<Promise>,
    /// What the checker says.
    pub judgement: Judgement,
    /// Numbers.
    pub measures: Measures,
    /// Every line.
    pub history: History,
}

impl Verdict {
    /// Judges a history that was kept: what its classes promised in the situation is not in it, the invariants are.
    #[must_use]
    pub fn of_history(history: History) -> Self {
        let (judgement, measures) = (judge(&history), measure(&history));
        let times = || history.records.iter().map(|record| record.at);
        let span = times().max().unwrap_or(0) - times().min().unwrap_or(0);
        Self {
            drill: "history",
            about: "a history that was kept, judged anew against the invariants",
            classes: &[],
            store: "file",
            control: false,
            outcome: if judgement.clean() {
                Outcome::Clean
            } else {
                Outcome::Violation
            },
            skipped: None,
            took: Duration::from_nanos(span),
            promises: Vec::new(),
            judgement,
            measures,
            history,
        }
    }

    /// It is a violation, and all that is wrong is that something came too late: what a machine that does not keep up
    /// looks like too.
    pub(super) fn only_late(&self) -> bool {
        self.outcome == Outcome::Violation && !self.judgement.incomplete && !self.beyond_time()
    }

    /// Something is broken that no delay explains.
    fn beyond_time(&self) -> bool {
        let judged = &self.judgement;
        judged.more > 0
            || self
                .promises
                .iter()
                .any(|promise| !promise.kept && !promise.about_time)
            || (!self.control
                && judged
                    .findings
                    .iter()
                    .any(|found| !found.invariant.starts_with('L')))
    }

    /// The verdict on a run that this error broke off: it can show that something is broken, and never that all is well. What
    /// a control run has not shown by then it may show the next time.
    pub(super) fn broken_off(mut self, stood_still: Duration, error: Error) -> Result<Self, Error> {
        let something = self.promises.iter().any(|promise| !promise.kept)
            || !self.judgement.findings.is_empty()
            || self.judgement.more > 0;
        let in_time = stood_still <= Pulse::LATE;
        if self.control || !something || !(in_time || self.beyond_time()) {
            return Err(error);
        }
        self.promises.push(Promise {
            what: "the drill comes to its end".to_owned(),
            kept: false,
            seen: error.to_string(),
            about_time: true,
        });
        Ok(self)
    }

    /// What is wrong, in sentences.
    pub(super) fn broken(&self) -> Vec<String> {
        let promises = self.promises.iter().filter(|promise| !promise.kept);
        let promises = promises.map(|promise| format!("{}: {}", promise.what, promise.seen));
        let findings = self.judgement.findings.iter();
        promises
            .chain(findings.map(|found| format!("{}: {}", found.invariant, found.why)))
            .take(5)
            .collect()
    }

    pub(super) fn skipped(scenario: &Scenario, store: StoreKind, why: &str) -> Self {
        let history = History::default();
        Self {
            drill: scenario.name,
            about: scenario.about,
            classes: scenario.classes,
            store: store.word(),
            control: scenario.control,
            outcome: Outcome::Skipped,
            skipped: Some(why.to_owned()),
            took: Duration::ZERO,
            promises: Vec::new(),
            judgement: judge(&history),
            measures: measure(&history),
            history,
        }
    }

    pub(super) fn reach(
        scenario: &Scenario,
        store: StoreKind,
        took: Duration,
        mut draft: Draft,
        history: History,
    ) -> Self {
        let (judgement, measures) = (judge(&history), measure(&history));
        if scenario.control {
            let seen = judgement.breaks("I3");
            let how = format!("{} findings", judgement.findings.len() + judgement.more);
            draft.promise(
                "the checker sees stale writes where nothing refuses them",
                seen,
                how,
            );
        } else {
            draft.always(
                "no task ends twice",
                measures.duplicates == 0,
                format!("{} duplicates", measures.duplicates),
            );
        }
        let kept = draft.promises.iter().all(|promise| promise.kept);
        let sound = scenario.control || judgement.clean();
        Self {
            drill: scenario.name,
            about: scenario.about,
            classes: scenario.classes,
            store: store.word(),
            control: scenario.control,
            outcome: if kept && sound {
                Outcome::Clean
            } else {
                Outcome::Violation
            },
            skipped: None,
            took,
            promises: draft.promises,
            judgement,
            measures,
            history,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::{Damage, Entry, Record};
    use crate::scenario::find;
    use leasehold_core::Fence;

    fn reach(name: &str, kept: bool, history: History) -> Outcome {
        let scenario = find(name).unwrap();
        let mut draft = Draft::default();
        draft.promise("something", kept, "seen");
        Verdict::reach(scenario, StoreKind::Sqlite, Duration::ZERO, draft, history).outcome
    }

    fn rows(of: &[(u64, u64)]) -> History {
        let row = |(place, (fence, task)): (usize, &(u64, u64))| Record {
            at: 1,
            who: "target".into(),
            what: Entry::Applied {
                place: u64::try_from(place).unwrap(),
                name: "job:1".into(),
                writer: "w".into(),
                write: u64::try_from(place).unwrap(),
                task: Some(*task),
                fence: Fence::new(*fence),
            },
        };
        History {
            records: of.iter().enumerate().map(row).collect(),
            damage: Vec::new(),
        }
    }

    #[test]
    fn a_broken_promise_of_the_class_is_a_violation() {
        assert_eq!(reach("forced-kill", true, rows(&[(1, 1)])), Outcome::Clean);
        assert_eq!(reach("forced-kill", false, rows(&[(1, 1)])), Outcome::Violation);
    }

    #[test]
    fn so_are_a_broken_invariant_a_task_that_ends_twice_and_a_torn_history() {
        assert_eq!(
            reach("forced-kill", true, rows(&[(2, 1), (1, 2)])),
            Outcome::Violation
        );
        assert_eq!(
            reach("forced-kill", true, rows(&[(1, 1), (2, 1)])),
            Outcome::Violation
        );
        let mut torn = rows(&[(1, 1)]);
        torn.damage.push(Damage {
            line: 2,
            why: "torn".into(),
        });
        assert_eq!(reach("forced-kill", true, torn), Outcome::Violation);
    }

    fn broken_off(name: &str, history: History, draft: Draft, stood_still: Duration) -> Option<Outcome> {
        let scenario = find(name).unwrap();
        let verdict = Verdict::reach(scenario, StoreKind::Sqlite, Duration::ZERO, draft, history);
        let error = Error::Waited("for something".into());
        verdict
            .broken_off(stood_still, error)
            .ok()
            .map(|verdict| verdict.outcome)
    }

    /// A drill that did not come to its end says what it has shown until then.
    #[test]
    fn what_was_broken_before_an_error_is_a_violation() {
        let still = Pulse::LATE * 2;
        let none = Draft::default;
        let overlap = || rows(&[(2, 1), (1, 2)]);
        let late = || {
            let mut draft = Draft::default();
            draft.promise("something", false, "late");
            draft
        };
        let violation = Some(Outcome::Violation);
        assert_eq!(broken_off("forced-kill", overlap(), none(), still), violation);
        assert_eq!(
            broken_off("forced-kill", rows(&[(1, 1)]), late(), Duration::ZERO),
            violation
        );
        assert_eq!(broken_off("forced-kill", rows(&[(1, 1)]), late(), still), None);
        assert_eq!(
            broken_off("forced-kill", rows(&[(1, 1)]), none(), Duration::ZERO),
            None,
            "nothing is broken, and it says nothing"
        );
        assert_eq!(
            broken_off("unfenced-control", overlap(), late(), Duration::ZERO),
            None
        );
        let mut torn = rows(&[(1, 1)]);
        torn.damage.push(Damage {
            line: 2,
            why: "torn".into(),
        });
        assert_eq!(broken_off("forced-kill", torn, none(), Duration::ZERO), None);
    }

    /// What is no question of time is not excused by a machine that stood still.
    #[test]
    fn safety_is_never_about_time() {
        use crate::fleet::Ended;
        use crate::history::Answer;
        use crate::scenario::script::{event, history, line};
        use crate::scenario::{contention_storm, expired_and_stale, failover, rolling_restart, scene};
        let refused = Entry::Answered {
            attempt: 1,
            sent: 0,
            answer: Answer::Unavailable,
            fence: None,
        };
        type Judge<'a> = (&'a str, &'a dyn Fn(&mut Draft));
        let judges: [Judge<'_>; 6] = [
            ("a replica's refusal", &|draft| {
                failover::no_contention(Some(Answer::Busy), draft)
            }),
            ("durable", &|draft| failover::durable(Err("held".into()), draft)),
            ("a stale release", &|draft| {
                expired_and_stale::untouched(&history(vec![event(1, "new", "not_owned", None)]), draft);
            }),
            ("a restart", &|draft| {
                rolling_restart::nothing_lost(&history(vec![event(1, "a", "not_owned", None)]), draft);
            }),
            ("an outage", &|draft| {
                contention_storm::no_outage(&history(vec![line(1, "p", refused.clone())]), draft);
            }),
            ("a worker's error", &|draft| {
                scene::ended(draft, &[("w".into(), Ended::Failed("exit status: 2".into()))]);
            }),
        ];
        for (what, judge) in judges {
            let mut draft = Draft::default();
            judge(&mut draft);
            let broken: Vec<_> = draft.promises.iter().filter(|promise| !promise.kept).collect();
            assert!(
                !broken.is_empty() && broken.iter().any(|promise| !promise.about_time),
                "{what}: {broken:?}"
            );
        }
        let mut draft = Draft::default();
        scene::ended(&mut draft, &[("w".into(), Ended::Late)]);
        assert!(
            draft
                .promises
                .iter()
                .all(|promise| promise.kept || promise.about_time)
        );
    }

    /// A control run is clean only if the checker saw what it had to see.
    #[test]
    fn a_control_run_must_show_stale_writes() {
        assert_eq!(
            reach("unfenced-control", true, rows(&[(1, 1)])),
            Outcome::Violation
        );
        assert_eq!(
            reach("unfenced-control", true, rows(&[(2, 1), (1, 1)])),
            Outcome::Clean
        );
    }
}

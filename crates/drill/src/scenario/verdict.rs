//! What a drill says at its end.

use std::time::Duration;

use super::Scenario;
use super::measure::{Measures, measure};
use crate::fleet::StoreKind;
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

/// What a scenario has found so far.
#[derive(Debug, Default)]
pub(super) struct Draft {
    promises: Vec<Promise>,
}

impl Draft {
    /// Something that is to be seen in time.
    pub(super) fn promise(&mut self, what: &str, kept: bool, seen: impl Into<String>) {
        self.add(what, kept, seen.into(), true);
    }

    /// Something that holds on any machine, however busy.
    pub(super) fn always(&mut self, what: &str, kept: bool, seen: impl Into<String>) {
        self.add(what, kept, seen.into(), false);
    }

    fn add(&mut self, what: &str, kept: bool, seen: String, about_time: bool) {
        self.promises.push(Promise {
            what: what.to_owned(),
            kept,
            seen,
            about_time,
        });
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
        let judged = &self.judgement;
        self.outcome == Outcome::Violation
            && !judged.incomplete
            && judged.more == 0
            && self
                .promises
                .iter()
                .all(|promise| promise.kept || promise.about_time)
            && (self.control
                || judged
                    .findings
                    .iter()
                    .all(|found| found.invariant.starts_with('L')))
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

//! What every drill needs: a stage, a crew, the history so far, and an orderly end.

use std::time::Duration;

use leasehold_core::clock::{BootClock, Clock, ClockExt, Moment};

use super::verdict::{Draft, Verdict};
use super::{PATIENCE, POLICIES, SLACK, Scenario, TTL};
use crate::fleet::{Crew, Error, Given, Ledger, Orders, Program, Stage, StoreKind, Tape};
use crate::history::{Entry, Record, Transition};

/// How often the end of the last lease is looked for.
const LOOK: Duration = Duration::from_millis(50);

pub(super) struct Scene {
    pub(super) stage: Stage,
    pub(super) crew: Crew,
    pub(super) tape: Tape,
    started: Moment,
}

impl Scene {
    pub(super) async fn open(
        kind: StoreKind,
        given: Option<&Given>,
        program: &Program,
    ) -> Result<Self, Error> {
        let stage = Stage::build(kind, given, POLICIES).await?;
        let tape = Tape::default();
        let crew = Crew::new(
            program.clone(),
            stage.url(),
            &stage.policies(),
            &stage.ledger(),
            tape.clone(),
        );
        Ok(Self {
            stage,
            crew,
            tape,
            started: BootClock.now(),
        })
    }

    /// Orders for a worker on a name of this run.
    pub(super) fn orders(&self, who: &str, class: &str, name: &str) -> Orders {
        Orders::new(who, class, &self.stage.name(name))
    }

    /// Says what is broken now; answers when.
    pub(super) fn fault(&self, what: &str) -> u64 {
        self.tape.note(Entry::Fault {
            fault: what.to_owned(),
            mends: false,
        })
    }

    /// Says what is whole again; answers when.
    pub(super) fn mend(&self, what: &str) -> u64 {
        self.tape.note(Entry::Fault {
            fault: what.to_owned(),
            mends: true,
        })
    }

    pub(super) async fn rest(&self, span: Duration) {
        BootClock.sleep(span).await;
    }

    /// Waits for an event of a client's stream from this place of the history on, at most so long.
    pub(super) async fn look(&self, from: usize, within: Duration, who: &str, event: &str) -> Option<Record> {
        self.tape
            .wait(from, within, |record| {
                record.who == who && transition(record).is_some_and(|seen| seen.event == event)
            })
            .await
    }

    /// As [`look`](Self::look), for what every run shows: without it there is no drill.
    pub(super) async fn event(&self, from: usize, who: &str, event: &str) -> Result<Record, Error> {
        let found = self.look(from, PATIENCE, who, event).await;
        found.ok_or_else(|| Error::Waited(format!("for {who} to be {event}")))
    }

    /// Waits until a client works under a lease: it has looked, and its write is on its way.
    pub(super) async fn at_work(&self, from: usize, who: &str) -> Result<Record, Error> {
        let found = self
            .tape
            .wait(from, PATIENCE, |record| {
                record.who == who && matches!(record.what, Entry::Claimed { proven: true, .. })
            })
            .await;
        found.ok_or_else(|| Error::Waited(format!("for {who} to work")))
    }

    /// The crew ends, leases run out, the ledger is read, and the history is judged.
    pub(super) async fn close(mut self, scenario: &Scenario, mut draft: Draft) -> Result<Verdict, Error> {
        self.stage.heal().await?;
        let late = self.crew.end().await;
        draft.promise(
            "every worker ends in order",
            late.is_empty(),
            if late.is_empty() {
                "all did".to_owned()
            } else {
                format!("not in order: {}", late.join(", "))
            },
        );
        // What a killed worker left runs out by its TTL; what is there after that is an orphan.
        let end = BootClock.now() + TTL + SLACK;
        while !self.stage.leases().await?.is_empty() && BootClock.now() < end {
            BootClock.sleep(LOOK).await;
        }
        self.tape.note(Entry::Quiet);
        for lease in self.stage.leases().await? {
            self.tape.note(Entry::Lease {
                name: lease.name.to_string(),
                holder: lease.holder,
                fence: lease.fence,
            });
        }
        for row in Ledger::open(&self.stage.ledger())?.entries()? {
            self.tape.note(row);
        }
        let (took, kind) = (BootClock.now().since(self.started), self.stage.kind());
        let verdict = Verdict::reach(scenario, kind, took, draft, self.tape.history());
        self.stage.close().await;
        Ok(verdict)
    }

    /// Ends everything without a verdict.
    pub(super) async fn strike(self) {
        drop(self.crew);
        self.stage.close().await;
    }
}

/// The record's event, if it is one.
pub(super) fn transition(record: &Record) -> Option<&Transition> {
    match &record.what {
        Entry::Event(event) => Some(event),
        _ => None,
    }
}

/// From one moment of the history to another.
pub(super) fn between(from: u64, to: u64) -> Duration {
    Duration::from_nanos(to.saturating_sub(from))
}

/// Seconds, for sentences.
pub(super) fn secs(span: Duration) -> String {
    format!("{:.2} s", span.as_secs_f64())
}

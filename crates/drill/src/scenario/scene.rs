//! What every drill needs: a stage, a crew, the history so far, and an orderly end.

use std::time::Duration;

use leasehold_core::clock::{BootClock, Clock, ClockExt, Moment};

use super::draft::Draft;
use super::verdict::Verdict;
use super::{Options, PATIENCE, POLICIES, SLACK, Scenario, TTL};
use crate::fleet::{
    Crew, Ended, Error, Given, Ledger, Orders, Program, Pulse, Replica, Stage, StoreKind, Tape,
};
use crate::history::{Answer, Entry, Record, Transition};

/// How often the end of the last lease is looked for.
const LOOK: Duration = Duration::from_millis(50);

pub(crate) struct Scene {
    // Dropped in this order: workers before the servers that they use.
    pub(crate) crew: Crew,
    pub(crate) stage: Stage,
    pub(crate) tape: Tape,
    pub(super) options: Options,
    /// Whether the machine kept up.
    pub(crate) pulse: Pulse,
    /// What must last until everybody has ended.
    kept: Vec<Replica>,
    started: Moment,
}

impl Scene {
    pub(super) async fn open(
        kind: StoreKind,
        given: Option<&Given>,
        program: &Program,
        scenario: &Scenario,
        options: Options,
    ) -> Result<Self, Error> {
        let skewed = scenario.skews && kind == StoreKind::Redis;
        let stage = Stage::build(kind, given, POLICIES, program, skewed).await?;
        Self::on(stage, program, options)
    }

    /// Nobody yet, on this stage.
    pub(crate) fn on(stage: Stage, program: &Program, options: Options) -> Result<Self, Error> {
        let tape = Tape::default();
        let crew = Crew::new(
            program.clone(),
            stage.url(),
            &stage.policies(),
            &stage.ledger(),
            tape.clone(),
        );
        Ok(Self {
            crew,
            pulse: Pulse::start(stage.folder())?,
            stage,
            tape,
            options,
            kept: Vec::new(),
            started: BootClock.now(),
        })
    }

    /// Keeps a server until everybody has ended.
    pub(super) fn keep(&mut self, replica: Replica) {
        self.kept.push(replica);
    }

    /// The moment now, as histories have it.
    pub(super) fn now(&self) -> u64 {
        BootClock.now().as_nanos()
    }

    /// Orders for a worker on a name of this run.
    pub(crate) fn orders(&self, who: &str, class: &str, name: &str) -> Orders {
        Orders::new(who, class, &self.stage.name(name))
    }

    /// Says what is broken now; answers when.
    pub(crate) fn fault(&self, what: &str) -> u64 {
        self.tape.note(Entry::Fault {
            fault: what.to_owned(),
            mends: false,
        })
    }

    /// Says what is whole again; answers when.
    pub(crate) fn mend(&self, what: &str) -> u64 {
        self.tape.note(Entry::Fault {
            fault: what.to_owned(),
            mends: true,
        })
    }

    pub(crate) async fn rest(&self, span: Duration) {
        BootClock.sleep(span).await;
    }

    /// Waits for an event of a client's stream from this place of the history on, at most so long.
    pub(crate) async fn look(&self, from: usize, within: Duration, who: &str, event: &str) -> Option<Record> {
        self.tape
            .wait(from, within, |record| {
                record.who == who && transition(record).is_some_and(|seen| seen.event == event)
            })
            .await
    }

    /// As [`look`](Self::look), for what a drill needs before it can begin. What is promised is looked for instead: if it
    /// does not come, that is a broken promise and not a drill that could not be run.
    pub(crate) async fn event(&self, from: usize, who: &str, event: &str) -> Result<Record, Error> {
        let found = self.look(from, PATIENCE, who, event).await;
        found.ok_or_else(|| Error::Waited(format!("for {who} to be {event}")))
    }

    /// How a client's next acquire is answered.
    pub(super) async fn answer(&self, from: usize, who: &str) -> Option<Answer> {
        let found = self.tape.wait(from, PATIENCE, |record| {
            record.who == who && matches!(record.what, Entry::Answered { .. })
        });
        match found.await?.what {
            Entry::Answered { answer, .. } => Some(answer),
            _ => None,
        }
    }

    /// Waits until a client works under a lease: it has looked, and its write is on its way.
    pub(crate) async fn at_work(&self, from: usize, who: &str) -> Result<Record, Error> {
        let found = self
            .tape
            .wait(from, PATIENCE, |record| {
                record.who == who
                    && matches!(
                        record.what,
                        Entry::Claimed {
                            proven_until: Some(_),
                            ..
                        }
                    )
            })
            .await;
        found.ok_or_else(|| Error::Waited(format!("for {who} to work")))
    }

    /// The crew ends, leases run out, the ledger is read, and the history is judged. A drill that was broken off by an error is
    /// judged too: what it shows to be broken is broken.
    pub(super) async fn close(
        mut self,
        scenario: &Scenario,
        mut draft: Draft,
        played: Result<(), Error>,
    ) -> Result<Verdict, Error> {
        let closed = match played {
            Ok(()) => self.end(&mut draft).await,
            Err(error) => {
                let mut failed = self.wind_up(TTL + SLACK).await;
                // Somebody may still have been stopped, and others wait for it: only who ended by itself is told of.
                failed.retain(|(_, how)| *how != Ended::Late);
                ended(&mut draft, &failed);
                Err(error)
            }
        };
        let (took, kind) = (BootClock.now().since(self.started), self.stage.kind());
        let verdict = Verdict::reach(scenario, kind, took, draft, self.tape.history());
        self.stage.close().await;
        let stood_still = self.pulse.take();
        if let Err(error) = closed {
            return verdict.broken_off(stood_still, error);
        }
        if stood_still > Pulse::LATE && verdict.only_late() {
            let why = verdict.broken().join("; ");
            return Err(Error::Busy { stood_still, why });
        }
        Ok(verdict)
    }

    /// Everybody ends in order, and what is left is read.
    async fn end(&mut self, draft: &mut Draft) -> Result<(), Error> {
        self.stage.heal().await?;
        ended(draft, &self.crew.end().await);
        self.quiet(TTL + SLACK).await?;
        if let Some(mortal) = self.stage.mortal_counters().await? {
            draft.always(
                "fence counters do not expire",
                mortal == 0,
                format!("{mortal} with a time to live"),
            );
        }
        Ok(())
    }

    /// After an error: everybody ends, and what is left is read as far as it can be. Answers who did not end in order.
    pub(crate) async fn wind_up(&mut self, within: Duration) -> Vec<(String, Ended)> {
        let _ = self.stage.heal().await;
        let others = self.crew.end().await;
        let _ = self.quiet(within).await;
        others
    }

    /// Writes down what is left when everybody has ended. What a killed worker left runs out within its TTL; what is there
    /// after that is an orphan.
    pub(crate) async fn quiet(&self, within: Duration) -> Result<(), Error> {
        let end = BootClock.now() + within;
        while !self.stage.leases().await?.is_empty() && BootClock.now() < end {
            BootClock.sleep(LOOK).await;
        }
        // All of it or nothing: writes are compared with the ledger as soon as it is quiet.
        let (leases, rows) = (
            self.stage.leases().await?,
            Ledger::open(&self.stage.ledger())?.entries()?,
        );
        self.tape.note(Entry::Quiet);
        for lease in leases {
            self.tape.note(Entry::Lease {
                name: lease.name.to_string(),
                holder: lease.holder,
                fence: lease.fence,
            });
        }
        for row in rows {
            self.tape.note(row);
        }
        Ok(())
    }

    /// Ends everything without a verdict.
    pub(crate) async fn strike(self) {
        drop(self.crew);
        self.stage.close().await;
    }
}

/// Everybody has ended, apart from these in order.
pub(super) fn ended(draft: &mut Draft, others: &[(String, Ended)]) {
    let late: Vec<&str> = others
        .iter()
        .filter(|(_, how)| *how == Ended::Late)
        .map(|(who, _)| who.as_str())
        .collect();
    let failed: Vec<String> = others
        .iter()
        .filter_map(|(who, how)| match how {
            Ended::Failed(why) => Some(format!("{who}: {why}")),
            _ => None,
        })
        .collect();
    let all = "all did".to_owned();
    draft.promise(
        "every worker ends in time",
        late.is_empty(),
        if late.is_empty() {
            all.clone()
        } else {
            format!("killed at its end: {}", late.join(", "))
        },
    );
    draft.always(
        "every worker ends without an error",
        failed.is_empty(),
        if failed.is_empty() { all } else { failed.join(", ") },
    );
}

/// The record's event, if it is one.
pub(crate) fn transition(record: &Record) -> Option<&Transition> {
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

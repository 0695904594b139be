//! What every drill shares: the testbed, the workers, the history so far, and an orderly end.

use std::time::Duration;

use leasehold_core::clock::{BootClock, Clock, ClockExt, Moment};

use super::verdict::Verdict;
use super::verdict_builder::VerdictBuilder;
use super::{DRILL_TTL, DrillOptions, EVENT_TIMEOUT, HOST_SLACK, Scenario};
use crate::fleet::{
    DrillError, DrillTestbed, FencedTarget, HistoryBuffer, LoadProbe, WorkerExit, WorkerProgram, WorkerSpec,
    Workers,
};
use crate::history::{ClientEvent, HistoryEntry, HistoryRecord, RecordedOutcome};

const LEASE_POLL_INTERVAL: Duration = Duration::from_millis(50);

pub(crate) struct ScenarioContext {
    // Fields drop in this order: the workers end before the servers that they use.
    pub(crate) workers: Workers,
    pub(crate) testbed: DrillTestbed,
    pub(crate) history: HistoryBuffer,
    pub(super) options: DrillOptions,
    /// Measures whether the host kept up.
    pub(crate) load_probe: LoadProbe,
    started: Moment,
}

impl ScenarioContext {
    /// Creates a context without workers on this testbed.
    pub(crate) fn new(
        testbed: DrillTestbed,
        program: &WorkerProgram,
        options: DrillOptions,
    ) -> Result<Self, DrillError> {
        let history = HistoryBuffer::default();
        let workers = Workers::new(
            program.clone(),
            testbed.url(),
            &testbed.policy_path(),
            &testbed.target_path(),
            history.clone(),
        );
        Ok(Self {
            workers,
            load_probe: LoadProbe::start(testbed.folder())?,
            testbed,
            history,
            options,
            started: BootClock.now(),
        })
    }

    /// The current time, as in histories: nanoseconds of the boot clock.
    pub(super) fn now_nanos(&self) -> u64 {
        BootClock.now().as_nanos()
    }

    /// A spec for a worker on a lock name of this run.
    pub(crate) fn worker_spec(&self, who: &str, class: &str, name: &str) -> WorkerSpec {
        WorkerSpec::new(who, class, &self.testbed.lock_name(name))
    }

    /// Records that a fault begins. Returns the time.
    pub(crate) fn record_fault(&self, what: &str) -> u64 {
        self.history.record(HistoryEntry::Fault { fault: what.to_owned(), mends: false })
    }

    /// Records that a fault is repaired. Returns the time.
    pub(crate) fn record_repair(&self, what: &str) -> u64 {
        self.history.record(HistoryEntry::Fault { fault: what.to_owned(), mends: true })
    }

    pub(crate) async fn sleep(&self, span: Duration) {
        BootClock.sleep(span).await;
    }

    /// Waits for an event of a client, from this position of the history on. `None` after the
    /// timeout.
    pub(crate) async fn wait_for_event(
        &self,
        from: usize,
        within: Duration,
        who: &str,
        event: &str,
    ) -> Option<HistoryRecord> {
        self.history
            .wait_for(from, within, |record| {
                record.who == who && transition(record).is_some_and(|seen| seen.event == event)
            })
            .await
    }

    /// Waits for an event that the drill needs before it can continue. For a promised event use
    /// [`wait_for_event`](Self::wait_for_event): if that is missing, a promise is broken, and the
    /// drill did run.
    pub(crate) async fn require_event(
        &self,
        from: usize,
        who: &str,
        event: &str,
    ) -> Result<HistoryRecord, DrillError> {
        let found = self.wait_for_event(from, EVENT_TIMEOUT, who, event).await;
        found.ok_or_else(|| DrillError::WaitTimedOut(format!("for {who} to be {event}")))
    }

    /// Waits for the result of a client's next acquire.
    pub(super) async fn wait_for_answer(&self, from: usize, who: &str) -> Option<RecordedOutcome> {
        let found = self.history.wait_for(from, EVENT_TIMEOUT, |record| {
            record.who == who && matches!(record.what, HistoryEntry::Answered { .. })
        });
        match found.await?.what {
            HistoryEntry::Answered { answer, .. } => Some(answer),
            _ => None,
        }
    }

    /// Waits until a client works under a lease: it has checked its hold and sends a write.
    pub(crate) async fn wait_until_working(
        &self,
        from: usize,
        who: &str,
    ) -> Result<HistoryRecord, DrillError> {
        let found = self
            .history
            .wait_for(from, EVENT_TIMEOUT, |record| {
                record.who == who
                    && matches!(record.what, HistoryEntry::Claimed { proven_until: Some(_), .. })
            })
            .await;
        found.ok_or_else(|| DrillError::WaitTimedOut(format!("for {who} to work")))
    }

    /// Ends the workers, waits for the leases to expire, reads the target, and judges the history.
    /// A drill that ended with an error is judged too: broken promises count in any case.
    pub(super) async fn close(
        mut self,
        scenario: &Scenario,
        mut draft: VerdictBuilder,
        played: Result<(), DrillError>,
    ) -> Result<Verdict, DrillError> {
        let closed = match played {
            Ok(()) => self.end_workers(&mut draft).await,
            Err(error) => {
                let mut failed = self.end_after_error(DRILL_TTL + HOST_SLACK).await;
                // A worker may still be paused, and others may wait for it. So a timeout proves
                // nothing here; an error exit does.
                failed.retain(|(_, how)| *how != WorkerExit::TimedOut);
                promise_clean_exits(&mut draft, &failed);
                Err(error)
            }
        };
        let (took, store) = (BootClock.now().since(self.started), self.testbed.info().name);
        let verdict = Verdict::from_run(scenario, store, took, draft, self.history.snapshot());
        self.testbed.close().await;
        let stood_still = self.load_probe.take_worst_delay();
        if let Err(error) = closed {
            return verdict.after_error(stood_still, error);
        }
        if stood_still > LoadProbe::MAX_DELAY && verdict.only_timing_broken() {
            let why = verdict.broken_promises().join("; ");
            return Err(DrillError::HostTooSlow { stood_still, why });
        }
        Ok(verdict)
    }

    /// Ends all workers and records the final state.
    async fn end_workers(&mut self, draft: &mut VerdictBuilder) -> Result<(), DrillError> {
        self.testbed.heal().await?;
        promise_clean_exits(draft, &self.workers.end_all().await);
        self.record_final_state(DRILL_TTL + HOST_SLACK).await?;
        if let Some(mortal) = self.testbed.expiring_fence_counters().await? {
            draft.promise_untimed(
                "fence counters do not expire",
                mortal == 0,
                format!("{mortal} with a time to live"),
            );
        }
        Ok(())
    }

    /// After an error: ends all workers and records the final state if possible. Returns the
    /// workers that did not end cleanly.
    pub(crate) async fn end_after_error(&mut self, within: Duration) -> Vec<(String, WorkerExit)> {
        let _ = self.testbed.heal().await;
        let others = self.workers.end_all().await;
        let _ = self.record_final_state(within).await;
        others
    }

    /// Records the remaining leases and the target's rows after all workers have ended. A killed
    /// worker's lease expires within its TTL; a lease that remains after that is an orphan.
    pub(crate) async fn record_final_state(&self, within: Duration) -> Result<(), DrillError> {
        let end = BootClock.now() + within;
        while !self.testbed.leases().await?.is_empty() && BootClock.now() < end {
            BootClock.sleep(LEASE_POLL_INTERVAL).await;
        }
        // Both are read before `Quiet` is recorded: after that record the checker compares writes
        // with the target, so an error in between would look like lost writes.
        let (leases, rows) =
            (self.testbed.leases().await?, FencedTarget::open(&self.testbed.target_path())?.rows()?);
        self.history.record(HistoryEntry::Quiet);
        for lease in leases {
            self.history.record(HistoryEntry::Lease {
                name: lease.name.to_string(),
                holder: lease.holder,
                fence: lease.fence,
            });
        }
        for row in rows {
            self.history.record(row);
        }
        Ok(())
    }

    /// Ends workers and testbed without a verdict.
    pub(crate) async fn discard(self) {
        drop(self.workers);
        self.testbed.close().await;
    }
}

/// Adds the promises about the workers' ends. `others` are the workers that did not end cleanly.
pub(super) fn promise_clean_exits(draft: &mut VerdictBuilder, others: &[(String, WorkerExit)]) {
    let late: Vec<&str> =
        others.iter().filter(|(_, how)| *how == WorkerExit::TimedOut).map(|(who, _)| who.as_str()).collect();
    let failed: Vec<String> = others
        .iter()
        .filter_map(|(who, how)| match how {
            WorkerExit::Failed(why) => Some(format!("{who}: {why}")),
            _ => None,
        })
        .collect();
    let all = "all did".to_owned();
    draft.promise(
        "every worker ends in time",
        late.is_empty(),
        if late.is_empty() { all.clone() } else { format!("killed at its end: {}", late.join(", ")) },
    );
    draft.promise_untimed(
        "every worker ends without an error",
        failed.is_empty(),
        if failed.is_empty() { all } else { failed.join(", ") },
    );
}

/// The client event in this record, if it is one.
pub(crate) fn transition(record: &HistoryRecord) -> Option<&ClientEvent> {
    match &record.what {
        HistoryEntry::Event(event) => Some(event),
        _ => None,
    }
}

/// The time between two timestamps of a history; zero if they are reversed.
pub(super) fn between(from: u64, to: u64) -> Duration {
    Duration::from_nanos(to.saturating_sub(from))
}

/// Formats a duration in seconds.
pub(super) fn format_secs(span: Duration) -> String {
    format!("{:.2} s", span.as_secs_f64())
}

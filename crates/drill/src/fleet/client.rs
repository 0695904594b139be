//! One client of a worker: acquires, checks its hold, writes to the target, releases, and records
//! each step.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use leasehold::StoreUrl;
use leasehold_core::clock::{BootClock, ClockExt};
use leasehold_core::observe::Counters;
use leasehold_core::policy::PolicyBook;
use leasehold_core::{
    Acquired, Error, Exclusivity, Fence, Hold, HoldStatus, Holder, Locks, Name, PendingWork,
};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::fenced_target::{FencedTarget, FencedTargetWrite};
use super::request_count::CountingStore;
use super::worker_spec::WorkerSpec;
use crate::history::{HistoryEntry, HistoryObserver, HistoryWriter, RecordedOutcome, WriteOutcome};
use crate::invariant::COMPARED_COUNTERS;

// Time for releases and undos after the request to end. The director kills the worker after 15 s.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(3);
// A class may ask for a longer `retry_after`. A drill takes seconds, so the client retries sooner.
const MAX_REST: Duration = Duration::from_millis(500);

/// A client with its own connection, locks and holder name.
pub(super) struct DrillClient {
    spec: Arc<WorkerSpec>,
    name: Name,
    history: HistoryWriter,
    locks: Locks,
    counters: Arc<Counters>,
    acquire_requests: Arc<AtomicU64>,
    target: Arc<FencedTarget>,
    /// Writes that were sent. They outlive the hold that sent them, as requests on a network do.
    writes_in_flight: TaskTracker,
    writes: AtomicU64,
    /// The last deadline of the hold while it was valid.
    last_deadline: AtomicU64,
    shutdown: CancellationToken,
}

impl DrillClient {
    /// Opens the store under the history writer's client name.
    pub(super) async fn open(
        orders: Arc<WorkerSpec>,
        name: Name,
        history: HistoryWriter,
        target: Arc<FencedTarget>,
        ending: CancellationToken,
    ) -> Result<Self, String> {
        let counters = Arc::new(Counters::default());
        let holder = Holder::new(history.who()).map_err(|error| error.to_string())?;
        // The same steps as `leasehold::open`, with a counting store in between.
        let url = StoreUrl::parse(&orders.store).map_err(|error| error.to_string())?;
        let opened = tokio::task::spawn_blocking(move || url.open());
        let store = opened.await.map_err(|error| error.to_string())?;
        let (store, asks) = CountingStore::wrap(store.map_err(|error| error.to_string())?);
        let book = PolicyBook::from_file(&orders.policies).map_err(|error| error.to_string())?;
        let locks = Locks::builder(store)
            .policies(book)
            .policy_file(&orders.policies)
            .holder(holder)
            .observer(Arc::new(HistoryObserver::new(history.clone())))
            .observer(Arc::clone(&counters) as Arc<_>)
            .without_log()
            .build()
            .map_err(|error| error.to_string())?;
        Ok(Self {
            spec: orders,
            name,
            history,
            locks,
            counters,
            acquire_requests: asks,
            target,
            writes_in_flight: TaskTracker::new(),
            writes: AtomicU64::new(0),
            last_deadline: AtomicU64::new(0),
            shutdown: ending,
        })
    }

    /// Acquires, works and releases in a loop until shutdown.
    pub(super) async fn run(self) -> Result<(), String> {
        let class = self
            .locks
            .policies()
            .class(&self.spec.class, self.locks.clock().now())
            .map_err(|error| error.to_string())?;
        let nanos = |span: Duration| u64::try_from(span.as_nanos()).unwrap_or(u64::MAX);
        self.history.record(HistoryEntry::Class {
            class: self.spec.class.clone(),
            ttl: nanos(class.ttl.get()),
            usable: nanos(class.usable()),
            fail_open: class.acquire.on_error == leasehold_core::policy::OnError::FailOpen,
            continues: class.renew.on_failure == leasehold_core::policy::OnFailure::Continue,
        });
        let (mut attempt, mut turns) = (0, 0);
        while !self.shutdown.is_cancelled() {
            if self.spec.turns > 0 && turns == self.spec.turns {
                self.shutdown.cancelled().await;
                break;
            }
            attempt += 1;
            let (rest, held) = self.acquire_once(attempt).await?;
            turns += u32::from(held);
            tokio::select! {
                () = BootClock.sleep(rest) => {}
                () = self.shutdown.cancelled() => {}
            }
        }
        self.writes_in_flight.close();
        self.writes_in_flight.wait().await;
        let ended = self.locks.shutdown(SHUTDOWN_TIMEOUT).await;
        if ended.pending != PendingWork::default() {
            // Pending releases still change the counters. A tally now would disagree with later
            // events.
            return Ok(());
        }
        let mut counters = std::collections::BTreeMap::new();
        for (event, metric, label) in COMPARED_COUNTERS {
            // The counters are whole numbers below 2^53, so the conversion is exact.
            let value = self.counters.total(metric, label) as i64;
            counters.insert((*event).to_owned(), value);
        }
        self.history.record(HistoryEntry::Tally { counters });
        let asks = self.acquire_requests.load(Ordering::Relaxed);
        self.history.record(HistoryEntry::Effort { asks });
        Ok(())
    }

    /// Does one acquire and the work under its hold. Returns how long to rest, and whether it held.
    async fn acquire_once(&self, attempt: u64) -> Result<(Duration, bool), String> {
        let sent = self.history.now();
        self.history.record_at(
            sent,
            HistoryEntry::Asked { attempt, name: self.name.to_string(), class: self.spec.class.clone() },
        );
        let answered = |answer, fence| {
            self.history.record(HistoryEntry::Answered { attempt, sent, answer, fence });
        };
        let rest = Duration::from_millis(self.spec.rest_ms);
        match self.locks.class(&self.spec.class).acquire(self.name.as_str()).await {
            Ok(Acquired::Held(hold)) => {
                match hold.exclusivity() {
                    Exclusivity::Distributed => {
                        answered(RecordedOutcome::Held, hold.fence_if_any().ok().flatten())
                    }
                    Exclusivity::LocalOnly => answered(RecordedOutcome::LocalOnly, None),
                }
                self.work_under_hold(attempt, hold).await;
                Ok((rest, true))
            }
            Ok(Acquired::Busy(_)) => {
                answered(RecordedOutcome::Busy, None);
                Ok((rest, false))
            }
            Err(Error::Unavailable { retry_after, .. }) => {
                answered(RecordedOutcome::Unavailable, None);
                Ok((retry_after.min(MAX_REST), false))
            }
            Err(Error::Closed) => {
                answered(RecordedOutcome::Closed, None);
                Ok((rest, false))
            }
            Err(error) => Err(error.to_string()),
        }
    }

    async fn work_under_hold(&self, attempt: u64, hold: Hold) {
        let result = if self.spec.reckless {
            // The control run must not be stopped by `Hold::run`: its late writes are what the
            // checker has to find.
            Ok(self.work(attempt, &hold).await)
        } else {
            hold.run(self.work(attempt, &hold)).await
        };
        let (value, lost) = match result {
            Ok(value) => (Some(value), false),
            Err((_, value)) => (value, true),
        };
        self.history.record(HistoryEntry::Reported { attempt, value, lost });
        self.history.record(HistoryEntry::Releasing { attempt });
        hold.release().await;
    }

    /// Does one task of several writes; the last write completes it. Returns the task's number.
    async fn work(&self, attempt: u64, hold: &Hold) -> u64 {
        let task = self.open_task(attempt, hold).await;
        // The control run keeps writing with the fence of its grant, even after the hold is lost.
        let first = hold.fence_if_any().ok().flatten().filter(|_| self.spec.reckless);
        let mut step = 0;
        while step < self.spec.steps {
            // An endless task counts its steps only after the request to end, or with a local lock.
            // A client that kept a local lock for ever would never acquire a lease again.
            let alone = hold.exclusivity() == Exclusivity::LocalOnly;
            step += u32::from(!self.spec.endless || self.shutdown.is_cancelled() || alone);
            let fence = self.check_hold(attempt, hold).or(first);
            if let Some(fence) = fence {
                let ends = (step == self.spec.steps).then_some(task);
                self.send_write(attempt, fence, ends).await;
            } else {
                // Without a fence nothing is written, but the step takes as long as a write.
                BootClock.sleep(Duration::from_millis(self.spec.delay_ms)).await;
            }
        }
        self.history.record(HistoryEntry::Returned { attempt, value: task });
        task
    }

    /// Opens the next task and returns its number. With a fence, no earlier holder can complete it
    /// any more.
    async fn open_task(&self, attempt: u64, hold: &Hold) -> u64 {
        let fence = hold.fence_if_any().ok().flatten().filter(|_| !self.spec.reckless);
        let Some(fence) = fence else {
            return self.target.next_task(&self.name).unwrap_or(0);
        };
        let write = self.writes.fetch_add(1, Ordering::Relaxed) + 1;
        let line = FencedTargetWrite {
            name: self.name.clone(),
            writer: self.history.who().to_owned(),
            write,
            task: None,
            fence,
        };
        let (target, sent) = (Arc::clone(&self.target), self.history.now());
        let opened = tokio::task::spawn_blocking(move || target.open_task(&line)).await;
        let (answer, newest, task) = opened.unwrap_or((WriteOutcome::Unknown, None, None));
        self.history.record(HistoryEntry::Written { attempt, write, sent, fence: Some(fence), answer });
        if let Some(newest) = newest {
            self.locks.report_fence_refused(&self.spec.class, &self.name, fence, newest);
        }
        task.unwrap_or(0)
    }

    /// Checks whether the hold is valid, and records the deadline that the client relies on.
    fn check_hold(&self, attempt: u64, hold: &Hold) -> Option<Fence> {
        let before = hold.status();
        // The time is read before the remaining time: the recorded deadline is never later than the
        // real one.
        let at = self.history.now();
        let remaining = u64::try_from(hold.remaining().as_nanos()).unwrap_or(u64::MAX);
        let alone = u64::try_from(hold.proven_for().as_nanos()).unwrap_or(u64::MAX);
        // Read twice: the standing may change between the reads, and a false claim would accuse the
        // client.
        let proven = before == HoldStatus::Proven && hold.status() == HoldStatus::Proven;
        let fence = hold.fence_if_any();
        let mut until = at.saturating_add(remaining);
        if fence.is_ok() {
            self.last_deadline.store(until, Ordering::Relaxed);
        } else {
            // A lost hold has no deadline. The last valid one tells the checker how late this step
            // is.
            until = self.last_deadline.load(Ordering::Relaxed).min(until);
        }
        // A worker that finds its hold lost claims nothing: `Hold::run` cancels it at its next
        // await.
        if self.spec.reckless || fence.is_ok() {
            self.history.record_at(
                at,
                HistoryEntry::Claimed {
                    attempt,
                    until,
                    proven_until: proven.then(|| at.saturating_add(alone).min(until)),
                    fence: fence.clone().ok().flatten(),
                },
            );
        }
        fence.ok().flatten()
    }

    /// Sends a write. Once sent it arrives, even if the work is cancelled.
    async fn send_write(&self, attempt: u64, fence: Fence, task: Option<u64>) {
        let write = self.writes.fetch_add(1, Ordering::Relaxed) + 1;
        let line = FencedTargetWrite {
            name: self.name.clone(),
            writer: self.history.who().to_owned(),
            write,
            task,
            fence,
        };
        let (history, target, locks) = (self.history.clone(), Arc::clone(&self.target), self.locks.clone());
        let (delay, reckless) = (Duration::from_millis(self.spec.delay_ms), self.spec.reckless);
        let class = self.spec.class.clone();
        let flight = self.writes_in_flight.spawn(async move {
            let sent = history.now();
            BootClock.sleep(delay).await;
            let arriving = line.clone();
            let wrote = tokio::task::spawn_blocking(move || {
                if reckless { (target.write_unfenced(&arriving), None) } else { target.write(&arriving) }
            });
            let (answer, newest) = wrote.await.unwrap_or((WriteOutcome::Unknown, None));
            history.record(HistoryEntry::Written { attempt, write, sent, fence: Some(fence), answer });
            if let Some(newest) = newest {
                locks.report_fence_refused(&class, &line.name, fence, newest);
            }
        });
        // Dropping this future does not cancel the spawned write.
        let _ = flight.await;
    }
}

#[cfg(test)]
mod tests;

//! One client's life: acquire, look, write, give back, and write everything down.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use leasehold::StoreUrl;
use leasehold_core::clock::{BootClock, ClockExt};
use leasehold_core::observe::Counters;
use leasehold_core::policy::PolicyBook;
use leasehold_core::{Acquired, Error, Exclusivity, Fence, Hold, Holder, Left, Locks, Name, Standing};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::effort::Counted;
use super::ledger::{Ledger, Line};
use super::orders::Orders;
use crate::history::{Answer, Entry, Pen, Tap, Wrote};
use crate::invariant::COUNTERS;

/// How long holds, releases and undos may take when the worker is told to end.
const END: Duration = Duration::from_secs(3);
/// The longest that a refused client rests: drills are short.
const MOST_REST: Duration = Duration::from_millis(500);

/// A client with its own locks.
pub(super) struct Client {
    orders: Arc<Orders>,
    name: Name,
    pen: Pen,
    locks: Locks,
    counters: Arc<Counters>,
    asks: Arc<AtomicU64>,
    ledger: Arc<Ledger>,
    /// Writes on their way. They outlive the hold that sent them, as requests on a network do.
    flying: TaskTracker,
    writes: AtomicU64,
    /// The deadline that was last believed in.
    believed: AtomicU64,
    ending: CancellationToken,
}

impl Client {
    /// Opens the store under this pen's name.
    pub(super) async fn open(
        orders: Arc<Orders>,
        name: Name,
        pen: Pen,
        ledger: Arc<Ledger>,
        ending: CancellationToken,
    ) -> Result<Self, String> {
        let counters = Arc::new(Counters::default());
        let holder = Holder::new(pen.who()).map_err(|error| error.to_string())?;
        // As `leasehold::open` does it, with a counter in between.
        let url = StoreUrl::parse(&orders.store).map_err(|error| error.to_string())?;
        let opened = tokio::task::spawn_blocking(move || url.open());
        let store = opened.await.map_err(|error| error.to_string())?;
        let (store, asks) = Counted::around(store.map_err(|error| error.to_string())?);
        let book = PolicyBook::from_file(&orders.policies).map_err(|error| error.to_string())?;
        let locks = Locks::builder(store)
            .policies(book)
            .policy_file(&orders.policies)
            .holder(holder)
            .observer(Arc::new(Tap::new(pen.clone())))
            .observer(Arc::clone(&counters) as Arc<_>)
            .without_log()
            .build()
            .map_err(|error| error.to_string())?;
        Ok(Self {
            orders,
            name,
            pen,
            locks,
            counters,
            asks,
            ledger,
            flying: TaskTracker::new(),
            writes: AtomicU64::new(0),
            believed: AtomicU64::new(0),
            ending,
        })
    }

    /// Takes the lock again and again until told to end.
    pub(super) async fn run(self) -> Result<(), String> {
        let class = self
            .locks
            .policies()
            .class(&self.orders.class, self.locks.clock().now())
            .map_err(|error| error.to_string())?;
        let nanos = |span: Duration| u64::try_from(span.as_nanos()).unwrap_or(u64::MAX);
        self.pen.note(Entry::Class {
            class: self.orders.class.clone(),
            ttl: nanos(class.ttl.get()),
            usable: nanos(class.usable()),
            fail_open: class.acquire.on_error == leasehold_core::policy::OnError::FailOpen,
            continues: class.renew.on_failure == leasehold_core::policy::OnFailure::Continue,
        });
        let (mut attempt, mut turns) = (0, 0);
        while !self.ending.is_cancelled() {
            if self.orders.turns > 0 && turns == self.orders.turns {
                self.ending.cancelled().await;
                break;
            }
            attempt += 1;
            let (rest, held) = self.attempt(attempt).await?;
            turns += u32::from(held);
            tokio::select! {
                () = BootClock.sleep(rest) => {}
                () = self.ending.cancelled() => {}
            }
        }
        self.flying.close();
        self.flying.wait().await;
        let ended = self.locks.shutdown(END).await;
        if ended.remains != Left::default() {
            // What is still owed goes on and will be counted: these are not the last numbers.
            return Ok(());
        }
        let mut counters = std::collections::BTreeMap::new();
        for (event, metric, label) in COUNTERS {
            // Whole numbers below 2^53.
            let value = self.counters.total(metric, label) as i64;
            counters.insert((*event).to_owned(), value);
        }
        self.pen.note(Entry::Tally { counters });
        let asks = self.asks.load(Ordering::Relaxed);
        self.pen.note(Entry::Effort { asks });
        Ok(())
    }

    /// One acquire and what comes of it; answers how long to rest, and whether it held.
    async fn attempt(&self, attempt: u64) -> Result<(Duration, bool), String> {
        let sent = self.pen.now();
        self.pen.note_at(
            sent,
            Entry::Asked {
                attempt,
                name: self.name.to_string(),
                class: self.orders.class.clone(),
            },
        );
        let answered = |answer, fence| {
            self.pen.note(Entry::Answered {
                attempt,
                sent,
                answer,
                fence,
            });
        };
        let rest = Duration::from_millis(self.orders.rest_ms);
        match self
            .locks
            .class(&self.orders.class)
            .acquire(self.name.as_str())
            .await
        {
            Ok(Acquired::Held(hold)) => {
                match hold.exclusivity() {
                    Exclusivity::Distributed => answered(Answer::Held, hold.unfenced().ok().flatten()),
                    Exclusivity::LocalOnly => answered(Answer::LocalOnly, None),
                }
                self.hold(attempt, hold).await;
                Ok((rest, true))
            }
            Ok(Acquired::Busy(_)) => {
                answered(Answer::Busy, None);
                Ok((rest, false))
            }
            Err(Error::Unavailable { retry_after, .. }) => {
                answered(Answer::Unavailable, None);
                Ok((retry_after.min(MOST_REST), false))
            }
            Err(Error::Closed) => {
                answered(Answer::Closed, None);
                Ok((rest, false))
            }
            Err(error) => Err(error.to_string()),
        }
    }

    async fn hold(&self, attempt: u64, hold: Hold) {
        let result = if self.orders.reckless {
            Ok(self.work(attempt, &hold).await)
        } else {
            hold.run(self.work(attempt, &hold)).await
        };
        let (value, lost) = match result {
            Ok(value) => (Some(value), false),
            Err((_, value)) => (value, true),
        };
        self.pen.note(Entry::Reported { attempt, value, lost });
        self.pen.note(Entry::Releasing { attempt });
        hold.release().await;
    }

    /// A task of some writes; the last one ends it. The result is the task's number.
    async fn work(&self, attempt: u64, hold: &Hold) -> u64 {
        let task = self.open_task(attempt, hold).await;
        // The control run writes on with whatever fence it once had.
        let first = hold.unfenced().ok().flatten().filter(|_| self.orders.reckless);
        let mut step = 0;
        while step < self.orders.steps {
            // The next write of an endless task is its last as soon as it is told to end. So it is without a lease: what goes on
            // with a local lock would never ask for one.
            let alone = hold.exclusivity() == Exclusivity::LocalOnly;
            step += u32::from(!self.orders.endless || self.ending.is_cancelled() || alone);
            let fence = self.look(attempt, hold).or(first);
            if let Some(fence) = fence {
                let ends = (step == self.orders.steps).then_some(task);
                self.send(attempt, fence, ends).await;
            } else {
                // Without a fence nothing is written; the time passes all the same.
                BootClock.sleep(Duration::from_millis(self.orders.delay_ms)).await;
            }
        }
        self.pen.note(Entry::Returned { attempt, value: task });
        task
    }

    /// Which task is next; with a fence, nobody before us can end it any more.
    async fn open_task(&self, attempt: u64, hold: &Hold) -> u64 {
        let fence = hold.unfenced().ok().flatten().filter(|_| !self.orders.reckless);
        let Some(fence) = fence else {
            return self.ledger.next_task(&self.name).unwrap_or(0);
        };
        let write = self.writes.fetch_add(1, Ordering::Relaxed) + 1;
        let line = Line {
            name: self.name.clone(),
            writer: self.pen.who().to_owned(),
            write,
            task: None,
            fence,
        };
        let (ledger, sent) = (Arc::clone(&self.ledger), self.pen.now());
        let opened = tokio::task::spawn_blocking(move || ledger.open_task(&line)).await;
        let (answer, newest, task) = opened.unwrap_or((Wrote::Unknown, None, None));
        self.pen.note(Entry::Written {
            attempt,
            write,
            sent,
            fence: Some(fence),
            answer,
        });
        if let Some(newest) = newest {
            self.locks
                .fence_refused(&self.orders.class, &self.name, fence, newest);
        }
        task.unwrap_or(0)
    }

    /// Looks whether the name is still ours, and writes down what is believed. The moment is taken first, so what is
    /// written never reaches further than what the client said.
    fn look(&self, attempt: u64, hold: &Hold) -> Option<Fence> {
        let before = hold.standing();
        let at = self.pen.now();
        let remaining = u64::try_from(hold.remaining().as_nanos()).unwrap_or(u64::MAX);
        let alone = u64::try_from(hold.proven_for().as_nanos()).unwrap_or(u64::MAX);
        let proven = before == Standing::Proven && hold.standing() == Standing::Proven;
        let fence = hold.unfenced();
        let mut until = at.saturating_add(remaining);
        if fence.is_ok() {
            self.believed.store(until, Ordering::Relaxed);
        } else {
            // A hold that is over has no deadline any more; how far past it this is, only the last one tells.
            until = self.believed.load(Ordering::Relaxed).min(until);
        }
        // A careful worker that finds its hold lost claims nothing: `Hold::run` ends it at its next step.
        if self.orders.reckless || fence.is_ok() {
            self.pen.note_at(
                at,
                Entry::Claimed {
                    attempt,
                    until,
                    proven_until: proven.then(|| at.saturating_add(alone).min(until)),
                    fence: fence.clone().ok().flatten(),
                },
            );
        }
        fence.ok().flatten()
    }

    /// Sends a write. From here on it is on its way: the work may be stopped, the write arrives.
    async fn send(&self, attempt: u64, fence: Fence, task: Option<u64>) {
        let write = self.writes.fetch_add(1, Ordering::Relaxed) + 1;
        let line = Line {
            name: self.name.clone(),
            writer: self.pen.who().to_owned(),
            write,
            task,
            fence,
        };
        let (pen, ledger, locks) = (self.pen.clone(), Arc::clone(&self.ledger), self.locks.clone());
        let (delay, reckless) = (Duration::from_millis(self.orders.delay_ms), self.orders.reckless);
        let class = self.orders.class.clone();
        let flight = self.flying.spawn(async move {
            let sent = pen.now();
            BootClock.sleep(delay).await;
            let arriving = line.clone();
            let wrote = tokio::task::spawn_blocking(move || {
                if reckless {
                    (ledger.write_unfenced(&arriving), None)
                } else {
                    ledger.write(&arriving)
                }
            });
            let (answer, newest) = wrote.await.unwrap_or((Wrote::Unknown, None));
            pen.note(Entry::Written {
                attempt,
                write,
                sent,
                fence: Some(fence),
                answer,
            });
            if let Some(newest) = newest {
                locks.fence_refused(&class, &line.name, fence, newest);
            }
        });
        // Dropping this future does not call the write back.
        let _ = flight.await;
    }
}

#[cfg(test)]
mod tests;

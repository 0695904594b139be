//! A client that talks to the daemon without the library: it acquires, renews, works and releases.
//!
//! It counts deadlines from before it sent a request, and stops at its deadline. When the outcome of
//! a request is unknown it asks again with the same id. Its beliefs are recorded like those of the
//! library's client. How it acquires, renews and releases is its [`ClientProtocol`]:
//! [`daemon_holds`](super::daemon_holds) or [`http_leases`](super::http_leases).

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use leasehold_core::clock::{Clock, Moment};
use leasehold_core::policy::Class;
use leasehold_core::{Fence, Name};
use leasehold_http::DaemonClient;

use super::client_protocol::{AcquireReply, ClientProtocol, HoldLost, HttpHold};
use super::drift::{MAX_DRIFT_PPM, MS, Nanos};
use super::worker::{MAX_REST_NANOS, SimWorker};
use leasehold_drill::history::{ClientEvent, HistoryEntry, RecordedOutcome, UNATTENDED};

// Requests for one acquire while faults happen.
const MAX_ACQUIRE_TRIES: usize = 4;
// Requests for one acquire after the faults. The first may go out on a dead connection that looks
// alive; the second must be answered.
const MAX_ACQUIRE_TRIES_AFTER_FAULTS: usize = 2;

/// A task of a process that takes locks from the daemon.
pub(super) struct SimHttpClient<W> {
    // Records, writes to the target and draws random numbers for this client.
    pub(super) worker: Arc<SimWorker>,
    pub(super) daemon: Arc<DaemonClient>,
    // The class as in the daemon's policy file, without overrides.
    pub(super) class: Arc<Class>,
    // Numbers the events; shared by the HTTP tasks of a process.
    pub(super) next_event: Arc<AtomicU64>,
    pub(super) protocol: W,
}

impl<W: ClientProtocol> SimHttpClient<W> {
    /// Takes locks until the simulation stops the workers.
    pub(super) async fn run(self) {
        loop {
            self.worker.sleep(self.worker.random.between(0, MAX_REST_NANOS)).await;
            let Some(name) = self.worker.next_name() else {
                return;
            };
            if let Some(held) = self.acquire_recorded(&name).await {
                let careless = self.worker.draw_chance(|odds| odds.careless);
                self.use_hold(held, careless).await;
            }
        }
    }

    /// One acquire that must be granted, held for `lasts`.
    pub(super) async fn probe(self, name: Name, lasts: Nanos) {
        let Some(held) = self.acquire_recorded(&name).await else {
            return;
        };
        if let Ok(()) = self.check_hold(&held)
            && let Some(fence) = held.fence
        {
            self.worker.send_write(held.attempt, &name, fence, None);
        }
        self.worker.sleep(lasts).await;
        let attempt = held.attempt;
        self.worker.record(HistoryEntry::Releasing { attempt });
        self.release_with_retry(&held).await;
    }

    /// Records the current class.
    fn record_class(&self) {
        if let Some(class) = W::class_versions(self, self.worker.now()).pop() {
            self.worker.record(self.class_entry(&class, W::fail_open(&class)));
            *self.worker.recorded_class.lock().unwrap_or_else(PoisonError::into_inner) = Some(class);
        }
    }

    /// Records the current class if it differs from the last recorded one.
    fn record_class_change(&self) {
        let message = self.worker.recorded_class.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if W::class_versions(self, self.worker.now()).pop() != message {
            self.record_class();
        }
    }

    /// Records the terms of an acquire during which an operator changed the class.
    fn record_ambiguous_class(&self, began: Nanos, answer: RecordedOutcome) {
        let classes = W::class_versions(self, began);
        let Some(class) = classes.last().filter(|_| classes.len() > 1) else {
            return;
        };
        // The daemon may have answered under any version of the class. The record therefore uses the
        // terms that allow the answer.
        let mut open = classes.iter().map(|class| W::fail_open(class));
        let fail_open = match answer {
            RecordedOutcome::LocalOnly => open.any(|open| open),
            RecordedOutcome::Unavailable => open.all(|open| open),
            _ => return,
        };
        let terms = self.class_entry(class, fail_open);
        // Dated back to the start of the acquire, where the oracle looks for the terms.
        self.worker.world.lock().history.record(began, &self.worker.who, terms);
    }

    fn class_entry(&self, class: &Class, fail_open: bool) -> HistoryEntry {
        let nanos = |span: Duration| u64::try_from(span.as_nanos()).unwrap_or(u64::MAX);
        let usable = nanos(W::usable_time(self));
        HistoryEntry::Class {
            class: self.worker.class.clone(),
            ttl: nanos(class.ttl.get() + class.release.lock_delay),
            // In true time: by the slowest clock a lease lasts longest.
            usable: usable + usable / 1_000_000 * (MAX_DRIFT_PPM + 100) + MS / 100,
            fail_open,
            continues: W::continues(class),
        }
    }

    /// Records an event, as the library's client would emit it.
    pub(super) fn record_event(
        &self,
        held: (u64, &Name),
        event: &str,
        fence: Option<Fence>,
        span: Option<Nanos>,
    ) {
        self.worker.record(HistoryEntry::Event(ClientEvent { span, ..self.new_event(held, event, fence) }));
    }

    fn new_event(&self, held: (u64, &Name), event: &str, fence: Option<Fence>) -> ClientEvent {
        ClientEvent {
            seq: self.next_event.fetch_add(1, Ordering::Relaxed),
            hold: held.0,
            event: event.to_owned(),
            name: Some(held.1.to_string()),
            class: self.worker.class.clone(),
            fence,
            span: None,
            detail: None,
        }
    }

    /// Records that the hold's lease is left to expire.
    fn record_abandoned(&self, held: &HttpHold) {
        self.worker.record(HistoryEntry::Event(ClientEvent {
            detail: (!W::UNDOES_LATE_GRANTS).then(|| UNATTENDED.to_owned()),
            ..self.new_event((held.attempt, &held.name), "abandoned", held.fence)
        }));
    }

    /// One acquire, with its records.
    async fn acquire_recorded(&self, name: &Name) -> Option<HttpHold> {
        self.record_class();
        let attempt = self.worker.attempts.fetch_add(1, Ordering::Relaxed) + 1;
        let began = self.worker.now();
        self.worker.record(HistoryEntry::Asked {
            attempt,
            name: name.to_string(),
            class: self.worker.class.clone(),
        });
        // Retries must reuse the id, and no other acquire may have it.
        let id = format!("{}-{attempt}", self.worker.who);
        let (answer, held) = self.acquire_with_retries(attempt, &id, name).await;
        self.record_ambiguous_class(began, answer);
        let fence = held.as_ref().and_then(|held| held.fence);
        self.worker.record(HistoryEntry::Answered { attempt, sent: began, answer, fence });
        let event = match answer {
            RecordedOutcome::Held => "acquired",
            RecordedOutcome::LocalOnly => "fell_back",
            RecordedOutcome::Busy => "busy",
            RecordedOutcome::Unavailable => "unavailable",
            RecordedOutcome::Cancelled => "cancelled",
            RecordedOutcome::Closed | RecordedOutcome::Unknown => return held,
        };
        self.record_event((attempt, name), event, fence, Some(self.worker.now() - began));
        held
    }

    /// Asks until the outcome is known, always with the same id.
    async fn acquire_with_retries(
        &self,
        attempt: u64,
        id: &str,
        name: &Name,
    ) -> (RecordedOutcome, Option<HttpHold>) {
        let acquire = &self.class.acquire;
        let patience = if self.worker.draw_chance(|odds| odds.cancel) {
            Duration::from_nanos(self.worker.random.between(0, 2_000 * MS))
        } else {
            acquire.wait + acquire.timeout * 2 + Duration::from_millis(500)
        };
        // Once an earlier request may have been granted, a refusal proves nothing; only a grant does.
        let mut unknown = false;
        let healed = self.worker.world.lock().faults_ended;
        for _ in 0..if healed { MAX_ACQUIRE_TRIES_AFTER_FAULTS } else { MAX_ACQUIRE_TRIES } {
            let by = self.worker.clock.now() + patience;
            match W::acquire(self, attempt, id, name, by).await {
                AcquireReply::Granted(answer, held) => return (answer, Some(held)),
                AcquireReply::Refused(answer) if !unknown => return (answer, None),
                AcquireReply::Refused(_) => break,
                AcquireReply::Unknown => unknown = true,
            }
            // Some clients give up early, but not after the faults, where they must be granted the name.
            if self.worker.random.chance(250) && !healed {
                break;
            }
            self.worker.sleep(self.worker.random.between(10 * MS, 300 * MS)).await;
        }
        W::cancel(self, id).await;
        (RecordedOutcome::Unknown, None)
    }

    async fn use_hold(&self, mut held: HttpHold, careless: bool) {
        let attempt = held.attempt;
        let worked = self.work(&mut held).await;
        let (value, lost) = match &worked {
            Ok(()) => (Some(attempt), false),
            Err(_) => (None, true),
        };
        if let Some(value) = value {
            self.worker.record(HistoryEntry::Returned { attempt, value });
        }
        self.worker.record(HistoryEntry::Reported { attempt, value, lost });
        if let Err(HoldLost) = worked {
            return self.record_abandoned(&held);
        }
        self.worker.record(HistoryEntry::Releasing { attempt });
        // A client that just leaves: the daemon misses its heartbeats, or its lease expires.
        if !careless {
            self.release_with_retry(&held).await;
        }
    }

    async fn release_with_retry(&self, held: &HttpHold) {
        for tries in 0..2 {
            let how = match W::release(self, held).await {
                Some(true) => "released",
                // The first try may have released it, and only its response was lost.
                Some(false) if tries > 0 => "released",
                Some(false) => "already_lost",
                None => continue,
            };
            return self.record_event((held.attempt, &held.name), how, held.fence, None);
        }
    }

    /// Several steps with a write each.
    async fn work(&self, held: &mut HttpHold) -> Result<(), HoldLost> {
        let usable = W::usable_time(self);
        let most = u64::try_from(usable.as_nanos()).unwrap_or(MS);
        let now = self.worker.clock.now();
        // After a long wait for the grant, little time may be left until the first renewal.
        let mut stay = now + (usable / 3).min(held.deadline.since(now) / 2);
        let steps = self.worker.random.between(1, 6);
        for step in 1..=steps {
            if self.worker.stopping() {
                break;
            }
            self.check_hold(held)?;
            if let Some(fence) = held.fence {
                let task = (step == steps).then_some(held.attempt);
                self.worker.send_write(held.attempt, &held.name, fence, task);
            }
            let rest = Duration::from_nanos(self.worker.random.between(most / 20, most));
            self.sleep_and_renew(held, &mut stay, rest).await?;
        }
        Ok(())
    }

    /// Checks the deadline and records what the client believes.
    fn check_hold(&self, held: &HttpHold) -> Result<(), HoldLost> {
        if self.worker.clock.now() >= held.deadline {
            return Err(HoldLost);
        }
        self.record_class_change();
        self.worker.record(HistoryEntry::Claimed {
            attempt: held.attempt,
            until: self.worker.clock.true_time_of(held.deadline),
            proven_until: held.proven.map(|until| self.worker.clock.true_time_of(until)),
            fence: held.fence,
        });
        Ok(())
    }

    /// Sleeps until the next step and renews meanwhile.
    async fn sleep_and_renew(
        &self,
        held: &mut HttpHold,
        stay: &mut Moment,
        rest: Duration,
    ) -> Result<(), HoldLost> {
        let end = self.worker.clock.now() + rest;
        loop {
            self.worker.clock.sleep_until(end.min(*stay).min(held.deadline)).await;
            let now = self.worker.clock.now();
            if now >= held.deadline {
                return Err(HoldLost);
            }
            if now >= *stay {
                let heard = W::renew(self, held).await?;
                // An unknown outcome is retried sooner, while the deadline still leaves time.
                let next = W::usable_time(self) / if heard { 3 } else { 8 };
                *stay = self.worker.clock.now() + next;
            }
            if self.worker.clock.now() >= end {
                return Ok(());
            }
        }
    }
}

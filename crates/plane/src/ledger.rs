//! The one way in which a replica writes, sends and acknowledges: under a hold, checked at the moment of use.
//!
//! Every function that changes something takes the `&Hold` it acts under. The hold is compared with the clock before
//! *each* try, so an owner that was paused through its lease does nothing after it wakes up; and its fence goes with the
//! write, so that a write already on its way is refused where the data lives. A write that was not answered is sent
//! again with the same id, which makes the repetition harmless.

use std::sync::Arc;
use std::time::Duration;

use leasehold_core::clock::{ClockExt, until};
use leasehold_core::rng::{RandomExt, SharedRandom};
use leasehold_core::store::{Cause, Failure};
use leasehold_core::{Acquired, Exclusivity, Hold, Locks, Name};
use serde_json::json;
use tokio::sync::Notify;

use crate::error::PlaneError;
use crate::job::{Change, Job};
use crate::note::{Note, Observer};
use crate::settings::Settings;
use crate::state::{FIRST, JobState};
use crate::store::{Entry, Kind, Mail, Refusal, Settle, SharedPlaneStore, Taken, Write, Written};

/// The articles' limit for one call of the store.
const CALL: Duration = Duration::from_secs(2);
/// How often a call that was not answered is sent.
const TRIES: u32 = 4;
/// The first pause between two; it doubles.
const PAUSE: Duration = Duration::from_millis(50);
/// The longest.
const LONGEST: Duration = Duration::from_secs(2);

/// Everything that writes goes through here.
#[derive(Debug, Clone)]
pub struct Ledger {
    pub(crate) locks: Locks,
    pub(crate) store: SharedPlaneStore,
    pub(crate) random: SharedRandom,
    pub(crate) settings: Arc<Settings>,
    pub(crate) observers: Arc<[Arc<dyn Observer>]>,
    /// Rings when this process has sent mail: its own readers need not wait for their next look.
    pub(crate) bell: Arc<Notify>,
}

impl Ledger {
    /// Who we are.
    pub(crate) fn me(&self) -> String {
        self.locks.holder().as_str().to_owned()
    }

    pub(crate) fn note(&self, note: &Note) {
        for observer in self.observers.iter() {
            observer.on(note);
        }
    }

    pub(crate) fn fresh_id(&self) -> String {
        format!("{:032x}", self.random.wide())
    }

    /// One call of the store, bounded. What did not answer in time may have happened.
    pub(crate) async fn call<T>(&self, call: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
        let clock = self.locks.clock();
        let answer = until(&**clock, clock.now() + CALL, call).await;
        answer.unwrap_or_else(|| {
            Err(Failure::unknown(
                Cause::TimedOut,
                format!("no answer in {} s", CALL.as_secs()),
            ))
        })
    }

    /// Takes a lock under a class, waiting as the class says or for this long.
    pub(crate) async fn lock(
        &self,
        class: &str,
        name: Name,
        wait: Option<Duration>,
    ) -> Result<Hold, PlaneError> {
        let mut locks = self.locks.class(class);
        if let Some(wait) = wait {
            locks = locks.wait(wait);
        }
        match locks.acquire(name).await? {
            Acquired::Held(hold) => Ok(hold),
            Acquired::Busy(busy) => Err(PlaneError::Busy {
                code: "busy",
                busy: Box::new(busy),
                retry_after: self.settings.busy_again,
            }),
        }
    }

    /// Reads a job.
    ///
    /// # Errors
    /// The store did not answer, or there is none.
    pub async fn job(&self, id: &str) -> Result<Job, PlaneError> {
        let doc = self.call(self.store.read(Kind::Job, id)).await?;
        let doc = doc.ok_or_else(|| PlaneError::NotFound {
            kind: "job",
            id: id.to_owned(),
        })?;
        Ok(Job::read(&doc)?)
    }

    /// Changes a job, under its own lock.
    ///
    /// # Errors
    /// The hold is over or another's, or the store refused or did not answer.
    pub async fn apply(&self, hold: &Hold, seen: &Job, change: Change) -> Result<Job, PlaneError> {
        self.apply_with(hold, seen, change, TRIES).await
    }

    /// Changes a job, however long the store takes to answer: what was done must be written down, and while the hold is
    /// good nobody else can.
    pub(crate) async fn apply_until_lost(
        &self,
        hold: &Hold,
        seen: &Job,
        change: Change,
    ) -> Result<Job, PlaneError> {
        self.apply_with(hold, seen, change, u32::MAX).await
    }

    async fn apply_with(
        &self,
        hold: &Hold,
        seen: &Job,
        change: Change,
        tries: u32,
    ) -> Result<Job, PlaneError> {
        hold.cover(&seen.name()?)?;
        let to = change.job.state;
        let due_in = self.settings.look(&change.job, change.due_in);
        let write = Write {
            id: self.fresh_id(),
            entry: job_entry(&change.job, due_in, &self.event(hold, seen, &change)),
            expect: Some(seen.version),
            from: if change.stays {
                vec![seen.state.word()]
            } else {
                to.before()
            },
            fence: None,
            also: Vec::new(),
            send: change.send,
        };
        match self.commit_with(hold, write, tries).await {
            Ok((version, _)) => {
                if !change.stays {
                    self.note(&Note::Moved {
                        job: seen.id.clone(),
                        class: seen.spec.class.clone(),
                        to,
                    });
                }
                Ok(Job {
                    version,
                    ..change.job
                })
            }
            Err(error) => {
                self.judge(hold, seen, to, &error);
                Err(error)
            }
        }
    }

    /// Counts a refusal for what it is.
    fn judge(&self, hold: &Hold, seen: &Job, to: JobState, error: &PlaneError) {
        let PlaneError::Refused(refusal) = error else {
            return;
        };
        let found = refusal.state().and_then(|state| state.parse::<JobState>().ok());
        if to.ended() && found.is_some_and(JobState::ended) {
            self.locks.duplicate(hold.class(), hold.name());
            self.note(&Note::DuplicateTerminal { job: seen.id.clone() });
        } else if matches!(to, JobState::Dispatched | JobState::Running) {
            self.note(&Note::RepeatedHandOver { job: seen.id.clone() });
        }
    }

    /// Makes a job that is not there yet. It needs no hold: nobody can own what does not exist, and the store refuses a
    /// second one by id and by key.
    pub(crate) async fn create(&self, job: &Job, send: Vec<Mail>) -> Result<Written, PlaneError> {
        debug_assert!(FIRST.contains(&job.state));
        let event = json!({"to": job.state, "by": self.me(), "why": "submitted"}).to_string();
        let write = Write {
            id: self.fresh_id(),
            entry: Entry {
                key: job.spec.key.clone(),
                ..job_entry(job, self.settings.look(job, None), &event)
            },
            expect: None,
            from: Vec::new(),
            fence: None,
            also: Vec::new(),
            send,
        };
        self.send_new(&write).await
    }

    pub(crate) async fn send_new(&self, write: &Write) -> Result<Written, PlaneError> {
        self.send_write(write, TRIES, || Ok(())).await
    }

    /// One conditional step under a hold. Answers the new version and which further documents were there already.
    pub(crate) async fn commit(&self, hold: &Hold, write: Write) -> Result<(u64, Vec<String>), PlaneError> {
        self.commit_with(hold, write, TRIES).await
    }

    async fn commit_with(
        &self,
        hold: &Hold,
        mut write: Write,
        tries: u32,
    ) -> Result<(u64, Vec<String>), PlaneError> {
        let fence = hold.unfenced()?;
        write.fence = fence.map(|fence| (hold.name().clone(), fence));
        if fence.is_none() {
            self.note(&Note::Unfenced {
                name: hold.name().to_string(),
            });
        }
        let may = || hold.check().map_err(PlaneError::from);
        match self.send_write(&write, tries, may).await? {
            Written::Done { version, skipped, .. } => Ok((version, skipped)),
            Written::Refused(refusal) => {
                if let Refusal::Stale { offered, newest, .. } = &refusal {
                    self.locks
                        .fence_refused(hold.class(), hold.name(), *offered, *newest);
                    self.note(&Note::StaleWrite {
                        name: hold.name().to_string(),
                    });
                }
                Err(refusal.into())
            }
        }
    }

    async fn send_write(
        &self,
        write: &Write,
        most: u32,
        may: impl Fn() -> Result<(), PlaneError>,
    ) -> Result<Written, PlaneError> {
        let (mut tries, mut pause) = (0, PAUSE);
        loop {
            may()?;
            match self.call(self.store.write(write)).await {
                Ok(written) => {
                    if !write.send.is_empty() {
                        self.bell.notify_waiters();
                    }
                    return Ok(written);
                }
                Err(failure) => {
                    tries += 1;
                    if tries >= most || !(failure.unknown || failure.transient()) {
                        return Err(failure.into());
                    }
                    self.locks.clock().sleep(self.random.jitter(pause)).await;
                    pause = (pause * 2).min(LONGEST);
                }
            }
        }
    }

    /// Acknowledges mail. Only whoever did its work, under a hold that is still good, may.
    ///
    /// # Errors
    /// The hold is over: the mail comes again by itself. Or the store did not answer.
    pub async fn ack(&self, hold: &Hold, mail: &Taken) -> Result<bool, PlaneError> {
        hold.check()?;
        Ok(self.call(self.store.settle(mail, Settle::Ack)).await?)
    }

    /// Lets mail come again, about this much later. Nothing was done for it, so no hold is needed.
    pub(crate) async fn again(&self, mail: &Taken, after: Duration, why: &'static str) {
        self.note(&Note::Redelivered { why });
        let after = self.random.jitter(after);
        // If this is not answered, it comes again by itself, later.
        let _ = self.call(self.store.settle(mail, Settle::Again(after))).await;
    }

    /// Sends mail by itself, under a hold. `false`: the same mail is waiting there already.
    ///
    /// # Errors
    /// The hold is over, or the store did not answer.
    pub async fn publish(&self, hold: &Hold, mail: &Mail) -> Result<bool, PlaneError> {
        hold.check()?;
        Ok(self.call(self.store.send(mail)).await?)
    }

    fn event(&self, hold: &Hold, seen: &Job, change: &Change) -> String {
        json!({
            "from": seen.state,
            "to": change.job.state,
            "by": self.me(),
            "class": hold.class(),
            "fence": hold.unfenced().ok().flatten(),
            "local_only": hold.exclusivity() == Exclusivity::LocalOnly,
            "attempt": change.job.attempt,
            "why": change.why,
        })
        .to_string()
    }
}

/// A job as a store keeps it.
pub(crate) fn job_entry(job: &Job, due_in: Option<Duration>, event: &str) -> Entry {
    Entry {
        kind: Kind::Job,
        id: job.id.clone(),
        state: job.state.word(),
        due_in,
        shelf: job.spec.topic.clone(),
        key: None,
        // Plain data with string keys always serialises.
        body: serde_json::to_string(job).unwrap_or_default(),
        event: event.to_owned(),
    }
}

/// The name of a run's lock.
pub(crate) fn run_lock(id: &str) -> Result<Name, PlaneError> {
    Ok(Name::new(&format!("run:{id}"))?)
}

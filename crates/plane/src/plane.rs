//! What a client does: submit, look, cancel, replay. Scheduler and engine do the rest.

use std::sync::Arc;
use std::time::Duration;

use leasehold_core::Locks;
use leasehold_core::rng::{OsRandom, SharedRandom};

use crate::error::PlaneError;
use crate::job::{Job, JobSpec, go};
use crate::ledger::Ledger;
use crate::note::{Log, Observer};
use crate::scheduler::guarded;
use crate::settings::Settings;
use crate::state::JobState;
use crate::store::{Event, Kind, Query, Refusal, SharedPlaneStore, Written};

/// The plane as its clients see it. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Plane {
    pub(crate) ledger: Ledger,
}

/// What came of a submit.
#[derive(Debug, Clone, PartialEq)]
pub struct Submitted {
    /// The job.
    pub job: Job,
    /// It had been submitted before, with the same id or key.
    pub repeated: bool,
}

/// What came of a cancel.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Cancelled {
    /// It is cancelled.
    Now(Job),
    /// Its owner was told and will stop it.
    Requested(Job),
    /// It had ended already.
    Ended(Job),
}

impl Plane {
    /// A plane on these locks and this store.
    ///
    /// # Errors
    /// A setting cannot work.
    pub fn new(locks: Locks, store: SharedPlaneStore, settings: Settings) -> Result<Self, PlaneError> {
        Self::with(locks, store, settings, OsRandom::shared(), vec![Arc::new(Log)])
    }

    /// The same with other randomness and readers of notes.
    ///
    /// # Errors
    /// A setting cannot work.
    pub fn with(
        locks: Locks,
        store: SharedPlaneStore,
        settings: Settings,
        random: SharedRandom,
        observers: Vec<Arc<dyn Observer>>,
    ) -> Result<Self, PlaneError> {
        settings.check()?;
        Ok(Self {
            ledger: Ledger {
                locks,
                store,
                random,
                settings: Arc::new(settings),
                observers: observers.into(),
                bell: Arc::default(),
            },
        })
    }

    /// The one way to write: for whoever builds on the plane.
    #[must_use]
    pub fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    /// The locks it works under.
    #[must_use]
    pub fn locks(&self) -> &Locks {
        &self.ledger.locks
    }

    /// The plane's numbers.
    #[must_use]
    pub fn settings(&self) -> &Settings {
        &self.ledger.settings
    }

    /// Submits a job. With an id or a key, saying it twice is saying it once.
    ///
    /// # Errors
    /// A field cannot be used; the id or key belongs to a different job (`different_job`); no answer.
    pub async fn submit(&self, spec: JobSpec) -> Result<Submitted, PlaneError> {
        spec.check()?;
        // A class that does not exist should be refused now, not by the first scheduler that reads the job.
        let now = self.ledger.locks.clock().now();
        self.ledger.locks.policies().class(&spec.class, now)?;
        let id = spec.id.clone().unwrap_or_else(|| self.ledger.fresh_id());
        let job = Job::new(id, spec, None);
        let send = match job.state {
            JobState::Pending => vec![go(&job, Duration::ZERO)],
            _ => Vec::new(),
        };
        match self.ledger.create(&job, send).await? {
            Written::Done { repeated, .. } => Ok(Submitted {
                job: self.ledger.job(&job.id).await?,
                repeated,
            }),
            Written::Refused(Refusal::Exists) => self.again(&job.id, &job).await,
            Written::Refused(Refusal::Key { id }) => self.again(&id, &job).await,
            Written::Refused(refusal) => Err(refusal.into()),
        }
    }

    /// A submit that was made before, if it is the same.
    async fn again(&self, id: &str, wanted: &Job) -> Result<Submitted, PlaneError> {
        let there = self.ledger.job(id).await?;
        // The id may have been made up the first time, and the payload repaired since.
        let same = there.spec.work == wanted.spec.work
            && there.spec.topic == wanted.spec.topic
            && there.spec.tenant == wanted.spec.tenant;
        if same {
            return Ok(Submitted {
                job: there,
                repeated: true,
            });
        }
        Err(PlaneError::Conflict {
            code: "different_job",
            what: format!("job {id} has this id or key already and does other work; choose another one"),
        })
    }

    /// Reads a job.
    ///
    /// # Errors
    /// There is none, or no answer.
    pub async fn job(&self, id: &str) -> Result<Job, PlaneError> {
        self.ledger.job(id).await
    }

    /// What happened to a job, oldest first.
    ///
    /// # Errors
    /// No answer.
    pub async fn job_history(&self, id: &str) -> Result<Vec<Event>, PlaneError> {
        Ok(self.ledger.call(self.ledger.store.history(Kind::Job, id)).await?)
    }

    /// Jobs in these states (all if none is named) and of this topic, those most urgently due first.
    ///
    /// # Errors
    /// No answer.
    pub async fn jobs(
        &self,
        states: &[JobState],
        topic: Option<&str>,
        limit: usize,
    ) -> Result<Vec<Job>, PlaneError> {
        let all: Vec<_> = JobState::all().collect();
        let states = if states.is_empty() { &all } else { states };
        let query = Query {
            kind: Kind::Job,
            states: states.iter().map(|state| state.word()).collect(),
            due: false,
            shelf: topic.map(str::to_owned),
            limit,
        };
        let docs = self.ledger.call(self.ledger.store.list(&query)).await?;
        docs.iter().map(|doc| Ok(Job::read(doc)?)).collect()
    }

    /// How many jobs are in each state.
    ///
    /// # Errors
    /// No answer.
    pub async fn tally(&self) -> Result<Vec<(JobState, u64)>, PlaneError> {
        let mut tally = Vec::new();
        for state in JobState::all() {
            let query = Query {
                kind: Kind::Job,
                states: vec![state.word()],
                due: false,
                shelf: None,
                limit: 0,
            };
            tally.push((state, self.ledger.call(self.ledger.store.count(&query)).await?));
        }
        Ok(tally)
    }

    /// Calls a job off. If a replica works on it, that replica is told and does it.
    ///
    /// # Errors
    /// There is none, or no answer.
    pub async fn cancel(&self, id: &str, why: &str) -> Result<Cancelled, PlaneError> {
        let job = self.ledger.job(id).await?;
        if job.state.ended() {
            return Ok(Cancelled::Ended(job));
        }
        // A job in hands is not waited for: its owner keeps the lock until it is done.
        let wait = job.state.in_hands().then_some(Duration::ZERO);
        let hold = match self.ledger.lock(&job.spec.class, job.name()?, wait).await {
            Ok(hold) => hold,
            Err(PlaneError::Busy { .. }) => {
                self.ledger.wish_off(id, why).await?;
                return Ok(Cancelled::Requested(job));
            }
            Err(error) => return Err(error),
        };
        let cancel = async {
            let job = self.ledger.job(id).await?;
            if job.state.ended() {
                return Ok(Cancelled::Ended(job));
            }
            Ok(Cancelled::Now(
                self.ledger.apply(&hold, &job, job.cancel(why)).await?,
            ))
        };
        let out = guarded(&hold, cancel).await;
        hold.release().await;
        out
    }

    /// Submits a job that was given up once more, as a new one. Asked twice, it is one new job.
    ///
    /// # Errors
    /// `not_dead`: it was not given up. Or there is none, or no answer.
    pub async fn replay(&self, id: &str) -> Result<Submitted, PlaneError> {
        let job = self.ledger.job(id).await?;
        let Some(dead) = job.dead else {
            return Err(PlaneError::Conflict {
                code: "not_dead",
                what: format!(
                    "job {id} is {} and was not given up: there is nothing to replay",
                    job.state
                ),
            });
        };
        let mut spec = job.spec;
        spec.labels.insert("replay-of".into(), id.to_owned());
        spec.labels.insert("died-of".into(), dead.reason);
        spec.id = None;
        spec.key = Some(format!("replay:{id}"));
        self.submit(spec).await
    }
}

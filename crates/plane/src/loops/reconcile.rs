//! The reconciler: jobs that are stuck or late, jobs whose owner is gone, wishes that nobody has granted.
//!
//! It takes the job's own lock for each, and so cannot race the owner: a lock that can be had means that nobody works.

use std::time::Duration;

use futures_util::future::join_all;
use leasehold_core::Hold;

use crate::error::PlaneError;
use crate::job::{Change, Job};
use crate::ledger::Ledger;
use crate::scheduler::{Scheduler, guarded};
use crate::state::JobState;
use crate::store::{Kind, Query};

/// How many jobs of each kind one tick looks at. The rest is due at the next one too.
const MANY: usize = 500;

/// How many orphans are taken over at once.
const AT_ONCE: usize = 16;

pub(super) async fn tick(scheduler: &Scheduler, hold: &Hold) -> Result<usize, PlaneError> {
    let ledger = &scheduler.ledger;
    // First, because this is what has a bound.
    let mut mended = orphans(scheduler, hold).await?;
    for job in due(ledger).await? {
        mended += usize::from(with_job(ledger, &job, |job| overdue(&job)).await?);
        hold.check()?;
    }
    for wish in ledger.open_wishes(MANY).await? {
        let job = ledger.find_job(&wish.id).await?;
        if job.as_ref().is_none_or(|job| job.state.ended()) {
            ledger.close_wish(hold, &wish).await?;
        } else if let Some(job) = job {
            mended += usize::from(with_job(ledger, &job, |job| Some(job.cancel("called off"))).await?);
        }
    }
    Ok(mended)
}

/// Takes over what was a dead replica's. Several at once: the last of its jobs should not wait for all the others' writes,
/// nor for the one that the store did not answer.
async fn orphans(scheduler: &Scheduler, hold: &Hold) -> Result<usize, PlaneError> {
    let mut mended = 0;
    let jobs = in_hands(scheduler).await?;
    scheduler.leases.keep(&jobs);
    for some in jobs.chunks(AT_ONCE) {
        let (mut failed, mut answered) = (None, false);
        for taken in join_all(some.iter().map(|job| orphan(scheduler, job))).await {
            match taken {
                Ok(taken) => {
                    answered = true;
                    mended += usize::from(taken);
                }
                Err(error) => failed = Some(error),
            }
        }
        match failed {
            // Not a single answer: the store is down, and the rest would only wait for it too.
            Some(error) if !answered => return Err(error),
            Some(error) => tracing::warn!(%error, "a job is looked at again at the next tick"),
            None => {}
        }
        hold.check()?;
    }
    Ok(mended)
}

/// Jobs whose time to be looked at has come.
async fn due(ledger: &Ledger) -> Result<Vec<Job>, PlaneError> {
    let mut found = Vec::new();
    let waiting = [JobState::ApprovalRequired, JobState::Retrying, JobState::Pending];
    let held = [JobState::Scheduled, JobState::Dispatched, JobState::Running];
    for states in [&held, &waiting] {
        let query = Query {
            kind: Kind::Job,
            states: states.iter().map(|state| state.word()).collect(),
            due: true,
            shelf: None,
            limit: MANY,
        };
        for doc in ledger.call(ledger.store.list(&query)).await? {
            let job = Job::read(&doc)?;
            // Others are due for the replayer, not for us.
            if job.state.in_hands() || job.late() {
                found.push(job);
            }
        }
    }
    Ok(found)
}

/// What a job whose time is over becomes.
fn overdue(job: &Job) -> Option<Change> {
    if job.due.is_none_or(|due| due > job.now) {
        return None;
    }
    if job.late() {
        return Some(job.time_out("its deadline has passed"));
    }
    match job.state {
        JobState::Running if !job.spec.work.local() => Some(job.lose("its worker fell silent")),
        state if state.in_hands() => Some(job.time_out(&format!("stuck in {state}"))),
        _ => None,
    }
}

/// Jobs that a replica works on, or did.
async fn in_hands(scheduler: &Scheduler) -> Result<Vec<Job>, PlaneError> {
    let ledger = &scheduler.ledger;
    let query = Query {
        kind: Kind::Job,
        // SCHEDULED is left to its mail: nothing has been handed over yet.
        states: vec![JobState::Dispatched.word(), JobState::Running.word()],
        due: false,
        shelf: None,
        limit: MANY,
    };
    let here = scheduler.at_work();
    let grace = u64::try_from(ledger.settings.unfenced_grace.as_millis()).unwrap_or(u64::MAX);
    let mut found = Vec::new();
    for doc in ledger.call(ledger.store.list(&query)).await? {
        let job = Job::read(&doc)?;
        let unfenced = job.owner.as_ref().is_none_or(|owner| owner.fence.is_none());
        // Begun without the lock store: its lock is free although it is worked on. It is given time to heal.
        let leave = unfenced && job.now < job.updated.saturating_add(grace);
        if job.spec.work.local() && !leave && !here.contains(&job.id) {
            found.push(job);
        }
    }
    Ok(found)
}

/// Takes the job over if its lock can be had.
async fn orphan(scheduler: &Scheduler, seen: &Job) -> Result<bool, PlaneError> {
    let ledger = &scheduler.ledger;
    let hold = match ledger
        .lock(&seen.spec.class, seen.name()?, Some(Duration::ZERO))
        .await
    {
        Ok(hold) => hold,
        Err(PlaneError::Busy { busy, .. }) => {
            let now = ledger.locks.clock().now();
            scheduler
                .leases
                .saw(&seen.id, busy.remaining.map(|left| now + left));
            return Ok(false);
        }
        Err(error) => return Err(error),
    };
    let over_at = scheduler.leases.over_at(&seen.id);
    let work = async {
        let job = ledger.job(&seen.id).await?;
        if !matches!(job.state, JobState::Dispatched | JobState::Running) || job.version != seen.version {
            return Ok(false);
        }
        let took = over_at.map(|over_at| ledger.locks.clock().now().since(over_at));
        scheduler.take_over(&hold, &job, took).await.map(|_| true)
    };
    let out = guarded(&hold, work).await;
    hold.release().await;
    tolerate(out)
}

/// Changes a job under its own lock, if that can be had and the job still wants it.
async fn with_job(
    ledger: &Ledger,
    seen: &Job,
    change: impl FnOnce(Job) -> Option<Change>,
) -> Result<bool, PlaneError> {
    let hold = match ledger
        .lock(&seen.spec.class, seen.name()?, Some(Duration::ZERO))
        .await
    {
        Ok(hold) => hold,
        Err(PlaneError::Busy { .. }) => return Ok(false),
        Err(error) => return Err(error),
    };
    let work = async {
        let job = ledger.job(&seen.id).await?;
        if job.state.ended() {
            return Ok(false);
        }
        match change(job.clone()) {
            Some(change) => ledger.apply(&hold, &job, change).await.map(|_| true),
            None => Ok(false),
        }
    };
    let out = guarded(&hold, work).await;
    hold.release().await;
    tolerate(out)
}

/// One job's trouble is not the tick's.
fn tolerate(out: Result<bool, PlaneError>) -> Result<bool, PlaneError> {
    match out {
        Err(PlaneError::Refused(_) | PlaneError::Lost(_) | PlaneError::NotFound { .. }) => Ok(false),
        other => other,
    }
}

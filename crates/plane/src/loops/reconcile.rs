//! The reconciler: stuck or late jobs, jobs whose owner is gone, open cancel requests.
//!
//! It acquires each job's own lock and so cannot race the owner: a free lock means that no replica works
//! on the job.

use std::time::Duration;

use futures_util::future::join_all;
use leasehold_core::Hold;

use crate::cancel_request::CancelRequest;
use crate::error::PlaneError;
use crate::fenced_writer::FencedWriter;
use crate::job::{Job, JobChange};
use crate::scheduler::{Scheduler, while_held};
use crate::state::JobState;
use crate::store::{DocumentKind, DocumentQuery};

/// Per query: the remaining jobs are still due at the next tick.
const MAX_JOBS_PER_QUERY: usize = 500;

const MAX_PARALLEL_TAKEOVERS: usize = 16;

pub(super) async fn tick(scheduler: &Scheduler, hold: &Hold) -> Result<usize, PlaneError> {
    let writer = &scheduler.writer;
    // First, because takeover time has a guaranteed bound (TTL plus one poll).
    let mut mended = take_over_orphans(scheduler, hold).await?;
    // The loop's own hold is checked after each job, so a lost loop stops within one job.
    for job in due_jobs(writer).await? {
        mended += usize::from(change_job(writer, &job, |job| overdue_change(&job)).await?);
        hold.check()?;
    }
    for wish in writer.open_cancel_requests(MAX_JOBS_PER_QUERY).await? {
        let job = writer.find_job(&wish.id).await?;
        if job.as_ref().is_none_or(|job| job.state.is_terminal()) {
            // The job has ended or is gone, so the request has no further use.
            writer.close_cancel_request(hold, &wish).await?;
        } else if let Some(job) = job {
            let request = CancelRequest::read(&wish);
            mended += usize::from(change_job(writer, &job, |job| Some(request.change(&job))).await?);
        }
    }
    Ok(mended)
}

// Several takeovers in parallel: a dead replica may leave many jobs, and the last one should not
// wait for all other writes, nor for one that times out.
async fn take_over_orphans(scheduler: &Scheduler, hold: &Hold) -> Result<usize, PlaneError> {
    let mut mended = 0;
    let jobs = orphan_candidates(scheduler).await?;
    scheduler.leases.retain(&jobs);
    for some in jobs.chunks(MAX_PARALLEL_TAKEOVERS) {
        let (mut failed, mut answered) = (None, false);
        for taken in join_all(some.iter().map(|job| take_over_orphan(scheduler, job))).await {
            match taken {
                Ok(taken) => {
                    answered = true;
                    mended += usize::from(taken);
                }
                Err(error) => failed = Some(error),
            }
        }
        match failed {
            // Every call failed: the store is down, and the next chunk would only time out too.
            Some(error) if !answered => return Err(error),
            Some(error) => tracing::warn!(%error, "a job is looked at again at the next tick"),
            None => {}
        }
        hold.check()?;
    }
    Ok(mended)
}

/// Jobs whose due time has passed and that the reconciler must end.
async fn due_jobs(writer: &FencedWriter) -> Result<Vec<Job>, PlaneError> {
    let mut found = Vec::new();
    let waiting = [JobState::ApprovalRequired, JobState::Retrying, JobState::Pending];
    let held = [JobState::Scheduled, JobState::Dispatched, JobState::Running];
    for states in [&held, &waiting] {
        let states = states.iter().map(|state| state.as_str());
        let query = DocumentQuery {
            due_only: true,
            ..DocumentQuery::new(DocumentKind::Job, states, MAX_JOBS_PER_QUERY)
        };
        for doc in writer.call(writer.store.list(&query)).await? {
            let job = Job::read(&doc)?;
            // The other due jobs are PENDING or RETRYING ones, which the replayer handles.
            if job.state.is_active() || job.is_past_deadline() {
                found.push(job);
            }
        }
    }
    Ok(found)
}

/// The change for a job whose due time has passed; `None` if there is nothing to do.
fn overdue_change(job: &Job) -> Option<JobChange> {
    // The job was read again under its lock; an owner may have made progress since the query.
    if job.due.is_none_or(|due| due > job.now) {
        return None;
    }
    if job.is_past_deadline() {
        return Some(job.time_out("its deadline has passed"));
    }
    match job.state {
        JobState::Running if !job.spec.work.runs_on_replica() => {
            Some(job.owner_lost("its worker fell silent"))
        }
        state if state.is_active() => Some(job.time_out(&format!("stuck in {state}"))),
        _ => None,
    }
}

/// Jobs that a replica works on or has worked on.
async fn orphan_candidates(scheduler: &Scheduler) -> Result<Vec<Job>, PlaneError> {
    let writer = &scheduler.writer;
    // A SCHEDULED job still has its unacknowledged message, which will be redelivered.
    let states = [JobState::Dispatched.as_str(), JobState::Running.as_str()];
    let query = DocumentQuery::new(DocumentKind::Job, states, MAX_JOBS_PER_QUERY);
    let here = scheduler.jobs_in_progress();
    let grace = u64::try_from(writer.settings.unfenced_grace.as_millis()).unwrap_or(u64::MAX);
    let mut found = Vec::new();
    for doc in writer.call(writer.store.list(&query)).await? {
        let job = Job::read(&doc)?;
        let unfenced = job.owner.as_ref().is_none_or(|owner| owner.fence.is_none());
        // Begun under a local-only hold: its lock is free although its owner works. The owner gets time
        // to heal its hold first.
        let leave = unfenced && job.now < job.updated.saturating_add(grace);
        if job.spec.work.runs_on_replica() && !leave && !here.contains(&job.id) {
            found.push(job);
        }
    }
    Ok(found)
}

/// Takes the job over if its lock is free.
async fn take_over_orphan(scheduler: &Scheduler, seen: &Job) -> Result<bool, PlaneError> {
    let writer = &scheduler.writer;
    let hold = match writer.lock(&seen.spec.class, seen.lock_name()?, Some(Duration::ZERO)).await {
        Ok(hold) => hold,
        Err(PlaneError::Busy { busy, .. }) => {
            let now = writer.locks.clock().now();
            scheduler.leases.record(&seen.id, busy.remaining.map(|left| now + left));
            return Ok(false);
        }
        Err(error) => return Err(error),
    };
    // This also removes the entry: the observed lease is over.
    let over_at = scheduler.leases.take_end(&seen.id);
    let work = async {
        let job = writer.job(&seen.id).await?;
        if !matches!(job.state, JobState::Dispatched | JobState::Running) || job.version != seen.version {
            return Ok(false);
        }
        let took = over_at.map(|over_at| writer.locks.clock().now().since(over_at));
        scheduler.take_over(&hold, &job, took).await.map(|_| true)
    };
    let out = while_held(&hold, work).await;
    hold.release().await;
    ignore_job_errors(out)
}

/// Changes a job under its own lock, if the lock is free and the change still applies.
async fn change_job(
    writer: &FencedWriter,
    seen: &Job,
    change: impl FnOnce(Job) -> Option<JobChange>,
) -> Result<bool, PlaneError> {
    let hold = match writer.lock(&seen.spec.class, seen.lock_name()?, Some(Duration::ZERO)).await {
        Ok(hold) => hold,
        Err(PlaneError::Busy { .. }) => return Ok(false),
        Err(error) => return Err(error),
    };
    let work = async {
        let job = writer.job(&seen.id).await?;
        if job.state.is_terminal() {
            return Ok(false);
        }
        match change(job.clone()) {
            Some(change) => writer.apply(&hold, &job, change).await.map(|_| true),
            None => Ok(false),
        }
    };
    let out = while_held(&hold, work).await;
    hold.release().await;
    ignore_job_errors(out)
}

// These errors concern one job only and must not end the tick for all others.
fn ignore_job_errors(out: Result<bool, PlaneError>) -> Result<bool, PlaneError> {
    match out {
        Err(PlaneError::Refused(_) | PlaneError::Lost(_) | PlaneError::NotFound { .. }) => Ok(false),
        other => other,
    }
}

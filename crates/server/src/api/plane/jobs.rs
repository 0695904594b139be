//! `/v1/jobs`: submit, read, cancel and retry jobs.

use axum::extract::{Path, State};
use http::StatusCode;
use leasehold::InvalidInput;
use leasehold_plane::view::{EventList, JobList, JobView, ReasonRequest, SCHEMA_VERSION};
use leasehold_plane::{JobSpec, PlaneError, SubmitResponse, Work};
use leasehold_wire::{ErrorCode, Problem};
use serde::Deserialize;
use utoipa::IntoParams;

use super::AppState;
use super::long_poll::{LongPollQuery, parse_limit};
use super::refusal::refuse_foreign;
use super::rights::{require_found_job, require_retry_rights, require_submit_rights};
use super::visible::{list_readable, reads_job, visible_jobs};
use crate::api::document::{Caller, JsonBody, LockName, QueryParams};
use crate::api::error_responses::NoSuchJob;
use crate::api::policies::require_audited;
use crate::api::problem::Refusal;
use crate::auth::{Principal, Right, revoked_refusal};
use crate::state::app::App;
use crate::state::audit::AuditEntry;

/// The query of the job list.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct JobQuery {
    /// Only jobs in this state; several states separated by commas.
    state: Option<String>,
    /// Only jobs of this topic.
    topic: Option<String>,
    /// The maximum number of jobs; 100 if not given.
    #[param(value_type = Option<u32>, minimum = 1, maximum = 1000)]
    limit: Option<String>,
}

/// Parses the states of a list, separated by commas.
pub(super) fn parse_states<S>(
    text: Option<String>,
    parse: impl Fn(&str) -> Result<S, InvalidInput>,
) -> Result<Vec<S>, Refusal> {
    let text = text.unwrap_or_default();
    let states = text.split(',').filter(|state| !state.is_empty()).map(parse);
    Ok(states.collect::<Result<_, _>>()?)
}

/// Checks a text that is shown to people later: 1 to 512 printable bytes.
pub(crate) fn check_text(field: &str, text: String) -> Result<String, Refusal> {
    if text.trim().is_empty() || text.len() > 512 || text.chars().any(char::is_control) {
        let why = format!("{field}: must be 1 to 512 printable bytes");
        return Err(Refusal::invalid(field, why));
    }
    Ok(text)
}

/// List jobs
///
/// Lists the jobs that the caller may read: `read` on `job:<id>`, or `read` or `work` on `topic:<topic>` for
/// jobs that workers or handlers do.
#[utoipa::path(
    get, path = "/v1/jobs", tag = "jobs", operation_id = "listJobs", params(JobQuery),
    responses((status = 200, description = "Those most urgently due first", body = JobList)),
)]
pub(crate) async fn list(
    State(app): AppState,
    Caller(who): Caller,
    QueryParams(which): QueryParams<JobQuery>,
) -> Result<JsonBody<JobList>, Refusal> {
    let (states, limit) = (parse_states(which.state, str::parse)?, parse_limit(which.limit)?);
    let plane = &app.served()?.plane;
    let (scope, topic) = (visible_jobs(&who), which.topic.as_deref());
    let _share = app.take_list_share(&who)?;
    let fetch = |after, size| plane.job_page(&states, topic, scope.as_ref(), after, size);
    let (jobs, truncated) = list_readable(limit, |job| reads_job(&who, job), fetch).await?;
    Ok(JsonBody(JobList { schema_version: SCHEMA_VERSION, jobs, truncated }))
}

/// Submit a job
///
/// With an `id` or a `key` the request is idempotent. Needs `submit` on `job:<id>` (without an `id` on
/// `job:<tenant>`, or on all of `job` for the default tenant) and on `topic:<topic>`, and `hold` on every
/// resource that the job names. A `key` needs `submit` on its whole scope: `job:<tenant>`, or all of `job` for
/// the scope `default`. A job that runs a command is submitted at `/v1/jobs/commands`.
#[utoipa::path(
    post, path = "/v1/jobs", tag = "jobs", operation_id = "submitJob", request_body = JobSpec,
    responses(
        (status = 200, description = "It had been submitted before", body = JobView),
        (status = 201, description = "Submitted", body = JobView),
        (status = 403, description = "No right, or `command_right_required`", body = Problem, content_type = "application/problem+json"),
        (status = 409, description = "`different_job`: the id or key belongs to other work", body = Problem, content_type = "application/problem+json"),
    ),
)]
pub(crate) async fn submit(
    State(app): AppState,
    Caller(who): Caller,
    JsonBody(spec): JsonBody<JobSpec>,
) -> Result<(StatusCode, JsonBody<JobView>), Refusal> {
    // The route for commands writes an audit line first.
    if matches!(spec.work, Work::Exec(_)) {
        return Err(Refusal::new(
            ErrorCode::CommandRightRequired,
            "a job that runs a command is submitted at /v1/jobs/commands, with the right `command`",
        ));
    }
    require_submit_rights(&who, &spec)?;
    submit_checked(&app, &who, spec).await
}

/// Submit a job that runs a command
///
/// Like `/v1/jobs`, and needs `command` on `job:<id>` too.
#[utoipa::path(
    post, path = "/v1/jobs/commands", tag = "jobs", operation_id = "submitCommand", request_body = JobSpec,
    responses(
        (status = 200, description = "It had been submitted before", body = JobView),
        (status = 201, description = "Submitted", body = JobView),
        (status = 409, description = "`different_job`: the id or key belongs to other work", body = Problem, content_type = "application/problem+json"),
    ),
)]
pub(crate) async fn submit_command(
    State(app): AppState,
    Caller(who): Caller,
    JsonBody(spec): JsonBody<JobSpec>,
) -> Result<(StatusCode, JsonBody<JobView>), Refusal> {
    require_submit_rights(&who, &spec)?;
    if let Work::Exec(argv) = &spec.work {
        // First, so that refused and repeated submits leave no audit line.
        let checked = app.plane_for(&who)?.check_submit(&spec).await;
        if let Some(found) = found_or_conflict(&who, checked)? {
            return Ok(submit_response(found));
        }
        let command = argv.first().map_or("", String::as_str);
        require_audited(app.audit.record_before(AuditEntry::new("job.command", &who).detail(command)).await)?;
    }
    submit_checked(&app, &who, spec).await
}

async fn submit_checked(
    app: &App,
    who: &Principal,
    spec: JobSpec,
) -> Result<(StatusCode, JsonBody<JobView>), Refusal> {
    let submitted = app.plane_for(who)?.submit(spec).await;
    Ok(submit_response(own_or_conflict(who, submitted)?))
}

/// The response to a submit, unless the id or key has found a job that the caller may not read.
fn own_or_conflict(
    who: &Principal,
    submitted: Result<SubmitResponse, PlaneError>,
) -> Result<SubmitResponse, Refusal> {
    let reads = |found: &SubmitResponse| !found.repeated || reads_job(who, &found.job);
    refuse_foreign(who, "job", submitted, reads)
}

/// What a repeated submit finds, unless the caller may not read it.
fn found_or_conflict(
    who: &Principal,
    checked: Result<Option<SubmitResponse>, PlaneError>,
) -> Result<Option<SubmitResponse>, Refusal> {
    checked.transpose().map(|found| own_or_conflict(who, found)).transpose()
}

fn submit_response(submitted: SubmitResponse) -> (StatusCode, JsonBody<JobView>) {
    let status = if submitted.repeated { StatusCode::OK } else { StatusCode::CREATED };
    (status, JsonBody(submitted.job.into()))
}

/// Show a job
///
/// With `after` and `wait_ms`, answers when the job has changed. Needs `read` on `job:<id>`, or `read` or
/// `work` on `topic:<topic>` for a job that workers or handlers do.
#[utoipa::path(
    get, path = "/v1/jobs/{id}", tag = "jobs", operation_id = "showJob",
    params(("id" = String, Path, description = "The job", min_length = 1, max_length = 500), LongPollQuery),
    responses(
        (status = 200, description = "The job", body = JobView),
        NoSuchJob,
    ),
)]
pub(crate) async fn show(
    State(app): AppState,
    Caller(who): Caller,
    Path(id): Path<String>,
    QueryParams(look): QueryParams<LongPollQuery>,
) -> Result<JsonBody<JobView>, Refusal> {
    require_found_job(&app, &who, Right::Read, &id, reads_job).await?;
    let job = look.job_when_newer(&app, &who, &id).await?;
    // Again: a grant on its topic may have been taken away while the request waited.
    match app.still_admitted(&who) {
        Some(who) if reads_job(&who, &job) => Ok(JsonBody(job.into())),
        _ => Err(revoked_refusal()),
    }
}

/// Read the history of a job
///
/// Each event with its actor and fence. Needs the same as showing the job.
#[utoipa::path(
    get, path = "/v1/jobs/{id}/history", tag = "jobs", operation_id = "readJobHistory",
    params(("id" = String, Path, description = "The job", min_length = 1, max_length = 500)),
    responses(
        (status = 200, description = "Its events", body = EventList),
        NoSuchJob,
    ),
)]
pub(crate) async fn history(
    State(app): AppState,
    Caller(who): Caller,
    Path(id): Path<String>,
) -> Result<JsonBody<EventList>, Refusal> {
    require_found_job(&app, &who, Right::Read, &id, reads_job).await?;
    let plane = &app.served()?.plane;
    // An unknown job is 404, not an empty history.
    plane.job(&id).await?;
    let events = plane.job_history(&id).await?;
    Ok(JsonBody(EventList::new(id, &events)))
}

/// Cancel a job
///
/// If a replica works on the job, that replica is asked to stop it. Idempotent. Needs `submit` on
/// `job:<id>`.
#[utoipa::path(
    post, path = "/v1/jobs/{id}/cancel", tag = "jobs", operation_id = "cancelJob", request_body = ReasonRequest,
    params(("id" = String, Path, description = "The job", min_length = 1, max_length = 500)),
    responses(
        (status = 200, description = "Cancelled", body = JobView),
        (status = 202, description = "Its owner was asked to stop", body = JobView),
        NoSuchJob,
        (status = 409, description = "`terminal`: it has ended another way", body = Problem, content_type = "application/problem+json"),
    ),
)]
pub(crate) async fn cancel(
    State(app): AppState,
    Caller(who): Caller,
    LockName(name): LockName,
    Path(id): Path<String>,
    JsonBody(ReasonRequest { reason }): JsonBody<ReasonRequest>,
) -> Result<(StatusCode, JsonBody<JobView>), Refusal> {
    let why = check_text("reason", reason)?;
    let cancelled = app.served()?.plane.acting_for(who.id()).cancel(&id, &why).await?;
    // Afterwards and without waiting: only admin actions are recorded before they happen.
    app.audit.record(AuditEntry::new("job.cancel", &who).name(&name).detail(&why));
    let (job, requested) = cancelled.into_job()?;
    let status = if requested { StatusCode::ACCEPTED } else { StatusCode::OK };
    Ok((status, JsonBody(job.into())))
}

/// Submit a dead-lettered job again
///
/// Creates a new job; a repeated request returns the same new job. Needs on the job what its submit
/// needed: `submit` on `job:<id>` and `topic:<topic>`, `hold` on its resources, `command` for a command; and
/// `submit` on the job's whole scope (`job:<tenant>`, or all of `job`), where the new job gets its id.
#[utoipa::path(
    post, path = "/v1/jobs/{id}/retry", tag = "jobs", operation_id = "retryJob",
    params(("id" = String, Path, description = "The job", min_length = 1, max_length = 500)),
    responses(
        (status = 200, description = "It had been submitted again before", body = JobView),
        (status = 201, description = "The new job", body = JobView),
        NoSuchJob,
        (status = 409, description = "`not_dead`: it was not given up", body = Problem, content_type = "application/problem+json"),
    ),
)]
pub(crate) async fn retry(
    State(app): AppState,
    Caller(who): Caller,
    LockName(name): LockName,
    Path(id): Path<String>,
) -> Result<(StatusCode, JsonBody<JobView>), Refusal> {
    let plane = app.plane_for(&who)?;
    require_retry_rights(&who, &plane.job(&id).await?)?;
    // First, so that refused retries leave no audit line.
    plane.check_replay(&id).await?;
    require_audited(app.audit.record_before(AuditEntry::new("job.retry", &who).name(&name)).await)?;
    let submitted = plane.replay(&id).await;
    Ok(submit_response(own_or_conflict(&who, submitted)?))
}

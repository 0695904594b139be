//! `/v1/jobs`: submit, read, cancel and retry jobs.

use axum::extract::{Path, State};
use http::StatusCode;
use leasehold::{InvalidInput, Name};
use leasehold_plane::store::DocumentEvent;
use leasehold_plane::view::{EventList, EventView, JobList, JobView, ReasonRequest, SCHEMA_VERSION};
use leasehold_plane::{JobSpec, SubmitResponse, Work};
use leasehold_wire::{ErrorCode, Problem};
use serde::Deserialize;
use utoipa::IntoParams;

use super::long_poll::{LongPollQuery, parse_limit};
use super::{AppState, require_hold};
use crate::api::document::{Caller, JsonBody, LockName, QueryParams};
use crate::api::error_responses::NoSuchJob;
use crate::api::policies::require_audited;
use crate::api::problem::Refusal;
use crate::auth::Principal;
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

pub(super) fn event_list(id: String, events: &[DocumentEvent]) -> EventList {
    EventList { schema_version: SCHEMA_VERSION, id, events: events.iter().map(EventView::from).collect() }
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
/// Needs `read` on `job`.
#[utoipa::path(
    get, path = "/v1/jobs", tag = "jobs", operation_id = "listJobs", params(JobQuery),
    responses((status = 200, description = "Those most urgently due first", body = JobList)),
)]
pub(crate) async fn list(
    State(app): AppState,
    QueryParams(which): QueryParams<JobQuery>,
) -> Result<JsonBody<JobList>, Refusal> {
    let (states, limit) = (parse_states(which.state, str::parse)?, parse_limit(which.limit)?);
    let jobs = app.served()?.plane.jobs(&states, which.topic.as_deref(), limit).await?;
    let jobs = jobs.into_iter().map(JobView::from).collect();
    Ok(JsonBody(JobList { schema_version: SCHEMA_VERSION, jobs }))
}

/// Submit a job
///
/// With an `id` or a `key` the request is idempotent. Needs `hold` on `job:<id>` (on all of `job`
/// if there is no `id`), and on every resource that the job names. A job that runs a command is
/// submitted at `/v1/jobs/commands`.
#[utoipa::path(
    post, path = "/v1/jobs", tag = "jobs", operation_id = "submitJob", request_body = JobSpec,
    responses(
        (status = 200, description = "It had been submitted before", body = JobView),
        (status = 201, description = "Submitted", body = JobView),
        (status = 403, description = "No right, or `commands_need_admin`", body = Problem, content_type = "application/problem+json"),
        (status = 409, description = "`different_job`: the id or key belongs to other work", body = Problem, content_type = "application/problem+json"),
    ),
)]
pub(crate) async fn submit(
    State(app): AppState,
    Caller(who): Caller,
    JsonBody(spec): JsonBody<JobSpec>,
) -> Result<(StatusCode, JsonBody<JobView>), Refusal> {
    // The gate has required only `hold` for this route, and running commands needs `admin`.
    if matches!(spec.work, Work::Exec(_)) {
        return Err(Refusal::new(
            ErrorCode::CommandsNeedAdmin,
            "a job that runs a command is submitted at /v1/jobs/commands, by an admin",
        ));
    }
    submit_checked(&app, &who, spec).await
}

/// Submit a job that runs a command
///
/// Like `/v1/jobs`, but needs `admin`.
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
    if let Work::Exec(argv) = &spec.work {
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
    let resources = spec
        .resources
        .iter()
        .map(|resource| spec.resource_lock_name(resource))
        .collect::<Result<Vec<Name>, _>>()?;
    require_hold(who, &resources)?;
    Ok(submit_response(app.served()?.plane.submit(spec).await?))
}

fn submit_response(submitted: SubmitResponse) -> (StatusCode, JsonBody<JobView>) {
    let status = if submitted.repeated { StatusCode::OK } else { StatusCode::CREATED };
    (status, JsonBody(submitted.job.into()))
}

/// Show a job
///
/// With `after` and `wait_ms`, answers when the job has changed. Needs `read` on `job:<id>`.
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
    let plane = &app.served()?.plane;
    let job = look.read_when_newer(&app, &who, |job: &leasehold_plane::Job| job.version, || plane.job(&id));
    Ok(JsonBody(job.await?.into()))
}

/// Read the history of a job
///
/// Each event with its actor and fence. Needs `read` on `job:<id>`.
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
    Path(id): Path<String>,
) -> Result<JsonBody<EventList>, Refusal> {
    let plane = &app.served()?.plane;
    // An unknown job is 404, not an empty history.
    plane.job(&id).await?;
    let events = plane.job_history(&id).await?;
    Ok(JsonBody(event_list(id, &events)))
}

/// Cancel a job
///
/// If a replica works on the job, that replica is asked to stop it. Idempotent. Needs `hold` on
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
    let cancelled = app.served()?.plane.cancel(&id, &why).await?;
    // Afterwards and without waiting: only admin actions are recorded before they happen.
    app.audit.record(AuditEntry::new("job.cancel", &who).name(&name).detail(&why));
    let (job, requested) = cancelled.into_job()?;
    let status = if requested { StatusCode::ACCEPTED } else { StatusCode::OK };
    Ok((status, JsonBody(job.into())))
}

/// Submit a dead-lettered job again
///
/// Creates a new job; a repeated request returns the same new job. Needs `admin` on `job:<id>`.
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
    require_audited(app.audit.record_before(AuditEntry::new("job.retry", &who).name(&name)).await)?;
    Ok(submit_response(app.served()?.plane.replay(&id).await?))
}

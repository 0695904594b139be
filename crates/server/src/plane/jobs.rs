//! `/v1/jobs`: submit, look, cancel, replay.

use axum::extract::State;
use http::StatusCode;
use leasehold::Name;
use leasehold_http::wire::Problem;
use leasehold_plane::view::{EventView, JobView, SCHEMA};
use leasehold_plane::{Cancelled, JobSpec, JobState, Submitted, Work};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::looking::{Look, limit};
use super::{Daemon, Id, may_hold};
use crate::app::App;
use crate::audit::Act;
use crate::auth::Principal;
use crate::document::{Asked, Caller, Doc};
use crate::policies::sure;
use crate::problem::Refusal;

/// Which jobs.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct Which {
    /// Only those in this state; several parted by commas.
    state: Option<String>,
    /// Only those of this topic.
    topic: Option<String>,
    /// At most so many; 100 if not given.
    #[param(value_type = Option<u32>, minimum = 1, maximum = 1000)]
    limit: Option<String>,
}

/// Jobs.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Jobs {
    /// Grows when a field changes its meaning.
    schema_version: u32,
    /// Those most urgently due first.
    jobs: Vec<JobView>,
}

/// What happened to a job or a run.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Events {
    /// Grows when a field changes its meaning.
    schema_version: u32,
    /// Of what.
    id: String,
    /// Oldest first.
    events: Vec<EventView>,
}

impl Events {
    pub(crate) fn of(id: String, events: &[leasehold_plane::store::Event]) -> Self {
        Self {
            schema_version: SCHEMA,
            id,
            events: events.iter().map(EventView::from).collect(),
        }
    }
}

/// Why.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Why {
    /// For whoever wonders later.
    #[schema(min_length = 1, max_length = 512)]
    reason: String,
}

impl Why {
    /// One to 512 printable bytes.
    pub(crate) fn check(self) -> Result<String, Refusal> {
        said("reason", self.reason)
    }
}

/// A text that people will read.
pub(crate) fn said(field: &str, text: String) -> Result<String, Refusal> {
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
    get, path = "/v1/jobs", tag = "jobs", operation_id = "listJobs", params(Which), extensions(("x-role" = json!("read"))),
    responses((status = 200, description = "Those most urgently due first", body = Jobs)),
)]
pub(crate) async fn list(State(app): Daemon, Asked(which): Asked<Which>) -> Result<Doc<Jobs>, Refusal> {
    let states = which.state.as_deref().unwrap_or_default();
    let states = states
        .split(',')
        .filter(|state| !state.is_empty())
        .map(str::parse)
        .collect::<Result<Vec<JobState>, _>>()?;
    let jobs = app
        .served()?
        .plane
        .jobs(&states, which.topic.as_deref(), limit(which.limit)?)
        .await?;
    Ok(Doc(Jobs {
        schema_version: SCHEMA,
        jobs: jobs.into_iter().map(JobView::from).collect(),
    }))
}

/// Submit a job
///
/// With an `id` or a `key`, saying it twice is saying it once. Needs `hold` on `job:<id>` (on all of `job` if there is no
/// `id`), and on every resource that the job names. A job that runs a command is submitted at `/v1/jobs/commands`.
#[utoipa::path(
    post, path = "/v1/jobs", tag = "jobs", operation_id = "submitJob", request_body = JobSpec, extensions(("x-role" = json!("hold"))),
    responses(
        (status = 200, description = "It had been submitted before", body = JobView),
        (status = 201, description = "Submitted", body = JobView),
        (status = 403, description = "No right, or `commands_need_admin`", body = Problem, content_type = "application/problem+json"),
        (status = 409, description = "`different_job`: the id or key belongs to other work", body = Problem, content_type = "application/problem+json"),
    ),
)]
pub(crate) async fn submit(
    State(app): Daemon,
    Caller(who): Caller,
    Doc(spec): Doc<JobSpec>,
) -> Result<(StatusCode, Doc<JobView>), Refusal> {
    if matches!(spec.work, Work::Exec(_)) {
        return Err(Refusal::new(
            StatusCode::FORBIDDEN,
            "commands_need_admin",
            "a job that runs a command is submitted at /v1/jobs/commands, by an admin",
        ));
    }
    submitted(&app, &who, spec).await
}

/// Submit a job that runs a command
///
/// As `/v1/jobs`, but needs `admin`.
#[utoipa::path(
    post, path = "/v1/jobs/commands", tag = "jobs", operation_id = "submitCommand", request_body = JobSpec, extensions(("x-role" = json!("admin"))),
    responses(
        (status = 200, description = "It had been submitted before", body = JobView),
        (status = 201, description = "Submitted", body = JobView),
        (status = 409, description = "`different_job`: the id or key belongs to other work", body = Problem, content_type = "application/problem+json"),
    ),
)]
pub(crate) async fn submit_command(
    State(app): Daemon,
    Caller(who): Caller,
    Doc(spec): Doc<JobSpec>,
) -> Result<(StatusCode, Doc<JobView>), Refusal> {
    if let Work::Exec(argv) = &spec.work {
        let command = argv.first().map_or("", String::as_str);
        sure(
            app.audit
                .before(Act::new("job.command", &who).detail(command))
                .await,
        )?;
    }
    submitted(&app, &who, spec).await
}

async fn submitted(app: &App, who: &Principal, spec: JobSpec) -> Result<(StatusCode, Doc<JobView>), Refusal> {
    let resources = spec
        .resources
        .iter()
        .map(|resource| spec.resource(resource))
        .collect::<Result<Vec<Name>, _>>()?;
    may_hold(who, &resources)?;
    Ok(answer(app.served()?.plane.submit(spec).await?))
}

fn answer(submitted: Submitted) -> (StatusCode, Doc<JobView>) {
    let status = if submitted.repeated {
        StatusCode::OK
    } else {
        StatusCode::CREATED
    };
    (status, Doc(submitted.job.into()))
}

/// Look at a job
///
/// With `after` and `wait_ms`, answers when it has changed. Needs `read` on `job:<id>`.
#[utoipa::path(
    get, path = "/v1/jobs/{id}", tag = "jobs", operation_id = "showJob", extensions(("x-role" = json!("read"))),
    params(("id" = String, Path, description = "The job", min_length = 1, max_length = 500), Look),
    responses(
        (status = 200, description = "The job", body = JobView),
        (status = 404, description = "There is no such job", body = Problem, content_type = "application/problem+json"),
    ),
)]
pub(crate) async fn show(
    State(app): Daemon,
    Caller(who): Caller,
    Id(id): Id,
    Asked(look): Asked<Look>,
) -> Result<Doc<JobView>, Refusal> {
    let plane = &app.served()?.plane;
    let job = look.at(
        &app,
        &who,
        |job: &leasehold_plane::Job| job.version,
        || plane.job(&id),
    );
    Ok(Doc(job.await?.into()))
}

/// Read what happened to a job
///
/// Who did what, under which fence. Needs `read` on `job:<id>`.
#[utoipa::path(
    get, path = "/v1/jobs/{id}/history", tag = "jobs", operation_id = "readJobHistory", extensions(("x-role" = json!("read"))),
    params(("id" = String, Path, description = "The job", min_length = 1, max_length = 500)),
    responses(
        (status = 200, description = "Its events", body = Events),
        (status = 404, description = "There is no such job", body = Problem, content_type = "application/problem+json"),
    ),
)]
pub(crate) async fn history(State(app): Daemon, Id(id): Id) -> Result<Doc<Events>, Refusal> {
    let plane = &app.served()?.plane;
    plane.job(&id).await?;
    let events = plane.job_history(&id).await?;
    Ok(Doc(Events::of(id, &events)))
}

/// Cancel a job
///
/// If a replica works on it, that replica is told and stops it. Said twice, it is the same end. Needs `hold` on `job:<id>`.
#[utoipa::path(
    post, path = "/v1/jobs/{id}/cancel", tag = "jobs", operation_id = "cancelJob", request_body = Why, extensions(("x-role" = json!("hold"))),
    params(("id" = String, Path, description = "The job", min_length = 1, max_length = 500)),
    responses(
        (status = 200, description = "Cancelled", body = JobView),
        (status = 202, description = "Its owner was told", body = JobView),
        (status = 404, description = "There is no such job", body = Problem, content_type = "application/problem+json"),
        (status = 409, description = "`terminal`: it has ended another way", body = Problem, content_type = "application/problem+json"),
    ),
)]
pub(crate) async fn cancel(
    State(app): Daemon,
    Caller(who): Caller,
    Id(id): Id,
    Doc(why): Doc<Why>,
) -> Result<(StatusCode, Doc<JobView>), Refusal> {
    let why = why.check()?;
    let cancelled = app.served()?.plane.cancel(&id, &why).await?;
    if let Ok(name) = leasehold_plane::job::lock_of(&id) {
        app.audit
            .act(Act::new("job.cancel", &who).name(&name).detail(&why));
    }
    match cancelled {
        Cancelled::Requested(job) => Ok((StatusCode::ACCEPTED, Doc(job.into()))),
        Cancelled::Now(job) => Ok((StatusCode::OK, Doc(job.into()))),
        // Said twice, it is the same end.
        Cancelled::Ended(job) if job.state == JobState::Cancelled => Ok((StatusCode::OK, Doc(job.into()))),
        Cancelled::Ended(job) => Err(Refusal::new(
            StatusCode::CONFLICT,
            "terminal",
            format!("job {id} has ended as {}", job.state),
        )),
        other => Err(Refusal::new(
            StatusCode::INTERNAL_SERVER_ERROR,
            "internal",
            format!("what came of it has no answer yet: {other:?}"),
        )),
    }
}

/// Submit a given-up job once more
///
/// As a new job. Asked twice, it is one new job. Needs `admin` on `job:<id>`.
#[utoipa::path(
    post, path = "/v1/jobs/{id}/retry", tag = "jobs", operation_id = "retryJob", extensions(("x-role" = json!("admin"))),
    params(("id" = String, Path, description = "The job", min_length = 1, max_length = 500)),
    responses(
        (status = 200, description = "It had been submitted again before", body = JobView),
        (status = 201, description = "The new job", body = JobView),
        (status = 404, description = "There is no such job", body = Problem, content_type = "application/problem+json"),
        (status = 409, description = "`not_dead`: it was not given up", body = Problem, content_type = "application/problem+json"),
    ),
)]
pub(crate) async fn retry(
    State(app): Daemon,
    Caller(who): Caller,
    Id(id): Id,
) -> Result<(StatusCode, Doc<JobView>), Refusal> {
    let name = leasehold_plane::job::lock_of(&id)?;
    sure(app.audit.before(Act::new("job.retry", &who).name(&name)).await)?;
    Ok(answer(app.served()?.plane.replay(&id).await?))
}

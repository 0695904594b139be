//! `/v1/runs`: start, read and cancel runs, and rerun from a step.

use axum::extract::{Path, State};
use http::StatusCode;
use leasehold::Name;
use leasehold_plane::view::{RunView, SCHEMA_VERSION};
use leasehold_plane::workflow::{Run, RunState, StartRunRequest};
use leasehold_wire::Problem;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::{IntoParams, ToSchema};

use super::jobs::{Events, Why};
use super::long_poll::{LongPollQuery, parse_limit};
use super::{AppState, require_hold};
use crate::api::document::{Caller, JsonBody, QueryParams};
use crate::api::problem::Refusal;
use crate::state::audit::AuditEntry;

/// The query of the run list.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct RunQuery {
    /// Only runs in this state; several states separated by commas.
    state: Option<String>,
    /// The maximum number of runs; 100 if not given.
    #[param(value_type = Option<u32>, minimum = 1, maximum = 1000)]
    limit: Option<String>,
}

/// A list of runs.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Runs {
    /// Increases when a field changes its meaning.
    schema_version: u32,
    /// The matching runs.
    runs: Vec<RunView>,
}

/// A run to be started.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Start {
    /// The workflow to run.
    workflow: String,
    /// The run's id; generated if not given.
    id: Option<String>,
    /// The organisation that the run belongs to; `default` if not given.
    #[serde(default)]
    org: String,
    /// The input that is passed to the run's jobs.
    #[serde(default)]
    input: Value,
    /// Another start with the same key is the same run.
    key: Option<String>,
}

/// The step from which to run again.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Rerun {
    /// The id of the first step to run again.
    from: String,
}

/// List runs
///
/// Needs `read` on `run`.
#[utoipa::path(
    get, path = "/v1/runs", tag = "runs", operation_id = "listRuns", params(RunQuery),
    responses((status = 200, description = "The runs", body = Runs)),
)]
pub(crate) async fn list(
    State(app): AppState,
    QueryParams(which): QueryParams<RunQuery>,
) -> Result<JsonBody<Runs>, Refusal> {
    let states = which.state.as_deref().unwrap_or_default();
    let states = states
        .split(',')
        .filter(|state| !state.is_empty())
        .map(|state| state.to_uppercase().parse())
        .collect::<Result<Vec<RunState>, _>>()?;
    let runs = app.served()?.plane.runs(&states, parse_limit(which.limit)?).await?;
    Ok(JsonBody(Runs { schema_version: SCHEMA_VERSION, runs: runs.into_iter().map(RunView::from).collect() }))
}

/// Start a run of a workflow
///
/// With an `id` or a `key` the request is idempotent. Needs `hold` on `run:<id>` (on all of `run`
/// if there is no `id`), and on every resource that the workflow's steps take.
#[utoipa::path(
    post, path = "/v1/runs", tag = "runs", operation_id = "startRun", request_body = Start,
    responses(
        (status = 200, description = "It had been started before", body = RunView),
        (status = 201, description = "Started", body = RunView),
        (status = 404, description = "There is no such workflow", body = Problem, content_type = "application/problem+json"),
        (status = 409, description = "`different_run`: the id or key belongs to a run of another workflow", body = Problem, content_type = "application/problem+json"),
        (status = 410, description = "The daemon lost the gate's lock meanwhile: retry", body = Problem, content_type = "application/problem+json"),
        (status = 412, description = "`stale_fence`: another client has written since", body = Problem, content_type = "application/problem+json"),
        (status = 429, description = "`limit_reached`, `admission_busy`, or too often: see Retry-After", body = Problem, content_type = "application/problem+json"),
    ),
)]
pub(crate) async fn start(
    State(app): AppState,
    Caller(who): Caller,
    JsonBody(start): JsonBody<Start>,
) -> Result<(StatusCode, JsonBody<RunView>), Refusal> {
    let plane = &app.served()?.plane;
    let org = if start.org.is_empty() { "default" } else { &start.org };
    // The rights are checked against the steps' resources here, because only the workflow knows
    // them; the gate cannot.
    let workflow = plane.workflow(&start.workflow).await?;
    let resources = workflow
        .steps
        .iter()
        .flat_map(|step| &step.resources)
        .map(|resource| Name::new(&format!("res:{org}:{resource}")))
        .collect::<Result<Vec<_>, _>>()?;
    require_hold(&who, &resources)?;
    let started = plane
        .start_run(StartRunRequest {
            workflow: start.workflow,
            id: start.id,
            org: start.org,
            input: start.input,
            key: start.key,
        })
        .await?;
    let status = if started.repeated { StatusCode::OK } else { StatusCode::CREATED };
    Ok((status, JsonBody(started.run.into())))
}

/// Show a run
///
/// With `after` and `wait_ms`, answers when the run has changed. Needs `read` on `run:<id>`.
#[utoipa::path(
    get, path = "/v1/runs/{id}", tag = "runs", operation_id = "showRun",
    params(("id" = String, Path, description = "The run", min_length = 1, max_length = 500), LongPollQuery),
    responses(
        (status = 200, description = "The run", body = RunView),
        (status = 404, description = "There is no such run", body = Problem, content_type = "application/problem+json"),
    ),
)]
pub(crate) async fn show(
    State(app): AppState,
    Caller(who): Caller,
    Path(id): Path<String>,
    QueryParams(look): QueryParams<LongPollQuery>,
) -> Result<JsonBody<RunView>, Refusal> {
    let plane = &app.served()?.plane;
    let run = look.read_when_newer(&app, &who, |run: &Run| run.version, || plane.run(&id));
    Ok(JsonBody(run.await?.into()))
}

/// Read a run's timeline
///
/// Needs `read` on `run:<id>`.
#[utoipa::path(
    get, path = "/v1/runs/{id}/timeline", tag = "runs", operation_id = "readTimeline",
    params(("id" = String, Path, description = "The run", min_length = 1, max_length = 500)),
    responses(
        (status = 200, description = "Its events", body = Events),
        (status = 404, description = "There is no such run", body = Problem, content_type = "application/problem+json"),
    ),
)]
pub(crate) async fn timeline(
    State(app): AppState,
    Path(id): Path<String>,
) -> Result<JsonBody<Events>, Refusal> {
    let plane = &app.served()?.plane;
    plane.run(&id).await?;
    let events = plane.run_history(&id).await?;
    Ok(JsonBody(Events::new(id, &events)))
}

/// Cancel a run
///
/// The engine cancels the run and the jobs of its steps. Needs `hold` on `run:<id>`.
#[utoipa::path(
    post, path = "/v1/runs/{id}/cancel", tag = "runs", operation_id = "cancelRun", request_body = Why,
    params(("id" = String, Path, description = "The run", min_length = 1, max_length = 500)),
    responses(
        (status = 202, description = "The engine was notified", body = RunView),
        (status = 404, description = "There is no such run", body = Problem, content_type = "application/problem+json"),
        (status = 409, description = "`terminal`: it has ended", body = Problem, content_type = "application/problem+json"),
    ),
)]
pub(crate) async fn cancel(
    State(app): AppState,
    Caller(who): Caller,
    Path(id): Path<String>,
    JsonBody(why): JsonBody<Why>,
) -> Result<(StatusCode, JsonBody<RunView>), Refusal> {
    let why = why.check()?;
    let run = app.served()?.plane.cancel_run(&id, &why).await?;
    if let Ok(name) = Name::new(&format!("run:{id}")) {
        app.audit.record(AuditEntry::new("run.cancel", &who).name(&name).detail(&why));
    }
    Ok((StatusCode::ACCEPTED, JsonBody(run.into())))
}

/// Run an ended run again, from a step on
///
/// Idempotent for the same end of the run. Needs `hold` on `run:<id>`.
#[utoipa::path(
    post, path = "/v1/runs/{id}/rerun", tag = "runs", operation_id = "rerun", request_body = Rerun,
    params(("id" = String, Path, description = "The run", min_length = 1, max_length = 500)),
    responses(
        (status = 202, description = "The engine was notified", body = RunView),
        (status = 404, description = "There is no such run", body = Problem, content_type = "application/problem+json"),
        (status = 409, description = "`still_running`, `no_such_step`", body = Problem, content_type = "application/problem+json"),
    ),
)]
pub(crate) async fn rerun(
    State(app): AppState,
    Path(id): Path<String>,
    JsonBody(Rerun { from }): JsonBody<Rerun>,
) -> Result<(StatusCode, JsonBody<RunView>), Refusal> {
    let run = app.served()?.plane.rerun(&id, &from).await?;
    Ok((StatusCode::ACCEPTED, JsonBody(run.into())))
}

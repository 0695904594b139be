//! `/v1/runs`: start, read and cancel runs, and rerun from a step.

use axum::extract::{Path, State};
use http::StatusCode;
use leasehold_plane::view::{EventList, ReasonRequest, RerunRequest, RunList, RunView, SCHEMA_VERSION};
use leasehold_plane::workflow::{StartRunRequest, StartRunResponse};
use leasehold_wire::Problem;
use serde::Deserialize;
use utoipa::IntoParams;

use super::AppState;
use super::jobs::{check_text, parse_states};
use super::long_poll::{LongPollQuery, parse_limit};
use super::refusal::refuse_foreign;
use super::rights::{require_rerun_rights, require_start_rights, require_steps_rights, runs_commands};
use super::visible::{list_readable, reads_run, visible_runs};
use crate::api::document::{Caller, JsonBody, LockName, QueryParams};
use crate::api::error_responses::NoSuchRun;
use crate::api::policies::require_audited;
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

/// List runs
///
/// Lists the runs that the caller may read: `read` on `run:<id>`.
#[utoipa::path(
    get, path = "/v1/runs", tag = "runs", operation_id = "listRuns", params(RunQuery),
    responses((status = 200, description = "The runs", body = RunList)),
)]
pub(crate) async fn list(
    State(app): AppState,
    Caller(who): Caller,
    QueryParams(which): QueryParams<RunQuery>,
) -> Result<JsonBody<RunList>, Refusal> {
    let states = parse_states(which.state, |state| state.to_uppercase().parse())?;
    let (plane, limit) = (&app.served()?.plane, parse_limit(which.limit)?);
    let scope = visible_runs(&who);
    let _share = app.take_list_share(&who)?;
    let fetch = |after, size| plane.run_page(&states, scope.as_ref(), after, size);
    let (runs, truncated) = list_readable(limit, |run| reads_run(&who, run), fetch).await?;
    Ok(JsonBody(RunList { schema_version: SCHEMA_VERSION, runs, truncated }))
}

/// Start a run of a workflow
///
/// With an `id` or a `key` the request is idempotent. Needs `submit` on `run:<id>` (without an `id` on
/// `run:<org>`, or on all of `run` for the default organisation), on `workflow:<name>`, on `org:<org>` and on
/// `topic:<topic>` of each step that names one, and `hold` on every resource that the steps take. A `key`
/// needs `submit` on its whole scope: `run:<org>`, or all of `run` for the scope `default`.
#[utoipa::path(
    post, path = "/v1/runs", tag = "runs", operation_id = "startRun", request_body = StartRunRequest,
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
    JsonBody(start): JsonBody<StartRunRequest>,
) -> Result<(StatusCode, JsonBody<RunView>), Refusal> {
    require_start_rights(&who, &start)?;
    let plane = app.plane_for(&who)?;
    let workflow = plane.workflow(&start.workflow).await?;
    require_steps_rights(&who, &workflow, &start)?;
    let reads = |found: &StartRunResponse| !found.repeated || reads_run(&who, &found.run);
    if runs_commands(&workflow) {
        // First, so that refused and repeated starts leave no audit line.
        let checked = plane.check_start(&workflow, &start).await.transpose();
        if let Some(found) = checked.map(|found| refuse_foreign(&who, "run", found, reads)).transpose()? {
            return Ok(start_response(found));
        }
        let act = AuditEntry::new("run.command", &who).detail(&workflow.name);
        require_audited(app.audit.record_before(act).await)?;
    }
    // Of the definition that was checked: a newer one may touch other things.
    let started = plane.start_run_of(workflow, start).await;
    Ok(start_response(refuse_foreign(&who, "run", started, reads)?))
}

fn start_response(started: StartRunResponse) -> (StatusCode, JsonBody<RunView>) {
    let status = if started.repeated { StatusCode::OK } else { StatusCode::CREATED };
    (status, JsonBody(started.run.into()))
}

/// Show a run
///
/// With `after` and `wait_ms`, answers when the run has changed. Needs `read` on `run:<id>`.
#[utoipa::path(
    get, path = "/v1/runs/{id}", tag = "runs", operation_id = "showRun",
    params(("id" = String, Path, description = "The run", min_length = 1, max_length = 500), LongPollQuery),
    responses(
        (status = 200, description = "The run", body = RunView),
        NoSuchRun,
    ),
)]
pub(crate) async fn show(
    State(app): AppState,
    Caller(who): Caller,
    Path(id): Path<String>,
    QueryParams(look): QueryParams<LongPollQuery>,
) -> Result<JsonBody<RunView>, Refusal> {
    Ok(JsonBody(look.run_when_newer(&app, &who, &id).await?.into()))
}

/// Read a run's timeline
///
/// Needs `read` on `run:<id>`.
#[utoipa::path(
    get, path = "/v1/runs/{id}/timeline", tag = "runs", operation_id = "readTimeline",
    params(("id" = String, Path, description = "The run", min_length = 1, max_length = 500)),
    responses(
        (status = 200, description = "Its events", body = EventList),
        NoSuchRun,
    ),
)]
pub(crate) async fn timeline(
    State(app): AppState,
    Path(id): Path<String>,
) -> Result<JsonBody<EventList>, Refusal> {
    let plane = &app.served()?.plane;
    plane.run(&id).await?;
    let events = plane.run_history(&id).await?;
    Ok(JsonBody(EventList::new(id, &events)))
}

/// Cancel a run
///
/// The engine cancels the run and the jobs of its steps. Needs `submit` on `run:<id>`.
#[utoipa::path(
    post, path = "/v1/runs/{id}/cancel", tag = "runs", operation_id = "cancelRun", request_body = ReasonRequest,
    params(("id" = String, Path, description = "The run", min_length = 1, max_length = 500)),
    responses(
        (status = 202, description = "The engine was notified", body = RunView),
        NoSuchRun,
        (status = 409, description = "`terminal`: it has ended", body = Problem, content_type = "application/problem+json"),
    ),
)]
pub(crate) async fn cancel(
    State(app): AppState,
    Caller(who): Caller,
    LockName(name): LockName,
    Path(id): Path<String>,
    JsonBody(ReasonRequest { reason }): JsonBody<ReasonRequest>,
) -> Result<(StatusCode, JsonBody<RunView>), Refusal> {
    let why = check_text("reason", reason)?;
    let run = app.served()?.plane.acting_for(who.id()).cancel_run(&id, &why).await?;
    app.audit.record(AuditEntry::new("run.cancel", &who).name(&name).detail(&why));
    Ok((StatusCode::ACCEPTED, JsonBody(run.into())))
}

/// Run an ended run again, from a step on
///
/// Idempotent for the same end of the run. Needs `submit` on `run:<id>`, and what a start of the same run
/// needs.
#[utoipa::path(
    post, path = "/v1/runs/{id}/rerun", tag = "runs", operation_id = "rerun", request_body = RerunRequest,
    params(("id" = String, Path, description = "The run", min_length = 1, max_length = 500)),
    responses(
        (status = 202, description = "The engine was notified", body = RunView),
        NoSuchRun,
        (status = 409, description = "`still_running`, `no_such_step`", body = Problem, content_type = "application/problem+json"),
    ),
)]
pub(crate) async fn rerun(
    State(app): AppState,
    Caller(who): Caller,
    LockName(name): LockName,
    Path(id): Path<String>,
    JsonBody(RerunRequest { from }): JsonBody<RerunRequest>,
) -> Result<(StatusCode, JsonBody<RunView>), Refusal> {
    let plane = app.plane_for(&who)?;
    require_rerun_rights(&who, &plane.run(&id).await?)?;
    // First, so that refused reruns leave no audit line.
    plane.check_rerun(&id, &from).await?;
    let act = AuditEntry::new("run.rerun", &who).name(&name).detail(&from);
    require_audited(app.audit.record_before(act).await)?;
    let run = plane.rerun(&id, &from).await?;
    Ok((StatusCode::ACCEPTED, JsonBody(run.into())))
}

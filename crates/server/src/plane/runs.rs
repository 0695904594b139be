//! `/v1/runs`: start, look, cancel, run again from a step.

use axum::extract::State;
use http::StatusCode;
use leasehold::Name;
use leasehold_http::wire::Problem;
use leasehold_plane::view::{RunView, SCHEMA};
use leasehold_plane::workflow::{Run, RunState, StartRun};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::{IntoParams, ToSchema};

use super::jobs::{Events, Why};
use super::looking::{Look, limit};
use super::{Daemon, Id, may_hold};
use crate::audit::Act;
use crate::document::{Asked, Caller, Doc};
use crate::problem::Refusal;

/// Which runs.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct Which {
    /// Only those in this state; several parted by commas.
    state: Option<String>,
    /// At most so many; 100 if not given.
    #[param(value_type = Option<u32>, minimum = 1, maximum = 1000)]
    limit: Option<String>,
}

/// Runs.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Runs {
    /// Grows when a field changes its meaning.
    schema_version: u32,
    /// The runs.
    runs: Vec<RunView>,
}

/// A run to be started.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Start {
    /// Of which workflow.
    workflow: String,
    /// Its id; made up if not given.
    id: Option<String>,
    /// Whose it is; `default` if not given.
    #[serde(default)]
    org: String,
    /// What its jobs should know.
    #[serde(default)]
    input: Value,
    /// Another start with the same key is the same run.
    key: Option<String>,
}

/// From where.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Rerun {
    /// The step.
    from: String,
}

/// List runs
///
/// Needs `read` on `run`.
#[utoipa::path(
    get, path = "/v1/runs", tag = "runs", operation_id = "listRuns", params(Which), extensions(("x-role" = json!("read"))),
    responses((status = 200, description = "The runs", body = Runs)),
)]
pub(crate) async fn list(State(app): Daemon, Asked(which): Asked<Which>) -> Result<Doc<Runs>, Refusal> {
    let states = which.state.as_deref().unwrap_or_default();
    let states = states
        .split(',')
        .filter(|state| !state.is_empty())
        .map(|state| state.to_uppercase().parse())
        .collect::<Result<Vec<RunState>, _>>()?;
    let runs = app.served()?.plane.runs(&states, limit(which.limit)?).await?;
    Ok(Doc(Runs {
        schema_version: SCHEMA,
        runs: runs.into_iter().map(RunView::from).collect(),
    }))
}

/// Start a run of a workflow
///
/// With an `id` or a `key`, saying it twice is saying it once. Needs `hold` on `run:<id>` (on all of `run` if there is no
/// `id`), and on every resource that the workflow's steps take.
#[utoipa::path(
    post, path = "/v1/runs", tag = "runs", operation_id = "startRun", request_body = Start, extensions(("x-role" = json!("hold"))),
    responses(
        (status = 200, description = "It had been started before", body = RunView),
        (status = 201, description = "Started", body = RunView),
        (status = 404, description = "There is no such workflow", body = Problem, content_type = "application/problem+json"),
        (status = 409, description = "`different_run`: the id or key belongs to a run of another workflow", body = Problem, content_type = "application/problem+json"),
        (status = 410, description = "The daemon lost the gate's lock meanwhile: come again", body = Problem, content_type = "application/problem+json"),
        (status = 412, description = "`stale_fence`: someone else has written since", body = Problem, content_type = "application/problem+json"),
        (status = 429, description = "`limit_reached`, `admission_busy`, or too often: see Retry-After", body = Problem, content_type = "application/problem+json"),
    ),
)]
pub(crate) async fn start(
    State(app): Daemon,
    Caller(who): Caller,
    Doc(start): Doc<Start>,
) -> Result<(StatusCode, Doc<RunView>), Refusal> {
    let plane = &app.served()?.plane;
    let org = if start.org.is_empty() {
        "default"
    } else {
        &start.org
    };
    let workflow = plane.workflow(&start.workflow).await?;
    let resources = workflow
        .steps
        .iter()
        .flat_map(|step| &step.resources)
        .map(|resource| Name::new(&format!("res:{org}:{resource}")))
        .collect::<Result<Vec<_>, _>>()?;
    may_hold(&who, &resources)?;
    let started = plane
        .start(StartRun {
            workflow: start.workflow,
            id: start.id,
            org: start.org,
            input: start.input,
            key: start.key,
        })
        .await?;
    let status = if started.repeated {
        StatusCode::OK
    } else {
        StatusCode::CREATED
    };
    Ok((status, Doc(started.run.into())))
}

/// Look at a run
///
/// With `after` and `wait_ms`, answers when it has changed. Needs `read` on `run:<id>`.
#[utoipa::path(
    get, path = "/v1/runs/{id}", tag = "runs", operation_id = "showRun", extensions(("x-role" = json!("read"))),
    params(("id" = String, Path, description = "The run", min_length = 1, max_length = 500), Look),
    responses(
        (status = 200, description = "The run", body = RunView),
        (status = 404, description = "There is no such run", body = Problem, content_type = "application/problem+json"),
    ),
)]
pub(crate) async fn show(
    State(app): Daemon,
    Caller(who): Caller,
    Id(id): Id,
    Asked(look): Asked<Look>,
) -> Result<Doc<RunView>, Refusal> {
    let plane = &app.served()?.plane;
    let run = look.at(&app, &who, |run: &Run| run.version, || plane.run(&id));
    Ok(Doc(run.await?.into()))
}

/// Read a run's timeline
///
/// Needs `read` on `run:<id>`.
#[utoipa::path(
    get, path = "/v1/runs/{id}/timeline", tag = "runs", operation_id = "readTimeline", extensions(("x-role" = json!("read"))),
    params(("id" = String, Path, description = "The run", min_length = 1, max_length = 500)),
    responses(
        (status = 200, description = "Its events", body = Events),
        (status = 404, description = "There is no such run", body = Problem, content_type = "application/problem+json"),
    ),
)]
pub(crate) async fn timeline(State(app): Daemon, Id(id): Id) -> Result<Doc<Events>, Refusal> {
    let plane = &app.served()?.plane;
    plane.run(&id).await?;
    let events = plane.timeline(&id).await?;
    Ok(Doc(Events::of(id, &events)))
}

/// Cancel a run
///
/// The engine does it, and cancels the jobs of its steps. Needs `hold` on `run:<id>`.
#[utoipa::path(
    post, path = "/v1/runs/{id}/cancel", tag = "runs", operation_id = "cancelRun", request_body = Why, extensions(("x-role" = json!("hold"))),
    params(("id" = String, Path, description = "The run", min_length = 1, max_length = 500)),
    responses(
        (status = 202, description = "The engine was told", body = RunView),
        (status = 404, description = "There is no such run", body = Problem, content_type = "application/problem+json"),
        (status = 409, description = "`terminal`: it has ended", body = Problem, content_type = "application/problem+json"),
    ),
)]
pub(crate) async fn cancel(
    State(app): Daemon,
    Caller(who): Caller,
    Id(id): Id,
    Doc(why): Doc<Why>,
) -> Result<(StatusCode, Doc<RunView>), Refusal> {
    let why = why.check()?;
    let run = app.served()?.plane.cancel_run(&id, &why).await?;
    if let Ok(name) = Name::new(&format!("run:{id}")) {
        app.audit
            .act(Act::new("run.cancel", &who).name(&name).detail(&why));
    }
    Ok((StatusCode::ACCEPTED, Doc(run.into())))
}

/// Run an ended run again, from a step on
///
/// Asked twice for the same end, it is one rerun. Needs `hold` on `run:<id>`.
#[utoipa::path(
    post, path = "/v1/runs/{id}/rerun", tag = "runs", operation_id = "rerun", request_body = Rerun, extensions(("x-role" = json!("hold"))),
    params(("id" = String, Path, description = "The run", min_length = 1, max_length = 500)),
    responses(
        (status = 202, description = "The engine was told", body = RunView),
        (status = 404, description = "There is no such run", body = Problem, content_type = "application/problem+json"),
        (status = 409, description = "`still_running`, `no_such_step`", body = Problem, content_type = "application/problem+json"),
    ),
)]
pub(crate) async fn rerun(
    State(app): Daemon,
    Id(id): Id,
    Doc(Rerun { from }): Doc<Rerun>,
) -> Result<(StatusCode, Doc<RunView>), Refusal> {
    let run = app.served()?.plane.rerun(&id, &from).await?;
    Ok((StatusCode::ACCEPTED, Doc(run.into())))
}

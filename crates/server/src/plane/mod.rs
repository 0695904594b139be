//! The control plane over HTTP: `/v1/jobs`, `/v1/topics`, `/v1/approvals`, `/v1/workflows`, `/v1/runs`.
//!
//! Behind the daemon's gate like everything else. What a route is about is the name of the lock that it is done under:
//! `job:<id>`, `run:<id>`, `workflow:<name>`; so one grant says who may use a job and its lock. Having commands run is a power of
//! its own: jobs that run a command, replays of given-up jobs, and workflows need `admin`.

mod approvals;
mod jobs;
mod looking;
mod refusal;
mod runs;
mod workers;
mod workflows;

use std::sync::Arc;

use axum::extract::FromRequestParts;
use http::request::Parts;
use leasehold::Name;
use leasehold_plane::Plane;
use leasehold_plane::scheduler::Scheduler;
use utoipa::OpenApi;

use crate::app::App;
use crate::auth::{Principal, Request, Role, Rule, Space, Target};
use crate::document::{parameter, read};
use crate::problem::Refusal;
use crate::routes::Routes;

/// The longest body of a route that takes a payload: as much as a job's payload may be, and its frame.
const PAYLOAD: usize = 272 * 1024;

/// The plane that a daemon serves.
#[derive(Debug)]
pub(crate) struct Served {
    pub(crate) plane: Plane,
    pub(crate) scheduler: Scheduler,
}

impl App {
    /// The plane; its routes are there only if it is.
    pub(crate) fn served(&self) -> Result<&Served, Refusal> {
        let served = self.plane.as_ref();
        served.ok_or_else(missing)
    }

    /// Everybody on this machine is the same caller: nobody has been asked who they are.
    fn anonymous(&self) -> bool {
        self.tokens.is_none() && !self.config.mutual()
    }
}

/// What the plane's paths begin with.
const PATHS: [&str; 5] = ["jobs", "topics", "approvals", "workflows", "runs"];

fn missing() -> Refusal {
    Refusal::new(
        http::StatusCode::NOT_FOUND,
        "no_plane",
        "this daemon does not serve the control plane; `leasehold serve --plane` and `leasehold dev` do",
    )
}

/// What is said of a path that no route has: of the plane's, that the plane is not served, so that a job that is not there
/// is told from a plane that is not.
pub(crate) fn nowhere(app: &App, path: &str) -> Refusal {
    let mut parts = path.trim_start_matches('/').split('/');
    let planes = parts.next() == Some("v1") && parts.next().is_some_and(|part| PATHS.contains(&part));
    if planes && app.plane.is_none() {
        return missing();
    }
    Refusal::not_found("there is nothing at this path; see /openapi.json")
}

/// Adds the plane's routes.
pub(crate) fn routes(routes: Routes) -> Routes {
    let all = |role, namespace| Rule::new(role, Space::Fixed(namespace));
    let one = |role, kind| Rule::new(role, id_of(kind));
    let new = |role, kind| Rule::new(role, id_in_body(kind)).body(PAYLOAD);
    routes
        .get("/v1/jobs", all(Role::Read, "job"), jobs::list)
        .post("/v1/jobs", new(Role::Hold, "job"), jobs::submit)
        .post("/v1/jobs/commands", new(Role::Admin, "job"), jobs::submit_command)
        .get("/v1/jobs/{id}", one(Role::Read, "job"), jobs::show)
        .get("/v1/jobs/{id}/history", one(Role::Read, "job"), jobs::history)
        .post("/v1/jobs/{id}/cancel", one(Role::Hold, "job"), jobs::cancel)
        .post("/v1/jobs/{id}/retry", one(Role::Admin, "job"), jobs::retry)
        .post("/v1/topics/{topic}/claim", all(Role::Hold, "job"), workers::claim)
        .post(
            "/v1/jobs/{id}/heartbeat",
            one(Role::Hold, "job").keeping(),
            workers::heartbeat,
        )
        .post(
            "/v1/jobs/{id}/result",
            one(Role::Hold, "job").keeping().body(PAYLOAD),
            workers::result,
        )
        .get("/v1/approvals", all(Role::Read, "job"), approvals::list)
        .post(
            "/v1/approvals/{id}/approve",
            one(Role::Hold, "job"),
            approvals::approve,
        )
        .post(
            "/v1/approvals/{id}/reject",
            one(Role::Hold, "job"),
            approvals::reject,
        )
        .post(
            "/v1/approvals/{id}/repair",
            one(Role::Hold, "job").body(PAYLOAD),
            approvals::repair,
        )
        .put(
            "/v1/workflows",
            all(Role::Admin, "workflow").body(PAYLOAD),
            workflows::apply,
        )
        .get("/v1/workflows/{name}", one_named("workflow"), workflows::show)
        .get("/v1/runs", all(Role::Read, "run"), runs::list)
        .post("/v1/runs", new(Role::Hold, "run"), runs::start)
        .get("/v1/runs/{id}", one(Role::Read, "run"), runs::show)
        .get("/v1/runs/{id}/timeline", one(Role::Read, "run"), runs::timeline)
        .post("/v1/runs/{id}/cancel", one(Role::Hold, "run"), runs::cancel)
        .post("/v1/runs/{id}/rerun", one(Role::Hold, "run"), runs::rerun)
}

/// The plane's part of the OpenAPI document.
#[derive(OpenApi)]
#[openapi(paths(
    jobs::list,
    jobs::submit,
    jobs::submit_command,
    jobs::show,
    jobs::history,
    jobs::cancel,
    jobs::retry,
    workers::claim,
    workers::heartbeat,
    workers::result,
    approvals::list,
    approvals::approve,
    approvals::reject,
    approvals::repair,
    workflows::apply,
    workflows::show,
    runs::list,
    runs::start,
    runs::show,
    runs::timeline,
    runs::cancel,
    runs::rerun,
))]
pub(crate) struct Api;

fn named(kind: &str, id: &str) -> Result<Target, Refusal> {
    let name = Name::new(&format!("{kind}:{id}"));
    let name = name.map_err(|invalid| Refusal::invalid("id", invalid.to_string()))?;
    Ok(Target::Name(name))
}

/// About the lock of the path's `{id}`.
fn id_of(kind: &'static str) -> Space {
    Space::look(move |request: &Request<'_>| named(kind, request.param("id").unwrap_or_default()))
}

/// The same for `{name}`, to be looked at.
fn one_named(kind: &'static str) -> Rule {
    Rule::new(
        Role::Read,
        Space::look(move |request: &Request<'_>| named(kind, request.param("name").unwrap_or_default())),
    )
}

/// About the lock of the body's `id`; if it has none, about the whole namespace.
fn id_in_body(kind: &'static str) -> Space {
    #[derive(serde::Deserialize)]
    struct Given {
        id: Option<String>,
    }
    Space::look(
        move |request: &Request<'_>| match read::<Given>(request.body)?.id {
            Some(id) => named(kind, &id),
            None => Ok(Target::Namespace(kind.to_owned())),
        },
    )
}

/// The path's `{id}`.
pub(crate) struct Id(String);

impl<S: Send + Sync> FromRequestParts<S> for Id {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Refusal> {
        parameter(parts, state, "id").await.map(Self)
    }
}

/// Work that takes resources needs the right to hold them: a job must not lock what its submitter may not.
fn may_hold(who: &Principal, resources: &[Name]) -> Result<(), Refusal> {
    match resources.iter().find(|name| !who.covers(Role::Hold, name)) {
        None => Ok(()),
        Some(name) => Err(Refusal::new(
            http::StatusCode::FORBIDDEN,
            "forbidden",
            format!("you have no right to hold {name}, which this work would; ask for a grant on it"),
        )),
    }
}

type Daemon = axum::extract::State<Arc<App>>;

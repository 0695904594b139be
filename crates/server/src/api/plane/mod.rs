//! The control plane over HTTP: `/v1/jobs`, `/v1/topics`, `/v1/approvals`, `/v1/workflows`, `/v1/runs`.
//!
//! The routes are behind the daemon's gate. The target of a route is the name of the lock that
//! protects it: `job:<id>`, `run:<id>`, `workflow:<name>`. So one grant covers a job and its lock.
//! Running commands is a separate right: jobs that run a command, retries of dead-lettered jobs,
//! and workflows need `admin`.

mod approvals;
mod jobs;
mod long_poll;
mod refusal;
mod runs;
mod workers;
mod workflows;

use std::sync::Arc;

use leasehold::Name;
use leasehold_plane::JobSpec;
use leasehold_plane::workflow::StartRunRequest;
use leasehold_wire::ErrorCode;
use serde::de::DeserializeOwned;
use utoipa_axum::routes;

use crate::api::document::target_in_body;
use crate::api::problem::Refusal;
use crate::api::routes::RouteTable;
use crate::auth::{Principal, Role, Rule, Target, TargetSource, lock_target};
use crate::state::app::App;
use crate::state::served_plane::ServedPlane;

// The plane allows payloads of 256 KiB; the rest is room for the JSON around it.
const MAX_PAYLOAD_BODY_BYTES: usize = 272 * 1024;

impl App {
    /// The control plane, or 404. Its routes are registered only if it is served.
    pub(crate) fn served(&self) -> Result<&ServedPlane, Refusal> {
        let served = self.plane.as_ref();
        served.ok_or_else(plane_not_served)
    }

    /// Whether callers are not identified, so that all of them are the principal `local`.
    fn is_unauthenticated(&self) -> bool {
        self.tokens.is_none() && !self.config.requires_client_certs()
    }
}

/// The first path segments of the plane's routes.
const PLANE_PATH_ROOTS: [&str; 5] = ["jobs", "topics", "approvals", "workflows", "runs"];

/// Whether a path is, or would be, one of the plane's.
pub(crate) fn is_plane_path(path: &str) -> bool {
    let mut parts = path.trim_start_matches('/').split('/');
    parts.next() == Some("v1") && parts.next().is_some_and(|part| PLANE_PATH_ROOTS.contains(&part))
}

fn plane_not_served() -> Refusal {
    Refusal::new(
        ErrorCode::NoPlane,
        "this daemon does not serve the control plane; `leasehold serve --plane` and `leasehold dev` do",
    )
}

/// The response for an unknown path. For the plane's paths it says that the plane is not served, so
/// that a client can tell that from a missing job.
pub(crate) fn unknown_path(app: &App, path: &str) -> Refusal {
    if is_plane_path(path) && app.plane.is_none() {
        return plane_not_served();
    }
    Refusal::not_found("there is nothing at this path; see /openapi.json")
}

/// Adds the plane's routes.
pub(crate) fn routes(table: RouteTable) -> RouteTable {
    let all = |role, namespace| Rule::new(role, TargetSource::Fixed(namespace));
    let one = |role, kind| Rule::new(role, TargetSource::Lock { kind, id: "id" });
    let new_job = |role| {
        let target = target_of_new("job", |job: &JobSpec| job.id.as_deref());
        Rule::new(role, target).max_body(MAX_PAYLOAD_BODY_BYTES)
    };
    let new_run = target_of_new("run", |run: &StartRunRequest| run.id.as_deref());
    let new_run = Rule::new(Role::Hold, new_run).max_body(MAX_PAYLOAD_BODY_BYTES);
    let beat = one(Role::Hold, "job").renewal_budget();
    let result = beat.clone().max_body(MAX_PAYLOAD_BODY_BYTES);
    let repair = one(Role::Hold, "job").max_body(MAX_PAYLOAD_BODY_BYTES);
    let apply = all(Role::Admin, "workflow").max_body(MAX_PAYLOAD_BODY_BYTES);
    let workflow = TargetSource::Lock { kind: "workflow", id: "name" };
    table
        .route(all(Role::Read, "job"), routes!(jobs::list))
        .route(new_job(Role::Hold), routes!(jobs::submit))
        .route(new_job(Role::Admin), routes!(jobs::submit_command))
        .route(one(Role::Read, "job"), routes!(jobs::show))
        .route(one(Role::Read, "job"), routes!(jobs::history))
        .route(one(Role::Hold, "job"), routes!(jobs::cancel))
        .route(one(Role::Admin, "job"), routes!(jobs::retry))
        .route(all(Role::Hold, "job"), routes!(workers::claim))
        .route(beat, routes!(workers::heartbeat))
        .route(result, routes!(workers::result))
        .route(all(Role::Read, "job"), routes!(approvals::list))
        .route(one(Role::Hold, "job"), routes!(approvals::approve))
        .route(one(Role::Hold, "job"), routes!(approvals::reject))
        .route(repair, routes!(approvals::repair))
        .route(apply, routes!(workflows::apply))
        .route(Rule::new(Role::Read, workflow), routes!(workflows::show))
        .route(all(Role::Read, "run"), routes!(runs::list))
        .route(new_run, routes!(runs::start))
        .route(one(Role::Read, "run"), routes!(runs::show))
        .route(one(Role::Read, "run"), routes!(runs::timeline))
        .route(one(Role::Hold, "run"), routes!(runs::cancel))
        .route(one(Role::Hold, "run"), routes!(runs::rerun))
}

/// The target is the lock of the new document's id; without one, the whole namespace, since the new id is
/// not known yet.
fn target_of_new<T: DeserializeOwned + Clone + Send + Sync + 'static>(
    kind: &'static str,
    id: impl Fn(&T) -> Option<&str> + Send + Sync + 'static,
) -> TargetSource {
    target_in_body(move |document| match id(document) {
        Some(id) => lock_target(kind, id),
        None => Ok(Target::Namespace(kind.to_owned())),
    })
}

/// Requires the right to hold each resource: a job must not lock what its submitter may not lock.
fn require_hold(who: &Principal, resources: &[Name]) -> Result<(), Refusal> {
    match resources.iter().find(|name| !who.covers(Role::Hold, name)) {
        None => Ok(()),
        Some(name) => Err(Refusal::new(
            ErrorCode::Forbidden,
            format!("you have no right to hold {name}, which this work would; ask for a grant on it"),
        )),
    }
}

type AppState = axum::extract::State<Arc<App>>;

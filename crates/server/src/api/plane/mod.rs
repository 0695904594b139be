//! The control plane over HTTP: `/v1/jobs`, `/v1/topics`, `/v1/approvals`, `/v1/workflows`, `/v1/runs`.
//!
//! The routes are behind the daemon's gate. The target of a route is the name of the lock that
//! protects it: `job:<id>`, `run:<id>`, `workflow:<name>`. So one scope covers a job and its lock.
//! The rule of a route is its first check; `rights` has the checks on what a request touches besides.

mod approvals;
mod document_watchers;
mod jobs;
mod long_poll;
mod refusal;
mod rights;
mod runs;
mod visible;
mod workers;
mod workflows;

use std::sync::Arc;

use leasehold_plane::{Plane, PlaneQuotas};
use leasehold_wire::ErrorCode;
use utoipa_axum::routes;

use crate::api::document::target_in_body;
use crate::api::problem::Refusal;
use crate::api::routes::RouteTable;
use crate::auth::{Principal, Right, Rule, Target, TargetSource};
use crate::config::Quotas;
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

    /// The control plane, acting for this caller and within its quotas.
    fn plane_for(&self, who: &Principal) -> Result<Plane, Refusal> {
        let plane = self.served()?.plane.acting_for(who.id());
        if who.may(Right::Admin, &Target::Daemon) {
            return Ok(plane);
        }
        let Quotas { jobs, runs, workflows, .. } = self.config.quotas;
        Ok(plane.with_quotas(PlaneQuotas::new(jobs, runs, workflows)))
    }

    /// Whether callers are not told apart, so that all of them are the principal `local`.
    fn is_unauthenticated(&self) -> bool {
        self.config.tokens.is_none() && !self.config.accepts_client_certs()
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
    let one = |right, kind| Rule::new(right, TargetSource::Lock { kind, id: "id" });
    let own = |kinds| Rule::new(Right::Read, TargetSource::VisibleOf(kinds));
    let new_job = |right| Rule::new(right, target_in_body(rights::new_job)).max_body(MAX_PAYLOAD_BODY_BYTES);
    let new_run = Rule::new(Right::Submit, target_in_body(rights::new_run)).max_body(MAX_PAYLOAD_BODY_BYTES);
    // A job may be read and worked on by its id or by its topic, which only the job itself knows.
    let read_job = one(Right::Read, "job").or_by("topic");
    let beat = one(Right::Work, "job").or_by("topic").renewal_budget();
    // The response is the whole job, unlike those of other routes with this budget.
    let result = beat.clone().max_body(MAX_PAYLOAD_BODY_BYTES).large_responses();
    // With rights on jobs only, the claim is limited to those.
    let claim = Rule::new(Right::Work, TargetSource::Lock { kind: "topic", id: "topic" }).or_by("job");
    let repair = one(Right::Approve, "job").max_body(MAX_PAYLOAD_BODY_BYTES);
    let apply = Rule::new(Right::Define, workflows::target()).max_body(MAX_PAYLOAD_BODY_BYTES);
    let workflow = TargetSource::Lock { kind: "workflow", id: "name" };
    table
        .route(own(&["job", "topic"]), routes!(jobs::list))
        .route(new_job(Right::Submit), routes!(jobs::submit))
        .route(new_job(Right::Command), routes!(jobs::submit_command))
        .route(read_job.clone(), routes!(jobs::show))
        .route(read_job, routes!(jobs::history))
        .route(one(Right::Submit, "job"), routes!(jobs::cancel))
        .route(one(Right::Submit, "job"), routes!(jobs::retry))
        .route(claim, routes!(workers::claim))
        .route(beat, routes!(workers::heartbeat))
        .route(result, routes!(workers::result))
        .route(own(&["job", "topic"]), routes!(approvals::list))
        .route(one(Right::Approve, "job"), routes!(approvals::approve))
        .route(one(Right::Approve, "job"), routes!(approvals::reject))
        .route(repair, routes!(approvals::repair))
        .route(apply, routes!(workflows::apply))
        .route(Rule::new(Right::Read, workflow), routes!(workflows::show))
        .route(own(&["run"]), routes!(runs::list))
        .route(new_run, routes!(runs::start))
        .route(one(Right::Read, "run"), routes!(runs::show))
        .route(one(Right::Read, "run"), routes!(runs::timeline))
        .route(one(Right::Submit, "run"), routes!(runs::cancel))
        .route(one(Right::Submit, "run"), routes!(runs::rerun))
}

pub(crate) use document_watchers::DocumentWatchers;

type AppState = axum::extract::State<Arc<App>>;

//! The plane over HTTP: `/v1/jobs`, `/v1/topics`, `/v1/approvals`, `/v1/workflows`, `/v1/runs`.
//!
//! A router without a gate: whoever mounts it says who may use each of [`ROUTES`]. Commands are a power of their own: what
//! a job may be is decided by who may submit it, so jobs that run a command, and workflows, need [`Need::Admin`].
//! Refusals are `application/problem+json` with a code, and with `Retry-After` on the wire where coming again may help.

mod approvals;
mod jobs;
mod reply;
mod runs;

use std::sync::Arc;

use axum::Router;
use axum::routing::{get, post, put};

use crate::plane::Plane;
use crate::scheduler::Scheduler;

/// What a route demands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Need {
    /// Looking.
    Read,
    /// Submitting, working, deciding.
    Act,
    /// Having commands run.
    Admin,
}

/// Every route: method, path, namespace of what it is about, and what it demands.
pub const ROUTES: &[(&str, &str, &str, Need)] = &[
    ("GET", "/v1/jobs", "job", Need::Read),
    ("POST", "/v1/jobs", "job", Need::Act),
    ("POST", "/v1/jobs/commands", "job", Need::Admin),
    ("GET", "/v1/jobs/{id}", "job", Need::Read),
    ("GET", "/v1/jobs/{id}/history", "job", Need::Read),
    ("POST", "/v1/jobs/{id}/cancel", "job", Need::Act),
    ("POST", "/v1/jobs/{id}/retry", "job", Need::Admin),
    ("POST", "/v1/topics/{topic}/claim", "job", Need::Act),
    ("POST", "/v1/jobs/{id}/heartbeat", "job", Need::Act),
    ("POST", "/v1/jobs/{id}/result", "job", Need::Act),
    ("GET", "/v1/approvals", "job", Need::Read),
    ("POST", "/v1/approvals/{id}/approve", "job", Need::Act),
    ("POST", "/v1/approvals/{id}/reject", "job", Need::Act),
    ("POST", "/v1/approvals/{id}/repair", "job", Need::Act),
    ("PUT", "/v1/workflows", "workflow", Need::Admin),
    ("GET", "/v1/runs", "run", Need::Read),
    ("POST", "/v1/runs", "run", Need::Act),
    ("GET", "/v1/runs/{id}", "run", Need::Read),
    ("GET", "/v1/runs/{id}/timeline", "run", Need::Read),
    ("POST", "/v1/runs/{id}/cancel", "run", Need::Act),
    ("POST", "/v1/runs/{id}/rerun", "run", Need::Act),
];

/// What the handlers share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) plane: Plane,
    pub(crate) scheduler: Scheduler,
}

/// The routes, ungated.
pub fn router(plane: Plane, scheduler: Scheduler) -> Router {
    let shared = Arc::new(Shared { plane, scheduler });
    Router::new()
        .route("/v1/jobs", get(jobs::list).post(jobs::submit))
        .route("/v1/jobs/commands", post(jobs::submit_command))
        .route("/v1/jobs/{id}", get(jobs::show))
        .route("/v1/jobs/{id}/history", get(jobs::history))
        .route("/v1/jobs/{id}/cancel", post(jobs::cancel))
        .route("/v1/jobs/{id}/retry", post(jobs::retry))
        .route("/v1/topics/{topic}/claim", post(jobs::claim))
        .route("/v1/jobs/{id}/heartbeat", post(jobs::heartbeat))
        .route("/v1/jobs/{id}/result", post(jobs::result))
        .route("/v1/approvals", get(approvals::list))
        .route("/v1/approvals/{id}/approve", post(approvals::approve))
        .route("/v1/approvals/{id}/reject", post(approvals::reject))
        .route("/v1/approvals/{id}/repair", post(approvals::repair))
        .route("/v1/workflows", put(runs::apply))
        .route("/v1/runs", get(runs::list).post(runs::start))
        .route("/v1/runs/{id}", get(runs::show))
        .route("/v1/runs/{id}/timeline", get(runs::timeline))
        .route("/v1/runs/{id}/cancel", post(runs::cancel))
        .route("/v1/runs/{id}/rerun", post(runs::rerun))
        .with_state(shared)
}

//! `/v1/approvals`: a person approves, rejects, or repairs a job before it runs.

use axum::extract::{Path, State};
use leasehold_plane::approval::DecisionRequest;
use leasehold_plane::job::job_lock_name;
use leasehold_plane::view::{JobView, SCHEMA_VERSION};
use leasehold_wire::Problem;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::{IntoParams, ToSchema};

use super::AppState;
use super::jobs::check_text;
use super::long_poll::parse_limit;
use crate::api::document::{Caller, JsonBody, QueryParams};
use crate::api::policies::require_audited;
use crate::api::problem::Refusal;
use crate::auth::Principal;
use crate::state::app::App;
use crate::state::audit::AuditEntry;

/// The query of the approval list.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct ApprovalQuery {
    /// The maximum number of approvals; 100 if not given.
    #[param(value_type = Option<u32>, minimum = 1, maximum = 1000)]
    limit: Option<String>,
}

/// The jobs that wait for a decision.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Approvals {
    /// Increases when a field changes its meaning.
    schema_version: u32,
    /// The waiting jobs.
    approvals: Vec<JobView>,
}

/// A decision: the person and the reason.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Decide {
    /// The person; the caller's identity if not given. Required if the daemon does not identify its
    /// callers.
    #[schema(min_length = 1, max_length = 512)]
    by: Option<String>,
    /// The reason; appears in the history and the audit log.
    #[schema(min_length = 1, max_length = 512)]
    reason: String,
    /// The snapshot that the person has seen. A job that was repaired since has another one.
    snapshot: Option<String>,
}

/// A new payload, the person who changed it, and the reason.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Repair {
    /// The payload that replaces the old one.
    payload: Value,
    /// The person, as in a decision.
    #[schema(min_length = 1, max_length = 512)]
    by: Option<String>,
    /// The reason; appears in the history and the audit log.
    #[schema(min_length = 1, max_length = 512)]
    reason: String,
    /// The snapshot that the person has seen.
    snapshot: Option<String>,
}

/// Builds the verdict and records it in the audit log first. If the caller decides on behalf of
/// another person, both are named.
async fn record_verdict(
    app: &App,
    who: &Principal,
    action: &'static str,
    id: &str,
    decide: Decide,
) -> Result<DecisionRequest, Refusal> {
    let by = match decide.by {
        // An identified caller may name another person, but its own id stays visible.
        Some(by) if app.is_unauthenticated() || by == who.id() => by,
        Some(by) => format!("{by} (through {})", who.id()),
        None if app.is_unauthenticated() => {
            let why = "by: must say who decides; this daemon does not authenticate its callers";
            return Err(Refusal::invalid("by", why));
        }
        None => who.id().to_owned(),
    };
    let verdict = DecisionRequest {
        by: check_text("by", by)?,
        reason: check_text("reason", decide.reason)?,
        snapshot: decide.snapshot,
    };
    let detail = format!("{}: {}", verdict.by, verdict.reason);
    let act = AuditEntry::new(action, who).name(&job_lock_name(id)?).detail(&detail);
    require_audited(app.audit.record_before(act).await)?;
    Ok(verdict)
}

/// List what waits for a person
///
/// Needs `read` on `job`.
#[utoipa::path(
    get, path = "/v1/approvals", tag = "approvals", operation_id = "listApprovals", params(ApprovalQuery),
    responses((status = 200, description = "The jobs", body = Approvals)),
)]
pub(crate) async fn list(
    State(app): AppState,
    QueryParams(which): QueryParams<ApprovalQuery>,
) -> Result<JsonBody<Approvals>, Refusal> {
    let jobs = app.served()?.plane.approvals(parse_limit(which.limit)?).await?;
    Ok(JsonBody(Approvals {
        schema_version: SCHEMA_VERSION,
        approvals: jobs.into_iter().map(JobView::from).collect(),
    }))
}

/// Approve a job
///
/// Needs `hold` on `job:<id>`.
#[utoipa::path(
    post, path = "/v1/approvals/{id}/approve", tag = "approvals", operation_id = "approve", request_body = Decide,
    params(("id" = String, Path, description = "The job", min_length = 1, max_length = 500)),
    responses(
        (status = 200, description = "Approved", body = JobView),
        (status = 404, description = "There is no such job", body = Problem, content_type = "application/problem+json"),
        (status = 409, description = "`already_approved`, `already_rejected` (with `by`), `stale_snapshot`, `terminal`, `not_actionable`; `approval_retryable_lock` with Retry-After", body = Problem, content_type = "application/problem+json"),
        (status = 410, description = "The daemon lost the job's lock meanwhile: retry", body = Problem, content_type = "application/problem+json"),
        (status = 412, description = "`stale_fence`: another client has written since", body = Problem, content_type = "application/problem+json"),
    ),
)]
pub(crate) async fn approve(
    State(app): AppState,
    Caller(who): Caller,
    Path(id): Path<String>,
    JsonBody(decide): JsonBody<Decide>,
) -> Result<JsonBody<JobView>, Refusal> {
    let plane = &app.served()?.plane;
    let verdict = record_verdict(&app, &who, "approval.approve", &id, decide).await?;
    Ok(JsonBody(plane.approve(&id, &verdict).await?.into()))
}

/// Reject a job
///
/// Needs `hold` on `job:<id>`.
#[utoipa::path(
    post, path = "/v1/approvals/{id}/reject", tag = "approvals", operation_id = "reject", request_body = Decide,
    params(("id" = String, Path, description = "The job", min_length = 1, max_length = 500)),
    responses(
        (status = 200, description = "Rejected", body = JobView),
        (status = 404, description = "There is no such job", body = Problem, content_type = "application/problem+json"),
        (status = 409, description = "As for approving", body = Problem, content_type = "application/problem+json"),
        (status = 410, description = "The daemon lost the job's lock meanwhile: retry", body = Problem, content_type = "application/problem+json"),
        (status = 412, description = "`stale_fence`: another client has written since", body = Problem, content_type = "application/problem+json"),
    ),
)]
pub(crate) async fn reject(
    State(app): AppState,
    Caller(who): Caller,
    Path(id): Path<String>,
    JsonBody(decide): JsonBody<Decide>,
) -> Result<JsonBody<JobView>, Refusal> {
    let plane = &app.served()?.plane;
    let verdict = record_verdict(&app, &who, "approval.reject", &id, decide).await?;
    Ok(JsonBody(plane.reject(&id, &verdict).await?.into()))
}

/// Change what a job would do, before it is approved
///
/// The approver must have seen the new version. Needs `hold` on `job:<id>`.
#[utoipa::path(
    post, path = "/v1/approvals/{id}/repair", tag = "approvals", operation_id = "repair", request_body = Repair,
    params(("id" = String, Path, description = "The job", min_length = 1, max_length = 500)),
    responses(
        (status = 200, description = "Repaired", body = JobView),
        (status = 404, description = "There is no such job", body = Problem, content_type = "application/problem+json"),
        (status = 409, description = "As for approving", body = Problem, content_type = "application/problem+json"),
        (status = 410, description = "The daemon lost the job's lock meanwhile: retry", body = Problem, content_type = "application/problem+json"),
        (status = 412, description = "`stale_fence`: another client has written since", body = Problem, content_type = "application/problem+json"),
    ),
)]
pub(crate) async fn repair(
    State(app): AppState,
    Caller(who): Caller,
    Path(id): Path<String>,
    JsonBody(repair): JsonBody<Repair>,
) -> Result<JsonBody<JobView>, Refusal> {
    let plane = &app.served()?.plane;
    let decide = Decide { by: repair.by, reason: repair.reason, snapshot: repair.snapshot };
    let verdict = record_verdict(&app, &who, "approval.repair", &id, decide).await?;
    Ok(JsonBody(plane.repair(&id, repair.payload, &verdict).await?.into()))
}

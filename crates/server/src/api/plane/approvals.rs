//! `/v1/approvals`: a person approves, rejects, or repairs a job before it runs.

use axum::extract::{Path, State};
use leasehold::Name;
use leasehold_plane::approval::DecisionRequest;
use leasehold_plane::job::check_payload;
use leasehold_plane::view::{ApprovalList, DecisionView, SCHEMA_VERSION};
use leasehold_plane::{Job, JobState, Plane, PlaneError};
use leasehold_wire::Problem;
use serde::Deserialize;
use serde_json::Value;
use utoipa::{IntoParams, ToSchema};

use super::AppState;
use super::jobs::check_text;
use super::long_poll::parse_limit;
use super::visible::{list_readable, reads_job, visible_jobs};
use crate::api::document::{Caller, JsonBody, LockName, QueryParams};
use crate::api::error_responses::JobWriteErrors;
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

/// A decision: the person and the reason.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = Decide)]
pub(crate) struct DecisionBody {
    /// The person; the caller's identity if not given. Required if the daemon does not identify its
    /// callers.
    #[schema(min_length = 1, max_length = 512)]
    by: Option<String>,
    /// The reason; appears in the history and the audit log.
    #[schema(min_length = 1, max_length = 512)]
    reason: String,
    /// The snapshot that the person has seen. A job that was repaired since has another one.
    snapshot: String,
}

/// A new payload, the person who changed it, and the reason.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = Repair)]
pub(crate) struct RepairBody {
    /// The payload that replaces the old one.
    payload: Value,
    /// The person, as in a decision.
    #[schema(min_length = 1, max_length = 512)]
    by: Option<String>,
    /// The reason; appears in the history and the audit log.
    #[schema(min_length = 1, max_length = 512)]
    reason: String,
    /// The snapshot that the person has seen.
    snapshot: String,
}

/// Checks the decision, records it in the audit log, then makes it. If the caller decides on behalf of
/// another person, both are named.
async fn decide(
    app: &App,
    who: &Principal,
    action: &'static str,
    (id, name): (&str, &Name),
    body: DecisionBody,
    decide: impl AsyncFnOnce(&Plane, &DecisionRequest) -> Result<Job, PlaneError>,
) -> Result<JsonBody<DecisionView>, Refusal> {
    let plane = &app.served()?.plane.acting_for(who.id());
    let by = match body.by {
        // An identified caller may name another person, but its own id stays visible.
        Some(by) if app.is_unauthenticated() || by == who.id() => by,
        Some(by) => format!("{by} (through {})", who.id()),
        None if app.is_unauthenticated() => {
            let why = "by: must say who decides; this daemon does not authenticate its callers";
            return Err(Refusal::invalid("by", why));
        }
        None => who.id().to_owned(),
    };
    let decision = DecisionRequest {
        by: check_text("by", by)?,
        reason: check_text("reason", body.reason)?,
        snapshot: body.snapshot,
    };
    // First, so that refused decisions leave no audit line. It is checked again under the job's lock.
    plane.check_decision(id, &decision).await?;
    let detail = format!("{}: {}", decision.by, decision.reason);
    let act = AuditEntry::new(action, who).name(name).detail(&detail);
    require_audited(app.audit.record_before(act).await)?;
    let job = decide(plane, &decision).await?;
    // To decide is not to read.
    let view = if reads_job(who, &job) {
        DecisionView::Job(Box::new(job.into()))
    } else {
        DecisionView::Decided(job.into())
    };
    Ok(JsonBody(view))
}

/// List what waits for a person
///
/// Lists the jobs that the caller may read.
#[utoipa::path(
    get, path = "/v1/approvals", tag = "approvals", operation_id = "listApprovals", params(ApprovalQuery),
    responses((status = 200, description = "The jobs", body = ApprovalList)),
)]
pub(crate) async fn list(
    State(app): AppState,
    Caller(who): Caller,
    QueryParams(which): QueryParams<ApprovalQuery>,
) -> Result<JsonBody<ApprovalList>, Refusal> {
    let (plane, limit) = (&app.served()?.plane, parse_limit(which.limit)?);
    let (scope, states) = (visible_jobs(&who), [JobState::ApprovalRequired]);
    let _share = app.take_list_share(&who)?;
    let fetch = |after, size| plane.job_page(&states, None, scope.as_ref(), after, size);
    let (approvals, truncated) = list_readable(limit, |job| reads_job(&who, job), fetch).await?;
    Ok(JsonBody(ApprovalList { schema_version: SCHEMA_VERSION, approvals, truncated }))
}

/// Approve a job
///
/// Needs `approve` on `job:<id>`.
#[utoipa::path(
    post, path = "/v1/approvals/{id}/approve", tag = "approvals", operation_id = "approve", request_body = DecisionBody,
    params(("id" = String, Path, description = "The job", min_length = 1, max_length = 500)),
    responses(
        (status = 200, description = "Approved; the whole job if the caller may read it", body = DecisionView),
        (status = 403, description = "No right, or `self_approval`: the caller submitted or changed the job", body = Problem, content_type = "application/problem+json"),
        (status = 409, description = "`already_approved`, `already_rejected` (with `by`), `stale_snapshot`, `terminal`, `not_actionable`; `approval_retryable_lock` with Retry-After", body = Problem, content_type = "application/problem+json"),
        JobWriteErrors,
    ),
)]
pub(crate) async fn approve(
    State(app): AppState,
    Caller(who): Caller,
    LockName(name): LockName,
    Path(id): Path<String>,
    JsonBody(body): JsonBody<DecisionBody>,
) -> Result<JsonBody<DecisionView>, Refusal> {
    let approve = async |plane: &Plane, decision: &DecisionRequest| plane.approve(&id, decision).await;
    decide(&app, &who, "approval.approve", (&id, &name), body, approve).await
}

/// Reject a job
///
/// Needs `approve` on `job:<id>`.
#[utoipa::path(
    post, path = "/v1/approvals/{id}/reject", tag = "approvals", operation_id = "reject", request_body = DecisionBody,
    params(("id" = String, Path, description = "The job", min_length = 1, max_length = 500)),
    responses(
        (status = 200, description = "Rejected; as for approving", body = DecisionView),
        (status = 403, description = "As for approving", body = Problem, content_type = "application/problem+json"),
        (status = 409, description = "As for approving", body = Problem, content_type = "application/problem+json"),
        JobWriteErrors,
    ),
)]
pub(crate) async fn reject(
    State(app): AppState,
    Caller(who): Caller,
    LockName(name): LockName,
    Path(id): Path<String>,
    JsonBody(body): JsonBody<DecisionBody>,
) -> Result<JsonBody<DecisionView>, Refusal> {
    let reject = async |plane: &Plane, decision: &DecisionRequest| plane.reject(&id, decision).await;
    decide(&app, &who, "approval.reject", (&id, &name), body, reject).await
}

/// Change what a job would do, before it is approved
///
/// The approver must have seen the new version. Needs `approve` on `job:<id>`.
#[utoipa::path(
    post, path = "/v1/approvals/{id}/repair", tag = "approvals", operation_id = "repair", request_body = RepairBody,
    params(("id" = String, Path, description = "The job", min_length = 1, max_length = 500)),
    responses(
        (status = 200, description = "Repaired; as for approving", body = DecisionView),
        (status = 403, description = "As for approving", body = Problem, content_type = "application/problem+json"),
        (status = 409, description = "As for approving", body = Problem, content_type = "application/problem+json"),
        JobWriteErrors,
    ),
)]
pub(crate) async fn repair(
    State(app): AppState,
    Caller(who): Caller,
    LockName(name): LockName,
    Path(id): Path<String>,
    JsonBody(RepairBody { payload, by, reason, snapshot }): JsonBody<RepairBody>,
) -> Result<JsonBody<DecisionView>, Refusal> {
    check_payload(&payload)?;
    let repair = async |plane: &Plane, decision: &DecisionRequest| plane.repair(&id, payload, decision).await;
    decide(&app, &who, "approval.repair", (&id, &name), DecisionBody { by, reason, snapshot }, repair).await
}

//! `/v1/approvals`: a person says yes or no, or mends what is to be run first.

use axum::extract::State;
use leasehold_http::wire::Problem;
use leasehold_plane::approval::Verdict;
use leasehold_plane::job::lock_of;
use leasehold_plane::view::{JobView, SCHEMA};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::{IntoParams, ToSchema};

use super::jobs::said;
use super::looking::limit;
use super::{Daemon, Id};
use crate::app::App;
use crate::audit::Act;
use crate::auth::Principal;
use crate::document::{Asked, Caller, Doc};
use crate::policies::sure;
use crate::problem::Refusal;

/// Which approvals.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct Which {
    /// At most so many; 100 if not given.
    #[param(value_type = Option<u32>, minimum = 1, maximum = 1000)]
    limit: Option<String>,
}

/// What waits for a person.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Approvals {
    /// Grows when a field changes its meaning.
    schema_version: u32,
    /// The jobs.
    approvals: Vec<JobView>,
}

/// Who decides, and why.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Decide {
    /// The person; the caller's own identity if not given. Must be given where nobody is asked who they are.
    #[schema(min_length = 1, max_length = 512)]
    by: Option<String>,
    /// Somebody will want to know.
    #[schema(min_length = 1, max_length = 512)]
    reason: String,
    /// The snapshot that the person has seen; a job that was repaired since has another one.
    snapshot: Option<String>,
}

/// A new payload, who changed it, and why.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Repair {
    /// What the work should know instead.
    payload: Value,
    /// The person, as when deciding.
    #[schema(min_length = 1, max_length = 512)]
    by: Option<String>,
    /// Somebody will want to know.
    #[schema(min_length = 1, max_length = 512)]
    reason: String,
    /// The snapshot that the person has seen.
    snapshot: Option<String>,
}

/// The verdict, on the disk of the audit log before it is made. Whoever speaks for another is named with them.
async fn verdict(
    app: &App,
    who: &Principal,
    action: &'static str,
    id: &str,
    decide: Decide,
) -> Result<Verdict, Refusal> {
    let by = match decide.by {
        Some(by) if app.anonymous() || by == who.id() => by,
        Some(by) => format!("{by} (through {})", who.id()),
        None if app.anonymous() => {
            let why = "by: must say who decides; this daemon asks nobody who they are";
            return Err(Refusal::invalid("by", why));
        }
        None => who.id().to_owned(),
    };
    let verdict = Verdict {
        by: said("by", by)?,
        reason: said("reason", decide.reason)?,
        snapshot: decide.snapshot,
    };
    let detail = format!("{}: {}", verdict.by, verdict.reason);
    let act = Act::new(action, who).name(&lock_of(id)?).detail(&detail);
    sure(app.audit.before(act).await)?;
    Ok(verdict)
}

/// List what waits for a person
///
/// Needs `read` on `job`.
#[utoipa::path(
    get, path = "/v1/approvals", tag = "approvals", operation_id = "listApprovals", params(Which), extensions(("x-role" = json!("read"))),
    responses((status = 200, description = "The jobs", body = Approvals)),
)]
pub(crate) async fn list(State(app): Daemon, Asked(which): Asked<Which>) -> Result<Doc<Approvals>, Refusal> {
    let jobs = app.served()?.plane.approvals(limit(which.limit)?).await?;
    Ok(Doc(Approvals {
        schema_version: SCHEMA,
        approvals: jobs.into_iter().map(JobView::from).collect(),
    }))
}

/// Approve a job
///
/// Needs `hold` on `job:<id>`.
#[utoipa::path(
    post, path = "/v1/approvals/{id}/approve", tag = "approvals", operation_id = "approve", request_body = Decide, extensions(("x-role" = json!("hold"))),
    params(("id" = String, Path, description = "The job", min_length = 1, max_length = 500)),
    responses(
        (status = 200, description = "Approved", body = JobView),
        (status = 404, description = "There is no such job", body = Problem, content_type = "application/problem+json"),
        (status = 409, description = "`already_approved`, `already_rejected` (with `by`), `stale_snapshot`, `terminal`, `not_actionable`; `approval_retryable_lock` with Retry-After", body = Problem, content_type = "application/problem+json"),
        (status = 410, description = "The daemon lost the job's lock meanwhile: come again", body = Problem, content_type = "application/problem+json"),
        (status = 412, description = "`stale_fence`: someone else has written since", body = Problem, content_type = "application/problem+json"),
    ),
)]
pub(crate) async fn approve(
    State(app): Daemon,
    Caller(who): Caller,
    Id(id): Id,
    Doc(decide): Doc<Decide>,
) -> Result<Doc<JobView>, Refusal> {
    let plane = &app.served()?.plane;
    let verdict = verdict(&app, &who, "approval.approve", &id, decide).await?;
    Ok(Doc(plane.approve(&id, &verdict).await?.into()))
}

/// Reject a job
///
/// Needs `hold` on `job:<id>`.
#[utoipa::path(
    post, path = "/v1/approvals/{id}/reject", tag = "approvals", operation_id = "reject", request_body = Decide, extensions(("x-role" = json!("hold"))),
    params(("id" = String, Path, description = "The job", min_length = 1, max_length = 500)),
    responses(
        (status = 200, description = "Rejected", body = JobView),
        (status = 404, description = "There is no such job", body = Problem, content_type = "application/problem+json"),
        (status = 409, description = "As for approving", body = Problem, content_type = "application/problem+json"),
        (status = 410, description = "The daemon lost the job's lock meanwhile: come again", body = Problem, content_type = "application/problem+json"),
        (status = 412, description = "`stale_fence`: someone else has written since", body = Problem, content_type = "application/problem+json"),
    ),
)]
pub(crate) async fn reject(
    State(app): Daemon,
    Caller(who): Caller,
    Id(id): Id,
    Doc(decide): Doc<Decide>,
) -> Result<Doc<JobView>, Refusal> {
    let plane = &app.served()?.plane;
    let verdict = verdict(&app, &who, "approval.reject", &id, decide).await?;
    Ok(Doc(plane.reject(&id, &verdict).await?.into()))
}

/// Change what a job would do, before it is approved
///
/// Whoever approves it must have seen the new version. Needs `hold` on `job:<id>`.
#[utoipa::path(
    post, path = "/v1/approvals/{id}/repair", tag = "approvals", operation_id = "repair", request_body = Repair, extensions(("x-role" = json!("hold"))),
    params(("id" = String, Path, description = "The job", min_length = 1, max_length = 500)),
    responses(
        (status = 200, description = "Repaired", body = JobView),
        (status = 404, description = "There is no such job", body = Problem, content_type = "application/problem+json"),
        (status = 409, description = "As for approving", body = Problem, content_type = "application/problem+json"),
        (status = 410, description = "The daemon lost the job's lock meanwhile: come again", body = Problem, content_type = "application/problem+json"),
        (status = 412, description = "`stale_fence`: someone else has written since", body = Problem, content_type = "application/problem+json"),
    ),
)]
pub(crate) async fn repair(
    State(app): Daemon,
    Caller(who): Caller,
    Id(id): Id,
    Doc(repair): Doc<Repair>,
) -> Result<Doc<JobView>, Refusal> {
    let plane = &app.served()?.plane;
    let decide = Decide {
        by: repair.by,
        reason: repair.reason,
        snapshot: repair.snapshot,
    };
    let verdict = verdict(&app, &who, "approval.repair", &id, decide).await?;
    Ok(Doc(plane.repair(&id, repair.payload, &verdict).await?.into()))
}

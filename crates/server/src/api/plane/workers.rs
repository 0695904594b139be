//! `/v1/topics/{topic}/claim`, heartbeats and results: workers in any language serve a topic.

use axum::extract::{Path, State};
use leasehold::{Fence, Name};
use leasehold_plane::Job;
use leasehold_plane::scheduler::{Claim, ClaimRequest};
use leasehold_plane::view::{JobView, SCHEMA_VERSION};
use leasehold_wire::{Problem, Secret, millis};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use super::AppState;
use super::jobs::check_text;
use super::rights::require_found_job;
use super::visible::{workable_jobs, works_on_job};
use crate::api::document::{Caller, JsonBody};
use crate::api::error_responses::JobWriteErrors;
use crate::api::problem::Refusal;
use crate::auth::Right;

/// The worker that asks for a job.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = Worker)]
pub(crate) struct ClaimBody {
    /// The worker's name; appears in the job's history.
    #[schema(min_length = 1, max_length = 512)]
    worker: String,
}

/// The outcome of a claim.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ClaimView {
    /// Increases when a field changes its meaning.
    schema_version: u32,
    /// The claim to present with each further call; missing if there is no work.
    claim: Option<ClaimToken>,
    /// The claimed job; missing if there is no work.
    #[serde(skip_serializing_if = "Option::is_none")]
    job: Option<JobView>,
    /// A heartbeat or a result must arrive within this time.
    #[serde(skip_serializing_if = "Option::is_none")]
    heartbeat_ms: Option<u64>,
}

/// The claim that a worker presents with each further call.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Claim)]
pub(crate) struct ClaimToken {
    /// The job's id.
    job: String,
    /// The attempt that this claim is for.
    attempt: u32,
    /// The fence of the claim. Send it with every write that the work makes elsewhere.
    #[schema(value_type = Option<String>)]
    fence: Option<Fence>,
    /// Proves that a later call comes from this worker. It is shown here only.
    secret: Option<Secret>,
}

/// A heartbeat with the claim it belongs to.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = Beat)]
pub(crate) struct HeartbeatRequest {
    /// The attempt of the claim.
    attempt: u32,
    /// The fence of the claim.
    #[schema(value_type = Option<String>)]
    fence: Option<Fence>,
    /// The secret of the claim. Only claims of earlier versions have none.
    secret: Option<Secret>,
}

/// How the work ended: `done` or `failed`, not both.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = End)]
pub(crate) struct ResultRequest {
    /// The attempt of the claim.
    attempt: u32,
    /// The fence of the claim.
    #[schema(value_type = Option<String>)]
    fence: Option<Fence>,
    /// The secret of the claim. Only claims of earlier versions have none.
    secret: Option<Secret>,
    /// The result of successful work.
    #[serde(default)]
    done: Value,
    /// The reason why the work failed.
    failed: Option<String>,
}

/// The claim is still valid: continue.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Beaten)]
pub(crate) struct HeartbeatView {
    /// Increases when a field changes its meaning.
    schema_version: u32,
    /// The next heartbeat or the result must arrive within this time.
    heartbeat_ms: u64,
}

/// The outcome of a reported result.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = EndView)]
pub(crate) struct ResultView {
    /// The job after the report.
    #[serde(flatten)]
    job: JobView,
    /// True if the job had already ended with this result; nothing was changed.
    repeated: bool,
}

/// Claim a job of a topic
///
/// Needs `work` on `topic:<topic>`. With `work` on some jobs only, the claim is limited to those.
#[utoipa::path(
    post, path = "/v1/topics/{topic}/claim", tag = "workers", operation_id = "claimJob", request_body = ClaimBody,
    params(("topic" = String, Path, description = "Which work", min_length = 1, max_length = 512)),
    responses((status = 200, description = "A job, or none", body = ClaimView)),
)]
pub(crate) async fn claim(
    State(app): AppState,
    Caller(who): Caller,
    Path(topic): Path<String>,
    JsonBody(ClaimBody { worker }): JsonBody<ClaimBody>,
) -> Result<JsonBody<ClaimView>, Refusal> {
    Name::new(&topic).map_err(|invalid| Refusal::invalid("topic", invalid.to_string()))?;
    let worker = check_text("worker", worker)?;
    let works = |job: &Job| works_on_job(&who, job);
    let scope = workable_jobs(&who, &topic);
    let mut request = ClaimRequest::new(&topic, &worker).principal(who.id()).filter(&works);
    if let Some(scope) = &scope {
        request = request.scope(scope);
    }
    let claimed = app.served()?.scheduler.claim(&request).await?;
    let view = match claimed {
        None => ClaimView { schema_version: SCHEMA_VERSION, claim: None, job: None, heartbeat_ms: None },
        Some(claimed) => ClaimView {
            schema_version: SCHEMA_VERSION,
            claim: Some(ClaimToken {
                job: claimed.claim.job,
                attempt: claimed.claim.attempt,
                fence: claimed.claim.fence,
                secret: claimed.claim.secret,
            }),
            heartbeat_ms: Some(millis(claimed.heartbeat)),
            job: Some(claimed.job.into()),
        },
    };
    Ok(JsonBody(view))
}

/// Report that the work continues
///
/// Needs `work` on `job:<id>` or on `topic:<topic>`.
#[utoipa::path(
    post, path = "/v1/jobs/{id}/heartbeat", tag = "workers", operation_id = "heartbeatJob", request_body = HeartbeatRequest,
    params(("id" = String, Path, description = "The job", min_length = 1, max_length = 500)),
    responses(
        (status = 200, description = "Go on", body = HeartbeatView),
        (status = 409, description = "`stale_claim`: stop. `busy`: retry", body = Problem, content_type = "application/problem+json"),
        JobWriteErrors,
    ),
)]
pub(crate) async fn heartbeat(
    State(app): AppState,
    Caller(who): Caller,
    Path(job): Path<String>,
    JsonBody(HeartbeatRequest { attempt, fence, secret }): JsonBody<HeartbeatRequest>,
) -> Result<JsonBody<HeartbeatView>, Refusal> {
    require_found_job(&app, &who, Right::Work, &job, works_on_job).await?;
    let claim = Claim::new(job, attempt, fence).with_secret(secret).with_principal(who.id());
    let next = app.served()?.scheduler.heartbeat(&claim).await?;
    Ok(JsonBody(HeartbeatView { schema_version: SCHEMA_VERSION, heartbeat_ms: millis(next) }))
}

/// Report how the work ended
///
/// Idempotent: a repeated report counts once. Needs `work` on `job:<id>` or on `topic:<topic>`.
#[utoipa::path(
    post, path = "/v1/jobs/{id}/result", tag = "workers", operation_id = "reportResult", request_body = ResultRequest,
    params(("id" = String, Path, description = "The job", min_length = 1, max_length = 500)),
    responses(
        (status = 200, description = "Written", body = ResultView),
        (status = 409, description = "`stale_claim`: another worker has it now. `busy`: retry", body = Problem, content_type = "application/problem+json"),
        JobWriteErrors,
    ),
)]
pub(crate) async fn result(
    State(app): AppState,
    Caller(who): Caller,
    Path(job): Path<String>,
    JsonBody(end): JsonBody<ResultRequest>,
) -> Result<JsonBody<ResultView>, Refusal> {
    require_found_job(&app, &who, Right::Work, &job, works_on_job).await?;
    let claim = Claim::new(job, end.attempt, end.fence).with_secret(end.secret).with_principal(who.id());
    let result = match (end.done, end.failed) {
        (done, None) => Ok(done),
        (Value::Null, Some(why)) => Err(check_text("failed", why)?),
        (_, Some(_)) => {
            let why = "done: must not be there together with `failed`; it is one or the other";
            return Err(Refusal::invalid("done", why));
        }
    };
    let reported = app.served()?.scheduler.report(&claim, result).await?;
    Ok(JsonBody(ResultView { job: reported.job.into(), repeated: reported.repeated }))
}

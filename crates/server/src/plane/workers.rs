//! `/v1/topics/{topic}/claim` and what follows it: agents in any language serve a topic.

use axum::extract::{FromRequestParts, State};
use http::request::Parts;
use leasehold::{Fence, Name};
use leasehold_http::wire::{Problem, millis};
use leasehold_plane::scheduler::Claim;
use leasehold_plane::view::{JobView, SCHEMA};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use super::jobs::said;
use super::{Daemon, Id};
use crate::document::{Doc, parameter};
use crate::problem::Refusal;

/// The path's `{topic}`.
pub(crate) struct Topic(String);

impl<S: Send + Sync> FromRequestParts<S> for Topic {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Refusal> {
        let topic = parameter(parts, state, "topic").await?;
        Name::new(&topic).map_err(|invalid| Refusal::invalid("topic", invalid.to_string()))?;
        Ok(Self(topic))
    }
}

/// Who asks for work.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Worker {
    /// Stands in the job's history.
    #[schema(min_length = 1, max_length = 512)]
    worker: String,
}

/// What came of a claim.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ClaimView {
    /// Grows when a field changes its meaning.
    schema_version: u32,
    /// What to show with each further call; none if there is no work.
    claim: Option<Token>,
    /// The job.
    #[serde(skip_serializing_if = "Option::is_none")]
    job: Option<JobView>,
    /// A heartbeat or a result must come within this time.
    #[serde(skip_serializing_if = "Option::is_none")]
    heartbeat_ms: Option<u64>,
}

/// What a worker shows with each further call.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Claim)]
pub(crate) struct Token {
    /// The job.
    job: String,
    /// Which attempt at it.
    attempt: u32,
    /// The fence it was claimed under. Send it with whatever the work writes elsewhere.
    #[schema(value_type = Option<String>)]
    fence: Option<Fence>,
}

/// The claim, shown.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Beat {
    /// Which attempt.
    attempt: u32,
    /// The fence of the claim.
    #[schema(value_type = Option<String>)]
    fence: Option<Fence>,
}

/// How the work ended: `done` or `failed`, not both.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct End {
    /// Which attempt.
    attempt: u32,
    /// The fence of the claim.
    #[schema(value_type = Option<String>)]
    fence: Option<Fence>,
    /// Well, with this result.
    #[serde(default)]
    done: Value,
    /// Not well, for this reason.
    failed: Option<String>,
}

/// Go on.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Beaten {
    /// Grows when a field changes its meaning.
    schema_version: u32,
    /// The next heartbeat or the result must come within this time.
    heartbeat_ms: u64,
}

/// What came of a result.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct EndView {
    /// The job afterwards.
    #[serde(flatten)]
    job: JobView,
    /// It had ended already; nothing was changed.
    repeated: bool,
}

/// Claim a job of a topic
///
/// Needs `hold` on `job`.
#[utoipa::path(
    post, path = "/v1/topics/{topic}/claim", tag = "workers", operation_id = "claimJob", request_body = Worker, extensions(("x-role" = json!("hold"))),
    params(("topic" = String, Path, description = "Which work", min_length = 1, max_length = 512)),
    responses((status = 200, description = "A job, or none", body = ClaimView)),
)]
pub(crate) async fn claim(
    State(app): Daemon,
    Topic(topic): Topic,
    Doc(Worker { worker }): Doc<Worker>,
) -> Result<Doc<ClaimView>, Refusal> {
    let worker = said("worker", worker)?;
    let claimed = app.served()?.scheduler.claim(&topic, &worker).await?;
    let view = match claimed {
        None => ClaimView {
            schema_version: SCHEMA,
            claim: None,
            job: None,
            heartbeat_ms: None,
        },
        Some(claimed) => ClaimView {
            schema_version: SCHEMA,
            claim: Some(Token {
                job: claimed.claim.job,
                attempt: claimed.claim.attempt,
                fence: claimed.claim.fence,
            }),
            heartbeat_ms: Some(millis(claimed.heartbeat)),
            job: Some(claimed.job.into()),
        },
    };
    Ok(Doc(view))
}

/// Say that the work goes on
///
/// Needs `hold` on `job:<id>`.
#[utoipa::path(
    post, path = "/v1/jobs/{id}/heartbeat", tag = "workers", operation_id = "heartbeatJob", request_body = Beat, extensions(("x-role" = json!("hold"))),
    params(("id" = String, Path, description = "The job", min_length = 1, max_length = 500)),
    responses(
        (status = 200, description = "Go on", body = Beaten),
        (status = 404, description = "There is no such job", body = Problem, content_type = "application/problem+json"),
        (status = 409, description = "`stale_claim`: stop. `busy`: come again", body = Problem, content_type = "application/problem+json"),
        (status = 410, description = "The daemon lost the job's lock meanwhile: say it again", body = Problem, content_type = "application/problem+json"),
        (status = 412, description = "`stale_fence`: someone else has written since", body = Problem, content_type = "application/problem+json"),
    ),
)]
pub(crate) async fn heartbeat(
    State(app): Daemon,
    Id(job): Id,
    Doc(Beat { attempt, fence }): Doc<Beat>,
) -> Result<Doc<Beaten>, Refusal> {
    let claim = Claim { job, attempt, fence };
    let next = app.served()?.scheduler.heartbeat(&claim).await?;
    Ok(Doc(Beaten {
        schema_version: SCHEMA,
        heartbeat_ms: millis(next),
    }))
}

/// Say how the work ended
///
/// Said twice, it counts once. Needs `hold` on `job:<id>`.
#[utoipa::path(
    post, path = "/v1/jobs/{id}/result", tag = "workers", operation_id = "reportResult", request_body = End, extensions(("x-role" = json!("hold"))),
    params(("id" = String, Path, description = "The job", min_length = 1, max_length = 500)),
    responses(
        (status = 200, description = "Written", body = EndView),
        (status = 404, description = "There is no such job", body = Problem, content_type = "application/problem+json"),
        (status = 409, description = "`stale_claim`: it is someone else's now. `busy`: say it again", body = Problem, content_type = "application/problem+json"),
        (status = 410, description = "The daemon lost the job's lock meanwhile: say it again", body = Problem, content_type = "application/problem+json"),
        (status = 412, description = "`stale_fence`: someone else has written since", body = Problem, content_type = "application/problem+json"),
    ),
)]
pub(crate) async fn result(
    State(app): Daemon,
    Id(job): Id,
    Doc(end): Doc<End>,
) -> Result<Doc<EndView>, Refusal> {
    let claim = Claim {
        job,
        attempt: end.attempt,
        fence: end.fence,
    };
    let result = match (end.done, end.failed) {
        (done, None) => Ok(done),
        (Value::Null, Some(why)) => Err(said("failed", why)?),
        (_, Some(_)) => {
            let why = "done: must not be there together with `failed`; it is one or the other";
            return Err(Refusal::invalid("done", why));
        }
    };
    let reported = app.served()?.scheduler.report(&claim, result).await?;
    Ok(Doc(EndView {
        job: reported.job.into(),
        repeated: reported.repeated,
    }))
}

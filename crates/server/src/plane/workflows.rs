//! `/v1/workflows`: what runs are made of.

use axum::extract::{FromRequest, FromRequestParts, Request, State};
use http::header::CONTENT_TYPE;
use http::request::Parts;
use http::{HeaderValue, StatusCode};
use http_body_util::BodyExt;
use leasehold_http::wire::Problem;
use leasehold_plane::view::SCHEMA;
use leasehold_plane::workflow::{Workflow, parse};
use serde::Serialize;
use utoipa::ToSchema;

use super::Daemon;
use crate::audit::Act;
use crate::document::{Caller, Doc, parameter};
use crate::policies::sure;
use crate::problem::Refusal;

/// A workflow's file.
pub(crate) struct File(String);

impl<S: Send + Sync> FromRequest<S> for File {
    type Rejection = Refusal;

    async fn from_request(request: Request, _: &S) -> Result<Self, Refusal> {
        let kind = request.headers().get(CONTENT_TYPE).map(HeaderValue::as_bytes);
        let kind = kind.unwrap_or_default().split(|byte| *byte == b';').next();
        if !kind.is_some_and(|kind| kind.trim_ascii().eq_ignore_ascii_case(b"application/toml")) {
            return Err(Refusal::new(
                StatusCode::UNSUPPORTED_MEDIA_TYPE,
                "unsupported_media_type",
                "the body must be the workflow's file; send content-type: application/toml",
            ));
        }
        // The gate has read it already, within its limits.
        let cut = |_| Refusal::new(StatusCode::BAD_REQUEST, "bad_request", "the body was cut off");
        let body = request.into_body().collect().await.map_err(cut)?.to_bytes();
        let text = String::from_utf8(body.into());
        text.map(Self)
            .map_err(|_| Refusal::invalid("body", "the body must be TOML in UTF-8"))
    }
}

/// The path's `{name}`.
pub(crate) struct WorkflowName(String);

impl<S: Send + Sync> FromRequestParts<S> for WorkflowName {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Refusal> {
        parameter(parts, state, "name").await.map(Self)
    }
}

/// What was put there.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Applied {
    /// Grows when a field changes its meaning.
    schema_version: u32,
    /// The workflow.
    name: String,
    /// Its version; the same as before if nothing was changed.
    version: u64,
}

/// Put a workflow there, or its next version
///
/// The body is the workflow's TOML file. Runs under way keep the version they began with. Needs `admin` on `workflow`.
#[utoipa::path(
    put, path = "/v1/workflows", tag = "workflows", operation_id = "applyWorkflow", extensions(("x-role" = json!("admin"))),
    request_body(content = String, content_type = "application/toml", description = "The file"),
    responses(
        (status = 200, description = "In force for the runs to come", body = Applied),
        (status = 409, description = "Someone else changes it at this moment: see Retry-After", body = Problem, content_type = "application/problem+json"),
        (status = 410, description = "The daemon lost the workflow's lock meanwhile: come again", body = Problem, content_type = "application/problem+json"),
        (status = 412, description = "`stale_fence`: someone else has written since", body = Problem, content_type = "application/problem+json"),
        (status = 415, description = "The body is not TOML", body = Problem, content_type = "application/problem+json"),
    ),
)]
pub(crate) async fn apply(
    State(app): Daemon,
    Caller(who): Caller,
    File(text): File,
) -> Result<Doc<Applied>, Refusal> {
    let workflow = parse("body", &text)?;
    let plane = &app.served()?.plane;
    let act = Act::new("workflow.apply", &who).detail(&workflow.name);
    sure(app.audit.before(act).await)?;
    let version = plane.apply_workflow(&workflow).await?;
    Ok(Doc(Applied {
        schema_version: SCHEMA,
        name: workflow.name,
        version,
    }))
}

/// Look at a workflow
///
/// Needs `read` on `workflow:<name>`.
#[utoipa::path(
    get, path = "/v1/workflows/{name}", tag = "workflows", operation_id = "showWorkflow", extensions(("x-role" = json!("read"))),
    params(("name" = String, Path, description = "The workflow", min_length = 1, max_length = 500)),
    responses(
        (status = 200, description = "The version in force", body = Workflow),
        (status = 404, description = "There is no such workflow", body = Problem, content_type = "application/problem+json"),
    ),
)]
pub(crate) async fn show(
    State(app): Daemon,
    WorkflowName(name): WorkflowName,
) -> Result<Doc<Workflow>, Refusal> {
    Ok(Doc(app.served()?.plane.workflow(&name).await?))
}

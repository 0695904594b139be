//! `/v1/workflows`: the definitions that runs follow.

use std::sync::Arc;

use axum::extract::{FromRequestParts, Path, State};
use http::HeaderValue;
use http::header::CONTENT_TYPE;
use http::request::Parts;
use leasehold_plane::view::{AppliedWorkflow, SCHEMA_VERSION};
use leasehold_plane::workflow::{Workflow, parse};
use leasehold_wire::{ErrorCode, Problem};

use super::AppState;
use super::rights::require_definition_rights;
use crate::api::document::{Caller, JsonBody};
use crate::api::policies::require_audited;
use crate::api::problem::Refusal;
use crate::auth::{Target, TargetSource, name_of};
use crate::state::audit::AuditEntry;

/// The target is the workflow that the TOML file in the body names.
pub(super) fn target() -> TargetSource {
    TargetSource::Document(Arc::new(|body, documents| {
        let text = std::str::from_utf8(body);
        let text = text.map_err(|_| Refusal::invalid("body", "the body must be TOML in UTF-8"))?;
        let workflow = parse("body", text)?;
        let target = Target::Name(name_of("name", "workflow", &workflow.name)?);
        documents.insert(workflow);
        Ok(target)
    }))
}

/// The workflow of the request body, as the gate has parsed and authorized it.
pub(crate) struct WorkflowFile(Workflow);

impl<S: Send + Sync> FromRequestParts<S> for WorkflowFile {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Refusal> {
        let kind = parts.headers.get(CONTENT_TYPE).map(HeaderValue::as_bytes);
        let kind = kind.unwrap_or_default().split(|byte| *byte == b';').next();
        if !kind.is_some_and(|kind| kind.trim_ascii().eq_ignore_ascii_case(b"application/toml")) {
            return Err(Refusal::new(
                ErrorCode::UnsupportedMediaType,
                "the body must be the workflow's file; send content-type: application/toml",
            ));
        }
        parts.extensions.remove().map(Self).ok_or_else(|| Refusal::forbidden("do anything"))
    }
}

/// Create a workflow or its next version
///
/// The body is the workflow's TOML file. Runs in progress keep the version they began with. Needs
/// `define` on `workflow:<name>`, `submit` on `topic:<topic>` of each step that names one, and `command`
/// on `workflow:<name>` if a step runs a command.
#[utoipa::path(
    put, path = "/v1/workflows", tag = "workflows", operation_id = "applyWorkflow",
    request_body(content = String, content_type = "application/toml", description = "The file"),
    responses(
        (status = 200, description = "In force for the runs to come", body = AppliedWorkflow),
        (status = 409, description = "Another client changes it at this moment: see Retry-After", body = Problem, content_type = "application/problem+json"),
        (status = 410, description = "The daemon lost the workflow's lock meanwhile: retry", body = Problem, content_type = "application/problem+json"),
        (status = 412, description = "`stale_fence`: another client has written since", body = Problem, content_type = "application/problem+json"),
        (status = 415, description = "The body is not TOML", body = Problem, content_type = "application/problem+json"),
    ),
)]
pub(crate) async fn apply(
    State(app): AppState,
    Caller(who): Caller,
    WorkflowFile(workflow): WorkflowFile,
) -> Result<JsonBody<AppliedWorkflow>, Refusal> {
    require_definition_rights(&who, &workflow)?;
    let plane = app.plane_for(&who)?;
    // First, so that a definition that is refused, or in force already, leaves no audit line.
    let version = match plane.check_workflow(&workflow).await? {
        Some(version) => version,
        None => {
            let act = AuditEntry::new("workflow.apply", &who).detail(&workflow.name);
            require_audited(app.audit.record_before(act).await)?;
            plane.apply_workflow(&workflow).await?
        }
    };
    Ok(JsonBody(AppliedWorkflow { schema_version: SCHEMA_VERSION, name: workflow.name, version }))
}

/// Show a workflow
///
/// Needs `read` on `workflow:<name>`.
#[utoipa::path(
    get, path = "/v1/workflows/{name}", tag = "workflows", operation_id = "showWorkflow",
    params(("name" = String, Path, description = "The workflow", min_length = 1, max_length = 500)),
    responses(
        (status = 200, description = "The version in force", body = Workflow),
        (status = 404, description = "There is no such workflow", body = Problem, content_type = "application/problem+json"),
    ),
)]
pub(crate) async fn show(
    State(app): AppState,
    Path(name): Path<String>,
) -> Result<JsonBody<Workflow>, Refusal> {
    Ok(JsonBody(app.served()?.plane.workflow(&name).await?))
}

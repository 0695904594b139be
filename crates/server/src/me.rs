//! `GET /v1/me`: who the caller is, and what it may do.

use serde::Serialize;
use utoipa::ToSchema;

use crate::document::{Caller, Doc};

/// The caller.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Me {
    /// As logs and the audit log name it.
    id: String,
    /// What it may do, as `role:scope`: `hold:job`, `admin:*`.
    grants: Vec<String>,
}

/// Who am I?
#[utoipa::path(
    get, path = "/v1/me", tag = "daemon", operation_id = "whoAmI",
    responses((status = 200, description = "The caller and its rights", body = Me)),
)]
pub(crate) async fn show(Caller(who): Caller) -> Doc<Me> {
    Doc(Me {
        id: who.id().to_owned(),
        grants: who.grants().iter().map(ToString::to_string).collect(),
    })
}

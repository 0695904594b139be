//! `GET /v1/me`: the caller's identity and grants.

use serde::Serialize;
use utoipa::ToSchema;

use crate::api::document::{Caller, JsonBody};

/// The caller and its rights.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Me {
    /// The caller's id, as logs and the audit log show it.
    id: String,
    /// The caller's grants as `role:scope`: `hold:job`, `admin:*`.
    grants: Vec<String>,
}

/// Who am I?
#[utoipa::path(
    get, path = "/v1/me", tag = "daemon", operation_id = "whoAmI",
    responses((status = 200, description = "The caller and its rights", body = Me)),
)]
pub(crate) async fn show(Caller(who): Caller) -> JsonBody<Me> {
    JsonBody(Me { id: who.id().to_owned(), grants: who.grants().iter().map(ToString::to_string).collect() })
}

//! `GET /v1/me`: the caller's identity and grants.

use leasehold_wire::WhoAmI;

use crate::api::document::{Caller, JsonBody};

/// Who am I?
#[utoipa::path(
    get, path = "/v1/me", tag = "daemon", operation_id = "whoAmI",
    responses((status = 200, description = "The caller and its rights", body = WhoAmI)),
)]
pub(crate) async fn show(Caller(who): Caller) -> JsonBody<WhoAmI> {
    JsonBody(WhoAmI {
        id: who.id().to_owned(),
        grants: who.grants().iter().map(ToString::to_string).collect(),
    })
}

//! Counts large responses until their peers have taken them.
//!
//! A response is complete in memory before its first byte is sent, and a slow reader keeps it there.

use std::time::Duration;

use axum::body::{Body, Bytes, HttpBody};
use axum::response::{IntoResponse, Response};
use http::Method;
use http_body_util::BodyExt;
use leasehold_wire::ErrorCode;

use super::{Budget, Principal, Rule};
use crate::problem::Refusal;
use crate::state::app::App;
use crate::state::shares::Share;

// Smaller ones are bounded by the number of connections, and most responses are.
const MIN_COUNTED_BYTES: usize = 16 * 1024;

/// A body in memory. hyper may keep its bytes after it has dropped the body itself.
struct CountedBytes {
    bytes: Bytes,
    _share: Share,
}

impl AsRef<[u8]> for CountedBytes {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// Refuses a request of a caller whose earlier responses use up its share. Renewals and heartbeats are
/// never refused: their responses are small.
pub(super) fn check_responses(app: &App, rule: &Rule, who: &Principal) -> Result<(), Refusal> {
    let counted = rule.right.is_some() && rule.budget != Budget::Renewals;
    if counted && app.response_bytes.is_used_up(who.id()) {
        return Err(too_many_responses());
    }
    Ok(())
}

/// Counts the response to the caller until the connection has sent it. A response beyond the share is
/// replaced by a refusal, unless the request has changed something: then the caller needs to know it.
pub(super) async fn count_response(app: &App, who: &str, method: &Method, response: Response) -> Response {
    let length = response.body().size_hint().exact().and_then(|length| usize::try_from(length).ok());
    let Some(length) = length.filter(|length| *length > MIN_COUNTED_BYTES) else {
        return response;
    };
    let mut share = app.response_bytes.empty_share(who);
    if !share.grow(length) {
        if method == Method::GET {
            return too_many_responses().into_response();
        }
        share.grow_beyond(length);
    }
    let (parts, body) = response.into_parts();
    // A body of known length is in memory, so this neither waits nor copies.
    let Ok(body) = body.collect().await else {
        return Refusal::new(ErrorCode::Internal, "the response was cut off").into_response();
    };
    let counted = CountedBytes { bytes: body.to_bytes(), _share: share };
    Response::from_parts(parts, Body::from(Bytes::from_owner(counted)))
}

fn too_many_responses() -> Refusal {
    Refusal::new(
        ErrorCode::TooManyResponses,
        "the responses that clients have not taken yet are too much in sum, or those of this client: read them, or ask for \
         fewer entries with limit, and retry later",
    )
    .retry_after(Duration::from_secs(1))
}

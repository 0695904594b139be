//! Counts large responses until their peers have taken them.
//!
//! A response is complete in memory before its first byte is sent, and a slow reader keeps it there.

use std::time::Duration;

use axum::body::{Body, Bytes, HttpBody};
use axum::response::{IntoResponse, Response};
use http::Method;
use http_body_util::BodyExt;
use leasehold::store::StoreErrorKind;
use leasehold_wire::ErrorCode;

use super::{Principal, Rule};
use crate::problem::Refusal;
use crate::state::app::App;
use crate::state::shares::Share;

// Smaller ones are bounded by the number of connections, and most responses are.
const MIN_COUNTED_BYTES: usize = 16 * 1024;

/// A body in memory. hyper may keep its bytes after it has dropped the body itself.
struct CountedBytes {
    bytes: Bytes,
    _shares: [Share; 2],
}

impl AsRef<[u8]> for CountedBytes {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// Refuses a request of a caller whose earlier responses use up its share. Renewals and heartbeats are
/// never refused.
pub(super) fn check_responses(app: &App, rule: &Rule, who: &Principal) -> Result<(), Refusal> {
    let counted = rule.right.is_some() && !rule.small_responses;
    if counted && app.response_bytes.is_used_up(who.id()) {
        return Err(too_many_responses());
    }
    Ok(())
}

/// Counts the response to the caller until the connection has sent it. A response beyond the share is
/// replaced by a refusal. If the request has changed something, the caller needs to know it: such a response
/// uses up the share, and a second share of the same size bounds those that are made at the same time.
pub(super) async fn count_response(
    app: &App,
    who: &str,
    method: &Method,
    small_responses: bool,
    response: Response,
) -> Response {
    let length = response.body().size_hint().exact().and_then(|length| usize::try_from(length).ok());
    let Some(length) = length.filter(|length| *length > MIN_COUNTED_BYTES) else {
        return response;
    };
    let mut share = app.response_bytes.empty_share(who);
    let mut excess = app.excess_response_bytes.empty_share(who);
    if !share.grow(length) {
        if method == Method::GET {
            return too_many_responses().into_response();
        }
        let rest = share.grow_to_limit(length);
        // The response to a renewal must arrive, and its length is bounded by the route.
        if excess.grow_to_limit(rest) > 0 && !small_responses {
            return dropped_response().into_response();
        }
    }
    let (parts, body) = response.into_parts();
    // A body of known length is in memory, so this neither waits nor copies.
    let Ok(body) = body.collect().await else {
        return Refusal::new(ErrorCode::Internal, "the response was cut off").into_response();
    };
    let counted = CountedBytes { bytes: body.to_bytes(), _shares: [share, excess] };
    Response::from_parts(parts, Body::from(Bytes::from_owner(counted)))
}

/// In place of a response that is too much. Not `too_many_responses`, which says that nothing was done.
fn dropped_response() -> Refusal {
    Refusal::new(
        ErrorCode::Unavailable,
        "this request was carried out, but its response was dropped, because too many responses to this client were not taken \
         yet: read them, and then read what this request has done",
    )
    .retry_after(Duration::from_secs(1))
    .with(|problem| {
        problem.cause = Some(StoreErrorKind::Overloaded.to_string());
        problem.unknown = Some(true);
    })
}

fn too_many_responses() -> Refusal {
    Refusal::new(
        ErrorCode::TooManyResponses,
        "the responses that clients have not taken yet are too much in sum, or those of this client: read them, or ask for \
         fewer entries with limit, and retry later",
    )
    .retry_after(Duration::from_secs(1))
}

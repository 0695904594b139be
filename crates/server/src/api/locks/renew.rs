//! `POST /v1/locks/{name}/renew`, and the batch route for many leases of one namespace.

use std::sync::Arc;

use axum::extract::{Path, State};
use leasehold::store::{RenewRequest, RenewResponse};
use leasehold::{Name, Ttl};
use leasehold_wire::{Problem, Renew, RenewBatch, RenewItem, Renewals, RenewedView, millis};

use super::{parse_duration, parse_store_timeout, parse_token, parse_ttl};
use crate::api::document::{Caller, JsonBody, LockName};
use crate::api::problem::Refusal;
use crate::state::app::App;

// As the API documents it.
const MAX_BATCH_ITEMS: usize = 200;
// An item has a name of 512 bytes and a token of 226 at most. A client may escape letters, which
// takes up to three times the bytes (`é` as `\u00e9`). The other fields take at most 150.
const MAX_ITEM_BYTES: usize = 3 * (512 + 226) + 150;

/// Fits the largest batch that the API documents.
pub(crate) const MAX_BATCH_BODY_BYTES: usize = MAX_BATCH_ITEMS * MAX_ITEM_BYTES;

/// Renew a lock
///
/// Extends the lease from now, if it is still this token's with this fence. 410 means: stop.
#[utoipa::path(
    post, path = "/v1/locks/{name}/renew", tag = "locks", operation_id = "renewLock",
    params(("name" = String, Path, description = "What is held", min_length = 1, max_length = 512, pattern = "^[^\\s{}\\x00-\\x1f\\x7f-\\x9f]+$")),
    request_body = Renew,
    responses(
        (status = 200, description = "Extended", body = RenewedView),
        (status = 410, description = "Not this token's any more", body = Problem, content_type = "application/problem+json"),
    ),
)]
pub(crate) async fn renew(
    State(app): State<Arc<App>>,
    Caller(who): Caller,
    LockName(name): LockName,
    JsonBody(want): JsonBody<Renew>,
) -> Result<JsonBody<RenewedView>, Refusal> {
    let token = parse_token(&want.token)?;
    let class = app.class(token.class());
    let (of_class, delay) = match &class {
        Ok(class) => (Some(class.ttl), Some(class.release.lock_delay)),
        Err(_) => (None, None),
    };
    let ttl = match want.ttl_ms {
        Some(millis) => parse_ttl(millis)?,
        None => of_class.ok_or_else(|| {
            Refusal::invalid("ttl_ms", "ttl_ms: is missing, and this token's class is not known here")
        })?,
    };
    let lock_delay = parse_duration("lock_delay_ms", want.lock_delay_ms, 0, 86_400_000)?;
    let renewal = RenewRequest::new(&name, token, want.fence, ttl)
        .with_lock_delay(lock_delay.or(delay).unwrap_or_default());
    let within = parse_store_timeout(want.within_ms)?;
    let mut results = app.renew(&who, &[renewal], within).await;
    match results.pop() {
        Some(Ok((RenewResponse::NotOwned, _))) => Err(Refusal::not_owned(name.as_str())),
        Some(result) => Ok(JsonBody(renewed_view(result?))),
        None => Err(Refusal::not_owned(name.as_str())),
    }
}

/// Valid only if it can stand before a `:` in a name.
fn check_namespace(namespace: &str) -> Result<(), Refusal> {
    if Name::new(&format!("{namespace}:x"))?.namespace() == namespace {
        Ok(())
    } else {
        Err(Refusal::invalid("namespace", "namespace: has no `:` in it"))
    }
}

/// Renew many locks of a namespace
///
/// Returns one result per item, in order.
#[utoipa::path(
    post, path = "/v1/namespaces/{namespace}/renew", tag = "locks", operation_id = "renewLocks",
    params(("namespace" = String, Path, description = "What precedes the first `:` of the names, or `default`", min_length = 1, max_length = 512)),
    request_body = RenewBatch,
    responses((status = 200, description = "What became of each", body = Renewals)),
)]
pub(crate) async fn renew_many(
    State(app): State<Arc<App>>,
    Caller(who): Caller,
    Path(namespace): Path<String>,
    JsonBody(want): JsonBody<RenewBatch>,
) -> Result<JsonBody<Renewals>, Refusal> {
    check_namespace(&namespace)?;
    if want.items.len() > MAX_BATCH_ITEMS {
        return Err(Refusal::invalid("items", format!("items: at most {MAX_BATCH_ITEMS} in one request")));
    }
    let batch =
        want.items.iter().map(|item| request_from_item(item, &namespace)).collect::<Result<Vec<_>, _>>()?;
    let within = parse_store_timeout(want.within_ms)?;
    let results = app.renew(&who, &batch, within).await;
    let results = results.into_iter().map(|result| match result {
        Ok(renewed) => renewed_view(renewed),
        Err(failure) => RenewedView::Failed {
            cause: failure.kind.to_string(),
            unknown: failure.unknown,
            detail: failure.message().to_owned(),
        },
    });
    Ok(JsonBody(Renewals { results: results.collect() }))
}

/// Converts an item, if it is in the namespace for which the gate has checked the caller's right.
fn request_from_item(item: &RenewItem, namespace: &str) -> Result<RenewRequest, Refusal> {
    let name = Name::new(&item.name)?;
    if name.namespace() != namespace {
        return Err(Refusal::invalid("items", "items: a name is not of the namespace in the path"));
    }
    let ttl: Ttl = parse_ttl(item.ttl_ms)?;
    let lock_delay = parse_duration("lock_delay_ms", item.lock_delay_ms, 0, 86_400_000)?;
    Ok(RenewRequest::new(name, parse_token(&item.token)?, item.fence, ttl)
        .with_lock_delay(lock_delay.unwrap_or_default()))
}

fn renewed_view((renewed, asked_to_release): (RenewResponse, Option<String>)) -> RenewedView {
    match renewed {
        RenewResponse::Extended { remaining_before: was_left, .. } => {
            RenewedView::Extended { was_left_ms: was_left.map(millis), asked_to_release }
        }
        RenewResponse::NotOwned => RenewedView::NotOwned,
    }
}

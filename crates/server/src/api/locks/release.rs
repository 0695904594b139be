//! `POST /v1/locks/{name}/release`: releases a lease, or leaves the queue.

use std::sync::Arc;

use axum::extract::State;
use leasehold::store::{ReleaseRequest, ReleaseResponse, TOMBSTONE_TTL};
use leasehold_wire::{Problem, Release, ReleaseView};

use super::{parse_duration, parse_store_timeout, parse_token};
use crate::api::document::{Caller, JsonBody, LockName};
use crate::api::problem::Refusal;
use crate::state::app::App;
use crate::state::audit::AuditEntry;
use crate::state::token_on_name::TokenOnName;

/// Release a lock
///
/// Frees the name, or grants it to the next waiter, if the lease is this token's. The token is
/// refused for a minute afterwards, in case a repeated acquire of it is still on its way. With
/// `place_only` a waiter leaves the queue and nothing else changes.
#[utoipa::path(
    post, path = "/v1/locks/{name}/release", tag = "locks", operation_id = "releaseLock",
    params(("name" = String, Path, description = "What is held", min_length = 1, max_length = 512, pattern = "^[^\\s{}\\x00-\\x1f\\x7f-\\x9f]+$")),
    request_body = Release,
    responses(
        (status = 200, description = "Free now", body = ReleaseView),
        (status = 410, description = "It was not this token's (any more); nothing has changed", body = Problem, content_type = "application/problem+json"),
    ),
)]
pub(crate) async fn release(
    State(app): State<Arc<App>>,
    Caller(who): Caller,
    LockName(name): LockName,
    JsonBody(want): JsonBody<Release>,
) -> Result<JsonBody<ReleaseView>, Refusal> {
    let token = parse_token(&want.token)?;
    let within = parse_store_timeout(want.within_ms)?;
    let tombstone = parse_duration("tombstone_ms", want.tombstone_ms, 0, 3_600_000)?;
    // Also if the release fails: this caller no longer waits.
    app.waiters.forget(&name, &token);
    if want.place_only {
        if tombstone.is_some() {
            let message = "tombstone_ms: a place in the queue has none; leave it or place_only out";
            return Err(Refusal::invalid("tombstone_ms", message));
        }
        let request = ReleaseRequest::leave_queue(name.clone(), token);
        app.with_timeout(within, app.store().release(&request, within)).await?;
        return Ok(JsonBody(ReleaseView { name: name.to_string(), released: false }));
    }
    // A caller that sets a tombstone undoes an acquire that may never have been granted.
    let undo = tombstone.is_some_and(|keep| !keep.is_zero());
    let wanted = tombstone.unwrap_or(TOMBSTONE_TTL);
    // Also for a caller that disconnects: what the store has done is counted and audited.
    let released = Arc::clone(&app).run_to_end(async move {
        let key = TokenOnName::new(&name, &token);
        let (granted, quota) = (app.client_leases.knows(&key), app.quota(&who, |quotas| quotas.tombstones));
        let tombstone = app.tombstones.admit(who.id(), &key, wanted, granted, quota, app.clock.now());
        let request = ReleaseRequest::by_owner(&name, token.clone()).with_tombstone(tombstone);
        let given = app.with_timeout(within, app.store().release(&request, within)).await?;
        app.client_leases.released(&name, &token, given, undo, app.clock.now());
        match given {
            ReleaseResponse::Released => {
                if !granted {
                    app.tombstones.was_granted(who.id(), &key, wanted);
                }
                app.audit.record(AuditEntry::new("release", &who).name(&name));
                Ok(JsonBody(ReleaseView { name: name.to_string(), released: true }))
            }
            ReleaseResponse::NotOwned => Err(Refusal::not_owned(name.as_str())),
        }
    });
    released.await?
}

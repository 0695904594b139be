//! `POST /v1/locks/{name}/release`.

use std::sync::Arc;

use axum::extract::State;
use leasehold::store::{Claim, Given, Giving, TOMBSTONE};
use leasehold_http::wire::{Problem, Release, Released};

use super::{duration, token, within};
use crate::app::App;
use crate::audit::Act;
use crate::document::{Caller, Doc, LockName};
use crate::problem::Refusal;

/// Release a lock
///
/// Frees the name, or hands it to the next waiter, if the lease is this token's. The token is refused from then on for a
/// minute, in case a repeated acquire of it is still on its way. With `place_only` a waiter leaves the queue and nothing else
/// changes.
#[utoipa::path(
    post, path = "/v1/locks/{name}/release", tag = "locks", operation_id = "releaseLock",
    params(("name" = String, Path, description = "What is held", min_length = 1, max_length = 512, pattern = "^[^\\s{}\\x00-\\x1f\\x7f-\\x9f]+$")),
    request_body = Release,
    responses(
        (status = 200, description = "Free now", body = Released),
        (status = 410, description = "It was not this token's (any more); nothing has changed", body = Problem, content_type = "application/problem+json"),
    ),
)]
pub(crate) async fn release(
    State(app): State<Arc<App>>,
    Caller(who): Caller,
    LockName(name): LockName,
    Doc(want): Doc<Release>,
) -> Result<Doc<Released>, Refusal> {
    let token = token(&want.token)?;
    let within = within(want.within_ms)?;
    let tombstone = duration("tombstone_ms", want.tombstone_ms, 0, 3_600_000)?;
    app.waiters.forget(&token);
    if want.place_only {
        if tombstone.is_some() {
            let said = "tombstone_ms: a place in the queue has none; leave it or place_only out";
            return Err(Refusal::invalid("tombstone_ms", said));
        }
        let giving = Giving::place(name.clone(), token);
        app.within(within, app.store().release(&giving, within)).await?;
        return Ok(Doc(Released {
            name: name.to_string(),
            released: false,
        }));
    }
    // Whoever says how long the token is to be refused gives up an acquire that may never have been granted.
    let undo = tombstone.is_some_and(|keep| !keep.is_zero());
    let giving = Giving {
        name: name.clone(),
        claim: Claim::Owner(token.clone()),
        tombstone: Some(tombstone.unwrap_or(TOMBSTONE)).filter(|keep| !keep.is_zero()),
    };
    let given = app.within(within, app.store().release(&giving, within)).await?;
    app.kept.released(&name, &token, given, undo, app.clock.now());
    match given {
        Given::Released => {
            app.audit.act(Act::new("release", &who).name(&name));
            Ok(Doc(Released {
                name: name.to_string(),
                released: true,
            }))
        }
        Given::NotOwned => Err(Refusal::not_owned(name.as_str())),
    }
}

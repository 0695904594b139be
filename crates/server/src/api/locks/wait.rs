//! `POST /v1/locks/{name}/wait`: the long poll through which a remote waiter gets wake-up hints.

use std::sync::Arc;

use axum::extract::State;
use leasehold::clock::run_until;
use leasehold_wire::{Problem, Wait, WaitView};

use super::{parse_duration, parse_token};
use crate::api::document::{Caller, JsonBody, LockName};
use crate::api::problem::Refusal;
use crate::state::app::App;
use crate::state::token_on_name::TokenOnName;

/// Wait for a hint
///
/// Answers when the store has a hint for a token that was registered as a waiter (`queue_ms`), or
/// when the time is over. A hint means "try to acquire again", never "you have it".
#[utoipa::path(
    post, path = "/v1/locks/{name}/wait", tag = "locks", operation_id = "waitForLock",
    params(("name" = String, Path, description = "What is waited for", min_length = 1, max_length = 512, pattern = "^[^\\s{}\\x00-\\x1f\\x7f-\\x9f]+$")),
    request_body = Wait,
    responses(
        (status = 200, description = "Woken, or not", body = WaitView),
        (status = 429, description = "Too many wait", body = Problem, content_type = "application/problem+json"),
    ),
)]
pub(crate) async fn wait(
    State(app): State<Arc<App>>,
    Caller(who): Caller,
    LockName(name): LockName,
    JsonBody(wait): JsonBody<Wait>,
) -> Result<JsonBody<WaitView>, Refusal> {
    let token = parse_token(&wait.token)?;
    let wait = parse_duration("wait_ms", Some(wait.wait_ms), 0, 60_000)?.unwrap_or_default();
    let wait = wait.min(app.config.max_wait);
    let _place = app.take_wait_slot(&who)?;
    let (now, key) = (app.clock.now(), TokenOnName::new(&name, &token));
    app.waiters.check_quota(who.id(), &key, app.quota(&who, |quotas| quotas.waiters), now)?;
    let notifier = app.waiters.listen(who.id(), &**app.store(), &name, &token, wait, now);
    tokio::select! {
        biased;
        refusal = app.interrupted(&who) => Err(refusal),
        woken = run_until(&*app.clock, now + wait, notifier.notified()) => Ok(JsonBody(WaitView { woken: woken.is_some() })),
    }
}

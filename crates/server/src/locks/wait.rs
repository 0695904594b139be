//! `POST /v1/locks/{name}/wait`: the long poll behind a remote waiter's bell.

use std::sync::Arc;

use axum::extract::State;
use leasehold::clock::until;
use leasehold_http::wire::{Problem, Wait, Waited};

use super::{duration, token};
use crate::app::App;
use crate::document::{Caller, Doc, LockName};
use crate::problem::Refusal;

/// Wait for a hint
///
/// Answers when the store has a hint for a token that was registered as a waiter (`queue_ms`), or when the time is over.
/// A hint says "ask again", never "you have it".
#[utoipa::path(
    post, path = "/v1/locks/{name}/wait", tag = "locks", operation_id = "waitForLock",
    params(("name" = String, Path, description = "What is waited for", min_length = 1, max_length = 512, pattern = "^[^\\s{}\\x00-\\x1f\\x7f-\\x9f]+$")),
    request_body = Wait,
    responses(
        (status = 200, description = "Woken, or not", body = Waited),
        (status = 429, description = "Too many wait", body = Problem, content_type = "application/problem+json"),
    ),
)]
pub(crate) async fn wait(
    State(app): State<Arc<App>>,
    Caller(who): Caller,
    LockName(name): LockName,
    Doc(wait): Doc<Wait>,
) -> Result<Doc<Waited>, Refusal> {
    let token = token(&wait.token)?;
    let wait = duration("wait_ms", Some(wait.wait_ms), 0, 60_000)?.unwrap_or_default();
    let wait = wait.min(app.config.longest_wait);
    let _place = app.wait(&who)?;
    let now = app.clock.now();
    let bell = app.waiters.listen(&**app.store(), &name, &token, wait, now);
    tokio::select! {
        biased;
        () = app.stopping.cancelled() => Err(Refusal::stopping()),
        woken = until(&*app.clock, now + wait, bell.woken()) => Ok(Doc(Waited { woken: woken.is_some() })),
    }
}

//! `/v1/holds`: create, show, heartbeat, delete.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Path, State};
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use leasehold::{Acquired, Error, Fence, Holder};
use leasehold_core::rng::RandomExt;
use leasehold_core::{HeartbeatDeadline, Request, RequestOptions};
use leasehold_wire::{ErrorCode, HoldRequest, HoldView, Problem, ReleaseView};

use crate::api::document::{Caller, JsonBody, LockName};
use crate::api::error_responses::NoHoldOfYours;
use crate::api::locks::{DEFAULT_CLASS, parse_duration, parse_ttl};
use crate::api::problem::Refusal;
use crate::auth::{self, Target, TargetSource};
use crate::state::app::App;
use crate::state::audit::AuditEntry;
use crate::state::holds::{
    HoldEntry, HoldKey, HoldTokenSource, ReserveOutcome, SavedHold, attempt_token, new_attempt_id,
    no_such_hold,
};

// The default heartbeat timeout, in milliseconds.
const DEFAULT_HEARTBEAT_MS: u64 = 10_000;

/// The target of a route with `{id}`: the name that the hold locks.
pub(crate) fn hold_target() -> TargetSource {
    TargetSource::resolver(|request: &auth::AuthRequest<'_>| {
        let id = request.param("id").unwrap_or_default();
        let name = request.app.holds.name_of(&HoldKey::new(request.who.id(), id));
        name.map(Target::Name).ok_or_else(no_such_hold)
    })
}

/// Hold a lock, kept by the daemon
///
/// The daemon holds and renews; send heartbeats. With an `id` of your own, a repeated request
/// returns the same hold.
#[utoipa::path(
    post, path = "/v1/holds", tag = "holds", operation_id = "createHold",
    request_body = HoldRequest,
    responses(
        (status = 200, description = "It was yours already", body = HoldView),
        (status = 201, description = "It is yours", body = HoldView),
        (status = 409, description = "Another client holds it: see Retry-After", body = Problem, content_type = "application/problem+json"),
        (status = 410, description = "The hold of this id is over", body = Problem, content_type = "application/problem+json"),
    ),
)]
pub(crate) async fn create(
    State(app): State<Arc<App>>,
    Caller(who): Caller,
    LockName(name): LockName,
    JsonBody(want): JsonBody<HoldRequest>,
) -> Result<Response, Refusal> {
    // A hold created during the drain could not be ended in order.
    if app.stopping.is_cancelled() {
        return Err(Refusal::stopping());
    }
    let _place = app.take_wait_slot(&who)?;
    let asked_at = app.clock.now();
    let id = match want.id {
        Some(id) => check_hold_id(id)?,
        None => format!("{:032x}", app.random.wide()),
    };
    let class = app.class(want.class.as_deref().unwrap_or(DEFAULT_CLASS))?;
    let holder = Holder::new(want.holder.as_deref().unwrap_or(who.id()))?;
    let wait = parse_duration("wait_ms", want.wait_ms, 0, 60_000)?.unwrap_or(class.acquire.wait);
    let wait = Some(wait.min(app.config.max_wait));
    let lifetime = want.ttl_ms.map(parse_ttl).transpose()?.map(leasehold::Ttl::get);
    let heartbeat = parse_duration("heartbeat_ms", want.heartbeat_ms, 500, 3_600_000)?;
    let heartbeat = heartbeat.unwrap_or(Duration::from_millis(DEFAULT_HEARTBEAT_MS));
    let row = SavedHold {
        id: id.clone(),
        attempt: new_attempt_id(&app),
        owner: who.id().to_owned(),
        name: name.to_string(),
        class: class.name.to_string(),
        holder: holder.to_string(),
        // A placeholder until the grant.
        fence: Fence::MIN,
        ttl_ms: want.ttl_ms,
        heartbeat_ms: leasehold_wire::millis(heartbeat),
        since: app.wall_micros(),
    };
    let token = attempt_token(&app, &row, &row.attempt)?;
    let held = HoldEntry {
        hold: None,
        name: name.clone(),
        holder: holder.to_string(),
        class: class.name.to_string(),
        client: HeartbeatDeadline::new(
            heartbeat,
            class.renew.on_failure,
            lifetime.unwrap_or(class.ttl.get()),
        ),
        release_request: None,
        retaken_row: None,
    };
    let (key, quota) = (row.key(), app.quota(&who, |quotas| quotas.kept_holds));
    if let ReserveOutcome::Existing(view) = app.holds.reserve(&key, held, quota, asked_at)? {
        return Ok(JsonBody(view).into_response());
    }
    // From here on the id is reserved, and every early return must free it.
    let mut place = IdReservation::new(&app, &key);
    let options = RequestOptions::default().ttl(lifetime).wait(wait);
    let token_source = HoldTokenSource::new(&app, row.clone(), token.clone());
    let request = Request::new(&class.name, &name)?.token(token).token_source(token_source).options(options);
    let acquired = tokio::select! {
        biased;
        // `biased`: when both are ready, the interruption wins and the dropped acquire is undone.
        refusal = app.interrupted(&who) => return Err(refusal),
        acquired = app.locks.acquire(request) => acquired,
    };
    let hold = match acquired {
        Ok(Acquired::Held(hold)) => hold,
        Ok(Acquired::Busy(busy)) => {
            let busy = leasehold::store::BusyLease::new(busy.holder)
                .with_class(busy.class)
                .with_fence(busy.fence)
                .with_remaining(busy.remaining);
            return Err(Refusal::busy(name.as_str(), &busy));
        }
        Err(error) => return Err(acquire_refusal(error)),
    };
    // A local-only hold has no lease that the next run could resume, until it has healed.
    if let Ok(fence) = hold.fence() {
        let since = app.wall_micros();
        let row = SavedHold { fence, since, ..row };
        // Set before the write: a client that disconnects during it must still have the row
        // deleted.
        place.row_queued = true;
        // Without a durable row the next run could not resume the hold, so it is not given out.
        if let Err(why) = app.holds.save_grant(row).await {
            hold.release().await;
            return Err(Refusal::new(
                ErrorCode::Overloaded,
                format!("the daemon cannot write its own file: {why}"),
            )
            .retry_after(Duration::from_secs(5)));
        }
        app.audit.record(AuditEntry::new("hold", &who).name(&name).fence(fence).detail(&id));
    }
    place.keep();
    match app.holds.activate(&key, hold, app.clock.now()) {
        Some(view) => Ok((StatusCode::CREATED, JsonBody(view?)).into_response()),
        // The stop has emptied the registry meanwhile.
        None => Err(Refusal::stopping()),
    }
}

/// Reserves an id, and frees it if the client disconnects before it has the response.
struct IdReservation {
    app: Arc<App>,
    key: Option<HoldKey>,
    /// The row is in the database, or queued for it.
    row_queued: bool,
}

impl IdReservation {
    fn new(app: &Arc<App>, key: &HoldKey) -> Self {
        Self { app: Arc::clone(app), key: Some(key.clone()), row_queued: false }
    }

    fn keep(mut self) {
        self.key = None;
    }
}

impl Drop for IdReservation {
    fn drop(&mut self) {
        if let Some(key) = self.key.take() {
            if self.row_queued {
                self.app.holds.delete_saved(&key);
            }
            self.app.holds.forget(&key);
        }
    }
}

fn check_hold_id(id: String) -> Result<String, Refusal> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
    if (1..=64).contains(&id.len()) && id.bytes().all(plain) {
        Ok(id)
    } else {
        Err(Refusal::invalid("id", "id: must be 1 to 64 letters, digits, `.`, `_` and `-`"))
    }
}

fn acquire_refusal(error: Error) -> Refusal {
    match error {
        Error::Invalid(invalid) => invalid.into(),
        Error::Unavailable { cause, retry_after, .. } => {
            Refusal::new(ErrorCode::Unavailable, error.to_string()).retry_after(retry_after).with(|problem| {
                problem.cause = Some(cause.to_string());
                // The daemon undoes whatever may have been granted, so the outcome is definite for
                // the caller.
                problem.unknown = Some(false);
            })
        }
        _ => Refusal::stopping(),
    }
}

/// Show a hold
#[utoipa::path(
    get, path = "/v1/holds/{id}", tag = "holds", operation_id = "showHold",
    params(("id" = String, Path, description = "The hold's id", min_length = 1, max_length = 64)),
    responses(
        (status = 200, description = "It is held", body = HoldView),
        (status = 404, description = "There is no such hold", body = Problem, content_type = "application/problem+json"),
        (status = 410, description = "It is over", body = Problem, content_type = "application/problem+json"),
    ),
)]
pub(crate) async fn show_hold(
    State(app): State<Arc<App>>,
    Caller(who): Caller,
    Path(id): Path<String>,
) -> Result<JsonBody<HoldView>, Refusal> {
    app.holds.show(&HoldKey::new(who.id(), &id), app.clock.now()).map(JsonBody)
}

/// Send a heartbeat
///
/// Returns how long you may work, counted from before you sent the request. 410 means: stop.
#[utoipa::path(
    post, path = "/v1/holds/{id}/heartbeat", tag = "holds", operation_id = "heartbeat",
    params(("id" = String, Path, description = "The hold's id", min_length = 1, max_length = 64)),
    responses(
        (status = 200, description = "Go on", body = HoldView),
        NoHoldOfYours,
    ),
)]
pub(crate) async fn heartbeat(
    State(app): State<Arc<App>>,
    Caller(who): Caller,
    Path(id): Path<String>,
) -> Result<JsonBody<HoldView>, Refusal> {
    let mut view = app.holds.heartbeat(&HoldKey::new(who.id(), &id), app.clock.now())?;
    if app.stopping.is_cancelled() && view.asked_to_release.is_none() {
        view.asked_to_release = Some("the daemon is stopping".to_owned());
    }
    Ok(JsonBody(view))
}

/// Release a hold
#[utoipa::path(
    delete, path = "/v1/holds/{id}", tag = "holds", operation_id = "deleteHold",
    params(("id" = String, Path, description = "The hold's id", min_length = 1, max_length = 64)),
    responses(
        (status = 200, description = "Free now, or as soon as the store answers", body = ReleaseView),
        NoHoldOfYours,
    ),
)]
pub(crate) async fn end(
    State(app): State<Arc<App>>,
    Caller(who): Caller,
    Path(id): Path<String>,
) -> Result<JsonBody<ReleaseView>, Refusal> {
    let (key, now) = (HoldKey::new(who.id(), &id), app.clock.now());
    // A lost hold gives the same response as a heartbeat.
    let view = app.holds.heartbeat(&key, now)?;
    let Some((hold, name)) = app.holds.remove(&key, "released", now) else {
        return Err(no_such_hold());
    };
    let outcome = hold.release().await;
    app.audit.record(AuditEntry::new("release", &who).name(&name).fence_if_any(view.fence).detail(&id));
    Ok(JsonBody(ReleaseView {
        name: name.to_string(),
        released: matches!(outcome, leasehold::ReleaseOutcome::Released),
    }))
}

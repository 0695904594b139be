//! `POST /v1/locks/{name}/acquire`: one store call, or a wait in the store's queue.

mod call;

use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use leasehold::policy::{Class, check_store};
use leasehold::store::{AcquireRequest, AcquireResponse, Grant, Mode, Promise, StoreError, StoreErrorKind};
use leasehold::{Fence, Holder, Name};
use leasehold_core::Token;
use leasehold_wire::{Acquire, GrantView, ModeWord, Problem, Secret, millis};
use tokio_util::sync::CancellationToken;

use self::call::AcquireCall;
use super::{parse_duration, parse_store_timeout, parse_token, parse_ttl};
use crate::api::document::{Caller, JsonBody, LockName};
use crate::api::problem::Refusal;
use crate::auth::{Principal, revoked_refusal};
use crate::state::app::App;

/// The class of requests that name none.
pub(crate) const DEFAULT_CLASS: &str = "scheduler";

// Fences are derived from the store's clock. A day is more than any sane clock difference, in
// microseconds.
const MAX_CLOCK_AHEAD_MICROS: u64 = 86_400_000_000;
// 2020-01-01 in microseconds. A clock before that was never set.
const YEAR_2020_MICROS: u64 = 1_577_836_800_000_000;

/// Acquire a lock
///
/// One call to the store, or a wait of up to a minute with `wait_ms`. With an `id` of your own, a
/// repeated request returns the same grant.
#[utoipa::path(
    post, path = "/v1/locks/{name}/acquire", tag = "locks", operation_id = "acquireLock",
    params(("name" = String, Path, description = "What to lock, e.g. job:42", min_length = 1, max_length = 512, pattern = "^[^\\s{}\\x00-\\x1f\\x7f-\\x9f]+$")),
    request_body = Acquire,
    responses(
        (status = 200, description = "It is yours", body = GrantView),
        (status = 409, description = "Another client holds it: see Retry-After", body = Problem, content_type = "application/problem+json"),
        (status = 410, description = "This token or id was used and given back", body = Problem, content_type = "application/problem+json"),
    ),
)]
pub(crate) async fn acquire(
    State(app): State<Arc<App>>,
    Caller(who): Caller,
    LockName(name): LockName,
    JsonBody(want): JsonBody<Acquire>,
) -> Result<JsonBody<GrantView>, Refusal> {
    let acquire = CheckedAcquire::read(&app, &who, &name, &want)?;
    if acquire.made_token {
        acquire.check_promise(&app).await?;
    }
    app.check_acquire_quotas(&who, &acquire.request, acquire.wait.is_some())?;
    // Only a request that waits needs a slot; a single call is answered at once.
    let place = acquire.wait.map(|_| app.take_wait_slot(&who)).transpose()?;
    // Cancelled when the caller is gone: a wait ends then, and a store call runs to its end.
    let caller_gone = CancellationToken::new();
    let _at_disconnect = caller_gone.clone().drop_guard();
    let call = AcquireCall { app: Arc::clone(&app), who: who.clone(), acquire, caller_gone };
    let (call, answer, undo_guard) = Arc::clone(&app)
        .run_to_end(async move {
            let _place = place;
            let (answer, undo_guard) = call.run_recorded().await;
            (call, answer, undo_guard)
        })
        .await?;
    // A definite answer reaches the caller with this response. A task whose caller is gone never comes
    // here, and its guard undoes the acquire.
    if let Some(mut undo_guard) = undo_guard {
        undo_guard.disarm();
    }
    // Definitely not done, and not the store's fault: the caller has no right to an answer any more.
    if answer.as_ref().is_err_and(|error| !error.unknown) && app.still_admitted(&who).is_none() {
        return Err(revoked_refusal());
    }
    match answer? {
        AcquireResponse::Granted(grant) => Ok(JsonBody(call.acquire.granted(&grant))),
        AcquireResponse::Busy(busy) => Err(Refusal::busy(name.as_str(), &busy)),
        AcquireResponse::Void => Err(Refusal::void(name.as_str())),
        _ => Err(unknown_response().into()),
    }
}

/// The error for a response that this version does not know. It may have been a grant.
fn unknown_response() -> StoreError {
    StoreError::unknown(StoreErrorKind::Corrupt, "the store's answer is newer than this daemon")
}

/// A checked acquire request.
pub(crate) struct CheckedAcquire {
    pub(crate) request: AcquireRequest,
    /// The class with the request's own TTL and lock delay.
    pub(crate) class: Arc<Class>,
    store_timeout: Duration,
    pub(crate) wait: Option<Duration>,
    /// The daemon made the token, so the response must contain it.
    made_token: bool,
    /// The caller has neither token nor id, so it cannot repeat the request. Whatever it was
    /// granted must be undone if it disconnects.
    pub(crate) unrepeatable: bool,
}

impl CheckedAcquire {
    fn read(app: &App, who: &Principal, name: &Name, want: &Acquire) -> Result<Self, Refusal> {
        let (token, class) = match &want.token {
            Some(given) => {
                for (field, there) in [
                    ("id", want.id.is_some()),
                    ("holder", want.holder.is_some()),
                    ("class", want.class.is_some()),
                ] {
                    if there {
                        return Err(Refusal::invalid(
                            field,
                            format!("{field}: the token says that already; leave one of them out"),
                        ));
                    }
                }
                let token = parse_token(given)?;
                // The client's own policies may have classes that this daemon does not know.
                let class = app.class(token.class()).or_else(|_| app.class(DEFAULT_CLASS))?;
                (token, class)
            }
            None => make_token(app, who, name, want)?,
        };
        let mode = match (want.mode, want.permits) {
            (None | Some(ModeWord::Exclusive), None) => Mode::Exclusive,
            (Some(ModeWord::Shared), None) => Mode::Shared,
            (Some(ModeWord::Permits), Some(of)) if of > 0 => Mode::permits(of, 1)?,
            _ => {
                let message = "permits: goes with the mode `permits`, and is at least 1";
                return Err(Refusal::invalid("permits", message));
            }
        };
        let lock_delay = parse_duration("lock_delay_ms", want.lock_delay_ms, 0, 86_400_000)?;
        let wait = parse_duration("wait_ms", want.wait_ms, 0, 60_000)?
            .map(|wait| wait.min(app.config.max_wait))
            .filter(|wait| !wait.is_zero());
        let ttl = want.ttl_ms.map_or(Ok(class.ttl), parse_ttl)?;
        let request = AcquireRequest::new(name.clone(), token, ttl)
            .with_mode(mode)
            .with_lock_delay(lock_delay.unwrap_or(class.release.lock_delay))
            .with_floor(check_floor(app, want.floor)?.max(app.locks.fence_floors().get(name)))
            .with_queue(parse_duration("queue_ms", want.queue_ms, 1, 600_000)?);
        request.check_visible()?;
        Ok(Self {
            class: Arc::new(request_class(&class, &request)),
            request,
            store_timeout: parse_store_timeout(want.within_ms)?,
            wait,
            made_token: want.token.is_none(),
            unrepeatable: want.token.is_none() && want.id.is_none(),
        })
    }

    /// Refuses a class that requires more than the store promises. A client with its own token has
    /// checked that itself.
    async fn check_promise(&self, app: &App) -> Result<(), Refusal> {
        if self.class.requires == Promise::Volatile {
            return Ok(());
        }
        let promised = app.with_timeout(self.store_timeout, app.store().promise(self.store_timeout)).await?;
        Ok(check_store(&self.class, &promised)?)
    }

    fn granted(&self, grant: &Grant) -> GrantView {
        let token = &self.request.token;
        GrantView {
            name: self.request.names.to_string(),
            fence: grant.fence,
            token: self.made_token.then(|| Secret::new(token.expose())),
            holder: token.holder().to_owned(),
            class: token.class().to_owned(),
            ttl_ms: self.request.ttl.as_millis(),
            kept_ms: grant.ttl.map(millis),
        }
    }
}

/// The class with the terms of this request. The caller may ask for another TTL and lock delay.
fn request_class(class: &Class, request: &AcquireRequest) -> Class {
    let mut class = Class::clone(class);
    class.ttl = request.ttl;
    // A longer TTL than the class's needs a larger drift margin.
    class.drift = class.drift.max(Class::default_drift(request.ttl.get()));
    class.release.lock_delay = request.lock_delay;
    class
}

/// Makes a token for a caller that sends none.
fn make_token(
    app: &App,
    who: &Principal,
    name: &Name,
    want: &Acquire,
) -> Result<(Token, Arc<Class>), Refusal> {
    let class = app.class(want.class.as_deref().unwrap_or(DEFAULT_CLASS))?;
    let holder = Holder::new(want.holder.as_deref().unwrap_or(who.id()))?;
    let token = match &want.id {
        Some(id) => {
            if !(1..=128).contains(&id.expose().len()) {
                return Err(Refusal::invalid("id", "id: must be 1 to 128 bytes"));
            }
            app.derive_token(who, name, id.expose(), &holder, &class.name)?
        }
        None => app.fresh_token(&holder, &class.name),
    };
    Ok((token, class))
}

/// Checks that the caller can have seen this floor. All tenants share the fence counters, so an
/// invented floor would use up their range.
fn check_floor(app: &App, floor: Option<Fence>) -> Result<Option<Fence>, Refusal> {
    let now = u64::try_from(app.wall_micros()).unwrap_or(0);
    let seen = app.locks.fence_floors().highest().map_or(0, Fence::get);
    let most = highest_floor(now, seen);
    match floor {
        Some(floor) if floor.get() > most => Err(Refusal::invalid(
            "floor",
            format!(
                "floor {floor}: must be a fence that was seen here, at most {most}: a day ahead of the daemon's clock, or the \
                 greatest that the store has shown it; if it was seen, set that clock right"
            ),
        )),
        other => Ok(other),
    }
}

/// The highest accepted floor, by the daemon's clock and the highest fence it has seen.
fn highest_floor(now: u64, seen: u64) -> u64 {
    // An unset clock says nothing about the store's clock. Half of the fence range still leaves
    // centuries.
    let ahead = if now < YEAR_2020_MICROS {
        Fence::MAX.get() / 2
    } else {
        now.saturating_add(MAX_CLOCK_AHEAD_MICROS)
    };
    seen.max(ahead)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn floors_are_limited_by_the_clock_and_the_seen_fences() {
        let now = YEAR_2020_MICROS + 1;
        assert_eq!(highest_floor(now, 0), now + MAX_CLOCK_AHEAD_MICROS);
        assert_eq!(highest_floor(now, now + MAX_CLOCK_AHEAD_MICROS + 1), now + MAX_CLOCK_AHEAD_MICROS + 1);
        // Without a set clock the floor is not judged by time, and stays far from the maximum.
        assert_eq!(highest_floor(0, 0), Fence::MAX.get() / 2);
        assert!(highest_floor(0, 0) > YEAR_2020_MICROS);
    }
}

//! `POST /v1/locks/{name}/break`: asks the holder to release, waits, and only then ends its lease.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use leasehold::clock::ClockExt;
use leasehold::store::{Lease, ReleaseResponse};
use leasehold::{BreakError, Fence, Name};
use leasehold_wire::{Break, BreakView, ErrorCode, Problem};

use super::{DEFAULT_STORE_TIMEOUT, parse_duration};
use crate::api::document::{Caller, JsonBody, LockName};
use crate::api::policies::require_audited;
use crate::api::problem::Refusal;
use crate::auth::revoked_refusal;
use crate::state::app::App;
use crate::state::audit::AuditEntry;

// How long the holder has to release by itself, if the caller does not say.
const DEFAULT_RELEASE_WAIT: Duration = Duration::from_secs(5);
const LEASE_CHECK_INTERVAL: Duration = Duration::from_millis(100);

/// Break a lock
///
/// The holder is asked first and has `wait_ms` to release. A holder that is alive is not broken
/// without `force`: its lease was renewed meanwhile, is too young to tell, or belongs to a class
/// that renews too rarely to tell. The next grant has a greater fence.
#[utoipa::path(
    post, path = "/v1/locks/{name}/break", tag = "locks", operation_id = "breakLock",
    params(("name" = String, Path, description = "What is held", min_length = 1, max_length = 512, pattern = "^[^\\s{}\\x00-\\x1f\\x7f-\\x9f]+$")),
    request_body = Break,
    responses(
        (status = 200, description = "The lease is over", body = BreakView),
        (status = 404, description = "No client holds it", body = Problem, content_type = "application/problem+json"),
        (status = 409, description = "The holder is alive", body = Problem, content_type = "application/problem+json"),
        (status = 412, description = "It is another grant by now", body = Problem, content_type = "application/problem+json"),
    ),
)]
pub(crate) async fn break_lock(
    State(app): State<Arc<App>>,
    Caller(who): Caller,
    LockName(name): LockName,
    JsonBody(want): JsonBody<Break>,
) -> Result<JsonBody<BreakView>, Refusal> {
    let reason = want.reason.trim();
    if reason.is_empty() || reason.len() > 512 || reason.chars().any(char::is_control) {
        return Err(Refusal::invalid(
            "reason",
            "reason: must say in 1 to 512 printable bytes why the lock is broken",
        ));
    }
    let by = format!("{}: {reason}", who.id());
    let wait = parse_duration("wait_ms", want.wait_ms, 0, 60_000)?
        .unwrap_or(DEFAULT_RELEASE_WAIT)
        .min(app.config.max_wait);
    let Some(first) = inspect_lease(&app, &name).await? else {
        return match want.fence {
            // The caller saw a grant with this fence, and that grant is over.
            Some(_) => Err(stale_fence(&name)),
            None => Err(Refusal::new(ErrorCode::NotHeld, format!("no client holds {name}"))),
        };
    };
    let (Some(fence), holder) = (first.fence, first.holder.clone()) else {
        return Err(Refusal::new(
            ErrorCode::Foreign,
            format!(
                "{name} is held by {}, which is not one of ours: end it where it came from",
                first.holder
            ),
        ));
    };
    if want.fence.is_some_and(|seen| seen != fence) {
        return Err(stale_fence(&name));
    }
    let broken = |how: &str| {
        Ok(JsonBody(BreakView {
            name: name.to_string(),
            how: how.to_owned(),
            holder: holder.clone(),
            fence: Some(fence),
        }))
    };
    if !want.force {
        let _place = (!wait.is_zero()).then(|| app.take_wait_slot(&who)).transpose()?;
        app.client_leases.ask_to_release(&name, fence, &by);
        app.holds.ask_to_release(&name, &by);
        let state = tokio::select! {
            biased;
            refusal = app.interrupted(&who) => return Err(refusal),
            state = watch_holder(&app, &name, &first, fence, wait) => state?,
        };
        match state {
            HolderState::Released => return broken("released"),
            HolderState::Silent => {}
            HolderState::Alive => {
                let act = AuditEntry::refusal("break-refused", &who).name(&name).fence(fence);
                app.audit.record(act.detail(reason));
                return Err(Refusal::new(
                    ErrorCode::HolderAlive,
                    format!("{holder} holds {name} and is alive, or that is not known yet; use force to break it all the same"),
                )
                .with(|problem| {
                    problem.holder = Some(holder.clone());
                    problem.fence = Some(fence);
                }));
            }
        }
        // The wait was long enough for the right to have been taken away.
        if app.still_admitted(&who).is_none() {
            return Err(revoked_refusal());
        }
    }
    // `alive: false` says that the caller has watched the holder itself, so the break does not
    // count as forced.
    let forced = want.force && want.alive != Some(false);
    let act = AuditEntry::new("break", &who).name(&name).fence(fence);
    let act = act.detail(reason).forced(forced);
    require_audited(app.audit.record_before(act).await)?;
    match app.locks.break_lease(&name, fence, &by).await {
        Ok(ReleaseResponse::Released) => {
            app.client_leases.broken(&name, fence);
            app.holds.remove_broken(&name, fence, app.clock.now());
            broken("broken")
        }
        Ok(ReleaseResponse::NotOwned) => Err(stale_fence(&name)),
        Err(BreakError::Store(failure)) => Err(failure.into()),
        Err(BreakError::Invalid(invalid)) => Err(invalid.into()),
        Err(other) => Err(Refusal::invalid("reason", other.to_string())),
    }
}

/// The state of the holder after the wait.
enum HolderState {
    /// The holder has released.
    Released,
    /// The holder has missed a renewal that a live one would have made.
    Silent,
    /// The holder has renewed, or it cannot be told yet.
    Alive,
}

/// Watches the lease after the holder was asked to release.
///
/// A holder that renews every third of its TTL never lets half of the remaining lease pass. So a
/// lease first seen with `r` left, and seen again below `r / 2` without having grown, has a silent
/// holder. For classes that renew less often only the end of the lease tells.
async fn watch_holder(
    app: &App,
    name: &Name,
    first: &Lease,
    fence: Fence,
    wait: Duration,
) -> Result<HolderState, Refusal> {
    let end = app.clock.now() + wait;
    let telling = renews_often_enough(app, first);
    let mut before = first.remaining;
    loop {
        if app.clock.now() >= end {
            // Without proof of silence the holder counts as alive: a wrong break is the worse
            // mistake.
            return Ok(HolderState::Alive);
        }
        app.clock.sleep(LEASE_CHECK_INTERVAL.min(end.since(app.clock.now()))).await;
        let Some(lease) = inspect_lease(app, name).await?.filter(|lease| lease.fence == Some(fence)) else {
            return Ok(HolderState::Released);
        };
        let (Some(at_first), Some(left)) = (first.remaining, lease.remaining) else {
            continue;
        };
        // Only a renewal lets the remaining time grow.
        if before.is_some_and(|before| left > before) {
            return Ok(HolderState::Alive);
        }
        before = Some(left);
        if telling && left < at_first / 2 {
            return Ok(HolderState::Silent);
        }
    }
}

/// Whether the holder's class renews at least every third of its TTL.
fn renews_often_enough(app: &App, lease: &Lease) -> bool {
    let class = lease.class.as_deref().and_then(|class| app.class(class).ok());
    class.is_some_and(|class| {
        let third = class.ttl.get() / 3;
        class.renew.every.is_some_and(|every| every <= third)
    })
}

async fn inspect_lease(app: &App, name: &Name) -> Result<Option<Lease>, Refusal> {
    let found =
        app.with_timeout(DEFAULT_STORE_TIMEOUT, app.store().inspect(name, DEFAULT_STORE_TIMEOUT)).await?;
    Ok(found.into_first())
}

fn stale_fence(name: &Name) -> Refusal {
    Refusal::new(ErrorCode::StaleFence, format!("{name} is not held with this fence any more: look again"))
}

//! `POST /v1/locks/{name}/break`: ask the holder, wait, and only then end its lease.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use http::StatusCode;
use leasehold::clock::ClockExt;
use leasehold::store::{Given, Lease};
use leasehold::{BreakError, Fence, Name};
use leasehold_http::wire::{Break, Broken, Problem};

use super::{WITHIN, duration};
use crate::app::App;
use crate::audit::Act;
use crate::document::{Caller, Doc, LockName};
use crate::policies::sure;
use crate::problem::Refusal;

/// What a holder is given to let go by itself.
const PATIENCE: Duration = Duration::from_secs(5);
/// How often the lease is looked at meanwhile.
const LOOK: Duration = Duration::from_millis(100);

/// Break a lock
///
/// The holder is asked first and given `wait_ms` to let go. One that is alive is not broken without `force`: its lease was
/// renewed meanwhile, is not old enough to tell, or is of a class that does not renew so often that one could tell. The next
/// grant has a greater fence.
#[utoipa::path(
    post, path = "/v1/locks/{name}/break", tag = "locks", operation_id = "breakLock",
    params(("name" = String, Path, description = "What is held", min_length = 1, max_length = 512, pattern = "^[^\\s{}\\x00-\\x1f\\x7f-\\x9f]+$")),
    request_body = Break,
    responses(
        (status = 200, description = "The lease is over", body = Broken),
        (status = 404, description = "Nobody holds it", body = Problem, content_type = "application/problem+json"),
        (status = 409, description = "The holder is alive", body = Problem, content_type = "application/problem+json"),
        (status = 412, description = "It is another grant by now", body = Problem, content_type = "application/problem+json"),
    ),
)]
pub(crate) async fn break_lock(
    State(app): State<Arc<App>>,
    Caller(who): Caller,
    LockName(name): LockName,
    Doc(want): Doc<Break>,
) -> Result<Doc<Broken>, Refusal> {
    let reason = want.reason.trim();
    if reason.is_empty() || reason.len() > 512 || reason.chars().any(char::is_control) {
        return Err(Refusal::invalid(
            "reason",
            "reason: must say in 1 to 512 printable bytes why the lock is broken",
        ));
    }
    let by = format!("{}: {reason}", who.id());
    let wait = duration("wait_ms", want.wait_ms, 0, 60_000)?
        .unwrap_or(PATIENCE)
        .min(app.config.longest_wait);
    let Some(first) = look(&app, &name).await? else {
        return match want.fence {
            // Whoever saw that fence sees something else now.
            Some(_) => Err(stale(&name)),
            None => Err(Refusal::new(
                StatusCode::NOT_FOUND,
                "not_held",
                format!("nobody holds {name}"),
            )),
        };
    };
    let (Some(fence), holder) = (first.fence, first.holder.clone()) else {
        return Err(Refusal::new(
            StatusCode::CONFLICT,
            "foreign",
            format!(
                "{name} is held by {}, which is not one of ours: end it where it came from",
                first.holder
            ),
        ));
    };
    if want.fence.is_some_and(|seen| seen != fence) {
        return Err(stale(&name));
    }
    let broken = |how: &str| {
        Ok(Doc(Broken {
            name: name.to_string(),
            how: how.to_owned(),
            holder: holder.clone(),
            fence: Some(fence),
        }))
    };
    if !want.force {
        let _place = (!wait.is_zero()).then(|| app.wait(&who)).transpose()?;
        app.kept.ask_to_release(&name, fence, &by);
        app.holds.ask_to_release(&name, &by);
        match ask_first(&app, &name, &first, fence, wait).await? {
            Found::Gone => return broken("released"),
            Found::Silent => {}
            Found::Alive => {
                let act = Act::new("break-refused", &who).name(&name).fence(fence);
                app.audit.act(act.detail(reason));
                return Err(Refusal::new(
                    StatusCode::CONFLICT,
                    "holder_alive",
                    format!("{holder} holds {name} and is alive, or nobody can tell yet; say force if it must end all the same"),
                )
                .with(|problem| {
                    problem.holder = Some(holder.clone());
                    problem.fence = Some(fence);
                }));
            }
        }
    }
    // One whom the caller has watched and not heard of was broken like one that we have watched.
    let forced = want.force && want.alive != Some(false);
    let act = Act::new("break", &who).name(&name).fence(fence);
    let act = act.detail(reason).forced(forced);
    sure(app.audit.before(act).await)?;
    match app.locks.break_lease(&name, fence, &by).await {
        Ok(Given::Released) => {
            app.kept.broken(&name, fence);
            app.holds.broken(&name, fence, app.clock.now());
            broken("broken")
        }
        Ok(Given::NotOwned) => Err(stale(&name)),
        Err(BreakError::Store(failure)) => Err(failure.into()),
        Err(BreakError::Invalid(invalid)) => Err(invalid.into()),
        Err(other) => Err(Refusal::invalid("reason", other.to_string())),
    }
}

/// What became of the holder while it was waited for.
enum Found {
    /// It has let go.
    Gone,
    /// It has missed a renewal that everyone alive would have made.
    Silent,
    /// It renewed, or nobody can tell yet.
    Alive,
}

/// Tells the holder, and watches the lease.
///
/// Whoever renews every third of its TTL never lets half of what is left of a lease pass: so a lease that was seen at
/// `r` and is seen again below `r / 2` without having grown is one whose holder is silent. Of others only the end of the lease
/// says anything.
async fn ask_first(
    app: &App,
    name: &Name,
    first: &Lease,
    fence: Fence,
    wait: Duration,
) -> Result<Found, Refusal> {
    let end = app.clock.now() + wait;
    let telling = telling(app, first);
    let mut before = first.remaining;
    loop {
        if app.clock.now() >= end {
            return Ok(Found::Alive);
        }
        app.clock.sleep(LOOK.min(end.since(app.clock.now()))).await;
        let Some(lease) = look(app, name).await?.filter(|lease| lease.fence == Some(fence)) else {
            return Ok(Found::Gone);
        };
        let (Some(at_first), Some(left)) = (first.remaining, lease.remaining) else {
            continue;
        };
        if before.is_some_and(|before| left > before) {
            return Ok(Found::Alive);
        }
        before = Some(left);
        if telling && left < at_first / 2 {
            return Ok(Found::Silent);
        }
    }
}

/// The holder is of a class that renews at least every third of its TTL.
fn telling(app: &App, lease: &Lease) -> bool {
    let class = lease.class.as_deref().and_then(|class| app.class(class).ok());
    class.is_some_and(|class| {
        let third = class.ttl.get() / 3;
        class.renew.every.is_some_and(|every| every <= third)
    })
}

async fn look(app: &App, name: &Name) -> Result<Option<Lease>, Refusal> {
    Ok(app.within(WITHIN, app.store().inspect(name, WITHIN)).await?)
}

fn stale(name: &Name) -> Refusal {
    Refusal::new(
        StatusCode::PRECONDITION_FAILED,
        "stale_fence",
        format!("{name} is not held with this fence any more: look again"),
    )
}

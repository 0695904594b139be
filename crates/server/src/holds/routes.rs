//! `/v1/holds`: begin, look, heartbeat, end.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::{FromRequestParts, State};
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use http::request::Parts;
use leasehold::clock::Moment;
use leasehold::leasehold_core::rng::RandomExt;
use leasehold::leasehold_core::{Request, Tweaks};
use leasehold::{Acquired, Error, Fence, Holder, Name};
use leasehold_http::wire::{Problem, Released};

use super::book::{Found, Held};
use super::heirs::HoldHeirs;
use super::refusal::nothing;
use super::saved::Row;
use super::{HoldAsk, HoldView};
use crate::app::App;
use crate::audit::Act;
use crate::auth::{self, Space, Target};
use crate::document::{Caller, Doc, parameter};
use crate::locks::{CLASS, duration, ttl};
use crate::problem::Refusal;

/// What a client may be silent for if it does not say.
const HEARTBEAT: u64 = 10_000;

/// The hold in the path.
pub(crate) struct HoldId(String);

impl<S: Send + Sync> FromRequestParts<S> for HoldId {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Refusal> {
        parameter(parts, state, "id").await.map(Self)
    }
}

/// What a hold in the path is about: its name.
pub(crate) fn space(app: &Arc<App>) -> Space {
    let app = Arc::clone(app);
    Space::look(move |request: &auth::Request<'_>| {
        let id = request.param("id").unwrap_or_default();
        let name = app.holds.name_of(id);
        name.map(Target::Name).ok_or_else(nothing)
    })
}

/// Hold a lock, kept by the daemon
///
/// The daemon holds and renews; send heartbeats. With an `id` of your own, asking again returns the same hold.
#[utoipa::path(
    post, path = "/v1/holds", tag = "holds", operation_id = "createHold",
    request_body = HoldAsk,
    responses(
        (status = 200, description = "It was yours already", body = HoldView),
        (status = 201, description = "It is yours", body = HoldView),
        (status = 409, description = "Someone else has it: see Retry-After", body = Problem, content_type = "application/problem+json"),
        (status = 410, description = "The hold of this id is over", body = Problem, content_type = "application/problem+json"),
    ),
)]
pub(crate) async fn create(
    State(app): State<Arc<App>>,
    Caller(who): Caller,
    Doc(want): Doc<HoldAsk>,
) -> Result<Response, Refusal> {
    // What would be begun now could not be ended in order.
    if app.stopping.is_cancelled() {
        return Err(Refusal::stopping());
    }
    let _place = app.wait(&who)?;
    let asked_at = app.clock.now();
    let name = Name::new(&want.name)?;
    let id = match want.id {
        Some(id) => checked(id)?,
        None => format!("{:032x}", app.random.wide()),
    };
    let class = app.class(want.class.as_deref().unwrap_or(CLASS))?;
    let holder = Holder::new(want.holder.as_deref().unwrap_or(who.id()))?;
    let wait = duration("wait_ms", want.wait_ms, 0, 60_000)?.unwrap_or(class.acquire.wait);
    let wait = Some(wait.min(app.config.longest_wait));
    let lifetime = want.ttl_ms.map(ttl).transpose()?.map(leasehold::Ttl::get);
    let heartbeat = duration("heartbeat_ms", want.heartbeat_ms, 500, 3_600_000)?;
    let heartbeat = heartbeat.unwrap_or(Duration::from_millis(HEARTBEAT));
    let row = Row {
        id: id.clone(),
        attempt: super::attempt(&app),
        owner: who.id().to_owned(),
        name: name.to_string(),
        class: class.name.to_string(),
        holder: holder.to_string(),
        // Not granted yet.
        fence: Fence::MIN,
        ttl_ms: want.ttl_ms,
        heartbeat_ms: leasehold_http::wire::millis(heartbeat),
        since: app.wall_micros(),
    };
    let token = super::token(&app, &row, &row.attempt)?;
    let held = Held {
        hold: None,
        name: name.clone(),
        owner: who.id().to_owned(),
        holder: holder.to_string(),
        class: class.name.to_string(),
        heartbeat,
        due: Moment::ZERO,
        on_failure: class.renew.on_failure,
        ttl: lifetime.unwrap_or(class.ttl.get()),
        asked: None,
        retaken: None,
    };
    if let Found::Same(view) = app.holds.begin(&id, held, asked_at)? {
        return Ok(Doc(view).into_response());
    }
    let mut place = Place::new(&app, &id);
    let tweaks = Tweaks::default().ttl(lifetime).wait(wait);
    let heirs = HoldHeirs::new(&app, row.clone(), token.clone());
    let request = Request::new(&class.name, &name)?
        .token(token)
        .heirs(heirs)
        .tweaks(tweaks);
    let acquired = tokio::select! {
        biased;
        () = app.stopping.cancelled() => return Err(Refusal::stopping()),
        acquired = app.locks.acquire(request) => acquired,
    };
    let hold = match acquired {
        Ok(Acquired::Held(hold)) => hold,
        Ok(Acquired::Busy(busy)) => {
            return Err(Refusal::busy(
                name.as_str(),
                &leasehold::store::Busy {
                    holder: busy.holder,
                    class: busy.class,
                    fence: busy.fence,
                    remaining: busy.remaining,
                    queued: false,
                },
            ));
        }
        Err(error) => return Err(refused(error)),
    };
    // A local-only hold has nothing that could be taken up again, until it has healed.
    if let Ok(fence) = hold.fence() {
        let since = app.wall_micros();
        let row = Row { fence, since, ..row };
        place.saved = true;
        if let Err(why) = app.holds.granted(row).await {
            hold.release().await;
            return Err(Refusal::new(
                StatusCode::SERVICE_UNAVAILABLE,
                "overloaded",
                format!("the daemon cannot write its own file: {why}"),
            )
            .retry_after(Duration::from_secs(5)));
        }
        app.audit
            .act(Act::new("hold", &who).name(&name).fence(fence).detail(&id));
    }
    place.stay();
    match app.holds.hold(&id, hold, app.clock.now()) {
        Some(view) => Ok((StatusCode::CREATED, Doc(view?)).into_response()),
        None => Err(Refusal::stopping()),
    }
}

/// Gives the place of an id up if the client goes before it has heard of its grant.
struct Place {
    app: Arc<App>,
    id: Option<String>,
    /// The grant is in the file, or on its way there.
    saved: bool,
}

impl Place {
    fn new(app: &Arc<App>, id: &str) -> Self {
        Self {
            app: Arc::clone(app),
            id: Some(id.to_owned()),
            saved: false,
        }
    }

    fn stay(mut self) {
        self.id = None;
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if let Some(id) = self.id.take() {
            if self.saved {
                self.app.holds.unsave(&id);
            }
            self.app.holds.forget(&id);
        }
    }
}

fn checked(id: String) -> Result<String, Refusal> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
    if (1..=64).contains(&id.len()) && id.bytes().all(plain) {
        Ok(id)
    } else {
        Err(Refusal::invalid(
            "id",
            "id: must be 1 to 64 letters, digits, `.`, `_` and `-`",
        ))
    }
}

fn refused(error: Error) -> Refusal {
    match error {
        Error::Invalid(invalid) => invalid.into(),
        Error::Unavailable {
            cause, retry_after, ..
        } => Refusal::new(StatusCode::SERVICE_UNAVAILABLE, "unavailable", error.to_string())
            .retry_after(retry_after)
            .with(|problem| {
                problem.cause = Some(cause.to_string());
                // What may have been granted is undone by the daemon.
                problem.unknown = Some(false);
            }),
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
pub(crate) async fn look(State(app): State<Arc<App>>, HoldId(id): HoldId) -> Result<Doc<HoldView>, Refusal> {
    app.holds.show(&id, app.clock.now()).map(Doc)
}

/// Say that you are still there
///
/// Answers for how long you may go on, counted from before you sent it. 410 means: stop.
#[utoipa::path(
    post, path = "/v1/holds/{id}/heartbeat", tag = "holds", operation_id = "heartbeat",
    params(("id" = String, Path, description = "The hold's id", min_length = 1, max_length = 64)),
    responses(
        (status = 200, description = "Go on", body = HoldView),
        (status = 404, description = "There is no such hold of yours", body = Problem, content_type = "application/problem+json"),
        (status = 410, description = "It is over", body = Problem, content_type = "application/problem+json"),
    ),
)]
pub(crate) async fn heartbeat(
    State(app): State<Arc<App>>,
    Caller(who): Caller,
    HoldId(id): HoldId,
) -> Result<Doc<HoldView>, Refusal> {
    let mut view = app.holds.beat(&id, who.id(), app.clock.now())?;
    if app.stopping.is_cancelled() && view.asked_to_release.is_none() {
        view.asked_to_release = Some("the daemon is stopping".to_owned());
    }
    Ok(Doc(view))
}

/// Let go of a hold
#[utoipa::path(
    delete, path = "/v1/holds/{id}", tag = "holds", operation_id = "deleteHold",
    params(("id" = String, Path, description = "The hold's id", min_length = 1, max_length = 64)),
    responses(
        (status = 200, description = "Free now, or as soon as the store answers", body = Released),
        (status = 404, description = "There is no such hold of yours", body = Problem, content_type = "application/problem+json"),
        (status = 410, description = "It is over", body = Problem, content_type = "application/problem+json"),
    ),
)]
pub(crate) async fn end(
    State(app): State<Arc<App>>,
    Caller(who): Caller,
    HoldId(id): HoldId,
) -> Result<Doc<Released>, Refusal> {
    let now = app.clock.now();
    // Lost is lost: the answer is the same as a heartbeat's.
    let view = app.holds.beat(&id, who.id(), now)?;
    let Some((hold, name)) = app.holds.take(&id, "released", now) else {
        return Err(nothing());
    };
    let outcome = hold.release().await;
    app.audit.act(
        Act::new("release", &who)
            .name(&name)
            .fence_of(view.fence)
            .detail(&id),
    );
    Ok(Doc(Released {
        name: name.to_string(),
        released: matches!(outcome, leasehold::Outcome::Released),
    }))
}

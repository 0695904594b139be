//! `POST /v1/locks/{name}/acquire`.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use leasehold::clock::until;
use leasehold::leasehold_core::Token;
use leasehold::leasehold_core::acquire::{Acquiring, End, Next};
use leasehold::policy::{Class, check_store};
use leasehold::store::{Answer, Ask, Cause, Failure, Grant, Mode, Promise};
use leasehold::{Fence, Holder, Name};
use leasehold_http::wire::{Acquire, Granted, ModeWord, Problem, Secret, millis};

use super::leaving::Leaving;
use super::{duration, token, ttl, within};
use crate::app::App;
use crate::audit::Act;
use crate::auth::Principal;
use crate::document::{Caller, Doc, LockName};
use crate::problem::Refusal;

/// The class of those who name none.
pub(crate) const CLASS: &str = "scheduler";

/// What a store's clock may be ahead of ours, in microseconds: a day.
const AHEAD: u64 = 86_400_000_000;
/// The year 2020 in microseconds: a clock before that was never set.
const SET: u64 = 1_577_836_800_000_000;

/// Acquire a lock
///
/// One question to the store, or a wait of up to a minute with `wait_ms`. With an `id` of your own, asking again returns
/// the same grant.
#[utoipa::path(
    post, path = "/v1/locks/{name}/acquire", tag = "locks", operation_id = "acquireLock",
    params(("name" = String, Path, description = "What to lock, e.g. job:42", min_length = 1, max_length = 512, pattern = "^[^\\s{}\\x00-\\x1f\\x7f-\\x9f]+$")),
    request_body = Acquire,
    responses(
        (status = 200, description = "It is yours", body = Granted),
        (status = 409, description = "Someone else has it: see Retry-After", body = Problem, content_type = "application/problem+json"),
        (status = 410, description = "This token or id was used and given back", body = Problem, content_type = "application/problem+json"),
    ),
)]
pub(crate) async fn acquire(
    State(app): State<Arc<App>>,
    Caller(who): Caller,
    LockName(name): LockName,
    Doc(want): Doc<Acquire>,
) -> Result<Doc<Granted>, Refusal> {
    let asking = Asking::read(&app, &who, &name, &want)?;
    if asking.made {
        asking.demand(&app).await?;
    }
    let started = app.clock.now();
    let _place = asking.wait.map(|_| app.wait(&who)).transpose()?;
    let answer = match asking.wait {
        Some(wait) => wait_for(&app, &asking, wait).await,
        None => once(&app, &asking).await,
    };
    let now = app.clock.now();
    let (took, waited) = (now.since(started), asking.wait.is_some());
    app.kept.acquired(&asking.ask, &answer, took, waited, now);
    app.saw(&answer);
    match answer? {
        Answer::Granted(grant) => {
            app.audit
                .act(Act::new("acquire", &who).name(&name).fence(grant.fence));
            Ok(Doc(asking.granted(&grant)))
        }
        Answer::Busy(busy) => Err(Refusal::busy(name.as_str(), &busy)),
        Answer::Void => Err(Refusal::void(name.as_str())),
    }
}

/// What the caller wants, checked.
pub(super) struct Asking {
    pub(super) ask: Ask,
    pub(super) class: Arc<Class>,
    within: Duration,
    pub(super) wait: Option<Duration>,
    /// The daemon has made the token, so the caller must be told.
    made: bool,
    /// Nobody could ask again for what a caller who has gone was granted.
    pub(super) orphan: bool,
}

impl Asking {
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
                let token = token(given)?;
                let class = app.class(token.class()).or_else(|_| app.class(CLASS))?;
                (token, class)
            }
            None => make(app, who, name, want)?,
        };
        let mode = match (want.mode, want.permits) {
            (None | Some(ModeWord::Exclusive), None) => Mode::Exclusive,
            (Some(ModeWord::Shared), None) => Mode::Shared,
            (Some(ModeWord::Permits), Some(of)) if of > 0 => Mode::Permits { of },
            _ => {
                let said = "permits: goes with the mode `permits`, and is at least 1";
                return Err(Refusal::invalid("permits", said));
            }
        };
        let lock_delay = duration("lock_delay_ms", want.lock_delay_ms, 0, 86_400_000)?;
        let wait = duration("wait_ms", want.wait_ms, 0, 60_000)?
            .map(|wait| wait.min(app.config.longest_wait))
            .filter(|wait| !wait.is_zero());
        Ok(Self {
            ask: Ask {
                mode,
                lock_delay: lock_delay.unwrap_or(class.release.lock_delay),
                floor: floor(app, want.floor)?,
                queue: duration("queue_ms", want.queue_ms, 1, 600_000)?,
                ..Ask::new(name.clone(), token, want.ttl_ms.map_or(Ok(class.ttl), ttl)?)
            },
            class,
            within: within(want.within_ms)?,
            wait,
            made: want.token.is_none(),
            orphan: want.token.is_none() && want.id.is_none(),
        })
    }

    /// A class that demands more than the store promises is not served. (A client with a token of its own has asked
    /// already.)
    async fn demand(&self, app: &App) -> Result<(), Refusal> {
        if self.class.requires == Promise::Volatile {
            return Ok(());
        }
        let promised = app.within(self.within, app.store().promise(self.within)).await?;
        Ok(check_store(&self.class, &promised)?)
    }

    fn granted(&self, grant: &Grant) -> Granted {
        let token = &self.ask.token;
        Granted {
            name: self.ask.name.to_string(),
            fence: grant.fence,
            token: self.made.then(|| Secret::new(token.expose())),
            holder: token.holder().to_owned(),
            class: token.class().to_owned(),
            ttl_ms: self.ask.ttl.as_millis(),
            kept_ms: grant.ttl.map(millis),
        }
    }
}

/// A token for a caller who brings none.
fn make(app: &App, who: &Principal, name: &Name, want: &Acquire) -> Result<(Token, Arc<Class>), Refusal> {
    let class = app.class(want.class.as_deref().unwrap_or(CLASS))?;
    let holder = Holder::new(want.holder.as_deref().unwrap_or(who.id()))?;
    let token = match &want.id {
        Some(id) => {
            if !(1..=128).contains(&id.expose().len()) {
                return Err(Refusal::invalid("id", "id: must be 1 to 128 bytes"));
            }
            app.token_of(who, name, id.expose(), &holder, &class.name)?
        }
        None => app.fresh_token(&holder, &class.name),
    };
    Ok((token, class))
}

/// A floor that the caller can have seen. Names of all tenants share the counters of fences, so one that nobody has issued
/// would use up what others need.
fn floor(app: &App, floor: Option<Fence>) -> Result<Option<Fence>, Refusal> {
    let now = u64::try_from(app.wall_micros()).unwrap_or(0);
    let most = highest(now, app.seen());
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

/// The highest floor that is believed, by the daemon's clock and by the greatest fence it has seen.
fn highest(now: u64, seen: u64) -> u64 {
    // A clock that was never set says nothing of the store's; half of all fences leave the others centuries.
    let ahead = if now < SET {
        Fence::MAX.get() / 2
    } else {
        now.saturating_add(AHEAD)
    };
    seen.max(ahead)
}

/// One question.
async fn once(app: &Arc<App>, asking: &Asking) -> Result<Answer, Failure> {
    let mut leaving = Leaving::new(app, asking);
    let answer = put(app, asking, &asking.ask, asking.within).await;
    // What the store said, the caller hears now. What it did not say nobody knows.
    if !matches!(&answer, Err(failure) if failure.unknown) {
        leaving.stay();
    }
    answer
}

/// Asks the store. A waiter's bell is there before it is registered, so that no hint is lost.
async fn put(app: &App, asking: &Asking, ask: &Ask, within: Duration) -> Result<Answer, Failure> {
    if let Some(keep) = ask.queue {
        let now = app.clock.now();
        app.waiters
            .listen(&**app.store(), &ask.name, &ask.token, keep, now);
    }
    let answer = app.within(within, app.store().acquire(ask, within)).await;
    if matches!(answer, Ok(Answer::Granted(_) | Answer::Void)) {
        app.waiters.forget(&asking.ask.token);
    }
    answer
}

/// Asks, waits and asks again, by core's own machine.
async fn wait_for(app: &Arc<App>, asking: &Asking, wait: Duration) -> Result<Answer, Failure> {
    let mut leaving = Leaving::new(app, asking);
    let can_queue = app.store().capabilities().queue;
    let mut class = Class::clone(&asking.class);
    class.ttl = asking.ask.ttl;
    let mut machine = Acquiring::new(Arc::new(class), wait, can_queue, app.clock.now());
    let mut ask = asking.ask.clone();
    let mut next = machine.ask(app.clock.now());
    let end = loop {
        next = match next {
            Next::Ask { within, queue } => {
                ask.queue = queue;
                let sent_at = app.clock.now();
                let answer = put(app, asking, &ask, within).await;
                let (now, random) = (app.clock.now(), app.random.bits());
                match answer {
                    Ok(Answer::Void) => {
                        leaving.stay();
                        return Ok(Answer::Void);
                    }
                    Ok(answer) => machine.answered(answer, sent_at, now, random),
                    Err(failure) => machine.failed(&failure, sent_at, now, random),
                }
            }
            Next::Rest { until: at } => {
                let now = app.clock.now();
                let bell = app
                    .waiters
                    .listen(&**app.store(), &ask.name, &ask.token, Duration::ZERO, now);
                tokio::select! {
                    biased;
                    () = app.stopping.cancelled() => {
                        return Err(stopped(machine.ambiguous() && !asking.orphan));
                    }
                    _ = until(&*app.clock, at, bell.woken()) => {}
                }
                machine.rested(app.clock.now())
            }
            Next::End(end) => break end,
        };
    };
    app.waiters.forget(&ask.token);
    match end {
        End::Held { grant, .. } => {
            leaving.stay();
            Ok(Answer::Granted(grant))
        }
        // Nothing is undone for a caller who can ask again, so it must know that one of its questions may still be granted.
        End::Busy(_) if machine.ambiguous() && !asking.orphan => {
            let said = "someone else has it, but the store did not answer an earlier question of this wait, which may still be \
                        granted: ask again with the same id or token";
            Err(Failure::unknown(Cause::TimedOut, said))
        }
        // The place in the queue is given up with it.
        End::Busy(busy) => {
            let mut busy = busy;
            busy.queued = false;
            Ok(Answer::Busy(busy))
        }
        End::Unavailable { cause, message } | End::FallBack { cause, message } => {
            Err(Failure::unknown(cause, message))
        }
        End::TooLate => {
            let said = "the grant came too late to be used";
            Err(Failure::unknown(Cause::TimedOut, said))
        }
    }
}

/// A wait that the daemon's end cuts short.
fn stopped(unknown: bool) -> Failure {
    if unknown {
        let said = "the daemon is stopping, and the store did not answer an earlier question of this wait, which may still be \
                    granted: ask again with the same id or token once it is back";
        return Failure::unknown(Cause::Overloaded, said);
    }
    let said = "the daemon is stopping; ask again once it is back";
    Failure::not_done(Cause::Overloaded, said)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn floors_are_believed_as_far_as_the_clock_or_the_store_goes() {
        let now = SET + 1;
        assert_eq!(highest(now, 0), now + AHEAD);
        assert_eq!(highest(now, now + AHEAD + 1), now + AHEAD + 1);
        // Without a clock the store's is not judged, and nothing comes near the end.
        assert_eq!(highest(0, 0), Fence::MAX.get() / 2);
        assert!(highest(0, 0) > SET);
    }
}

//! Resumes a hold of an earlier process from its kept token and fence.
//!
//! One renewal decides: the lease still has that token and fence, or it is lost. The deadline
//! counts from before that renewal was sent, as after any other; nothing is assumed about the time
//! in between. A name that is busy at the process-local gate says nothing about the lease: only the
//! store knows.

use std::future::Future;
use std::panic::Location;
use std::sync::Arc;
use std::time::Duration;

use crate::client::{ClientInner, Locks};
use crate::context::Context;
use crate::error::Error;
use crate::event::{EventKind, EventSubject};
use crate::gate::CallSite;
use crate::hold::Hold;
use crate::keeper::{HoldEntry, KeeperCommand};
use crate::life::HoldMachine;
use crate::request::Request;
use crate::store::{
    Grant, RenewRequest, RenewResponse, StoreError, StoreErrorKind, TOMBSTONE_TTL, bounded_call,
};
use crate::types::{Fence, InvalidInput};

/// The result of [`Locks::resume`].
#[derive(Debug)]
#[must_use = "a hold that is not kept is released at once"]
pub enum ResumeOutcome {
    /// The lease was renewed and the hold continues.
    Held(Hold),
    /// The lease no longer has that token and fence: it expired, was broken or was released.
    /// Nothing was changed.
    Gone,
}

impl Locks {
    /// Resumes the hold of [`Request::token`] that was granted with this fence and has been held
    /// for `age`.
    ///
    /// # Errors
    /// The store did not answer, or another task of this process is acquiring the name. The lease
    /// may still exist, so retry until it must have expired. Also: the client has shut down, the
    /// request has no token, or the request is invalid.
    #[track_caller]
    pub fn resume(
        &self,
        request: Request,
        fence: Fence,
        age: Duration,
    ) -> impl Future<Output = Result<ResumeOutcome, Error>> + Send + use<> {
        let (inner, place) = (Arc::clone(&self.inner), Location::caller());
        async move {
            tokio::select! {
                biased;
                () = inner.closing.cancelled() => Err(Error::Closed),
                answer = resume(&inner, request, fence, age, place) => answer,
            }
        }
    }
}

async fn resume(
    inner: &Arc<ClientInner>,
    request: Request,
    fence: Fence,
    age: Duration,
    place: CallSite,
) -> Result<ResumeOutcome, Error> {
    let (context, started) = (&inner.context, inner.context.clock.now());
    let class = request.options.apply(&inner.policies.class(&request.class, started)?)?;
    let Some(token) = request.token else {
        return Err(InvalidInput::new("token", "", "must be the one the lease was granted to").into());
    };
    let renewal = [RenewRequest::new(request.name.clone(), token.clone(), fence, class.ttl)
        .with_lock_delay(class.release.lock_delay)];
    let unavailable = |failure: StoreError| Error::Unavailable {
        name: request.name.clone(),
        class: class.name.to_string(),
        cause: failure.kind,
        message: failure.message().to_owned(),
        retry_after: class.acquire.retry_after,
    };
    let enter = |until| inner.gate.enter(&request.name, place, until, &*context.clock);
    // Does not wait: the renewal must be sent now, because the lease may be about to expire.
    let mut permit = enter(started).await.ok();
    let (permit, sent_at) = loop {
        let sent_at = context.clock.now();
        match renew_once(context, &renewal, class.renew.timeout).await {
            Ok(RenewResponse::Extended { .. }) => {}
            Ok(RenewResponse::NotOwned) => return Ok(ResumeOutcome::Gone),
            Err(failure) => return Err(unavailable(failure)),
        }
        if let Some(permit) = permit {
            break (permit, sent_at);
        }
        // The task inside the gate waits for this very lease or runs without one, so it goes first.
        // Waiting ends when the lease needs a renewal; the next loop learns from one what happened.
        let patience = class.renew.every.unwrap_or(class.renew.timeout);
        permit = enter(sent_at + patience).await.ok();
        if permit.is_none() {
            let why = "the lease is there, but its name is asked for in this process; try again";
            return Err(unavailable(StoreError::not_done(StoreErrorKind::Overloaded, why)));
        }
    };
    let (now, id) = (context.clock.now(), context.next_id());
    context.floors.record(&request.name, fence);
    let someone = context.foreign_holder(&token);
    let subject = EventSubject {
        name: Some(&request.name),
        class: &class.name,
        fence: Some(fence),
        hold: id,
        holder: someone.as_ref(),
    };
    context.events.emit(&subject, EventKind::Resumed { age });
    let grant = Grant::new(fence);
    let seed = context.random.bits();
    // A request of the earlier process may still be delayed; its release must leave a tombstone.
    let life = HoldMachine::granted(Arc::clone(&class), seed, sent_at, grant, now)
        .with_earlier_age(age)
        .with_late_until(now + TOMBSTONE_TTL);
    let mut entry = HoldEntry::new(id, life, request.name.clone(), token, Some(permit));
    entry.options = request.options;
    entry.token_source = request.token_source;
    let hold = Hold {
        id,
        name: request.name,
        class: Arc::clone(&class.name),
        shared: Arc::clone(&entry.shared),
        keeper: inner.keeper.clone(),
        clock: Arc::clone(&context.clock),
    };
    inner.keeper.send(KeeperCommand::Adopt(Box::new(entry)));
    Ok(ResumeOutcome::Held(hold))
}

async fn renew_once(
    context: &Context,
    renewal: &[RenewRequest],
    within: Duration,
) -> Result<RenewResponse, StoreError> {
    let acquire = async {
        let unanswered =
            || StoreError::unknown(StoreErrorKind::Corrupt, "the store did not answer this renewal");
        let answer = context.store.renew(renewal, within).await.pop();
        answer.unwrap_or_else(|| Err(unanswered()))
    };
    bounded_call(&*context.clock, within, acquire).await
}

//! Taking up a hold of an earlier process: its token and fence were kept, the process was not.
//!
//! One renewal decides: the lease is still that token's with that fence, or it is gone. The deadline counts from before
//! that renewal was sent, as after any other; nothing is assumed about the time in between. A name that is taken at the
//! process-local gate says nothing about the lease: only the store does.

use std::future::Future;
use std::panic::Location;
use std::sync::Arc;
use std::time::Duration;

use crate::call::bounded;
use crate::client::{Inner, Locks};
use crate::error::Error;
use crate::event::{Subject, What};
use crate::gate::Place;
use crate::hold::Hold;
use crate::keeper::{Command, Entry};
use crate::life::Life;
use crate::request::Request;
use crate::store::{Cause, Failure, Grant, Renewal, Renewed, TOMBSTONE};
use crate::tools::Tools;
use crate::word::{Fence, Invalid};

/// What became of a hold of an earlier process.
#[derive(Debug)]
#[must_use = "a hold that is not kept is released at once"]
pub enum Resumed {
    /// It goes on.
    Held(Hold),
    /// Its lease is not that token's any more: it ran out, was broken or was released. Nothing was changed.
    Gone,
}

impl Locks {
    /// Takes up the hold of [`Request::token`] that was granted with this fence, and has been held for `age`.
    ///
    /// # Errors
    /// The store could not be asked, or someone in this process has come first and still asks for the name: the lease
    /// may be there still, so ask again until it must have run out. Or the client has shut down, or the request has no
    /// token or cannot be used.
    #[track_caller]
    pub fn resume(
        &self,
        request: Request,
        fence: Fence,
        age: Duration,
    ) -> impl Future<Output = Result<Resumed, Error>> + Send + use<> {
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
    inner: &Arc<Inner>,
    request: Request,
    fence: Fence,
    age: Duration,
    place: Place,
) -> Result<Resumed, Error> {
    let (tools, started) = (&inner.tools, inner.tools.clock.now());
    let class = request
        .tweaks
        .apply(&inner.book.class(&request.class, started)?)?;
    let Some(token) = request.token else {
        return Err(Invalid::new("token", "", "must be the one the lease was granted to").into());
    };
    let renewal = [Renewal {
        name: request.name.clone(),
        token: token.clone(),
        fence,
        ttl: class.ttl,
        lock_delay: class.release.lock_delay,
    }];
    let unavailable = |failure: Failure| Error::Unavailable {
        name: request.name.clone(),
        class: class.name.to_string(),
        cause: failure.cause,
        message: failure.message().to_owned(),
        retry_after: class.acquire.retry_after,
    };
    let enter = |until| inner.gate.enter(&request.name, place, until, &*tools.clock);
    let mut permit = enter(started).await.ok();
    let (permit, sent_at) = loop {
        let sent_at = tools.clock.now();
        match renew(tools, &renewal, class.renew.timeout).await {
            Ok(Renewed::Extended { .. }) => {}
            Ok(Renewed::NotOwned) => return Ok(Resumed::Gone),
            Err(failure) => return Err(unavailable(failure)),
        }
        if let Some(permit) = permit {
            break (permit, sent_at);
        }
        // Whoever is inside waits for this very lease, as it is still there, or runs without one. It goes first, for as
        // long as the lease need not be renewed; what happened meanwhile another renewal tells.
        let patience = class.renew.every.unwrap_or(class.renew.timeout);
        permit = enter(sent_at + patience).await.ok();
        if permit.is_none() {
            let why = "the lease is there, but its name is asked for in this process; try again";
            return Err(unavailable(Failure::not_done(Cause::Overloaded, why)));
        }
    };
    let (now, id) = (tools.clock.now(), tools.next_id());
    tools.floors.saw(&request.name, fence);
    let someone = tools.someone(&token);
    let subject = Subject {
        name: Some(&request.name),
        class: &class.name,
        fence: Some(fence),
        hold: id,
        holder: someone.as_ref(),
    };
    tools.events.emit(&subject, What::Resumed { age });
    let grant = Grant { fence, ttl: None };
    let seed = tools.random.bits();
    // What an earlier process has asked may still be on its way.
    let life = Life::granted(Arc::clone(&class), seed, sent_at, grant, now)
        .aged(age)
        .late_until(now + TOMBSTONE);
    let mut entry = Entry::new(id, life, request.name.clone(), token, Some(permit));
    entry.tweaks = request.tweaks;
    entry.heirs = request.heirs;
    let hold = Hold {
        id,
        name: request.name,
        class: Arc::clone(&class.name),
        shared: Arc::clone(&entry.shared),
        keeper: inner.keeper.clone(),
        clock: Arc::clone(&tools.clock),
    };
    inner.keeper.send(Command::Adopt(Box::new(entry)));
    Ok(Resumed::Held(hold))
}

/// Asks the store once.
async fn renew(tools: &Tools, renewal: &[Renewal], within: Duration) -> Result<Renewed, Failure> {
    let asking = async {
        let unanswered = || Failure::unknown(Cause::Corrupt, "the store did not answer this renewal");
        let answer = tools.store.renew(renewal, within).await.pop();
        answer.unwrap_or_else(|| Err(unanswered()))
    };
    bounded(tools, within, asking).await
}

//! The thin shell around the acquire machine: the gate, the breaker, the store, and what is owed when the caller goes.

use std::mem;
use std::sync::Arc;
use std::time::Duration;

use super::enter::{Entering, unavailable};
use super::machine::{Acquiring, End, Next};
use super::seen::Seen;
use crate::breaker::Admission;
use crate::call::bounded;
use crate::client::{Acquired, Inner};
use crate::clock::{Moment, until};
use crate::error::{Busy, Error};
use crate::event::{Subject, What};
use crate::gate::{Permit, Place};
use crate::hold::Hold;
use crate::keeper::{Command, Entry};
use crate::life::Life;
use crate::policy::{Class, OnError};
use crate::request::Request;
use crate::store::{Answer, Ask, Cause, Failure, Grant, Listener, TOMBSTONE};
use crate::word::{Holder, Token};

/// Acquires, as long as the client is open: one that still waits when it shuts down leaves like a cancelled one.
pub(crate) async fn acquire(inner: &Arc<Inner>, request: Request, place: Place) -> Result<Acquired, Error> {
    tokio::select! {
        biased;
        () = inner.closing.cancelled() => Err(Error::Closed),
        answer = proceed(inner, request, place) => answer,
    }
}

/// Validate, then the gate, then the breaker, then the store, then wait.
async fn proceed(inner: &Arc<Inner>, request: Request, place: Place) -> Result<Acquired, Error> {
    let started = inner.tools.clock.now();
    let class = request
        .tweaks
        .apply(&inner.book.class(&request.class, started)?)?;
    let id = inner.tools.next_id();
    let wait = class.acquire.wait;
    let holder = request
        .token
        .as_ref()
        .and_then(|token| inner.tools.someone(token));
    let entering = Entering {
        inner,
        id,
        started,
        name: &request.name,
        class: &class,
        holder: holder.as_ref(),
        over: false,
    };
    let permit = match entering.enter(place).await? {
        Ok(permit) => permit,
        Err(busy) => return Ok(Acquired::Busy(busy)),
    };
    // What the gate took of the wait is gone.
    let left = (started + wait).since(inner.tools.clock.now());
    let token = match &request.token {
        Some(token) => token.clone(),
        None => Token::fresh(&inner.tools.holder, &class.name, &*inner.tools.random),
    };
    let can_queue = inner.tools.store.capabilities().queue;
    let now = inner.tools.clock.now();
    Attempt {
        inner: Arc::clone(inner),
        id,
        started,
        acquiring: Acquiring::new(Arc::clone(&class), left, can_queue, now),
        ask: Ask {
            mode: request.mode,
            lock_delay: class.release.lock_delay,
            floor: inner.tools.floors.of(&request.name),
            ..Ask::new(request.name.clone(), token, class.ttl)
        },
        in_force: Arc::clone(&class),
        class,
        request,
        holder,
        permit: Some(permit),
        listener: None,
        in_flight: false,
        probing: false,
        seen: Seen::default(),
        done: false,
    }
    .run()
    .await
}

/// What became of one ask.
enum Heard {
    Answered(Answer, Moment),
    Failed(Failure, Moment),
    /// Too many others are asking: nothing was sent.
    Crowded(Moment),
    /// Nothing was sent.
    Refused(String),
}

/// One acquire in progress. Dropping it at any point undoes what it may have done.
struct Attempt {
    inner: Arc<Inner>,
    id: u64,
    started: Moment,
    acquiring: Acquiring,
    ask: Ask,
    /// What it asks with.
    class: Arc<Class>,
    /// The same class, as it was when the store was last heard.
    in_force: Arc<Class>,
    request: Request,
    /// Who asks, if it is not the client itself.
    holder: Option<Holder>,
    permit: Option<Permit>,
    listener: Option<Listener>,
    /// An ask has been sent and not been answered.
    in_flight: bool,
    /// This ask is the breaker's probe.
    probing: bool,
    seen: Seen,
    done: bool,
}

impl Attempt {
    async fn run(mut self) -> Result<Acquired, Error> {
        let mut next = self.acquiring.ask(self.now());
        loop {
            next = match next {
                Next::Ask { within, queue } => {
                    let heard = self.ask(within, queue).await;
                    self.hear(heard)
                }
                Next::Rest { until } => self.rest(until).await,
                Next::End(end) => return self.end(end),
            };
        }
    }

    async fn ask(&mut self, within: Duration, queue: Option<Duration>) -> Heard {
        let inner = Arc::clone(&self.inner);
        let waits = self.now();
        // Renewals and releases do not pass here: a flood of acquires cannot hold them up.
        let _slot = match until(&*inner.tools.clock, waits + within, inner.asking.acquire()).await {
            Some(Ok(slot)) => slot,
            Some(Err(_)) => return Heard::Refused("the client is shutting down".to_owned()),
            None => return Heard::Crowded(waits),
        };
        let within = within.saturating_sub(self.now().since(waits));
        // After the wait for a slot: what was learnt meanwhile counts for those in the queue too.
        if !self.probing {
            let mut breaker = inner.tools.breaker();
            match breaker.admit(self.now()) {
                Admission::Refuse { until } => {
                    let left = until.since(self.now()).as_millis();
                    let why = breaker.why();
                    return Heard::Refused(format!("{why}; the next try is due in {left} ms"));
                }
                Admission::Probe => self.probing = true,
                Admission::Pass => {}
            }
        }
        self.ask.queue = queue;
        if queue.is_some() && self.listener.is_none() {
            self.listener = Some(inner.tools.store.listen(&self.ask.name, &self.ask.token));
        }
        let sent_at = self.now();
        self.in_flight = true;
        let result = bounded(&inner.tools, within, inner.tools.store.acquire(&self.ask, within)).await;
        self.in_flight = false;
        match result {
            Ok(answer) => {
                self.probing = false;
                inner.tools.breaker().succeeded();
                self.look(&answer, self.now());
                Heard::Answered(answer, sent_at)
            }
            Err(failure) => Heard::Failed(failure, sent_at),
        }
    }

    /// The class may have changed while it waited: an error ends as the class in force says.
    fn hear(&mut self, heard: Heard) -> Next {
        let (now, random) = (self.now(), self.inner.tools.random.bits());
        let tweaks = &self.request.tweaks;
        if let Some(class) = self.inner.book.in_force(&self.class.name, tweaks, now) {
            self.acquiring.policy_changed(&class);
            self.in_force = class;
        }
        match heard {
            Heard::Answered(answer, sent_at) => self.acquiring.answered(answer, sent_at, now, random),
            Heard::Failed(failure, sent_at) => {
                let next = self.acquiring.failed(&failure, sent_at, now, random);
                self.count(&failure, &next);
                next
            }
            Heard::Crowded(since) => {
                let why = "too many asks of this client are on their way already";
                let failure = Failure::not_done(Cause::Overloaded, why);
                self.acquiring.failed(&failure, since, now, random)
            }
            Heard::Refused(why) => self.acquiring.refused(why, now),
        }
    }

    /// What the breaker learns from an ask that failed.
    fn count(&mut self, failure: &Failure, next: &Next) {
        let now = self.now();
        let mut breaker = self.inner.tools.breaker();
        let probe = mem::take(&mut self.probing);
        // Only what is about the way to the store: a store that refuses us is there.
        if !failure.transient() {
            if probe {
                breaker.abandoned();
            }
            return;
        }
        breaker.because(failure.message());
        // Nobody knows what became of it, so it is asked again, and is the probe until it knows: the ask may have ended on a
        // connection that was dead long before.
        if failure.unknown && !matches!(next, Next::End(_)) {
            self.probing = probe || breaker.doubted(now);
        } else {
            breaker.failed(now, probe);
        }
    }

    fn look(&mut self, answer: &Answer, now: Moment) {
        if let Answer::Busy(busy) = answer {
            if let Some(fence) = busy.fence {
                self.inner.tools.floors.saw(&self.ask.name, fence);
                self.ask.floor = self.inner.tools.floors.of(&self.ask.name);
            }
            self.seen.look(busy, &self.inner.tools.holder, now);
        }
    }

    async fn rest(&mut self, until: Moment) -> Next {
        let sleep = self.inner.tools.clock.sleep_until(until);
        match &self.listener {
            Some(listener) => tokio::select! {
                biased;
                () = listener.woken() => {}
                () = sleep => {}
            },
            None => sleep.await,
        }
        self.acquiring.rested(self.now())
    }

    fn end(mut self, end: End) -> Result<Acquired, Error> {
        let took = self.now().since(self.started);
        match end {
            End::Held { sent_at, grant } => Ok(Acquired::Held(self.held(sent_at, grant, took))),
            End::Busy(busy) => {
                let me = self.inner.tools.holder.as_str();
                let busy = Busy::from_store(self.ask.name.clone(), busy, took, me);
                self.emit(
                    None,
                    What::Busy {
                        took,
                        holder: busy.holder.clone(),
                        held_here: busy.held_here,
                    },
                );
                self.over();
                Ok(Acquired::Busy(busy))
            }
            End::Unavailable { cause, message } => Err(self.fail(cause, message, took)),
            End::FallBack { cause, .. } => Ok(Acquired::Held(self.fall_back(cause, took))),
            End::TooLate => {
                self.emit(None, What::TooLate);
                if self.acquiring.falls_back() {
                    return Ok(Acquired::Held(self.fall_back(Cause::TimedOut, took)));
                }
                Err(self.fail(
                    Cause::TimedOut,
                    "the grant came too late to be used".to_owned(),
                    took,
                ))
            }
        }
    }

    fn held(mut self, sent_at: Moment, grant: Grant, took: Duration) -> Hold {
        let now = self.now();
        self.inner.tools.floors.saw(&self.ask.name, grant.fence);
        self.emit(Some(grant), self.seen.acquired(took, now));
        let seed = self.inner.tools.random.bits();
        let mut life = Life::granted(Arc::clone(&self.class), seed, sent_at, grant, now);
        // A token that its caller keeps may be asked with again, by a request that is late.
        if self.acquiring.ambiguous() || self.request.token.is_some() {
            life = life.late_until(now + TOMBSTONE);
        }
        self.adopt(life, None)
    }

    fn fall_back(mut self, cause: Cause, took: Duration) -> Hold {
        if self.in_force.acquire.on_error == OnError::FailClosed {
            self.emit(None, What::WouldRefuse { cause });
        }
        self.emit(None, What::FellBack { cause, took });
        // What the asks may have left is not undone but healed with, by the same token: a grant whose answer was lost
        // would otherwise look like someone else's.
        let asked = self.acquiring.owes_undo();
        let seed = self.inner.tools.random.bits();
        let life = Life::local_only(Arc::clone(&self.class), seed, asked, self.now());
        let heal_token = asked.then(|| self.ask.token.clone());
        self.adopt(life, heal_token)
    }

    /// From here on the keeper keeps it.
    fn adopt(&mut self, life: Life, heal_token: Option<Token>) -> Hold {
        let name = self.ask.name.clone();
        let mut entry = Entry::new(
            self.id,
            life,
            name.clone(),
            self.ask.token.clone(),
            self.permit.take(),
        );
        entry.heal_token = heal_token;
        entry.tweaks = self.request.tweaks;
        entry.heirs = self.request.heirs.take();
        let hold = Hold {
            id: self.id,
            name,
            class: Arc::clone(&self.class.name),
            shared: Arc::clone(&entry.shared),
            keeper: self.inner.keeper.clone(),
            clock: Arc::clone(&self.inner.tools.clock),
        };
        self.inner.keeper.send(Command::Adopt(Box::new(entry)));
        self.done = true;
        hold
    }

    fn fail(&mut self, cause: Cause, message: String, took: Duration) -> Error {
        self.emit(None, What::Unavailable { cause, took });
        self.over();
        unavailable(&self.ask.name, &self.in_force, cause, message)
    }

    /// It has ended without a hold.
    fn over(&mut self) {
        self.undo();
        self.done = true;
    }

    /// Takes back what may have been left in the store.
    fn undo(&self) {
        if self.in_flight || self.acquiring.owes_undo() {
            self.inner.keeper.send(Command::Undo {
                id: self.inner.tools.next_id(),
                name: self.ask.name.clone(),
                token: self.ask.token.clone(),
                class: Arc::clone(&self.class),
            });
        }
    }

    fn emit(&self, grant: Option<Grant>, what: What) {
        let fence = grant.map(|grant| grant.fence);
        let subject = Subject {
            name: Some(&self.ask.name),
            class: &self.class.name,
            fence,
            hold: self.id,
            holder: self.holder.as_ref(),
        };
        self.inner.tools.events.emit(&subject, what);
    }

    fn now(&self) -> Moment {
        self.inner.tools.clock.now()
    }
}

impl Drop for Attempt {
    fn drop(&mut self) {
        if self.probing {
            self.inner.tools.breaker().abandoned();
        }
        if self.done {
            return;
        }
        // The caller dropped the acquire: at whatever point, nothing of it stays.
        self.undo();
        self.emit(
            None,
            What::Cancelled {
                took: self.now().since(self.started),
            },
        );
    }
}

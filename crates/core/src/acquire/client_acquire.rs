//! An acquire of the library: passes the gate, runs the driver behind the client's slots and
//! breaker, and undoes an acquire that is dropped.

use std::sync::Arc;
use std::time::Duration;

use super::driver::{AcquireDriver, AcquireHooks, AcquireStopped, CallAdmission, DriverIo};
use super::gate_entry::{GateEntry, unavailable_error};
use super::machine::{AcquireOutcome, AcquireStep};
use super::wait_observation::WaitObservation;
use crate::breaker::AcquireBreaker;
use crate::client::{Acquired, ClientInner};
use crate::clock::{Moment, run_until};
use crate::error::{Busy, Error};
use crate::event::{EventKind, EventSubject};
use crate::gate::{CallSite, Permit};
use crate::hold::Hold;
use crate::keeper::{HoldEntry, KeeperCommand};
use crate::life::HoldMachine;
use crate::policy::{Class, OnError, check_ttl};
use crate::request::{Request, RequestOptions};
use crate::store::{AcquireRequest, AcquireResponse, Grant, StoreError, StoreErrorKind, TOMBSTONE_TTL};
use crate::types::{Holder, Token};

/// Runs one acquire. A shutdown drops it like a cancelled one.
pub(crate) async fn acquire(
    inner: &Arc<ClientInner>,
    request: Request,
    place: CallSite,
) -> Result<Acquired, Error> {
    tokio::select! {
        biased;
        () = inner.closing.cancelled() => Err(Error::Closed),
        answer = run_acquire(inner, request, place) => answer,
    }
}

/// Validates the request, passes the gate, then runs the driver.
async fn run_acquire(inner: &Arc<ClientInner>, request: Request, place: CallSite) -> Result<Acquired, Error> {
    let started = inner.context.clock.now();
    let class = request.options.apply(&inner.policies.class(&request.class, started)?)?;
    check_ttl(&class, &inner.context.store.capabilities())?;
    // Before the gate and the store: an invalid name is an error of the caller, which no failure policy covers.
    if !request.existing_name {
        request.name.check_visible()?;
    }
    match &request.token {
        Some(token) => token.check_visible()?,
        None => inner.context.holder.check_visible()?,
    }
    let id = inner.context.next_id();
    let wait = class.acquire.wait;
    let holder = request.token.as_ref().and_then(|token| inner.context.foreign_holder(token));
    let entering = GateEntry {
        inner,
        id,
        started,
        name: &request.name,
        class: &class,
        holder: holder.as_ref(),
        ended: false,
    };
    let permit = match entering.enter(place).await? {
        Ok(permit) => permit,
        Err(busy) => return Ok(Acquired::Busy(busy)),
    };
    // The time spent at the gate counts towards the wait.
    let left = (started + wait).since(inner.context.clock.now());
    let token = match &request.token {
        Some(token) => token.clone(),
        None => Token::fresh(&inner.context.holder, &class.name, &*inner.context.random),
    };
    let store_request = AcquireRequest::new(request.name.clone(), token, class.ttl)
        .with_mode(request.mode)
        .with_existing_names(request.existing_name)
        .with_lock_delay(class.release.lock_delay)
        .with_floor(inner.context.floors.get(&request.name));
    let io = DriverIo {
        store: Arc::clone(&inner.context.store),
        clock: Arc::clone(&inner.context.clock),
        random: Arc::clone(&inner.context.random),
    };
    let hooks = ClientHooks {
        inner: Arc::clone(inner),
        options: request.options,
        class_in_force: Arc::clone(&class),
        breaker: AcquireBreaker::default(),
        observation: WaitObservation::default(),
    };
    ClientAcquire {
        inner: Arc::clone(inner),
        id,
        started,
        driver: AcquireDriver::new(io, Arc::clone(&class), left, store_request, hooks),
        class,
        request,
        holder,
        permit: Some(permit),
        done: false,
    }
    .run()
    .await
}

/// What the library adds to the driver: slots, the breaker, fence floors and policy changes.
struct ClientHooks {
    inner: Arc<ClientInner>,
    options: RequestOptions,
    // The class as of the last request; it decides how an error ends.
    class_in_force: Arc<Class>,
    breaker: AcquireBreaker,
    observation: WaitObservation,
}

impl AcquireHooks for ClientHooks {
    type Permit = tokio::sync::OwnedSemaphorePermit;

    async fn admit(&mut self, within: Duration) -> CallAdmission<Self::Permit> {
        let context = &self.inner.context;
        // Renewals and releases need no slot: a flood of acquires cannot delay them.
        let waiting = Arc::clone(&self.inner.acquire_slots).acquire_owned();
        let slot = match run_until(&*context.clock, context.clock.now() + within, waiting).await {
            Some(Ok(slot)) => slot,
            Some(Err(_)) => return CallAdmission::Refused("the client is shutting down".to_owned()),
            None => {
                let why = "this client has too many acquire requests in flight already";
                return CallAdmission::NotSent(StoreError::not_done(StoreErrorKind::Overloaded, why));
            }
        };
        // Checked after the wait for a slot, so that queued acquires also profit from what was
        // learnt meanwhile.
        match self.breaker.admit(&mut context.breaker(), context.clock.now()) {
            Ok(()) => CallAdmission::Admitted(slot),
            Err(why) => CallAdmission::Refused(why),
        }
    }

    fn on_response(&mut self, response: &AcquireResponse, request: &mut AcquireRequest, now: Moment) {
        let context = &self.inner.context;
        self.breaker.on_response(&mut context.breaker());
        context.floors.learn(response, request);
        if let AcquireResponse::Busy(busy) = response {
            self.observation.observe(busy, &context.holder, now);
        }
    }

    fn on_error(&mut self, error: &StoreError, next: &AcquireStep, now: Moment) {
        let retried = !matches!(next, AcquireStep::End(_));
        self.breaker.on_error(&mut self.inner.context.breaker(), error, retried, now);
    }

    fn class_in_force(&mut self, now: Moment) -> Option<Arc<Class>> {
        let name = &self.class_in_force.name;
        let class = self.inner.policies.class_for_request(name, &self.options, now)?;
        self.class_in_force = Arc::clone(&class);
        Some(class)
    }
}

/// One acquire in progress. Dropping it at any point undoes what it may have done.
struct ClientAcquire {
    inner: Arc<ClientInner>,
    id: u64,
    started: Moment,
    driver: AcquireDriver<ClientHooks>,
    // The class whose terms the request carries.
    class: Arc<Class>,
    request: Request,
    holder: Option<Holder>,
    permit: Option<Permit>,
    done: bool,
}

impl ClientAcquire {
    async fn run(mut self) -> Result<Acquired, Error> {
        match self.driver.run().await {
            Ok(outcome) => self.end(outcome),
            // The client's hooks never stop an acquire: a shutdown drops it instead.
            Err(AcquireStopped) => Err(Error::Closed),
        }
    }

    fn end(mut self, end: AcquireOutcome) -> Result<Acquired, Error> {
        let took = self.now().since(self.started);
        match end {
            AcquireOutcome::Held { sent_at, grant } => {
                Ok(Acquired::Held(self.into_hold(sent_at, grant, took)))
            }
            AcquireOutcome::Busy(busy) => {
                let me = self.inner.context.holder.as_str();
                let busy = Busy::from_store(self.request.name.clone(), busy, took, me);
                self.emit(
                    None,
                    EventKind::Busy { took, holder: busy.holder.clone(), held_here: busy.held_here },
                );
                self.end_without_hold();
                Ok(Acquired::Busy(busy))
            }
            AcquireOutcome::Unavailable { cause, message } => Err(self.unavailable(cause, message, took)),
            AcquireOutcome::FallBack { cause, .. } => Ok(Acquired::Held(self.fall_back(cause, took))),
            AcquireOutcome::TooLate => {
                self.emit(None, EventKind::TooLate);
                if self.driver.machine().falls_back() {
                    return Ok(Acquired::Held(self.fall_back(StoreErrorKind::TimedOut, took)));
                }
                Err(self.unavailable(
                    StoreErrorKind::TimedOut,
                    "the grant came too late to be used".to_owned(),
                    took,
                ))
            }
        }
    }

    fn into_hold(mut self, sent_at: Moment, grant: Grant, took: Duration) -> Hold {
        let now = self.now();
        self.emit(Some(grant), self.driver.hooks().observation.acquired_event(took, now));
        let seed = self.inner.context.random.bits();
        let mut life = HoldMachine::granted(Arc::clone(&self.class), seed, sent_at, grant, now);
        // A caller that keeps its token may send a second, delayed request with it.
        if self.driver.machine().maybe_granted() || self.request.token.is_some() {
            life = life.with_late_until(now + TOMBSTONE_TTL);
        }
        self.hand_to_keeper(life, None)
    }

    fn fall_back(mut self, cause: StoreErrorKind, took: Duration) -> Hold {
        if self.driver.hooks().class_in_force.acquire.on_error == OnError::FailClosed {
            self.emit(None, EventKind::WouldRefuse { cause });
        }
        self.emit(None, EventKind::FellBack { cause, took });
        // Possible grants are not undone but used for healing with the same token. A grant whose
        // response was lost would otherwise look foreign.
        let needs_undo = self.driver.needs_undo();
        let seed = self.inner.context.random.bits();
        let life = HoldMachine::local_only(Arc::clone(&self.class), seed, needs_undo, self.now());
        let heal_token = needs_undo.then(|| self.driver.request().token.clone());
        self.hand_to_keeper(life, heal_token)
    }

    /// Hands the hold to the keeper.
    fn hand_to_keeper(&mut self, life: HoldMachine, heal_token: Option<Token>) -> Hold {
        let name = self.request.name.clone();
        let mut entry = HoldEntry::new(
            self.id,
            life,
            name.clone(),
            self.driver.request().token.clone(),
            self.permit.take(),
        );
        entry.heal_token = heal_token;
        entry.options = self.request.options;
        entry.token_source = self.request.token_source.take();
        let hold = Hold {
            id: self.id,
            name,
            class: Arc::clone(&self.class.name),
            shared: Arc::clone(&entry.shared),
            keeper: self.inner.keeper.clone(),
            clock: Arc::clone(&self.inner.context.clock),
        };
        self.inner.keeper.send(KeeperCommand::Adopt(Box::new(entry)));
        self.done = true;
        hold
    }

    fn unavailable(&mut self, cause: StoreErrorKind, message: String, took: Duration) -> Error {
        self.emit(None, EventKind::Unavailable { cause, took });
        self.end_without_hold();
        unavailable_error(&self.request.name, &self.driver.hooks().class_in_force, cause, message)
    }

    /// Ends the acquire without a hold.
    fn end_without_hold(&mut self) {
        self.send_undo();
        self.done = true;
    }

    /// Undoes a lease or waiter that may be left in the store.
    fn send_undo(&self) {
        if self.driver.needs_undo() {
            self.inner.keeper.send(KeeperCommand::Undo {
                id: self.inner.context.next_id(),
                name: self.request.name.clone(),
                token: self.driver.request().token.clone(),
                class: Arc::clone(&self.class),
            });
        }
    }

    fn emit(&self, grant: Option<Grant>, what: EventKind) {
        let fence = grant.map(|grant| grant.fence);
        let subject = EventSubject {
            name: Some(&self.request.name),
            class: &self.class.name,
            fence,
            hold: self.id,
            holder: self.holder.as_ref(),
        };
        self.inner.context.events.emit(&subject, what);
    }

    fn now(&self) -> Moment {
        self.inner.context.clock.now()
    }
}

impl Drop for ClientAcquire {
    fn drop(&mut self) {
        let breaker = &mut self.driver.hooks_mut().breaker;
        breaker.abandon(&mut self.inner.context.breaker());
        if self.done {
            return;
        }
        // The caller dropped the acquire: nothing of it may stay in the store.
        self.send_undo();
        self.emit(None, EventKind::Cancelled { took: self.now().since(self.started) });
    }
}

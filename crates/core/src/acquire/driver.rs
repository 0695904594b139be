//! The one async driver of the acquire machine. It moves bytes and timers; the machine decides.
//!
//! The library, the daemon and the CLI run this loop. What differs between them is in their
//! [`AcquireHooks`].

use std::future::{Future, pending, ready};
use std::sync::Arc;
use std::time::Duration;

use super::machine::{AcquireMachine, AcquireOutcome, AcquireStep};
use crate::clock::{Moment, SharedClock};
use crate::policy::Class;
use crate::rng::SharedRandom;
use crate::store::{
    AcquireRequest, AcquireResponse, SharedStore, Store, StoreError, WakeListener, bounded_call,
};

/// The outside world of a driver: the store, time and randomness.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct DriverIo {
    /// Receives the requests.
    pub store: SharedStore,
    /// Measures the timeouts and sleeps.
    pub clock: SharedClock,
    /// Jitters the delays between requests.
    pub random: SharedRandom,
}

impl DriverIo {
    /// The outside world of a driver.
    #[must_use]
    pub fn new(store: SharedStore, clock: SharedClock, random: SharedRandom) -> Self {
        Self { store, clock, random }
    }
}

/// The decision of [`AcquireHooks::admit`] about one request.
#[derive(Debug)]
#[non_exhaustive]
pub enum CallAdmission<P> {
    /// Send the request. The permit is dropped when the call ends.
    Admitted(P),
    /// Nothing was sent. The acquire treats this like an error of the store and may retry.
    NotSent(StoreError),
    /// Nothing was sent, and a retry within this acquire would not help. The text says why.
    Refused(String),
}

/// What differs between the users of the driver.
pub trait AcquireHooks: Send {
    /// Held while a call is in flight, for example a slot of a semaphore.
    type Permit: Send;

    /// Admits one request, within its timeout.
    fn admit(&mut self, within: Duration) -> impl Future<Output = CallAdmission<Self::Permit>> + Send;

    /// Returns the wake-up subscription for a queued request. `current` is the one that the
    /// acquire already has.
    fn listen(
        &mut self,
        current: Option<Arc<WakeListener>>,
        store: &dyn Store,
        request: &AcquireRequest,
    ) -> Arc<WakeListener> {
        current.unwrap_or_else(|| Arc::new(store.listen(request.names.first(), &request.token)))
    }

    /// Sees each response before the machine does. By default it only raises the floor of the next
    /// request to the holder's fence.
    fn on_response(&mut self, response: &AcquireResponse, request: &mut AcquireRequest, now: Moment) {
        let _ = now;
        if let AcquireResponse::Busy(busy) = response {
            request.floor = request.floor.max(busy.fence);
        }
    }

    /// Sees each failed call, and what the machine does next.
    fn on_error(&mut self, error: &StoreError, next: &AcquireStep, now: Moment) {
        let _ = (error, next, now);
    }

    /// Reads the class again after each request. It may have changed during a wait, and it decides
    /// how an error ends.
    fn class_in_force(&mut self, now: Moment) -> Option<Arc<Class>> {
        let _ = now;
        None
    }

    /// Completes when the acquire must not sleep any longer. A call in flight is not interrupted.
    fn stopped(&self) -> impl Future<Output = ()> + Send {
        pending()
    }
}

/// The hooks of a user that needs none.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoHooks;

impl AcquireHooks for NoHooks {
    type Permit = ();

    fn admit(&mut self, _within: Duration) -> impl Future<Output = CallAdmission<()>> + Send {
        ready(CallAdmission::Admitted(()))
    }
}

/// [`AcquireHooks::stopped`] completed before the acquire ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AcquireStopped;

/// One acquire in progress. Its future can be dropped at any point; [`Self::needs_undo`] then tells
/// whether something may be left in the store.
#[derive(Debug)]
pub struct AcquireDriver<H> {
    io: DriverIo,
    machine: AcquireMachine,
    request: AcquireRequest,
    hooks: H,
    listener: Option<Arc<WakeListener>>,
}

impl<H: AcquireHooks> AcquireDriver<H> {
    /// An acquire that sends `request` and waits for at most `wait`. `class` has the request's TTL.
    #[must_use]
    pub fn new(io: DriverIo, class: Arc<Class>, wait: Duration, request: AcquireRequest, hooks: H) -> Self {
        let can = io.store.capabilities();
        let can_queue = can.queue && request.names.single().is_some();
        Self {
            machine: AcquireMachine::new(class, wait, can_queue, io.clock.now())
                .with_expiry_lag(can.expiry_lag),
            io,
            request,
            hooks,
            listener: None,
        }
    }

    /// Sends, sleeps and retries until the machine ends the acquire.
    ///
    /// # Errors
    /// The hooks stopped a sleep.
    pub async fn run(&mut self) -> Result<AcquireOutcome, AcquireStopped> {
        let mut step = self.machine.next_request(self.now());
        loop {
            step = match step {
                AcquireStep::Send { within, queue } => self.send(within, queue).await,
                AcquireStep::Sleep { until } => {
                    tokio::select! {
                        biased;
                        () = self.hooks.stopped() => return Err(AcquireStopped),
                        () = wake_up(self.listener.as_deref()) => {}
                        () = self.io.clock.sleep_until(until) => {}
                    }
                    self.machine.on_wake(self.now())
                }
                AcquireStep::End(outcome) => return Ok(outcome),
            };
        }
    }

    async fn send(&mut self, within: Duration, queue: Option<Duration>) -> AcquireStep {
        let began = self.now();
        let _permit = match self.hooks.admit(within).await {
            CallAdmission::Admitted(permit) => permit,
            CallAdmission::NotSent(error) => {
                let (now, random) = self.prepare_decision();
                return self.machine.on_error(&error, began, now, random);
            }
            CallAdmission::Refused(why) => {
                let (now, _) = self.prepare_decision();
                return self.machine.on_refused(why, now);
            }
        };
        let within = within.saturating_sub(self.now().since(began));
        self.request.queue = queue;
        // Before the request is sent: a wake-up between request and sleep must not be lost.
        if queue.is_some() {
            let current = self.listener.take();
            self.listener = Some(self.hooks.listen(current, &*self.io.store, &self.request));
        }
        // Before the call, because the deadline counts from the send time.
        let sent_at = self.now();
        self.machine.on_sent();
        let call = self.io.store.acquire(&self.request, within);
        match bounded_call(&*self.io.clock, within, call).await {
            Ok(response) => {
                self.hooks.on_response(&response, &mut self.request, self.io.clock.now());
                let (now, random) = self.prepare_decision();
                self.machine.on_response(response, sent_at, now, random)
            }
            Err(error) => {
                let (now, random) = self.prepare_decision();
                let next = self.machine.on_error(&error, sent_at, now, random);
                self.hooks.on_error(&error, &next, now);
                next
            }
        }
    }

    /// Passes the class in force to the machine, and returns the inputs of its next decision.
    fn prepare_decision(&mut self) -> (Moment, u64) {
        let (now, random) = (self.now(), self.io.random.bits());
        if let Some(class) = self.hooks.class_in_force(now) {
            self.machine.policy_changed(&class);
        }
        (now, random)
    }

    fn now(&self) -> Moment {
        self.io.clock.now()
    }
}

impl<H> AcquireDriver<H> {
    /// Returns true if a lease or waiter may be left in the store. Call it when the acquire ended
    /// without a hold, or when its future was dropped.
    #[must_use]
    pub fn needs_undo(&self) -> bool {
        self.machine.needs_undo()
    }

    /// The state of the acquire.
    #[must_use]
    pub fn machine(&self) -> &AcquireMachine {
        &self.machine
    }

    /// The request as it was sent last.
    #[must_use]
    pub fn request(&self) -> &AcquireRequest {
        &self.request
    }

    /// The hooks, with what they have recorded.
    #[must_use]
    pub fn hooks(&self) -> &H {
        &self.hooks
    }

    /// The hooks, for changes at the end of the acquire.
    pub fn hooks_mut(&mut self) -> &mut H {
        &mut self.hooks
    }
}

async fn wake_up(listener: Option<&WakeListener>) {
    match listener {
        Some(listener) => listener.notified().await,
        None => pending().await,
    }
}

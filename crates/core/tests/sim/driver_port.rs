//! Connects the real acquire driver to the simulation: a clock, a store and hooks that exchange
//! values with the event loop. The loop fills the port, polls the driver once and empties it.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use leasehold_core::acquire::{
    AcquireDriver, AcquireHooks, AcquireOutcome, AcquireStep, CallAdmission, DriverIo,
};
use leasehold_core::breaker::{AcquireBreaker, Breaker};
use leasehold_core::clock::{Clock, Moment, Sleep};
use leasehold_core::policy::Class;
use leasehold_core::rng::SharedRandom;
use leasehold_core::store::{
    AcquireRequest, AcquireResponse, Capabilities, LeaseList, Promise, ReleaseRequest, ReleaseResponse,
    RenewRequest, RenewResponse, Store, StoreError, WakeListener, WakeRegistry,
};
use leasehold_core::types::{Fence, Name, Token};

/// The values that the event loop and one driver exchange.
#[derive(Debug, Default)]
pub(crate) struct PortValues {
    // Set before each poll.
    pub(crate) now: Moment,
    pub(crate) class: Option<Arc<Class>>,
    pub(crate) reply: Option<Result<AcquireResponse, StoreError>>,
    // Lent for each poll: all acquires of a client share them.
    pub(crate) breaker: Breaker,
    pub(crate) floor: Option<Fence>,
    // Read after each poll.
    pub(crate) request: Option<(AcquireRequest, Duration)>,
    pub(crate) sleep_until: Option<Moment>,
    pub(crate) refused: bool,
    // Set when the driver has ended or was dropped.
    pub(crate) needs_undo: bool,
    pub(crate) maybe_granted: bool,
    pub(crate) falls_back: bool,
}

/// The event loop's end of the connection.
#[derive(Debug, Clone, Default)]
pub(crate) struct DriverPort {
    values: Arc<Mutex<PortValues>>,
    wakers: Arc<WakeRegistry>,
}

impl DriverPort {
    pub(crate) fn values(&self) -> MutexGuard<'_, PortValues> {
        self.values.lock().unwrap()
    }

    /// Notifies the driver's wake-up subscription, if it has one.
    pub(crate) fn wake(&self, token: &Token) {
        self.wakers.wake(token.expose());
    }
}

/// The real driver as a future that the event loop polls.
pub(crate) struct PolledDriver(Pin<Box<dyn Future<Output = AcquireOutcome> + Send>>);

impl std::fmt::Debug for PolledDriver {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("PolledDriver")
    }
}

impl PolledDriver {
    pub(crate) fn new(
        port: &DriverPort,
        random: SharedRandom,
        can_queue: bool,
        class: Arc<Class>,
        request: AcquireRequest,
    ) -> Self {
        let io = DriverIo {
            store: Arc::new(PortStore { port: port.clone(), can_queue }),
            clock: Arc::new(PortClock(port.clone())),
            random,
        };
        let hooks = PortHooks { port: port.clone(), breaker: AcquireBreaker::default() };
        let wait = class.acquire.wait;
        let mut reporting = Reporting(AcquireDriver::new(io, class, wait, request, hooks));
        Self(Box::pin(async move {
            let ended = reporting.0.run().await;
            ended.expect("these hooks stop nothing")
        }))
    }

    /// Lets the driver run until it waits for the event loop.
    pub(crate) fn poll(&mut self) -> Poll<AcquireOutcome> {
        self.0.as_mut().poll(&mut Context::from_waker(Waker::noop()))
    }
}

/// Reports the driver's last state when it ends or is dropped, as the library's acquire does.
struct Reporting(AcquireDriver<PortHooks>);

impl Drop for Reporting {
    fn drop(&mut self) {
        let hooks = self.0.hooks_mut();
        hooks.breaker.abandon(&mut hooks.port.values().breaker);
        let (port, machine) = (self.0.hooks().port.clone(), self.0.machine());
        let mut values = port.values();
        values.needs_undo = self.0.needs_undo();
        values.maybe_granted = machine.maybe_granted();
        values.falls_back = machine.falls_back();
    }
}

/// The library's hooks, without the slots: the simulation never has that many acquires.
struct PortHooks {
    port: DriverPort,
    breaker: AcquireBreaker,
}

impl AcquireHooks for PortHooks {
    type Permit = ();

    async fn admit(&mut self, _within: Duration) -> CallAdmission<()> {
        let values = &mut *self.port.values();
        match self.breaker.admit(&mut values.breaker, values.now) {
            Ok(()) => CallAdmission::Admitted(()),
            Err(why) => {
                values.refused = true;
                CallAdmission::Refused(why)
            }
        }
    }

    fn on_response(&mut self, response: &AcquireResponse, request: &mut AcquireRequest, _now: Moment) {
        let mut values = self.port.values();
        self.breaker.on_response(&mut values.breaker);
        if let AcquireResponse::Busy(busy) = response
            && busy.fence.is_some()
        {
            values.floor = values.floor.max(busy.fence);
            request.floor = values.floor;
        }
    }

    fn on_error(&mut self, error: &StoreError, next: &AcquireStep, now: Moment) {
        let retried = !matches!(next, AcquireStep::End(_));
        self.breaker.on_error(&mut self.port.values().breaker, error, retried, now);
    }

    fn class_in_force(&mut self, _now: Moment) -> Option<Arc<Class>> {
        self.port.values().class.clone()
    }
}

#[derive(Debug)]
struct PortClock(DriverPort);

impl Clock for PortClock {
    fn now(&self) -> Moment {
        self.0.values().now
    }

    fn sleep_until(&self, at: Moment) -> Sleep {
        let port = self.0.clone();
        port.values().sleep_until = Some(at);
        Box::pin(poll_fn(move |_| if port.values().now >= at { Poll::Ready(()) } else { Poll::Pending }))
    }

    fn wall(&self) -> SystemTime {
        SystemTime::UNIX_EPOCH
    }
}

#[derive(Debug)]
struct PortStore {
    port: DriverPort,
    can_queue: bool,
}

#[async_trait]
impl Store for PortStore {
    fn capabilities(&self) -> Capabilities {
        let plain = Capabilities::new("sim", Promise::Volatile);
        if self.can_queue { plain.with_queue() } else { plain }
    }

    fn describe(&self) -> String {
        "sim:".to_owned()
    }

    async fn acquire(&self, ask: &AcquireRequest, within: Duration) -> Result<AcquireResponse, StoreError> {
        self.port.values().request = Some((ask.clone(), within));
        poll_fn(|_| match self.port.values().reply.take() {
            Some(reply) => Poll::Ready(reply),
            None => Poll::Pending,
        })
        .await
    }

    async fn renew(&self, _: &[RenewRequest], _: Duration) -> Vec<Result<RenewResponse, StoreError>> {
        unreachable!("an acquire does not renew")
    }

    async fn release(&self, _: &ReleaseRequest, _: Duration) -> Result<ReleaseResponse, StoreError> {
        unreachable!("an acquire does not release")
    }

    async fn inspect(&self, _: &Name, _: Duration) -> Result<LeaseList, StoreError> {
        unreachable!("an acquire does not inspect")
    }

    fn listen(&self, _name: &Name, token: &Token) -> WakeListener {
        self.port.wakers.listen(token.expose())
    }
}

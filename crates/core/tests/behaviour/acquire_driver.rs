//! The driver's own promises: what it asks its hooks, and what it reports when its future is dropped.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use std::future::pending;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use leasehold_core::acquire::{
    AcquireDriver, AcquireHooks, AcquireOutcome, AcquireStep, AcquireStopped, CallAdmission, DriverIo,
    NoHooks,
};
use leasehold_core::adapter::{Fault, FaultyStore, StoreOp};
use leasehold_core::clock::{Moment, RuntimeClock, run_until};
use leasehold_core::memory::MemoryStore;
use leasehold_core::policy::{Class, PolicyBook};
use leasehold_core::rng::SeededRandom;
use leasehold_core::store::{
    AcquireRequest, AcquireResponse, Store, StoreError, StoreErrorKind, WakeListener,
};
use leasehold_core::types::{Holder, Name, Token};
use tokio_util::sync::CancellationToken;

/// Hooks that record their calls and decide as the test says.
#[derive(Debug, Default)]
struct TestHooks {
    calls: Arc<Mutex<Vec<&'static str>>>,
    admissions: Vec<CallAdmission<()>>,
    /// No request is admitted.
    closed: bool,
    stop: CancellationToken,
}

impl TestHooks {
    fn record(&self, call: &'static str) {
        self.calls.lock().unwrap().push(call);
    }
}

impl AcquireHooks for TestHooks {
    type Permit = ();

    async fn admit(&mut self, _within: Duration) -> CallAdmission<()> {
        self.record("admit");
        if self.closed {
            pending().await
        } else {
            self.admissions.pop().unwrap_or(CallAdmission::Admitted(()))
        }
    }

    fn listen(
        &mut self,
        current: Option<Arc<WakeListener>>,
        store: &dyn Store,
        request: &AcquireRequest,
    ) -> Arc<WakeListener> {
        self.record("listen");
        current.unwrap_or_else(|| Arc::new(store.listen(request.names.first(), &request.token)))
    }

    fn on_response(&mut self, _response: &AcquireResponse, _request: &mut AcquireRequest, _now: Moment) {
        self.record("response");
    }

    fn on_error(&mut self, _error: &StoreError, _next: &AcquireStep, _now: Moment) {
        self.record("error");
    }

    fn class_in_force(&mut self, _now: Moment) -> Option<Arc<Class>> {
        self.record("class");
        None
    }

    async fn stopped(&self) {
        self.stop.cancelled().await;
    }
}

fn memory_store() -> (FaultyStore, DriverIo) {
    let clock = RuntimeClock::shared();
    let faulty = FaultyStore::new(Arc::new(MemoryStore::new(Arc::clone(&clock))), Arc::clone(&clock));
    let io = DriverIo::new(faulty.store(), clock, SeededRandom::shared(7));
    (faulty, io)
}

fn driver<H: AcquireHooks>(io: &DriverIo, wait: Duration, hooks: H) -> AcquireDriver<H> {
    let class = PolicyBook::builtin().class("scheduler", Moment::ZERO).unwrap();
    let token = Token::fresh(&Holder::new("me").unwrap(), "scheduler", &*io.random);
    let request = AcquireRequest::new(Name::new("job:1").unwrap(), token, class.ttl);
    AcquireDriver::new(io.clone(), class, wait, request, hooks)
}

const WAIT: Duration = Duration::from_secs(2);

#[tokio::test(start_paused = true)]
async fn hooks_are_called_in_order() {
    let (faulty, io) = memory_store();
    faulty.acquire().script(1, Fault::Refuse(StoreErrorKind::Overloaded));
    let mut driver = driver(&io, WAIT, TestHooks::default());
    assert!(matches!(driver.run().await, Ok(AcquireOutcome::Held { .. })));
    // The subscription precedes the request, and the class is read before the machine decides.
    let failed = ["admit", "listen", "class", "error"];
    let granted = ["admit", "listen", "response", "class"];
    assert_eq!(*driver.hooks().calls.lock().unwrap(), [failed, granted].concat());
}

#[tokio::test(start_paused = true)]
async fn a_request_that_is_not_admitted_is_not_sent() {
    let (faulty, io) = memory_store();
    let hooks = TestHooks {
        admissions: vec![
            CallAdmission::Refused("the breaker is open".to_owned()),
            CallAdmission::NotSent(StoreError::not_done(StoreErrorKind::Overloaded, "no slot")),
        ],
        ..TestHooks::default()
    };
    let mut driver = driver(&io, WAIT, hooks);
    let ended = driver.run().await;
    // The first is retried like a store error; the second ends the acquire.
    let Ok(AcquireOutcome::Unavailable { message, .. } | AcquireOutcome::FallBack { message, .. }) = ended
    else {
        panic!("{ended:?}");
    };
    assert_eq!(message, "the breaker is open");
    assert_eq!(*driver.hooks().calls.lock().unwrap(), ["admit", "class"].repeat(2));
    assert_eq!(faulty.calls(StoreOp::Acquire), 0);
}

#[tokio::test(start_paused = true)]
async fn an_undo_is_needed_once_a_request_was_sent() {
    let soon = |io: &DriverIo| io.clock.now() + Duration::from_millis(10);
    let (_faulty, io) = memory_store();
    let hooks = TestHooks { closed: true, ..TestHooks::default() };
    let mut waits = driver(&io, Duration::ZERO, hooks);
    assert!(run_until(&*io.clock, soon(&io), waits.run()).await.is_none());
    assert!(!waits.needs_undo(), "nothing was sent");

    for fault in [Fault::Hang, Fault::HangAfter] {
        let (faulty, io) = memory_store();
        faulty.acquire().script(1, fault);
        let mut dropped = driver(&io, Duration::ZERO, NoHooks);
        assert!(run_until(&*io.clock, soon(&io), dropped.run()).await.is_none());
        assert!(dropped.needs_undo(), "dropped in a call");
    }
}

#[tokio::test(start_paused = true)]
async fn silence_and_panics_of_the_store_are_unknown_outcomes() {
    for fault in [Fault::Hang, Fault::Panic] {
        let (faulty, io) = memory_store();
        faulty.acquire().script(2, fault);
        let mut driver = driver(&io, Duration::ZERO, NoHooks);
        let ended = driver.run().await;
        assert!(!matches!(ended, Ok(AcquireOutcome::Held { .. })), "{ended:?}");
        assert!(driver.needs_undo(), "{fault:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_stop_ends_a_sleep_but_not_a_call() {
    let (_faulty, io) = memory_store();
    let stopped = || {
        let hooks = TestHooks::default();
        hooks.stop.cancel();
        hooks
    };
    let mut granted = driver(&io, WAIT, stopped());
    assert!(matches!(granted.run().await, Ok(AcquireOutcome::Held { .. })));
    let mut waits = driver(&io, WAIT, stopped());
    assert_eq!(waits.run().await, Err(AcquireStopped));
    assert!(waits.needs_undo(), "it is registered as a waiter");
}

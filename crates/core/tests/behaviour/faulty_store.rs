//! The fault-injecting store: every fault does what its name says, and only to the calls it was
//! ordered for.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::Arc;
use std::time::Duration;

use leasehold_core::adapter::{FaultyStore, StoreOp};
use leasehold_core::clock::{ClockExt, RuntimeClock, SharedClock, run_until};
use leasehold_core::memory::MemoryStore;
use leasehold_core::rng::OsRandom;
use leasehold_core::store::{AcquireRequest, ReleaseRequest, RenewRequest, SharedStore, StoreErrorKind};
use leasehold_core::types::{Fence, Holder, Name, Token, Ttl};

const CALL_TIMEOUT: Duration = Duration::from_secs(1);

fn chaos() -> (FaultyStore, SharedStore, SharedClock) {
    let clock = RuntimeClock::shared();
    let chaos = FaultyStore::new(Arc::new(MemoryStore::new(Arc::clone(&clock))), Arc::clone(&clock));
    let store = chaos.store();
    (chaos, store, clock)
}

fn ask(name: &str) -> AcquireRequest {
    let token = Token::fresh(&Holder::new("me").unwrap(), "test", &OsRandom);
    AcquireRequest::new(Name::new(name).unwrap(), token, Ttl::MAX)
}

// No test orders a fault for `inspect`.
async fn is_held(chaos: &FaultyStore, request: &AcquireRequest) -> bool {
    !chaos.store().inspect(request.names.first(), CALL_TIMEOUT).await.unwrap().leases.is_empty()
}

#[tokio::test(start_paused = true)]
async fn scripts_run_in_order_and_end() {
    let (chaos, store, _) = chaos();
    chaos.acquire().pass_next(1).fail_next(1).vanish_next(1).lose_reply(1);
    let mut seen = Vec::new();
    for name in ["a", "b", "c", "d", "e"] {
        let ask = ask(name);
        let failed = store.acquire(&ask, CALL_TIMEOUT).await.err().map(|failure| failure.unknown);
        seen.push((failed, is_held(&chaos, &ask).await));
    }
    let wanted = [(None, true), (Some(false), false), (Some(true), false), (Some(true), true), (None, true)];
    assert_eq!(seen, wanted);
    assert_eq!((chaos.calls(StoreOp::Acquire), chaos.applied(StoreOp::Acquire)), (5, 3));
    assert_eq!(chaos.calls(StoreOp::Release), 0);
}

#[tokio::test(start_paused = true)]
async fn an_outage_meets_every_verb_and_ends() {
    let (chaos, store, _) = chaos();
    let ask = ask("a");
    chaos.all().down(true);
    let renewal = RenewRequest::new(ask.names.clone(), ask.token.clone(), Fence::MIN, ask.ttl);
    let renewed = store.renew(&[renewal.clone(), renewal], CALL_TIMEOUT).await;
    assert_eq!(renewed.len(), 2);
    for failed in [
        store.acquire(&ask, CALL_TIMEOUT).await.err(),
        store
            .release(&ReleaseRequest::by_owner(ask.names.clone(), ask.token.clone()), CALL_TIMEOUT)
            .await
            .err(),
        store.inspect(ask.names.first(), CALL_TIMEOUT).await.err(),
        store.list("", 1, CALL_TIMEOUT).await.err(),
        store.promise(CALL_TIMEOUT).await.err(),
    ]
    .into_iter()
    .chain(renewed.into_iter().map(Result::err))
    {
        let failed = failed.unwrap();
        assert!(failed.kind == StoreErrorKind::Unreachable && !failed.unknown, "{failed}");
    }
    chaos.all().down(false);
    assert!(store.acquire(&ask, CALL_TIMEOUT).await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn hanging_calls_end_only_by_being_dropped() {
    let (chaos, store, clock) = chaos();
    for (applied, name) in [(false, "before"), (true, "after")] {
        let ask = ask(name);
        if applied {
            chaos.acquire().hang_after_next(1);
        } else {
            chaos.acquire().hang(true);
        }
        let hour = clock.now() + Duration::from_secs(3600);
        assert!(run_until(clock.as_ref(), hour, store.acquire(&ask, CALL_TIMEOUT)).await.is_none());
        assert_eq!(is_held(&chaos, &ask).await, applied);
        chaos.acquire().clear();
    }
    assert!(store.acquire(&ask("calm"), CALL_TIMEOUT).await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn delays_are_on_the_injected_clock() {
    let (chaos, store, clock) = chaos();
    let (ask, start) = (ask("a"), clock.now());
    chaos.acquire().delay(Duration::from_secs(5)).delay_reply(Duration::from_secs(7));
    let call = tokio::spawn({
        let ask = ask.clone();
        async move { store.acquire(&ask, CALL_TIMEOUT).await.is_ok() }
    });
    chaos.wait_for_calls(StoreOp::Acquire, 1).await;
    assert!(!is_held(&chaos, &ask).await);
    clock.sleep(Duration::from_secs(6)).await;
    assert!(is_held(&chaos, &ask).await && !call.is_finished());
    assert!(call.await.unwrap());
    assert_eq!(clock.now().since(start).as_secs(), 12);
}

#[tokio::test(start_paused = true)]
async fn hints_are_dropped_when_ordered() {
    let (chaos, store, clock) = chaos();
    for dropped in [false, true] {
        chaos.drop_hints(dropped);
        let (held, mut waiting) = (ask("a"), ask("a"));
        waiting.queue = Some(CALL_TIMEOUT);
        store.acquire(&held, CALL_TIMEOUT).await.unwrap();
        let listener = store.listen(waiting.names.first(), &waiting.token);
        store.acquire(&waiting, CALL_TIMEOUT).await.unwrap();
        store
            .release(&ReleaseRequest::by_owner(held.names.clone(), held.token.clone()), CALL_TIMEOUT)
            .await
            .unwrap();
        let woken = run_until(clock.as_ref(), clock.now() + CALL_TIMEOUT, listener.notified()).await;
        assert_eq!(woken.is_none(), dropped);
        store
            .release(&ReleaseRequest::by_owner(waiting.names.clone(), waiting.token.clone()), CALL_TIMEOUT)
            .await
            .unwrap();
    }
}

#[tokio::test(start_paused = true)]
#[should_panic = "on purpose"]
async fn a_panic_can_be_ordered() {
    let (chaos, store, _) = chaos();
    chaos.acquire().panic_next(1);
    let _ = store.acquire(&ask("a"), CALL_TIMEOUT).await;
}

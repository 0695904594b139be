//! A store that fails on command: it injects what a network, a server or a scheduler can do to one
//! call.

use std::fmt;
use std::future::{Future, pending};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::watch;

use super::fault::{Fault, FaultPlans, FaultScript, StoreOp};
use crate::clock::{ClockExt, SharedClock};
use crate::store::{
    AcquireRequest, AcquireResponse, Capabilities, LeaseList, PromiseReport, ReleaseRequest, ReleaseResponse,
    RenewRequest, RenewResponse, SharedStore, Store, StoreError, StoreErrorKind, WakeListener,
};
use crate::types::{Name, Token};

/// A fault-injecting store. Clones share their faults and counts, so a test keeps one and gives
/// [`store`](Self::store) to the code under test.
///
/// ```
/// # use leasehold_core::adapter::{FaultyStore, StoreOp};
/// # fn demo(store: leasehold_core::store::SharedStore, clock: leasehold_core::clock::SharedClock) {
/// let chaos = FaultyStore::new(store, clock);
/// chaos.renew().fail_next(3);
/// chaos.release().lose_reply(1);
/// chaos.all().down(true);
/// assert_eq!(chaos.calls(StoreOp::Renew), 0);
/// # }
/// ```
#[derive(Clone)]
pub struct FaultyStore {
    inner: SharedStore,
    clock: SharedClock,
    plans: Arc<FaultPlans>,
    drop_hints: Arc<AtomicBool>,
    // Changes with every call, for tests that wait for one.
    call_count: Arc<watch::Sender<u64>>,
}

impl FaultyStore {
    /// A store without faults: every call is passed on. Delays are counted on `clock`.
    #[must_use]
    pub fn new(inner: SharedStore, clock: SharedClock) -> Self {
        Self {
            inner,
            clock,
            plans: Arc::default(),
            drop_hints: Arc::default(),
            call_count: Arc::new(watch::Sender::new(0)),
        }
    }

    /// A shared handle for the code under test.
    #[must_use]
    pub fn store(&self) -> SharedStore {
        Arc::new(self.clone())
    }

    /// Faults for `acquire`.
    #[must_use]
    pub fn acquire(&self) -> FaultScript<'_> {
        self.for_ops(&[StoreOp::Acquire])
    }

    /// Faults for `renew`: a fault applies to the whole batch.
    #[must_use]
    pub fn renew(&self) -> FaultScript<'_> {
        self.for_ops(&[StoreOp::Renew])
    }

    /// Faults for `release`.
    #[must_use]
    pub fn release(&self) -> FaultScript<'_> {
        self.for_ops(&[StoreOp::Release])
    }

    /// Faults for every operation alike: `all().fail_next(2)` fails the next two calls of *each*.
    #[must_use]
    pub fn all(&self) -> FaultScript<'_> {
        self.for_ops(&StoreOp::ALL)
    }

    /// Faults for some operations.
    #[must_use]
    pub fn for_ops(&self, verbs: &[StoreOp]) -> FaultScript<'_> {
        FaultScript::new(&self.plans, verbs)
    }

    /// Makes new listeners silent: every wake-up is lost.
    pub fn drop_hints(&self, drop: bool) {
        self.drop_hints.store(drop, Ordering::SeqCst);
    }

    /// The number of calls of this operation, whatever their result.
    #[must_use]
    pub fn calls(&self, verb: StoreOp) -> u64 {
        self.plans.counts(verb).0
    }

    /// The number of calls that the inner store has answered, whether or not the caller received
    /// the reply.
    #[must_use]
    pub fn applied(&self, verb: StoreOp) -> u64 {
        self.plans.counts(verb).1
    }

    /// Completes after at least `count` calls of this operation: a test waits with it for a call
    /// that hangs.
    pub async fn wait_for_calls(&self, verb: StoreOp, count: u64) {
        let mut moved = self.call_count.subscribe();
        while self.calls(verb) < count {
            // The sender is owned by `self`, so this only returns after a change.
            let _ = moved.changed().await;
        }
    }

    /// Executes one call with the fault that is due. `work` runs at most once.
    async fn call_with_fault<T, F>(&self, verb: StoreOp, work: F) -> Result<T, StoreError>
    where
        F: Future<Output = T> + Send,
    {
        let (fault, before, after) = self.plans.next_call(verb);
        self.call_count.send_modify(|moves| *moves += 1);
        if !before.is_zero() {
            self.clock.sleep(before).await;
        }
        match fault {
            Fault::Refuse(cause) => return Err(StoreError::not_done(cause, "refused on purpose")),
            Fault::Vanish(cause) => return Err(StoreError::unknown(cause, "lost on its way on purpose")),
            Fault::Hang => return pending().await,
            #[allow(clippy::panic)]
            Fault::Panic => panic!("panicked on purpose"),
            Fault::Pass | Fault::LoseReply | Fault::HangAfter => {}
        }
        let done = work.await;
        self.plans.record_applied(verb);
        if !after.is_zero() {
            self.clock.sleep(after).await;
        }
        match fault {
            Fault::LoseReply => {
                Err(StoreError::unknown(StoreErrorKind::TimedOut, "its reply was lost on purpose"))
            }
            Fault::HangAfter => pending().await,
            _ => Ok(done),
        }
    }
}

impl fmt::Debug for FaultyStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Chaos").field("inner", &self.inner).finish_non_exhaustive()
    }
}

#[async_trait]
impl Store for FaultyStore {
    fn capabilities(&self) -> Capabilities {
        self.inner.capabilities()
    }

    fn describe(&self) -> String {
        self.inner.describe()
    }

    async fn acquire(
        &self,
        request: &AcquireRequest,
        within: Duration,
    ) -> Result<AcquireResponse, StoreError> {
        self.call_with_fault(StoreOp::Acquire, self.inner.acquire(request, within)).await?
    }

    async fn renew(
        &self,
        batch: &[RenewRequest],
        within: Duration,
    ) -> Vec<Result<RenewResponse, StoreError>> {
        match self.call_with_fault(StoreOp::Renew, self.inner.renew(batch, within)).await {
            Ok(answers) => answers,
            Err(one) => batch
                .iter()
                .map(|_| {
                    Err(if one.unknown {
                        StoreError::unknown(one.kind, one.message())
                    } else {
                        StoreError::not_done(one.kind, one.message())
                    })
                })
                .collect(),
        }
    }

    async fn release(
        &self,
        request: &ReleaseRequest,
        within: Duration,
    ) -> Result<ReleaseResponse, StoreError> {
        self.call_with_fault(StoreOp::Release, self.inner.release(request, within)).await?
    }

    async fn inspect(&self, name: &Name, within: Duration) -> Result<LeaseList, StoreError> {
        self.call_with_fault(StoreOp::Inspect, self.inner.inspect(name, within)).await?
    }

    async fn list(&self, prefix: &str, limit: usize, within: Duration) -> Result<LeaseList, StoreError> {
        self.call_with_fault(StoreOp::List, self.inner.list(prefix, limit, within)).await?
    }

    fn listen(&self, name: &Name, token: &Token) -> WakeListener {
        if self.drop_hints.load(Ordering::SeqCst) {
            WakeListener::never()
        } else {
            self.inner.listen(name, token)
        }
    }

    async fn promise(&self, within: Duration) -> Result<PromiseReport, StoreError> {
        self.call_with_fault(StoreOp::Promise, self.inner.promise(within)).await?
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::clock::{RuntimeClock, run_until};
    use crate::memory::MemoryStore;
    use crate::rng::OsRandom;
    use crate::types::{Holder, Ttl};

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

    async fn is_held(chaos: &FaultyStore, request: &AcquireRequest) -> bool {
        !chaos.inner.inspect(request.names.first(), CALL_TIMEOUT).await.unwrap().leases.is_empty()
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
        let wanted =
            [(None, true), (Some(false), false), (Some(true), false), (Some(true), true), (None, true)];
        assert_eq!(seen, wanted);
        assert_eq!((chaos.calls(StoreOp::Acquire), chaos.applied(StoreOp::Acquire)), (5, 3));
        assert_eq!(chaos.calls(StoreOp::Release), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn an_outage_meets_every_verb_and_ends() {
        let (chaos, store, _) = chaos();
        let ask = ask("a");
        chaos.all().down(true);
        let renewal = RenewRequest::new(ask.names.clone(), ask.token.clone(), crate::Fence::MIN, ask.ttl);
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
                .release(
                    &ReleaseRequest::by_owner(waiting.names.clone(), waiting.token.clone()),
                    CALL_TIMEOUT,
                )
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
}

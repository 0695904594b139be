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
    AcquireRequest, AcquireResponse, Capabilities, DocumentList, DocumentOutcome, DocumentQuery,
    DocumentRead, DocumentWrite, Documents, ExpectedVersion, LeaseList, PromiseReport, ReleaseRequest,
    ReleaseResponse, RenewRequest, RenewResponse, SharedStore, Store, StoreError, StoreErrorKind,
    WakeListener,
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
        f.debug_struct("FaultyStore").field("inner", &self.inner).finish_non_exhaustive()
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

    fn documents(&self) -> Option<&dyn Documents> {
        self.inner.documents().map(|_| self as &dyn Documents)
    }

    async fn promise(&self, within: Duration) -> Result<PromiseReport, StoreError> {
        self.call_with_fault(StoreOp::Promise, self.inner.promise(within)).await?
    }
}

impl FaultyStore {
    fn inner_documents(&self) -> Result<&dyn Documents, StoreError> {
        self.inner
            .documents()
            .ok_or_else(|| StoreError::not_done(StoreErrorKind::Unsupported, "the store has no documents"))
    }
}

#[async_trait]
impl Documents for FaultyStore {
    async fn read(&self, name: &Name, within: Duration) -> Result<DocumentRead, StoreError> {
        self.call_with_fault(StoreOp::Documents, self.inner_documents()?.read(name, within)).await?
    }

    async fn list(&self, query: &DocumentQuery, within: Duration) -> Result<DocumentList, StoreError> {
        self.call_with_fault(StoreOp::Documents, self.inner_documents()?.list(query, within)).await?
    }

    async fn write(&self, request: &DocumentWrite, within: Duration) -> Result<DocumentOutcome, StoreError> {
        self.call_with_fault(StoreOp::Documents, self.inner_documents()?.write(request, within)).await?
    }

    async fn delete(
        &self,
        name: &Name,
        expected: ExpectedVersion,
        within: Duration,
    ) -> Result<DocumentOutcome, StoreError> {
        let documents = self.inner_documents()?;
        self.call_with_fault(StoreOp::Documents, documents.delete(name, expected, within)).await?
    }

    fn watch(&self, name: &Name) -> WakeListener {
        match self.inner.documents() {
            Some(documents) if !self.drop_hints.load(Ordering::SeqCst) => documents.watch(name),
            _ => WakeListener::never(),
        }
    }
}

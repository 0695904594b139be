//! A store that fails as ordered: what a network, a server or a scheduler can do to one call, at the store's trait.

use std::fmt;
use std::future::{Future, pending};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::watch;

use super::fault::{Fault, Faults, Plans, Verb};
use crate::clock::{ClockExt, SharedClock};
use crate::store::{
    Answer, Ask, Capabilities, Cause, Failure, Given, Giving, Lease, Listener, Listing, Promised, Renewal,
    Renewed, SharedStore, Store,
};
use crate::word::{Name, Token};

/// A store whose calls fail as ordered. Clones share their orders and counts, so a test keeps one and gives
/// [`store`](Self::store) to the code under test.
///
/// ```
/// # use leasehold_core::adapter::{Chaos, Verb};
/// # fn demo(store: leasehold_core::store::SharedStore, clock: leasehold_core::clock::SharedClock) {
/// let chaos = Chaos::new(store, clock);
/// chaos.renew().fail_next(3);
/// chaos.release().lose_reply(1);
/// chaos.all().down(true);
/// assert_eq!(chaos.calls(Verb::Renew), 0);
/// # }
/// ```
#[derive(Clone)]
pub struct Chaos {
    inner: SharedStore,
    clock: SharedClock,
    plans: Arc<Plans>,
    drop_hints: Arc<AtomicBool>,
    /// Moves with every call, for those who wait for one.
    moved: Arc<watch::Sender<u64>>,
}

impl Chaos {
    /// Without any order yet: every call is passed on. Delays are counted on `clock`.
    #[must_use]
    pub fn new(inner: SharedStore, clock: SharedClock) -> Self {
        Self {
            inner,
            clock,
            plans: Arc::default(),
            drop_hints: Arc::default(),
            moved: Arc::new(watch::Sender::new(0)),
        }
    }

    /// This store, as code under test wants it.
    #[must_use]
    pub fn store(&self) -> SharedStore {
        Arc::new(self.clone())
    }

    /// Orders for `acquire`.
    #[must_use]
    pub fn acquire(&self) -> Faults<'_> {
        self.on(&[Verb::Acquire])
    }

    /// Orders for `renew`: a fault meets the whole batch.
    #[must_use]
    pub fn renew(&self) -> Faults<'_> {
        self.on(&[Verb::Renew])
    }

    /// Orders for `release`.
    #[must_use]
    pub fn release(&self) -> Faults<'_> {
        self.on(&[Verb::Release])
    }

    /// Orders for every verb alike: `all().fail_next(2)` fails the next two calls of *each*.
    #[must_use]
    pub fn all(&self) -> Faults<'_> {
        self.on(&Verb::ALL)
    }

    /// Orders for some verbs.
    #[must_use]
    pub fn on(&self, verbs: &[Verb]) -> Faults<'_> {
        Faults::new(&self.plans, verbs)
    }

    /// Listeners made from now on stay silent: every wake-up is lost.
    pub fn drop_hints(&self, drop: bool) {
        self.drop_hints.store(drop, Ordering::SeqCst);
    }

    /// How many calls of this verb came, whatever became of them.
    #[must_use]
    pub fn calls(&self, verb: Verb) -> u64 {
        self.plans.counts(verb).0
    }

    /// How many calls of this verb the inner store has answered, whether the caller heard of it or not.
    #[must_use]
    pub fn applied(&self, verb: Verb) -> u64 {
        self.plans.counts(verb).1
    }

    /// Ends when at least `count` calls of this verb have come: how a test waits for a call to hang.
    pub async fn reached(&self, verb: Verb, count: u64) {
        let mut moved = self.moved.subscribe();
        while self.calls(verb) < count {
            // Our own sender is alive, so this ends only by a move.
            let _ = moved.changed().await;
        }
    }

    /// Lets one call meet its fate. `work` runs at most once.
    async fn meet<T, F>(&self, verb: Verb, work: F) -> Result<T, Failure>
    where
        F: Future<Output = T> + Send,
    {
        let (fault, before, after) = self.plans.call(verb);
        self.moved.send_modify(|moves| *moves += 1);
        if !before.is_zero() {
            self.clock.sleep(before).await;
        }
        match fault {
            Fault::Refuse(cause) => return Err(Failure::not_done(cause, "refused on purpose")),
            Fault::Vanish(cause) => return Err(Failure::unknown(cause, "lost on its way on purpose")),
            Fault::Hang => return pending().await,
            #[allow(clippy::panic)]
            Fault::Panic => panic!("panicked on purpose"),
            Fault::Pass | Fault::LoseReply | Fault::HangAfter => {}
        }
        let done = work.await;
        self.plans.applied(verb);
        if !after.is_zero() {
            self.clock.sleep(after).await;
        }
        match fault {
            Fault::LoseReply => Err(Failure::unknown(Cause::TimedOut, "its reply was lost on purpose")),
            Fault::HangAfter => pending().await,
            _ => Ok(done),
        }
    }
}

impl fmt::Debug for Chaos {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Chaos")
            .field("inner", &self.inner)
            .finish_non_exhaustive()
    }
}

#[async_trait]
impl Store for Chaos {
    fn capabilities(&self) -> Capabilities {
        self.inner.capabilities()
    }

    fn describe(&self) -> String {
        self.inner.describe()
    }

    async fn acquire(&self, ask: &Ask, within: Duration) -> Result<Answer, Failure> {
        self.meet(Verb::Acquire, self.inner.acquire(ask, within)).await?
    }

    async fn renew(&self, batch: &[Renewal], within: Duration) -> Vec<Result<Renewed, Failure>> {
        match self.meet(Verb::Renew, self.inner.renew(batch, within)).await {
            Ok(answers) => answers,
            Err(one) => batch
                .iter()
                .map(|_| {
                    Err(if one.unknown {
                        Failure::unknown(one.cause, one.message())
                    } else {
                        Failure::not_done(one.cause, one.message())
                    })
                })
                .collect(),
        }
    }

    async fn release(&self, giving: &Giving, within: Duration) -> Result<Given, Failure> {
        self.meet(Verb::Release, self.inner.release(giving, within))
            .await?
    }

    async fn inspect(&self, name: &Name, within: Duration) -> Result<Option<Lease>, Failure> {
        self.meet(Verb::Inspect, self.inner.inspect(name, within)).await?
    }

    async fn list(&self, prefix: &str, limit: usize, within: Duration) -> Result<Listing, Failure> {
        self.meet(Verb::List, self.inner.list(prefix, limit, within))
            .await?
    }

    fn listen(&self, name: &Name, token: &Token) -> Listener {
        if self.drop_hints.load(Ordering::SeqCst) {
            Listener::silent()
        } else {
            self.inner.listen(name, token)
        }
    }

    async fn promise(&self, within: Duration) -> Result<Promised, Failure> {
        self.meet(Verb::Promise, self.inner.promise(within)).await?
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::clock::{RuntimeClock, until};
    use crate::memory::MemoryStore;
    use crate::rng::OsRandom;
    use crate::word::{Holder, Ttl};

    const WITHIN: Duration = Duration::from_secs(1);

    fn chaos() -> (Chaos, SharedStore, SharedClock) {
        let clock = RuntimeClock::shared();
        let chaos = Chaos::new(Arc::new(MemoryStore::new(Arc::clone(&clock))), Arc::clone(&clock));
        let store = chaos.store();
        (chaos, store, clock)
    }

    fn ask(name: &str) -> Ask {
        let token = Token::fresh(&Holder::new("me").unwrap(), "test", &OsRandom);
        Ask::new(Name::new(name).unwrap(), token, Ttl::MAX)
    }

    async fn there(chaos: &Chaos, ask: &Ask) -> bool {
        chaos.inner.inspect(&ask.name, WITHIN).await.unwrap().is_some()
    }

    #[tokio::test(start_paused = true)]
    async fn scripts_run_in_order_and_end() {
        let (chaos, store, _) = chaos();
        chaos
            .acquire()
            .pass_next(1)
            .fail_next(1)
            .vanish_next(1)
            .lose_reply(1);
        let mut seen = Vec::new();
        for name in ["a", "b", "c", "d", "e"] {
            let ask = ask(name);
            let failed = store
                .acquire(&ask, WITHIN)
                .await
                .err()
                .map(|failure| failure.unknown);
            seen.push((failed, there(&chaos, &ask).await));
        }
        let wanted = [
            (None, true),
            (Some(false), false),
            (Some(true), false),
            (Some(true), true),
            (None, true),
        ];
        assert_eq!(seen, wanted);
        assert_eq!((chaos.calls(Verb::Acquire), chaos.applied(Verb::Acquire)), (5, 3));
        assert_eq!(chaos.calls(Verb::Release), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn an_outage_meets_every_verb_and_ends() {
        let (chaos, store, _) = chaos();
        let ask = ask("a");
        chaos.all().down(true);
        let renewal = Renewal {
            name: ask.name.clone(),
            token: ask.token.clone(),
            fence: crate::Fence::MIN,
            ttl: ask.ttl,
            lock_delay: Duration::ZERO,
        };
        let renewed = store.renew(&[renewal.clone(), renewal], WITHIN).await;
        assert_eq!(renewed.len(), 2);
        for failed in [
            store.acquire(&ask, WITHIN).await.err(),
            store
                .release(&Giving::owned(ask.name.clone(), ask.token.clone()), WITHIN)
                .await
                .err(),
            store.inspect(&ask.name, WITHIN).await.err(),
            store.list("", 1, WITHIN).await.err(),
            store.promise(WITHIN).await.err(),
        ]
        .into_iter()
        .chain(renewed.into_iter().map(Result::err))
        {
            let failed = failed.unwrap();
            assert!(failed.cause == Cause::Unreachable && !failed.unknown, "{failed}");
        }
        chaos.all().down(false);
        assert!(store.acquire(&ask, WITHIN).await.is_ok());
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
            assert!(
                until(clock.as_ref(), hour, store.acquire(&ask, WITHIN))
                    .await
                    .is_none()
            );
            assert_eq!(there(&chaos, &ask).await, applied);
            chaos.acquire().calm();
        }
        assert!(store.acquire(&ask("calm"), WITHIN).await.is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn delays_are_on_the_injected_clock() {
        let (chaos, store, clock) = chaos();
        let (ask, start) = (ask("a"), clock.now());
        chaos
            .acquire()
            .delay(Duration::from_secs(5))
            .delay_reply(Duration::from_secs(7));
        let call = tokio::spawn({
            let ask = ask.clone();
            async move { store.acquire(&ask, WITHIN).await.is_ok() }
        });
        chaos.reached(Verb::Acquire, 1).await;
        assert!(!there(&chaos, &ask).await);
        clock.sleep(Duration::from_secs(6)).await;
        assert!(there(&chaos, &ask).await && !call.is_finished());
        assert!(call.await.unwrap());
        assert_eq!(clock.now().since(start).as_secs(), 12);
    }

    #[tokio::test(start_paused = true)]
    async fn hints_are_dropped_when_ordered() {
        let (chaos, store, clock) = chaos();
        for dropped in [false, true] {
            chaos.drop_hints(dropped);
            let (held, mut waiting) = (ask("a"), ask("a"));
            waiting.queue = Some(WITHIN);
            store.acquire(&held, WITHIN).await.unwrap();
            let listener = store.listen(&waiting.name, &waiting.token);
            store.acquire(&waiting, WITHIN).await.unwrap();
            store
                .release(&Giving::owned(held.name.clone(), held.token.clone()), WITHIN)
                .await
                .unwrap();
            let woken = until(clock.as_ref(), clock.now() + WITHIN, listener.woken()).await;
            assert_eq!(woken.is_none(), dropped);
            store
                .release(
                    &Giving::owned(waiting.name.clone(), waiting.token.clone()),
                    WITHIN,
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
        let _ = store.acquire(&ask("a"), WITHIN).await;
    }
}

//! What a caller who has gone, or whom nobody could answer, may have got is taken back, if nobody could ask for it again.
//!
//! A caller with an id or a token of its own can ask again: over another connection, while the daemon has not noticed that the first
//! one is cut off, or long before a first request that was held up arrives at all. What were taken back for one question
//! could be what the other was granted, here or through another daemon. So such a caller only loses its place in the queue; what
//! it was granted waits for it, and then runs out by itself.
//!
//! The store is told until it has answered, for as long as there could be something to take back: by the machine with which a
//! client undoes its own acquires, so that the two are equally patient.

use std::sync::Arc;
use std::time::Duration;

use leasehold::Ttl;
use leasehold::clock::{Clock, Moment, until};
use leasehold::leasehold_core::acquire::REGISTERED;
use leasehold::leasehold_core::life::{Effect, Input, Life, ReleaseAnswer};
use leasehold::policy::Class;
use leasehold::store::{Claim, Given, Giving, Store};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::acquire::Asking;
use crate::app::App;

/// How many are taken back by asking again and again. For those beyond it one try must do, or a store that is down would have
/// the daemon remember every request of the outage.
const MANY: usize = 1024;

/// One question under way.
pub(super) struct Leaving {
    app: Arc<App>,
    owed: Option<Owed>,
}

impl Leaving {
    /// Of this caller.
    pub(super) fn new(app: &Arc<App>, asking: &Asking) -> Self {
        let (name, token) = (&asking.ask.name, &asking.ask.token);
        let giving = match (asking.orphan, asking.wait) {
            (true, _) => Some(Giving::undo(name.clone(), token.clone())),
            (false, Some(_)) => Some(Giving::place(name.clone(), token.clone())),
            (false, None) => None,
        };
        Self {
            app: Arc::clone(app),
            owed: giving.map(|giving| Owed {
                giving,
                class: Arc::clone(&asking.class),
                ttl: asking.ask.ttl,
                lock_delay: asking.ask.lock_delay,
            }),
        }
    }

    /// The caller knows.
    pub(super) fn stay(&mut self) {
        self.owed = None;
    }
}

impl Drop for Leaving {
    fn drop(&mut self) {
        if let Some(owed) = self.owed.take() {
            Leavings::begin(&self.app, owed);
        }
    }
}

/// All that is being taken back.
#[derive(Debug)]
pub(crate) struct Leavings {
    tasks: TaskTracker,
    /// For those that ask again.
    room: Arc<Semaphore>,
    /// Fires when the daemon waits for nothing any more.
    over: CancellationToken,
}

impl Leavings {
    pub(crate) fn new() -> Self {
        Self {
            tasks: TaskTracker::new(),
            room: Arc::new(Semaphore::new(MANY)),
            over: CancellationToken::new(),
        }
    }

    fn begin(app: &Arc<App>, owed: Owed) {
        let (room, enough) = app.leavings.patience(&app.stopping);
        let (owner, over) = (Arc::clone(app), app.leavings.over.clone());
        app.leavings.tasks.spawn(async move {
            let _room = room;
            let settling = owed.settle(&**owner.store(), &*owner.clock, owner.random.bits(), &enough);
            tokio::select! {
                biased;
                () = over.cancelled() => {}
                () = settling => {}
            }
        });
    }

    /// Room to ask again, if there is some, and what puts an end to that: a daemon that stops would stop late.
    fn patience(&self, stopping: &CancellationToken) -> (Option<OwnedSemaphorePermit>, CancellationToken) {
        let room = Arc::clone(&self.room).try_acquire_owned().ok();
        let enough = match &room {
            Some(_) => stopping.clone(),
            None => {
                let at_once = CancellationToken::new();
                at_once.cancel();
                at_once
            }
        };
        (room, enough)
    }

    /// Waits for what is under way until then, and ends the rest.
    pub(crate) async fn end(&self, clock: &dyn Clock, end: Moment) {
        self.tasks.close();
        until(clock, end, self.tasks.wait()).await;
        self.over.cancel();
    }
}

/// Something to be taken back.
struct Owed {
    giving: Giving,
    /// Under which it was asked for, but for what the caller said itself:
    class: Arc<Class>,
    ttl: Ttl,
    lock_delay: Duration,
}

impl Owed {
    /// The class as the question had it.
    fn class(&self) -> Class {
        let mut class = Class::clone(&self.class);
        class.ttl = self.ttl;
        class.drift = class.drift.max(Class::default_drift(self.ttl.get()));
        class.release.lock_delay = self.lock_delay;
        class
    }

    /// From when on there cannot be anything to take back. An undo's end the machine knows.
    fn end(&self, now: Moment) -> Moment {
        match self.giving.claim {
            // The last question may still be on its way, and a registration lives from its arrival on.
            Claim::Place(_) => now + self.class.acquire.timeout + REGISTERED,
            _ => Moment::FAR,
        }
    }

    /// Tells the store until it has answered, or until it need not be told. After a try that failed it is not told again once
    /// `enough` has fired.
    async fn settle(self, store: &dyn Store, clock: &dyn Clock, seed: u64, enough: &CancellationToken) {
        let (class, end) = (self.class(), self.end(clock.now()));
        let within = class.release.timeout;
        let mut life = Life::undo(Arc::new(class), seed, clock.now());
        let (mut input, mut effects) = (Input::Tick, Vec::new());
        let mut failed = None;
        loop {
            life.step(input, clock.now(), &mut effects);
            let tell = effects
                .drain(..)
                .any(|effect| matches!(effect, Effect::Release { .. }));
            input = if tell {
                let told = until(clock, clock.now() + within, store.release(&self.giving, within)).await;
                let answer = match told {
                    Some(Ok(Given::Released)) => ReleaseAnswer::Released,
                    Some(Ok(Given::NotOwned)) => ReleaseAnswer::NotOwned,
                    Some(Err(failure)) => {
                        failed = Some(failure.to_string());
                        ReleaseAnswer::Failed {
                            unknown: failure.unknown,
                        }
                    }
                    None => {
                        failed = Some(format!("no answer within {within:?}"));
                        ReleaseAnswer::Failed { unknown: true }
                    }
                };
                if !matches!(answer, ReleaseAnswer::Failed { .. }) {
                    return;
                }
                Input::ReleaseAnswer(answer)
            } else {
                let next = life.wake_at();
                if life.finished() || next >= end || enough.is_cancelled() {
                    break;
                }
                tokio::select! {
                    biased;
                    () = enough.cancelled() => break,
                    () = clock.sleep_until(next) => {}
                }
                Input::Tick
            };
        }
        // It runs out by itself then.
        let why = failed.unwrap_or_default();
        tracing::warn!(why, "what a caller left behind could not be taken back");
    }
}

#[cfg(test)]
mod tests {
    use leasehold::clock::{ClockExt, RuntimeClock, SharedClock};
    use leasehold::leasehold_core::Token;
    use leasehold::leasehold_core::adapter::{Chaos, Verb};
    use leasehold::leasehold_core::memory::MemoryStore;
    use leasehold::leasehold_core::rng::SeededRandom;
    use leasehold::policy::PolicyBook;
    use leasehold::{Holder, Name};

    use super::*;

    /// A store that answers no release, on virtual time, and something of an approval to be taken back there.
    fn silent(giving: impl Fn(Name, Token) -> Giving) -> (Chaos, SharedClock, Owed) {
        let clock = RuntimeClock::shared();
        let chaos = Chaos::new(Arc::new(MemoryStore::new(Arc::clone(&clock))), Arc::clone(&clock));
        chaos.release().down(true);
        let class = PolicyBook::builtin().class("approval", clock.now()).unwrap();
        let token = Token::fresh(&Holder::new("me").unwrap(), "approval", &*SeededRandom::shared(7));
        let owed = Owed {
            giving: giving(Name::new("job:1").unwrap(), token),
            ttl: class.ttl,
            lock_delay: Duration::ZERO,
            class,
        };
        (chaos, clock, owed)
    }

    #[tokio::test(start_paused = true)]
    async fn the_store_is_told_for_as_long_as_there_could_be_something() {
        for (giving, least, most) in [
            // A registration, and the time for which its question may have been under way.
            (Giving::place as fn(Name, Token) -> Giving, 2, 10),
            // A minute in which the question may arrive, and a lease that begins then.
            (Giving::undo, 60, 80),
        ] {
            let (chaos, clock, owed) = silent(giving);
            let (began, never) = (clock.now(), CancellationToken::new());
            owed.settle(&*chaos.store(), &*clock, 7, &never).await;
            let took = clock.now().since(began).as_secs();
            assert!((least..=most).contains(&took), "{took}");
            // Seldom enough: a hundred milliseconds first, five seconds at most.
            let calls = chaos.calls(Verb::Release);
            assert!((4..=40).contains(&calls), "{calls}");
        }
    }

    #[test]
    fn one_try_must_do_for_those_beyond_the_room() {
        let (leavings, stopping) = (Leavings::new(), CancellationToken::new());
        let patient = || !leavings.patience(&stopping).1.is_cancelled();
        let many: Vec<_> = (0..MANY).map(|_| leavings.patience(&stopping)).collect();
        assert!(many.iter().all(|(_, enough)| !enough.is_cancelled()) && !patient());
        drop(many);
        assert!(patient());
    }

    #[tokio::test(start_paused = true)]
    async fn it_ends_when_the_store_answers_or_the_daemon_stops() {
        let (chaos, clock, owed) = silent(Giving::undo);
        let never = CancellationToken::new();
        let store = chaos.store();
        let back = async {
            chaos.reached(Verb::Release, 3).await;
            chaos.release().down(false);
        };
        tokio::join!(owed.settle(&*store, &*clock, 7, &never), back);
        assert_eq!((chaos.calls(Verb::Release), chaos.applied(Verb::Release)), (4, 1));

        let (chaos, clock, owed) = silent(Giving::undo);
        let (stopping, store) = (CancellationToken::new(), chaos.store());
        let stop = async {
            chaos.reached(Verb::Release, 3).await;
            stopping.cancel();
        };
        let began = clock.now();
        tokio::join!(owed.settle(&*store, &*clock, 7, &stopping), stop);
        assert_eq!(chaos.calls(Verb::Release), 3);
        assert!(clock.now().since(began) < Duration::from_secs(1));

        // What comes while it stops is told once.
        let (chaos, clock, owed) = silent(Giving::place);
        owed.settle(&*chaos.store(), &*clock, 7, &stopping).await;
        assert_eq!(chaos.calls(Verb::Release), 1);
        clock.sleep(Duration::from_secs(600)).await;
        assert_eq!(chaos.calls(Verb::Release), 1);
    }
}

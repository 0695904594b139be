//! The daemon as one simulated process: the real server on a runtime and a clock of its own, over the simulated store.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use leasehold_core::observe::Counters;
use leasehold_core::policy::PolicyBook;
use leasehold_core::rng::SeededRandom;
use leasehold_core::store::{SharedStore, Wakers};
use leasehold_core::{Holder, Left, Locks};
use leasehold_server::{Config, Parts, Server};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::books::SimScribe;
use super::class;
use super::clock::ProcessClock;
use super::dice::Dice;
use super::drift::{Nanos, SEC};
use super::process::tally;
use super::store::SimStore;
use super::stream::SimDoor;
use super::tape::Tap;
use super::turns::Turns;
use super::world::World;

/// Where it is, as its clients write it.
pub(super) const URL: &str = "http://127.0.0.1:7420";

/// It takes ten seconds to end at the most, by its own clock: this much it has by any.
const DRAIN: Nanos = 9 * SEC;

/// What its task has to say.
#[derive(Debug, Default)]
struct Inside {
    /// Its own client, once it is open.
    locks: Option<Locks>,
    /// Why it could not start.
    failed: Option<String>,
    /// When it ended in order, and what it had left to do then.
    ended: Option<(Nanos, Left)>,
}

/// A daemon.
#[derive(Debug)]
pub(super) struct Daemon {
    slot: usize,
    pub(super) who: String,
    pub(super) wakers: Arc<Wakers>,
    world: Arc<World>,
    silent: Arc<AtomicBool>,
    counters: Arc<Counters>,
    inside: Arc<Mutex<Inside>>,
    stop: CancellationToken,
    /// Since when it is on its way out.
    leaving: OnceLock<Nanos>,
    running: JoinHandle<()>,
    pub(super) turns: Turns,
}

impl Daemon {
    /// Starts it on its host.
    pub(super) fn start(world: &Arc<World>, slot: usize) -> Result<Self, String> {
        let (plan, life, who) = {
            let mut state = world.lock();
            let now = state.now;
            state.in_force.reset(now);
            state.begin(slot).ok_or("no such host")?
        };
        let turns = Turns::new()?;
        let clock = ProcessClock {
            world: Arc::clone(world),
            slot,
        };
        let wakers = Arc::new(Wakers::default());
        let store: SharedStore = Arc::new(SimStore {
            world: Arc::clone(world),
            slot,
            life,
            kind: plan.kind,
            queue: plan.queue,
            wakers: Arc::clone(&wakers),
        });
        let silent = Arc::new(AtomicBool::new(false));
        let tap = Tap {
            world: Arc::clone(world),
            clock: clock.clone(),
            who: who.clone(),
            silent: Arc::clone(&silent),
        };
        let counters = Arc::new(Counters::default());
        let seed = Dice::keyed(plan.seed, [0xdae3, u64::from(life), 0]).below(u64::MAX);
        let book =
            PolicyBook::from_text(&class::text(&plan.classes), "sim").map_err(|bad| bad.to_string())?;
        let holder = Holder::new(&who).map_err(|bad| bad.to_string())?;
        let scribe = SimScribe {
            world: Arc::clone(world),
            slot,
            life,
        };
        let parts = Parts::new(Arc::new(clock), SeededRandom::shared(seed), Arc::new(scribe));
        let door = SimDoor {
            world: Arc::clone(world),
        };
        let (counts, stop) = (Arc::clone(&counters), CancellationToken::new());
        let (inside, stopped) = (Arc::new(Mutex::new(Inside::default())), stop.clone());
        let (known, times) = (Arc::clone(&inside), Arc::clone(world));
        let running = turns.spawn(async move {
            let address = SocketAddr::from((Ipv4Addr::LOCALHOST, 7420));
            let setup = |locks: leasehold_core::Builder| {
                locks
                    .policies(book)
                    .holder(holder)
                    .observer(Arc::new(tap))
                    .observer(counts as Arc<_>)
                    .without_log()
            };
            let opened = Server::open_with(Config::new(address), store, setup, parts).await;
            let serving = match opened {
                Ok(opened) => {
                    of(&known).locks = Some(opened.locks().clone());
                    opened.serve_at(door, address, Vec::new()).await
                }
                Err(error) => Err(error),
            };
            match serving {
                Ok(server) => {
                    server.run(stopped.cancelled_owned()).await;
                    let locks = of(&known).locks.clone();
                    let left = match locks {
                        Some(locks) => locks.left().await,
                        None => Left::default(),
                    };
                    let now = times.lock().now;
                    of(&known).ended = Some((now, left));
                }
                Err(error) => of(&known).failed = Some(error.to_string()),
            }
        });
        turns.take();
        Ok(Self {
            slot,
            who,
            wakers,
            world: Arc::clone(world),
            silent,
            counters,
            inside,
            stop,
            leaving: OnceLock::new(),
            running,
            turns,
        })
    }

    /// Begins an orderly end.
    pub(super) fn leave(&self) {
        self.leaving.get_or_init(|| self.world.lock().now);
        self.stop.cancel();
        self.turns.take();
    }

    /// It has ended with this left to do although there was time for it. What is not due yet, and holds that the next one takes up,
    /// may be left at any time.
    pub(super) fn neglected(&self) -> Left {
        let since = self.leaving.get().copied().unwrap_or_default();
        match of(&self.inside).ended {
            Some((at, left)) if at < since + DRAIN => Left {
                holds: 0,
                later: 0,
                ..left
            },
            _ => Left::default(),
        }
    }

    /// It is on its way out.
    pub(super) fn leaves(&self) -> bool {
        self.stop.is_cancelled()
    }

    /// Its orderly end has come.
    pub(super) fn has_left(&self) -> bool {
        self.running.is_finished()
    }

    /// What its own client still has to do; nothing is known of one that is still opening.
    pub(super) fn left(&self) -> Option<Left> {
        let locks = self.locks()?;
        self.turns.at_once(async move { locks.left().await })
    }

    /// Its own client, once it is open.
    pub(super) fn locks(&self) -> Option<Locks> {
        of(&self.inside).locks.clone()
    }

    /// Its clock.
    pub(super) fn clock(&self) -> ProcessClock {
        ProcessClock {
            world: Arc::clone(&self.world),
            slot: self.slot,
        }
    }

    /// Does what an operator asks of it.
    pub(super) fn operate(&self, work: impl Future<Output = ()> + Send + 'static) {
        self.turns.spawn(work);
        self.turns.take();
    }

    /// Why it could not start, if it could not.
    pub(super) fn failed(&self) -> Option<String> {
        of(&self.inside).failed.clone()
    }

    /// Its counters, as its last word.
    pub(super) fn tally(&self) {
        tally(&self.world, &self.who, &self.counters);
    }

    /// Lets go of its client: what is left of it ends by itself.
    pub(super) fn close(&self) {
        let locks = of(&self.inside).locks.take();
        drop(locks);
        self.turns.take();
    }
}

fn of(inside: &Mutex<Inside>) -> std::sync::MutexGuard<'_, Inside> {
    inside.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // Whatever its tasks do while they are dropped, a process that is gone says nothing.
        self.silent.store(true, Ordering::Relaxed);
        let mut state = self.world.lock();
        if let Some(host) = state.hosts.get_mut(self.slot) {
            host.alive = false;
            host.paused_until = 0;
        }
        let (lost, waker) = (state.books.lose(), state.shut());
        let wakers = state.hang_up_all(self.slot);
        drop(state);
        drop((lost, waker, wakers));
    }
}

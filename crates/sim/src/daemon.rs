//! The daemon as a simulated process: the real server with its own runtime and clock, on top of the
//! simulated store.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use leasehold_core::observe::Counters;
use leasehold_core::rng::SeededRandom;
use leasehold_core::store::{SharedStore, WakeRegistry};
use leasehold_core::{Locks, PendingWork};
use leasehold_server::{Config, Environment, Server};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::client_setup::ClientSetup;
use super::clock::ProcessClock;
use super::daemon_disk::SimDatabaseWriter;
use super::drift::{Nanos, SEC};
use super::process::record_client_counters;
use super::random::SimRandom;
use super::stepped_runtime::SteppedRuntime;
use super::store::SimStore;
use super::stream::SimListener;
use super::world::SimWorld;

/// The daemon's address as clients write it. The simulated connector ignores it.
pub(super) const DAEMON_URL: &str = "http://127.0.0.1:7420";

// The daemon limits its own shutdown to ten seconds of its clock. Nine seconds of true time are
// less than that on every simulated clock.
const SHUTDOWN_TIME: Nanos = 9 * SEC;

/// What the daemon's task reports to the simulation.
#[derive(Debug, Default)]
struct DaemonStatus {
    locks: Option<Locks>,
    start_error: Option<String>,
    // When the orderly shutdown finished, and the work that was still pending.
    ended: Option<(Nanos, PendingWork)>,
}

/// One life of the daemon.
#[derive(Debug)]
pub(super) struct SimDaemon {
    slot: usize,
    pub(super) who: String,
    pub(super) wakers: Arc<WakeRegistry>,
    world: Arc<SimWorld>,
    silent: Arc<AtomicBool>,
    counters: Arc<Counters>,
    status: Arc<Mutex<DaemonStatus>>,
    stop: CancellationToken,
    // True time at which the orderly shutdown began.
    stopping_since: OnceLock<Nanos>,
    task: JoinHandle<()>,
    pub(super) runtime: SteppedRuntime,
}

impl SimDaemon {
    /// Starts the daemon on its host.
    pub(super) fn start(world: &Arc<SimWorld>, slot: usize) -> Result<Self, String> {
        let (plan, life, who) = {
            let mut state = world.lock();
            let now = state.now;
            // Policy overrides live in the daemon's memory only: a new daemon starts from its file.
            state.class_versions.reset(now);
            state.register_process(slot).ok_or("no such host")?
        };
        let runtime = SteppedRuntime::new()?;
        let wakers = Arc::new(WakeRegistry::default());
        let store: SharedStore = Arc::new(SimStore::new(world, slot, life, &wakers));
        let client = ClientSetup::new(world, slot, &plan, &who)?;
        let (silent, counters) = (Arc::clone(&client.silent), Arc::clone(&client.counters));
        let seed = SimRandom::keyed(plan.seed, [0xdae3, u64::from(life), 0]).below(u64::MAX);
        let writer = SimDatabaseWriter { world: Arc::clone(world), slot, life };
        let parts =
            Environment::new(Arc::new(client.clock.clone()), SeededRandom::shared(seed), Arc::new(writer));
        let listener = SimListener { world: Arc::clone(world) };
        let stop = CancellationToken::new();
        let (inside, stopped) = (Arc::new(Mutex::new(DaemonStatus::default())), stop.clone());
        let (known, times) = (Arc::clone(&inside), Arc::clone(world));
        let running = runtime.spawn(async move {
            let address = SocketAddr::from((Ipv4Addr::LOCALHOST, 7420));
            let mut config = Config::new(address);
            config.unauthenticated = true;
            let opened = Server::open_with(config, store, |locks| client.configure(locks), parts).await;
            let serving = match opened {
                Ok(opened) => {
                    lock_status(&known).locks = Some(opened.locks().clone());
                    opened.serve_at(listener, address, Vec::new()).await
                }
                Err(error) => Err(error),
            };
            match serving {
                Ok(server) => {
                    server.run(stopped.cancelled_owned()).await;
                    let locks = lock_status(&known).locks.clone();
                    let left = match locks {
                        Some(locks) => locks.pending().await,
                        None => PendingWork::default(),
                    };
                    let now = times.lock().now;
                    lock_status(&known).ended = Some((now, left));
                }
                Err(error) => lock_status(&known).start_error = Some(error.to_string()),
            }
        });
        runtime.run_until_idle();
        Ok(Self {
            slot,
            who,
            wakers,
            world: Arc::clone(world),
            silent,
            counters,
            status: inside,
            stop,
            stopping_since: OnceLock::new(),
            task: running,
            runtime,
        })
    }

    /// Begins an orderly shutdown.
    pub(super) fn begin_shutdown(&self) {
        self.stopping_since.get_or_init(|| self.world.lock().now);
        self.stop.cancel();
        self.runtime.run_until_idle();
    }

    /// Work that the daemon left although it had time to finish it.
    pub(super) fn unfinished_work(&self) -> PendingWork {
        let since = self.stopping_since.get().copied().unwrap_or_default();
        match lock_status(&self.status).ended {
            // Holds are left out because the next daemon resumes them. Work that is not due yet is left
            // out because a shutdown does not wait for it.
            Some((at, mut left)) if at < since + SHUTDOWN_TIME => {
                (left.holds, left.deferred_undos) = (0, 0);
                left
            }
            _ => PendingWork::default(),
        }
    }

    /// The orderly shutdown has begun.
    pub(super) fn is_shutting_down(&self) -> bool {
        self.stop.is_cancelled()
    }

    /// The orderly shutdown has finished.
    pub(super) fn has_stopped(&self) -> bool {
        self.task.is_finished()
    }

    /// Pending work of the daemon's own client; `None` while the daemon is still opening.
    pub(super) fn pending_work(&self) -> Option<PendingWork> {
        let locks = self.locks()?;
        self.runtime.poll_until_idle(async move { locks.pending().await })
    }

    pub(super) fn locks(&self) -> Option<Locks> {
        lock_status(&self.status).locks.clone()
    }

    pub(super) fn clock(&self) -> ProcessClock {
        ProcessClock { world: Arc::clone(&self.world), slot: self.slot }
    }

    /// Runs an operator's request inside the daemon.
    pub(super) fn spawn_operator_task(&self, work: impl Future<Output = ()> + Send + 'static) {
        self.runtime.spawn(work);
        self.runtime.run_until_idle();
    }

    /// Why the start failed, if it failed.
    pub(super) fn start_error(&self) -> Option<String> {
        lock_status(&self.status).start_error.clone()
    }

    /// Records the counters; called at the end of a life.
    pub(super) fn record_counters(&self) {
        record_client_counters(&self.world, &self.who, &self.counters);
    }

    /// Drops the daemon's client, so that its background tasks end.
    pub(super) fn drop_client(&self) {
        let locks = lock_status(&self.status).locks.take();
        drop(locks);
        self.runtime.run_until_idle();
    }
}

fn lock_status(inside: &Mutex<DaemonStatus>) -> std::sync::MutexGuard<'_, DaemonStatus> {
    inside.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Drop for SimDaemon {
    fn drop(&mut self) {
        // Tasks emit events while they are dropped. A killed process must not record any.
        self.silent.store(true, Ordering::Relaxed);
        let mut state = self.world.lock();
        if let Some(host) = state.hosts.get_mut(self.slot) {
            host.alive = false;
            host.paused_until = 0;
        }
        // Collected here and dropped after the lock: wakers and writes may own tasks that lock the world.
        let (lost, waker) = (state.daemon_disk.take_unwritten(), state.stop_listening());
        let wakers = state.close_all_of(self.slot);
        drop(state);
        drop((lost, waker, wakers));
    }
}

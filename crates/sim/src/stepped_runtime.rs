//! A runtime without timers and sockets that runs only when the simulation calls it.
//!
//! A call polls every ready task until none is left. A paused process is simply not called, and a
//! killed one is dropped as it is.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Poll, Waker};

use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinHandle;

// Tells the root future that the runtime is about to park, which means that no task is ready.
#[derive(Debug, Default)]
struct IdleSignal {
    idle: AtomicBool,
    root: Mutex<Option<Waker>>,
}

/// A runtime that is stepped from outside.
#[derive(Debug)]
pub(super) struct SteppedRuntime {
    idle_signal: Arc<IdleSignal>,
    runtime: Runtime,
}

impl SteppedRuntime {
    pub(super) fn new() -> Result<Self, String> {
        let turn = Arc::new(IdleSignal::default());
        let parked = Arc::clone(&turn);
        let runtime = Builder::new_current_thread()
            .on_thread_park(move || {
                // Parking would block the thread for ever: nothing outside the runtime wakes it.
                let root = parked.root.lock().unwrap_or_else(PoisonError::into_inner).take();
                if let Some(root) = root {
                    parked.idle.store(true, Ordering::Relaxed);
                    root.wake();
                }
            })
            .build()
            .map_err(|error| error.to_string())?;
        Ok(Self { idle_signal: turn, runtime })
    }

    /// Runs a future that never waits.
    pub(super) fn block_on<T>(&self, work: impl Future<Output = T>) -> T {
        self.runtime.block_on(work)
    }

    /// Spawns a task; it is first polled by the next call.
    pub(super) fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) -> JoinHandle<()> {
        self.runtime.spawn(work)
    }

    /// Polls every ready task until none is left.
    pub(super) fn run_until_idle(&self) {
        self.poll_until_idle(std::future::pending::<()>());
    }

    /// The output of a future that needs no time to pass; `None` if it would have to wait.
    pub(super) fn poll_until_idle<T>(&self, work: impl Future<Output = T>) -> Option<T> {
        let turn = &self.idle_signal;
        self.runtime.block_on(async {
            let mut work = pin!(work);
            poll_fn(|cx| {
                if let Poll::Ready(done) = work.as_mut().poll(cx) {
                    return Poll::Ready(Some(done));
                }
                // The park hook ran: every task was polled and none is ready.
                if turn.idle.swap(false, Ordering::Relaxed) {
                    return Poll::Ready(None);
                }
                *turn.root.lock().unwrap_or_else(PoisonError::into_inner) = Some(cx.waker().clone());
                Poll::Pending
            })
            .await
        })
    }

    /// Number of live tasks.
    pub(super) fn live_tasks(&self) -> u64 {
        self.runtime.metrics().num_alive_tasks() as u64
    }
}

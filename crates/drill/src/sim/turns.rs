//! A runtime that runs only when the director lets it: neither timers nor sockets, and one *turn* at a time.
//!
//! A turn polls what can be polled until nothing is left; so a process that stands still is one that gets no turn, and one that is
//! killed is dropped where it stands.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Poll, Waker};

use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinHandle;

/// Ends a turn when the runtime has nothing left to poll.
#[derive(Debug, Default)]
struct Turn {
    idle: AtomicBool,
    root: Mutex<Option<Waker>>,
}

/// A runtime and its turns.
#[derive(Debug)]
pub(super) struct Turns {
    turn: Arc<Turn>,
    runtime: Runtime,
}

impl Turns {
    pub(super) fn new() -> Result<Self, String> {
        let turn = Arc::new(Turn::default());
        let parked = Arc::clone(&turn);
        let runtime = Builder::new_current_thread()
            .on_thread_park(move || {
                let root = parked.root.lock().unwrap_or_else(PoisonError::into_inner).take();
                if let Some(root) = root {
                    parked.idle.store(true, Ordering::Relaxed);
                    root.wake();
                }
            })
            .build()
            .map_err(|error| error.to_string())?;
        Ok(Self { turn, runtime })
    }

    /// Runs something that does not wait.
    pub(super) fn block_on<T>(&self, work: impl Future<Output = T>) -> T {
        self.runtime.block_on(work)
    }

    /// Begins something; it is polled with the next turn.
    pub(super) fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) -> JoinHandle<()> {
        self.runtime.spawn(work)
    }

    /// Polls what can be polled.
    pub(super) fn take(&self) {
        self.at_once(std::future::pending::<()>());
    }

    /// What a future answers without any time passing.
    pub(super) fn at_once<T>(&self, work: impl Future<Output = T>) -> Option<T> {
        let turn = &self.turn;
        self.runtime.block_on(async {
            let mut work = pin!(work);
            poll_fn(|cx| {
                if let Poll::Ready(done) = work.as_mut().poll(cx) {
                    return Poll::Ready(Some(done));
                }
                if turn.idle.swap(false, Ordering::Relaxed) {
                    return Poll::Ready(None);
                }
                *turn.root.lock().unwrap_or_else(PoisonError::into_inner) = Some(cx.waker().clone());
                Poll::Pending
            })
            .await
        })
    }

    /// Tasks that are alive.
    pub(super) fn alive(&self) -> u64 {
        self.runtime.metrics().num_alive_tasks() as u64
    }
}

//! Wake-up hints over long polls: one request per waiting token stays open until the daemon has a
//! hint.

use std::sync::Arc;
use std::time::Duration;

use leasehold_core::clock::ClockExt;
use leasehold_core::rng::RandomExt;
use leasehold_core::store::{WakeListener, WakeRegistry};
use leasehold_core::{Name, Token};
use tokio::task::JoinHandle;

use crate::connection::Connections;
use crate::store::lock_path;
use crate::wire::{Secret, Wait, WaitView, millis};

// Half of the daemon's maximum wait.
const LONG_POLL_DURATION: Duration = Duration::from_secs(30);
// Jittered, so that all waiters do not poll at once when the daemon is back.
const POLL_RETRY_PAUSE: Duration = Duration::from_millis(500);

/// The wake-up subscriptions of all waiters of one store.
#[derive(Debug)]
pub(crate) struct WakeSubscription {
    connections: Arc<Connections>,
    wakers: Arc<WakeRegistry>,
}

impl WakeSubscription {
    pub(crate) fn new(connections: Arc<Connections>) -> Self {
        Self { connections, wakers: Arc::default() }
    }

    /// Subscribes to hints. The daemon keeps hints from the first queued acquire on, so acquire and
    /// poll may arrive in either order. The poll ends with the listener.
    pub(crate) fn listen(&self, name: &Name, token: &Token) -> WakeListener {
        let key = token.random().to_owned();
        let listener = self.wakers.listen(key.clone());
        // Without a runtime no task can be waiting either.
        let Ok(runtime) = tokio::runtime::Handle::try_current() else {
            return listener;
        };
        let poll = poll(
            Arc::clone(&self.connections),
            Arc::clone(&self.wakers),
            key,
            lock_path(name, "/wait"),
            Wait { token: Secret::new(token.expose()), wait_ms: millis(LONG_POLL_DURATION) },
        );
        listener.with_source(PollTask(runtime.spawn(poll)))
    }
}

/// A poll task that is aborted when dropped.
struct PollTask(JoinHandle<()>);

impl Drop for PollTask {
    fn drop(&mut self) {
        self.0.abort();
    }
}

async fn poll(
    connections: Arc<Connections>,
    wakers: Arc<WakeRegistry>,
    key: String,
    path: String,
    wait: Wait,
) {
    loop {
        let woken = match connections.post(&path, &wait).await {
            Ok(answer) if answer.status == 200 => answer.parse_document::<WaitView>("wait").ok(),
            _ => None,
        };
        match woken {
            Some(WaitView { woken: true }) => {
                // Polling goes on after a hint: it does not grant the lock, and the waiter may need
                // another.
                wakers.wake(&key);
            }
            Some(WaitView { woken: false }) => {}
            // The daemon cannot answer now; the waiter polls the lock by itself meanwhile.
            None => {
                let parts = &connections.environment;
                parts.clock.sleep(parts.random.jitter(POLL_RETRY_PAUSE)).await;
            }
        }
    }
}

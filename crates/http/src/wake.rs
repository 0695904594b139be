//! Hints over a long poll: one request per waiting token stays open until the daemon has something to say.

use std::sync::Arc;
use std::time::Duration;

use leasehold_core::clock::ClockExt;
use leasehold_core::rng::RandomExt;
use leasehold_core::store::{Listener, Wakers};
use leasehold_core::{Name, Token};
use tokio::task::JoinHandle;

use crate::connection::Connections;
use crate::store::route;
use crate::wire::{Secret, Wait, Waited, millis};

/// How long one poll lasts before it is asked anew.
const POLL: Duration = Duration::from_secs(30);
/// About how long after a poll that failed.
const PAUSE: Duration = Duration::from_millis(500);

/// The bells of all waiters of one store value.
#[derive(Debug)]
pub(crate) struct Ear {
    connections: Arc<Connections>,
    wakers: Arc<Wakers>,
}

impl Ear {
    pub(crate) fn new(connections: Arc<Connections>) -> Self {
        Self {
            connections,
            wakers: Arc::default(),
        }
    }

    /// Starts to listen. The daemon remembers a hint from the first queued ask on, so it does not matter whether that
    /// ask or this poll reaches it first. The poll ends with the listener.
    pub(crate) fn listen(&self, name: &Name, token: &Token) -> Listener {
        let key = token.random().to_owned();
        let listener = self.wakers.listen(key.clone());
        // Without a runtime there is nobody to wait either.
        let Ok(runtime) = tokio::runtime::Handle::try_current() else {
            return listener;
        };
        let poll = poll(
            Arc::clone(&self.connections),
            Arc::clone(&self.wakers),
            key,
            route(name, "/wait"),
            Wait {
                token: Secret::new(token.expose()),
                wait_ms: millis(POLL),
            },
        );
        listener.with(Polling(runtime.spawn(poll)))
    }
}

/// A poll that ends when it is dropped.
struct Polling(JoinHandle<()>);

impl Drop for Polling {
    fn drop(&mut self) {
        self.0.abort();
    }
}

async fn poll(connections: Arc<Connections>, wakers: Arc<Wakers>, key: String, path: String, wait: Wait) {
    loop {
        let woken = match connections.post(&path, &wait).await {
            Ok(answer) if answer.status == 200 => answer.document::<Waited>("wait").ok(),
            _ => None,
        };
        match woken {
            Some(Waited { woken: true }) => {
                wakers.wake(&key);
            }
            Some(Waited { woken: false }) => {}
            // A daemon that cannot say so now: the waiter asks by itself meanwhile.
            None => {
                let parts = &connections.parts;
                parts.clock.sleep(parts.random.jitter(PAUSE)).await;
            }
        }
    }
}

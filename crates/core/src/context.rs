//! The shared context of a client: store, clock, randomness, events, breaker and fence floors.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::breaker::Breaker;
use crate::clock::SharedClock;
use crate::event::EventStream;
use crate::fence_floors::FenceFloors;
use crate::rng::SharedRandom;
use crate::store::SharedStore;
use crate::types::{Holder, Token};

/// Shared by acquires, the keeper and the policy task. Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct Context {
    pub(crate) store: SharedStore,
    pub(crate) clock: SharedClock,
    pub(crate) random: SharedRandom,
    pub(crate) events: Arc<EventStream>,
    pub(crate) breaker: Arc<Mutex<Breaker>>,
    pub(crate) floors: Arc<FenceFloors>,
    pub(crate) holder: Holder,
    /// The next id of a hold or acquire; all events of one hold carry its id.
    pub(crate) ids: Arc<AtomicU64>,
}

impl Context {
    pub(crate) fn next_id(&self) -> u64 {
        self.ids.fetch_add(1, Ordering::Relaxed)
    }

    /// The token's holder, if it is not this client's own: the daemon acquires for its callers.
    pub(crate) fn foreign_holder(&self, token: &Token) -> Option<Holder> {
        (token.holder() != self.holder.as_str()).then(|| Holder::new(token.holder()).ok()).flatten()
    }

    pub(crate) fn breaker(&self) -> MutexGuard<'_, Breaker> {
        // The breaker has no invariant that a panic could break half way.
        self.breaker.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

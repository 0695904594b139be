//! What every part of a client works with.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::breaker::Breaker;
use crate::clock::SharedClock;
use crate::event::Events;
use crate::floor::Floors;
use crate::rng::SharedRandom;
use crate::store::SharedStore;
use crate::word::{Holder, Token};

/// Shared by acquires, keeper and steward. Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct Tools {
    pub(crate) store: SharedStore,
    pub(crate) clock: SharedClock,
    pub(crate) random: SharedRandom,
    pub(crate) events: Arc<Events>,
    pub(crate) breaker: Arc<Mutex<Breaker>>,
    pub(crate) floors: Arc<Floors>,
    pub(crate) holder: Holder,
    /// Numbers holds and attempts.
    pub(crate) ids: Arc<AtomicU64>,
}

impl Tools {
    pub(crate) fn next_id(&self) -> u64 {
        self.ids.fetch_add(1, Ordering::Relaxed)
    }

    /// Whose token it is, if it is not this client's own.
    pub(crate) fn someone(&self, token: &Token) -> Option<Holder> {
        (token.holder() != self.holder.as_str())
            .then(|| Holder::new(token.holder()).ok())
            .flatten()
    }

    pub(crate) fn breaker(&self) -> MutexGuard<'_, Breaker> {
        self.breaker.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::Notify;

/// Hints for one waiting token. Dropping it ends the interest.
pub struct Listener {
    bell: Option<Arc<Notify>>,
    place: Option<(Arc<Wakers>, String)>,
    /// What brings the hints here, if it must end with the interest in them.
    _source: Option<Box<dyn Send + Sync>>,
}

impl Listener {
    /// Never rings: for stores that cannot wake anyone.
    #[must_use]
    pub const fn silent() -> Self {
        Self {
            bell: None,
            place: None,
            _source: None,
        }
    }

    /// With something that is dropped with it: a task that polls for hints, say.
    #[must_use]
    pub fn with(mut self, source: impl Send + Sync + 'static) -> Self {
        self._source = Some(Box::new(source));
        self
    }

    /// Ends when a hint comes, at once if one came since the last time. Safe to drop and call again.
    pub async fn woken(&self) {
        match &self.bell {
            Some(bell) => bell.notified().await,
            None => std::future::pending().await,
        }
    }
}

impl fmt::Debug for Listener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The key it listens under is a secret.
        f.debug_struct("Listener").finish_non_exhaustive()
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if let Some((wakers, key)) = self.place.take() {
            wakers.forget(&key);
        }
    }
}

/// The bells of all waiters of one store value, by a key of the store's choice (a token's random part, say).
#[derive(Default)]
pub struct Wakers {
    bells: Mutex<HashMap<String, Arc<Notify>>>,
}

impl Wakers {
    /// A listener under this key. A second one under the same key replaces the first.
    #[must_use]
    pub fn listen(self: &Arc<Self>, key: impl Into<String>) -> Listener {
        let (key, bell) = (key.into(), Arc::new(Notify::new()));
        self.lock().insert(key.clone(), Arc::clone(&bell));
        Listener {
            bell: Some(bell),
            place: Some((Arc::clone(self), key)),
            _source: None,
        }
    }

    /// Rings one bell; `false` if nobody listens there.
    pub fn wake(&self, key: &str) -> bool {
        self.lock().get(key).inspect(|bell| bell.notify_one()).is_some()
    }

    /// Rings every bell: after a gap in which hints may have been lost.
    pub fn wake_all(&self) {
        self.lock().values().for_each(|bell| bell.notify_one());
    }

    /// How many listen.
    #[must_use]
    pub fn len(&self) -> usize {
        self.lock().len()
    }

    /// Nobody listens.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.lock().is_empty()
    }

    fn forget(&self, key: &str) {
        self.lock().remove(key);
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<String, Arc<Notify>>> {
        // A panic while ringing leaves the map whole: nothing to repair.
        self.bells.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Wakers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The keys are secrets.
        f.debug_struct("Wakers").field("listening", &self.len()).finish()
    }
}

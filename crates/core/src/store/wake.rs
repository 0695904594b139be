//! Wake-up notifications for waiters.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::Notify;

/// The wake-up subscription of one waiting token. Dropping it ends the subscription.
pub struct WakeListener {
    notify: Option<Arc<Notify>>,
    registration: Option<(Arc<WakeRegistry>, String)>,
    // Dropped with the listener, so that a polling task or a connection ends with it.
    _source: Option<Box<dyn Send + Sync>>,
}

impl WakeListener {
    /// A listener that is never notified, for stores without wake-ups.
    #[must_use]
    pub const fn never() -> Self {
        Self { notify: None, registration: None, _source: None }
    }

    /// Ties the lifetime of `source` (for example a polling task) to this listener.
    #[must_use]
    pub fn with_source(mut self, source: impl Send + Sync + 'static) -> Self {
        self._source = Some(Box::new(source));
        self
    }

    /// Completes on a wake-up, at once if one arrived since the last call. Safe to drop and call
    /// again.
    pub async fn notified(&self) {
        match &self.notify {
            // `Notify` stores one permit, so a wake-up between two calls is not lost.
            Some(notifier) => notifier.notified().await,
            None => std::future::pending().await,
        }
    }
}

impl fmt::Debug for WakeListener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The key is part of the token and therefore a secret.
        f.debug_struct("WakeListener").finish_non_exhaustive()
    }
}

impl Drop for WakeListener {
    fn drop(&mut self) {
        if let (Some((wakers, key)), Some(notify)) = (self.registration.take(), &self.notify) {
            wakers.remove(&key, notify);
        }
    }
}

/// The wake-up listeners of one store value, by a key of the store's choice (for example a token's
/// random part).
#[derive(Default)]
pub struct WakeRegistry {
    listeners: Mutex<HashMap<String, Arc<Notify>>>,
    next_in_group: AtomicU64,
}

impl WakeRegistry {
    /// Registers a listener under this key. A second listener under the same key replaces the
    /// first.
    #[must_use]
    pub fn listen(self: &Arc<Self>, key: impl Into<String>) -> WakeListener {
        let (key, notifier) = (key.into(), Arc::new(Notify::new()));
        self.lock().insert(key.clone(), Arc::clone(&notifier));
        WakeListener { notify: Some(notifier), registration: Some((Arc::clone(self), key)), _source: None }
    }

    /// Notifies the listener of this key; `false` if there is none.
    pub fn wake(&self, key: &str) -> bool {
        self.lock().get(key).inspect(|notifier| notifier.notify_one()).is_some()
    }

    /// Registers one of several listeners of the same key: each gets every notification of
    /// [`wake_group`](Self::wake_group).
    #[must_use]
    pub fn listen_in_group(self: &Arc<Self>, group: &str) -> WakeListener {
        let number = self.next_in_group.fetch_add(1, Ordering::Relaxed);
        self.listen(format!("{group} {number}"))
    }

    /// Notifies the listeners of a group; `false` if there is none. Names contain no space, so no
    /// group is the start of another one.
    pub fn wake_group(&self, group: &str) -> bool {
        let listeners = self.lock();
        let members =
            listeners.iter().filter(|(key, _)| key.rsplit_once(' ').is_some_and(|(of, _)| of == group));
        members.inspect(|(_, notifier)| notifier.notify_one()).count() > 0
    }

    /// Notifies every listener: used after a gap in which wake-ups may have been lost.
    pub fn wake_all(&self) {
        self.lock().values().for_each(|notifier| notifier.notify_one());
    }

    /// The number of registered listeners.
    #[must_use]
    pub fn len(&self) -> usize {
        self.lock().len()
    }

    /// Returns true if no listener is registered.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.lock().is_empty()
    }

    fn remove(&self, key: &str, notify: &Arc<Notify>) {
        let mut listeners = self.lock();
        // A later listener of the same key must outlive the one that it replaced.
        if listeners.get(key).is_some_and(|current| Arc::ptr_eq(current, notify)) {
            listeners.remove(key);
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<String, Arc<Notify>>> {
        // No operation under this lock leaves the map half changed, so a poisoned lock is harmless.
        self.listeners.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for WakeRegistry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The keys are parts of tokens and therefore secrets.
        f.debug_struct("WakeRegistry").field("listening", &self.len()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_replaced_listener_does_not_end_its_successor() {
        let registry = Arc::new(WakeRegistry::default());
        let first = registry.listen("token");
        let second = registry.listen("token");
        drop(first);
        assert!(registry.wake("token"));
        drop(second);
        assert!(registry.is_empty());
    }
}

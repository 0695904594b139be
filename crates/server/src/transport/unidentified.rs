//! Connections whose peer has not presented a valid identity yet: bounded in number and time.
//!
//! A connection beyond the limit displaces the oldest one. A client sends its token with its first
//! request, soon after it has connected. So a crowd of silent peers displaces itself, and no client.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use leasehold::clock::{Clock, run_until};
use tokio::sync::Notify;

/// All connections without an identity, by age.
#[derive(Debug)]
pub(crate) struct UnidentifiedConnections {
    max_connections: usize,
    table: Mutex<ConnectionTable>,
}

#[derive(Debug, Default)]
struct ConnectionTable {
    next: u64,
    by_age: BTreeMap<u64, Weak<UnidentifiedConnection>>,
}

/// The place of one connection. Dropped with the connection. Small, because idle connections keep it.
#[derive(Debug)]
pub(crate) struct UnidentifiedConnection {
    all: Arc<UnidentifiedConnections>,
    age: u64,
    /// Notified when the connection is displaced or identified.
    decided: Notify,
    identified: AtomicBool,
}

impl UnidentifiedConnections {
    pub(crate) fn new(max_connections: usize) -> Arc<Self> {
        Arc::new(Self { max_connections, table: Mutex::default() })
    }

    fn table(&self) -> MutexGuard<'_, ConnectionTable> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a connection, and cuts the oldest one if there are too many.
    pub(crate) fn add(self: &Arc<Self>) -> Arc<UnidentifiedConnection> {
        let mut table = self.table();
        let oldest = if table.by_age.len() >= self.max_connections { table.by_age.pop_first() } else { None };
        let age = table.next;
        table.next += 1;
        let added = Arc::new(UnidentifiedConnection {
            all: Arc::clone(self),
            age,
            decided: Notify::new(),
            identified: AtomicBool::new(false),
        });
        table.by_age.insert(age, Arc::downgrade(&added));
        // First: dropping the last reference to a connection locks the table.
        drop(table);
        if let Some(oldest) = oldest.and_then(|(_, oldest)| oldest.upgrade()) {
            oldest.decided.notify_one();
        }
        added
    }
}

impl UnidentifiedConnection {
    /// The peer has presented a valid identity: the limits no longer apply.
    pub(crate) fn set_identified(&self) {
        // A load first: every request on the connection calls this.
        if !self.identified.load(Ordering::Acquire) && self.all.table().by_age.remove(&self.age).is_some() {
            self.identified.store(true, Ordering::Release);
            self.decided.notify_one();
        }
    }

    /// Completes when the connection is displaced, is still unidentified after `timeout`, or is identified.
    /// True if it must be cut.
    pub(crate) async fn must_be_cut(&self, clock: &dyn Clock, timeout: Duration) -> bool {
        run_until(clock, clock.now() + timeout, self.decided.notified()).await;
        !self.identified.load(Ordering::Acquire)
    }
}

impl Drop for UnidentifiedConnection {
    fn drop(&mut self) {
        self.all.table().by_age.remove(&self.age);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_decided(connection: &UnidentifiedConnection) -> bool {
        futures_util::FutureExt::now_or_never(connection.decided.notified()).is_some()
    }

    #[test]
    fn the_oldest_unidentified_connection_makes_room() {
        let all = UnidentifiedConnections::new(2);
        let (first, second) = (all.add(), all.add());
        first.set_identified();
        assert!(is_decided(&first) && first.identified.load(Ordering::Acquire));
        let third = all.add();
        assert!(!is_decided(&second), "an identified connection takes no place");
        let fourth = all.add();
        assert!(is_decided(&second) && !is_decided(&third));
        second.set_identified();
        assert!(!second.identified.load(Ordering::Acquire), "too late");
        drop((third, fourth));
        assert!(all.table().by_age.is_empty());
    }
}

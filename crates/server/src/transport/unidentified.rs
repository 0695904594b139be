//! Connections whose peer has not presented a valid identity yet: bounded in number and time.
//!
//! A connection beyond the limit displaces the oldest one of the host that has the most. A client sends
//! its token with its first request, soon after it has connected. So a crowd of silent peers displaces
//! itself, and no client, even one that is slow to send.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use leasehold::clock::{Clock, run_until};
use tokio::sync::Notify;

use crate::transport::peer::host_of;

/// All connections without an identity, by age.
#[derive(Debug)]
pub(crate) struct UnidentifiedConnections {
    max_connections: usize,
    table: Mutex<ConnectionTable>,
}

#[derive(Debug, Default)]
struct ConnectionTable {
    next: u64,
    /// By host, and then by age. Hosts without connections are removed.
    by_host: HashMap<IpAddr, BTreeMap<u64, Weak<UnidentifiedConnection>>>,
    count: usize,
}

impl ConnectionTable {
    fn remove(&mut self, host: IpAddr, age: u64) -> Option<Weak<UnidentifiedConnection>> {
        let connections = self.by_host.get_mut(&host)?;
        let removed = connections.remove(&age)?;
        if connections.is_empty() {
            self.by_host.remove(&host);
        }
        self.count -= 1;
        Some(removed)
    }

    /// Removes the oldest connection of the host that has the most, or of all such hosts.
    fn remove_oldest_of_crowd(&mut self) -> Option<Weak<UnidentifiedConnection>> {
        let oldest = |connections: &BTreeMap<u64, _>| connections.first_key_value().map(|(age, _)| *age);
        let crowds = self.by_host.iter().filter_map(|(host, all)| Some((*host, all.len(), oldest(all)?)));
        let (host, _, age) = crowds.max_by_key(|(_, count, age)| (*count, Reverse(*age)))?;
        self.remove(host, age)
    }
}

/// The place of one connection. Dropped with the connection. Small, because idle connections keep it.
#[derive(Debug)]
pub(crate) struct UnidentifiedConnection {
    all: Arc<UnidentifiedConnections>,
    host: IpAddr,
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

    /// Adds a connection, and cuts another one if there are too many.
    pub(crate) fn add(self: &Arc<Self>, from: IpAddr) -> Arc<UnidentifiedConnection> {
        let host = host_of(from);
        let mut table = self.table();
        let oldest = if table.count >= self.max_connections { table.remove_oldest_of_crowd() } else { None };
        let age = table.next;
        table.next += 1;
        let added = Arc::new(UnidentifiedConnection {
            all: Arc::clone(self),
            host,
            age,
            decided: Notify::new(),
            identified: AtomicBool::new(false),
        });
        table.by_host.entry(host).or_default().insert(age, Arc::downgrade(&added));
        table.count += 1;
        // First: dropping the last reference to a connection locks the table.
        drop(table);
        if let Some(oldest) = oldest.and_then(|oldest| oldest.upgrade()) {
            oldest.decided.notify_one();
        }
        added
    }
}

impl UnidentifiedConnection {
    /// The peer has presented a valid identity: the limits no longer apply.
    pub(crate) fn set_identified(&self) {
        // A load first: every request on the connection calls this.
        let is_known = self.identified.load(Ordering::Acquire);
        if !is_known && self.all.table().remove(self.host, self.age).is_some() {
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
        self.all.table().remove(self.host, self.age);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STRANGER: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);

    fn is_decided(connection: &UnidentifiedConnection) -> bool {
        futures_util::FutureExt::now_or_never(connection.decided.notified()).is_some()
    }

    #[test]
    fn the_oldest_unidentified_connection_makes_room() {
        let all = UnidentifiedConnections::new(2);
        let (first, second) = (all.add(STRANGER), all.add(STRANGER));
        first.set_identified();
        assert!(is_decided(&first) && first.identified.load(Ordering::Acquire));
        let third = all.add(STRANGER);
        assert!(!is_decided(&second), "an identified connection takes no place");
        let fourth = all.add(STRANGER);
        assert!(is_decided(&second) && !is_decided(&third));
        second.set_identified();
        assert!(!second.identified.load(Ordering::Acquire), "too late");
        drop((third, fourth));
        assert!(all.table().by_host.is_empty() && all.table().count == 0);
    }

    /// Finding 13 of the security review: a stranger's connections displaced those of slow clients.
    #[test]
    fn finding_13_a_crowd_displaces_itself_and_no_other_host() {
        let all = UnidentifiedConnections::new(4);
        let client = all.add("192.0.2.1".parse().unwrap());
        let crowd: Vec<_> =
            (0..20).map(|number| all.add(format!("2001:db8::{number:x}").parse().unwrap())).collect();
        assert!(!is_decided(&client), "the oldest one, of another host");
        assert_eq!(crowd.iter().filter(|connection| !is_decided(connection)).count(), 3);
        client.set_identified();
        assert!(client.identified.load(Ordering::Acquire));
    }
}

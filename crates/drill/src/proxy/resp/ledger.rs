//! Which replies a connection owes, in the order of its commands. Written by the upstream direction, read by the other.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use crate::proxy::catalog::Entry;

/// The most replies owed at a time. Beyond it no commands are read, so a client that never reads costs no more.
const MOST: usize = 1 << 16;

/// What is to be done with the next reply.
#[derive(Debug, Clone)]
pub(super) enum Owed {
    /// It is the client's.
    Pass,
    /// It answers a repeated command.
    Swallow,
    /// It is where this toxic cuts, if the toxic is still in force.
    Cut(Arc<Entry>),
    /// A subscription: so many RESP3 pushes, or one error, or RESP2's arrays, after which replies cannot be told from
    /// messages.
    Pushes(u64),
    /// From here on replies cannot be told apart (`MONITOR`, replication, `CLIENT REPLY`).
    Anything,
}

#[derive(Debug, Default)]
struct Inner {
    owed: VecDeque<Owed>,
    /// Subscriptions that are not answered yet.
    subscribing: usize,
    /// Replies can no longer be told apart, or soon cannot.
    untracked: bool,
    /// The byte trigger that has been pulled.
    tripped: Option<Arc<Entry>>,
}

/// What the two directions of a connection tell each other.
#[derive(Debug, Default)]
pub(in crate::proxy) struct Ledger {
    inner: Mutex<Inner>,
    room: Notify,
}

impl Ledger {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn owe(&self, owed: Owed) {
        let mut inner = self.lock();
        match owed {
            Owed::Pushes(_) => inner.subscribing += 1,
            Owed::Anything => inner.untracked = true,
            _ => {}
        }
        inner.owed.push_back(owed);
    }

    /// What the reply that has just begun is; none if nothing is owed. A subscription stays until it is answered.
    pub(super) fn reply(&self) -> Option<Owed> {
        let mut inner = self.lock();
        match inner.owed.front() {
            Some(Owed::Pushes(_)) => inner.owed.front().cloned(),
            _ => {
                self.room.notify_one();
                inner.owed.pop_front()
            }
        }
    }

    /// A subscription was answered: by one push more, or altogether.
    pub(super) fn subscribed(&self, altogether: bool) {
        let mut inner = self.lock();
        let Some(Owed::Pushes(left)) = inner.owed.front_mut() else {
            return;
        };
        *left = if altogether { 0 } else { left.saturating_sub(1) };
        if *left == 0 {
            inner.owed.pop_front();
            inner.subscribing = inner.subscribing.saturating_sub(1);
            self.room.notify_one();
        }
    }

    /// Replies can no longer be told apart.
    pub(super) fn give_up(&self) {
        let mut inner = self.lock();
        inner.untracked = true;
        inner.owed.clear();
        self.room.notify_one();
    }

    /// Whether what is done to a command now keeps the client in step.
    pub(super) fn in_step(&self) -> bool {
        let inner = self.lock();
        !inner.untracked && inner.subscribing == 0
    }

    pub(super) fn tracks(&self) -> bool {
        !self.lock().untracked
    }

    pub(in crate::proxy) fn has_room(&self) -> bool {
        self.lock().owed.len() < MOST
    }

    /// Ends when a reply may have made room.
    pub(in crate::proxy) async fn room(&self) {
        self.room.notified().await;
    }

    /// So many bytes have been forwarded that the next answer is withheld.
    pub(in crate::proxy) fn trip(&self, entry: Arc<Entry>) {
        self.lock().tripped.get_or_insert(entry);
    }

    pub(in crate::proxy) fn tripped(&self) -> Option<Arc<Entry>> {
        self.lock().tripped.clone()
    }
}

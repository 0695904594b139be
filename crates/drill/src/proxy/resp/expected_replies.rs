//! The replies that a connection still expects, in the order of its commands. The upstream
//! direction adds to the list, the downstream direction consumes it.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use crate::proxy::registry::InstalledToxic;

// At this limit no more commands are read: a client that never reads its replies then uses bounded
// memory.
const MAX_EXPECTED_REPLIES: usize = 1 << 16;

/// What to do with an expected reply.
#[derive(Debug, Clone)]
pub(super) enum ExpectedReply {
    /// Forward it to the client.
    Forward,
    /// Drop it: it answers the copy of a repeated command.
    Drop,
    /// Cut the connection here, if this toxic is still in force.
    Cut(Arc<InstalledToxic>),
    /// The answers to a subscription: this many RESP3 pushes, or one error. With RESP2 they are
    /// arrays, and from then on replies cannot be distinguished from messages.
    Pushes(u64),
    /// From here on replies cannot be matched to commands (`MONITOR`, replication, `CLIENT REPLY`).
    Unmatched,
}

#[derive(Debug, Default)]
struct ReplyQueue {
    queue: VecDeque<ExpectedReply>,
    subscribing: usize,
    /// Replies can no longer be matched to commands, or an upcoming reply ends the matching.
    untracked: bool,
    /// The toxic whose byte limit has been reached.
    triggered_cut: Option<Arc<InstalledToxic>>,
}

/// Shared by the two directions of a connection.
#[derive(Debug, Default)]
pub(in crate::proxy) struct ExpectedReplies {
    inner: Mutex<ReplyQueue>,
    room_freed: Notify,
}

impl ExpectedReplies {
    fn lock(&self) -> MutexGuard<'_, ReplyQueue> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn expect(&self, owed: ExpectedReply) {
        let mut inner = self.lock();
        match owed {
            ExpectedReply::Pushes(_) => inner.subscribing += 1,
            ExpectedReply::Unmatched => inner.untracked = true,
            _ => {}
        }
        inner.queue.push_back(owed);
    }

    /// Returns what to do with the reply that has just begun; none if no reply is expected.
    pub(super) fn next_reply(&self) -> Option<ExpectedReply> {
        let mut inner = self.lock();
        match inner.queue.front() {
            // A subscription has several answers: `subscribed` removes it after the last one.
            Some(ExpectedReply::Pushes(_)) => inner.queue.front().cloned(),
            _ => {
                self.room_freed.notify_one();
                inner.queue.pop_front()
            }
        }
    }

    /// Records an answer to a subscription: one more push, or (`altogether`) the final answer.
    pub(super) fn record_subscription_reply(&self, altogether: bool) {
        let mut inner = self.lock();
        let Some(ExpectedReply::Pushes(left)) = inner.queue.front_mut() else {
            return;
        };
        *left = if altogether { 0 } else { left.saturating_sub(1) };
        if *left == 0 {
            inner.queue.pop_front();
            inner.subscribing = inner.subscribing.saturating_sub(1);
            self.room_freed.notify_one();
        }
    }

    pub(super) fn stop_matching(&self) {
        let mut inner = self.lock();
        inner.untracked = true;
        inner.queue.clear();
        self.room_freed.notify_one();
    }

    /// Whether a command can be repeated or cut now without the client losing the order of its
    /// replies.
    pub(super) fn can_alter_commands(&self) -> bool {
        let inner = self.lock();
        !inner.untracked && inner.subscribing == 0
    }

    pub(super) fn is_matching(&self) -> bool {
        !self.lock().untracked
    }

    pub(in crate::proxy) fn has_room(&self) -> bool {
        self.lock().queue.len() < MAX_EXPECTED_REPLIES
    }

    /// Completes when a reply may have made room.
    pub(in crate::proxy) async fn wait_for_room(&self) {
        self.room_freed.notified().await;
    }

    /// Cuts the connection at the next reply, because this toxic's byte limit has been reached.
    pub(in crate::proxy) fn trigger_cut(&self, entry: Arc<InstalledToxic>) {
        self.lock().triggered_cut.get_or_insert(entry);
    }

    pub(in crate::proxy) fn triggered_cut(&self) -> Option<Arc<InstalledToxic>> {
        self.lock().triggered_cut.clone()
    }
}

//! Entries in the store's wait queues. A client that no longer waits must have removed its entry.

use std::collections::{BTreeSet, HashMap};

use leasehold_core::clock::Moment;
use leasehold_core::memory::LeaseTable;
use leasehold_core::rng::SeededRandom;
use leasehold_core::store::{AcquireRequest, ReleaseAuthority, ReleaseRequest};
use leasehold_core::{Holder, Name, Token, Ttl};

#[derive(Debug)]
struct QueueEntry {
    name: Name,
    // Host and life of the process that asked.
    from: (usize, u32),
    // The waiter has left, or was granted the lease.
    left: bool,
    // The entry may exist again: the store lost the removal, or a repeated message queued it again.
    rejoined: bool,
}

/// Every queue entry of a history, by token.
#[derive(Debug, Default)]
pub struct QueueEntries(HashMap<Token, QueueEntry>);

impl QueueEntries {
    /// Records a request that queues if the name is busy.
    pub fn add(&mut self, request: &AcquireRequest, from: (usize, u32)) {
        if request.queue.is_some() && !self.0.contains_key(&request.token) {
            let place =
                QueueEntry { name: request.names.first().clone(), from, left: false, rejoined: false };
            self.0.insert(request.token.clone(), place);
        }
    }

    /// The process that asked under this token.
    pub(super) fn process_of(&self, token: &Token) -> Option<(usize, u32)> {
        self.0.get(token).map(|place| place.from)
    }

    /// Records a release, which also removes the token's queue entry.
    pub fn release(&mut self, request: &ReleaseRequest) {
        if let ReleaseAuthority::Owner(token) | ReleaseAuthority::Waiter(token) = &request.authority {
            self.leave(token);
        }
    }

    /// The token waits no more.
    pub(super) fn leave(&mut self, token: &Token) {
        if let Some(place) = self.0.get_mut(token) {
            place.left = true;
        }
    }

    /// A repeated message asked again without its client: a removed entry may be back.
    pub fn mark_rejoined(&mut self, token: &Token) {
        if let Some(place) = self.0.get_mut(token) {
            place.rejoined |= place.left;
        }
    }

    /// The store lost data: removed entries may be back, and clients do not remove them twice.
    pub(super) fn store_lost_data(&mut self) {
        for place in self.0.values_mut() {
            place.rejoined |= place.left;
        }
    }

    /// Counts entries that should be gone; called when no client waits any more.
    pub fn count_stale(&self, table: &LeaseTable, now: Moment, lives: impl Fn((usize, u32)) -> bool) -> u64 {
        let mut table = table.clone();
        // Entries of dead processes cannot be removed by a client. Entries that came back are not the
        // client's fault. Both expire, so they are taken out before counting.
        for (token, place) in &self.0 {
            if place.rejoined || !lives(place.from) {
                let request = ReleaseRequest::leave_queue(place.name.clone(), token.clone());
                table.release(&request, now, 0, |_| false);
            }
        }
        let Ok(me) = Holder::new("director") else { return 0 };
        let me = Token::fresh(&me, "probe", &SeededRandom::new(0));
        let names: BTreeSet<_> = self.0.values().map(|place| &place.name).collect();
        let waiting = names.into_iter().map(|name| {
            // The table shows its waiters only together with a lease.
            let _ = table.acquire(&AcquireRequest::new(name.clone(), me.clone(), Ttl::MIN), now, 0);
            let lease = table.inspect(name, now);
            lease.and_then(|lease| lease.waiters).unwrap_or(0)
        });
        waiting.sum()
    }
}

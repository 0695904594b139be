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
pub(super) struct QueueEntries(HashMap<Token, QueueEntry>);

impl QueueEntries {
    /// Records a request that queues if the name is busy.
    pub(super) fn add(&mut self, request: &AcquireRequest, from: (usize, u32)) {
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
    pub(super) fn release(&mut self, request: &ReleaseRequest) {
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
    pub(super) fn mark_rejoined(&mut self, token: &Token) {
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
    pub(super) fn count_stale(
        &self,
        table: &LeaseTable,
        now: Moment,
        lives: impl Fn((usize, u32)) -> bool,
    ) -> u64 {
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

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const NOW: Moment = Moment::ZERO;

    fn token(seed: u64) -> Token {
        Token::fresh(&Holder::new("c0.1").unwrap(), "c0", &SeededRandom::new(seed))
    }

    /// A name that is held, and one waiter that queues for it.
    struct QueueFixture {
        table: LeaseTable,
        places: QueueEntries,
        ask: AcquireRequest,
    }

    impl QueueFixture {
        fn new() -> Self {
            let name = Name::new("sim:0").unwrap();
            let mut table = LeaseTable::default();
            let held = AcquireRequest::new(name.clone(), token(1), Ttl::MAX);
            table.acquire(&held, NOW, 0).unwrap();
            let mut ask = AcquireRequest::new(name, token(2), Ttl::MAX);
            ask.queue = Some(Duration::from_secs(4));
            let places = QueueEntries::default();
            let mut queue = Self { table, places, ask };
            queue.send_request();
            queue
        }

        fn send_request(&mut self) {
            self.places.add(&self.ask, (0, 1));
            self.table.acquire(&self.ask, NOW, 0).unwrap();
        }

        /// Leaves without a tombstone, like a hold that knows of no request under way.
        fn leave_queue(&mut self) {
            let request = ReleaseRequest::by_owner(self.ask.names.clone(), self.ask.token.clone());
            self.places.release(&request);
            self.table.release(&request, NOW, 0, |_| true);
        }

        fn count_stale(&self) -> u64 {
            self.places.count_stale(&self.table, NOW, |_| true)
        }
    }

    #[test]
    fn an_entry_counts_until_its_waiter_leaves_or_its_process_dies() {
        let mut queue = QueueFixture::new();
        assert_eq!(queue.count_stale(), 1);
        assert_eq!(queue.places.count_stale(&queue.table, NOW, |_| false), 0);
        queue.leave_queue();
        assert_eq!(queue.count_stale(), 0);
    }

    #[test]
    fn an_entry_queued_again_by_a_repeated_message_does_not_count() {
        let mut queue = QueueFixture::new();
        queue.leave_queue();
        queue.send_request();
        assert_eq!(queue.count_stale(), 1, "its own message: it should not have left like this");
        queue.places.mark_rejoined(&queue.ask.token);
        assert_eq!(queue.count_stale(), 0);
    }

    #[test]
    fn a_message_repeated_before_the_waiter_left_excuses_nothing() {
        let mut queue = QueueFixture::new();
        queue.send_request();
        queue.places.mark_rejoined(&queue.ask.token);
        assert_eq!(queue.count_stale(), 1);
    }
}

//! Counts entries that a waiter left behind in the store's queue.

use std::time::Duration;

use leasehold_core::clock::Moment;
use leasehold_core::memory::LeaseTable;
use leasehold_core::rng::SeededRandom;
use leasehold_core::store::{AcquireRequest, ReleaseRequest};
use leasehold_core::{Holder, Name, Token, Ttl};
use leasehold_sim::QueueEntries;

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

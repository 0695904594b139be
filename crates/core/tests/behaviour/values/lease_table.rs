use std::time::Duration;

use leasehold_core::clock::Moment;
use leasehold_core::memory::LeaseTable;
use leasehold_core::rng::SeededRandom;
use leasehold_core::store::{AcquireRequest, ReleaseRequest};
use leasehold_core::{Holder, Name, Token, Ttl};

fn request(seed: u64) -> AcquireRequest {
    let token = Token::fresh(&Holder::new("h").unwrap(), "c", &SeededRandom::new(seed));
    AcquireRequest::new(Name::new("n").unwrap(), token, Ttl::MAX)
}

fn at(seconds: u64) -> Moment {
    Moment::ZERO + Duration::from_secs(seconds)
}

fn give_back(table: &mut LeaseTable, held: &AcquireRequest, now: Moment) -> Option<Token> {
    table.release(&ReleaseRequest::by_owner(held.names.clone(), held.token.clone()), now, 0, |_| true).1
}

/// A waiter loses its place in the queue at the moment at which its registration expires.
#[test]
fn a_place_ends_with_its_registration() {
    for (asks_again, first) in [(3, true), (4, false)] {
        let (mut table, held) = (LeaseTable::default(), request(1));
        let (a, b) =
            (request(2).with_queue(Duration::from_secs(4)), request(3).with_queue(Duration::from_secs(9)));
        for asked in [&held, &a, &b] {
            table.acquire(asked, at(0), 0).unwrap();
        }
        table.acquire(&a, at(asks_again), 0).unwrap();
        let expected = if first { &a } else { &b };
        assert_eq!(
            give_back(&mut table, &held, at(asks_again)),
            Some(expected.token.clone()),
            "{asks_again}"
        );
    }
}

/// A waiter has the claim time to confirm what a release handed to it, also in a store that has lost its data.
#[test]
fn the_claim_time_outlives_the_data() {
    let (mut table, held) = (LeaseTable::default(), request(1));
    table.set_claim_ttl(Duration::from_secs(7));
    table.clear_all_data();
    table.acquire(&held, at(0), 0).unwrap();
    table.acquire(&request(2).with_queue(Duration::from_secs(9)), at(0), 0).unwrap();
    assert!(give_back(&mut table, &held, at(1)).is_some());
    let lease = table.inspect(held.names.first(), at(1)).unwrap();
    assert_eq!(lease.remaining, Some(Duration::from_secs(7)));
}

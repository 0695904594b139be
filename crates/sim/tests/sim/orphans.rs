//! The measurement of orphans: which leases count, from when, and until when.

use std::time::Duration;

use leasehold_core::rng::SeededRandom;
use leasehold_core::store::{AcquireRequest, Lease};
use leasehold_core::{Fence, Holder, Name, Token, Ttl};
use leasehold_sim::{AcquireKey, MS, Nanos, OrphanTracker, SEC};

const ACQUIRE_KEY: AcquireKey<'_> = (0, 1, "c0");

fn fence() -> Fence {
    Fence::new(7).unwrap()
}

fn name() -> Name {
    Name::new("sim:0").unwrap()
}

fn lease(left: u64) -> Lease {
    Lease::new(name(), "c0.1").with_fence(fence()).with_remaining(Duration::from_millis(left))
}

fn token() -> Token {
    Token::fresh(&Holder::new("c0.1").unwrap(), "c0", &SeededRandom::new(1))
}

/// One acquire, granted after one second with a TTL of two seconds.
fn granted() -> OrphanTracker {
    granted_to(false)
}

/// The same; `again`: granted to a message that the store had already executed.
fn granted_to(again: bool) -> OrphanTracker {
    let token = token();
    let mut books = OrphanTracker::default();
    let ttl = Ttl::new(Duration::from_secs(2)).unwrap();
    books.acquire_begins(ACQUIRE_KEY);
    books.request_sent(0, 1, &AcquireRequest::new(name(), token.clone(), ttl));
    books.lease_granted((name(), fence()), &token, ((0, 1), again), SEC);
    books.observe_lease(&name(), Some(&lease(2_000)), None, SEC);
    books
}

/// Number of orphans, those gone within a second, overdue ones, and the oldest age in milliseconds.
fn final_counts(mut books: OrphanTracker) -> (u64, u64, u64, u64) {
    books.finish(60 * SEC);
    let found = books.stats;
    (found.count, found.gone_within_second, found.overdue, found.oldest.0 / MS)
}

#[test]
fn a_held_lease_is_no_orphan_and_an_undone_one_is_until_its_undo() {
    let mut books = granted();
    books.acquire_ends(ACQUIRE_KEY, true, 1_500 * MS);
    books.observe_lease(&name(), None, None, 1_700 * MS);
    assert_eq!(final_counts(books), (0, 0, 0, 0));
    let mut books = granted();
    books.acquire_ends(ACQUIRE_KEY, false, 1_500 * MS);
    books.observe_lease(&name(), None, None, 1_700 * MS);
    assert_eq!(final_counts(books), (1, 1, 0, 200));
    let mut books = granted();
    books.process_dies(0, 1_500 * MS);
    books.observe_lease(&name(), None, None, 1_700 * MS);
    assert_eq!(final_counts(books), (1, 1, 0, 200));
}

/// Its process dies with the lease, and a late renewal extends it.
#[test]
fn a_lease_that_a_hold_got_later_is_no_orphan() {
    let mut books = OrphanTracker::default();
    books.acquire_begins(ACQUIRE_KEY);
    books.acquire_ends(ACQUIRE_KEY, true, 500 * MS);
    let ttl = Ttl::new(Duration::from_secs(2)).unwrap();
    books.request_sent(0, 1, &AcquireRequest::new(name(), token(), ttl));
    books.lease_granted((name(), fence()), &token(), ((0, 1), false), SEC);
    books.observe_lease(&name(), Some(&lease(2_000)), None, SEC);
    books.process_dies(0, 1_500 * MS);
    books.observe_lease(&name(), Some(&lease(2_000)), None, 2_900 * MS);
    assert_eq!(final_counts(books), (0, 0, 0, 0));
}

#[test]
fn an_orphan_counts_from_a_later_grant() {
    let mut books = granted();
    books.acquire_ends(ACQUIRE_KEY, false, 500 * MS);
    books.observe_lease(&name(), None, None, 1_700 * MS);
    assert_eq!(final_counts(books), (1, 1, 0, 700));
}

#[test]
fn an_orphan_ends_at_its_expiry_not_at_the_next_observation() {
    let mut books = granted();
    books.acquire_ends(ACQUIRE_KEY, false, 1_500 * MS);
    assert_eq!(final_counts(books), (1, 0, 0, 1_500));
}

/// How many could be undone, and how many of those were undone within a second.
fn undo_counts(mut books: OrphanTracker) -> (u64, u64) {
    books.finish(60 * SEC);
    (books.stats.undoable, books.stats.undone_in_time)
}

#[test]
fn time_counts_against_the_client_only_while_it_can_undo() {
    const PROCESS: (usize, u32) = (0, 1);
    let undone_at = |at: Nanos, open: &[(Nanos, Nanos)]| {
        let mut books = granted();
        books.acquire_ends(ACQUIRE_KEY, false, 1_500 * MS);
        books.observe_lease(&name(), Some(&lease(20_000)), None, 1_600 * MS);
        for (from, to) in open {
            books.reachability.add_span(PROCESS, *from, *to);
        }
        books.observe_lease(&name(), None, Some(&token()), at);
        undo_counts(books)
    };
    assert_eq!(undone_at(2 * SEC, &[(0, 2 * SEC)]), (1, 1));
    assert_eq!(undone_at(3 * SEC, &[(0, 3 * SEC)]), (1, 0), "too late");
    let away = [(0, SEC), (5 * SEC, 6 * SEC)];
    assert_eq!(undone_at(5_500 * MS, &away), (1, 1), "as soon as it could");
    let away = [(0, SEC), (5 * SEC, 7 * SEC)];
    assert_eq!(undone_at(7 * SEC, &away), (1, 0), "not even then");
}

#[test]
fn an_expired_orphan_counts_if_it_could_be_undone_for_a_second() {
    let ran_out = |open: Nanos, given: Option<Token>| {
        let mut books = granted();
        books.acquire_ends(ACQUIRE_KEY, false, 1_500 * MS);
        books.reachability.add_span((0, 1), 0, 1_500 * MS + open);
        books.observe_lease(&name(), None, given.as_ref(), 3_100 * MS);
        undo_counts(books)
    };
    assert_eq!(ran_out(0, None), (0, 0));
    assert_eq!(ran_out(900 * MS, None), (0, 0));
    assert_eq!(ran_out(1_200 * MS, None), (1, 0));
    // An undo that arrives after the expiry has undone nothing.
    assert_eq!(ran_out(900 * MS, Some(token())), (0, 0));
}

#[test]
fn an_orphan_that_is_kept_alive_is_overdue() {
    let mut books = granted();
    books.acquire_ends(ACQUIRE_KEY, false, 1_500 * MS);
    books.observe_lease(&name(), Some(&lease(10_000)), None, 2 * SEC);
    assert_eq!(final_counts(books), (1, 0, 1, 10_500));
}

/// The sender of a repeated message has had its response and will not undo anything.
#[test]
fn a_grant_to_a_repeated_message_is_not_counted_as_late() {
    for (again, could) in [(false, (1, 0)), (true, (0, 0))] {
        let mut books = granted_to(again);
        books.acquire_ends(ACQUIRE_KEY, false, 500 * MS);
        books.reachability.add_span((0, 1), 0, 60 * SEC);
        assert_eq!(undo_counts(books), could);
    }
}

/// Nor is the client late with a lease that the store grants because it lost the undo.
#[test]
fn a_grant_after_a_lost_undo_is_not_counted_as_late() {
    let again = Fence::new(8).unwrap();
    for (given, could) in [(false, (2, 1)), (true, (1, 1))] {
        let mut books = granted();
        books.acquire_ends(ACQUIRE_KEY, false, 1_500 * MS);
        books.reachability.add_span((0, 1), 0, 60 * SEC);
        books.observe_lease(&name(), None, Some(&token()), 1_700 * MS);
        if given {
            books.lease_released(&token());
        }
        books.lease_granted((name(), again), &token(), ((0, 1), false), 2 * SEC);
        let lease = lease(2_000).with_fence(again);
        books.observe_lease(&name(), Some(&lease), None, 2 * SEC);
        assert_eq!(undo_counts(books), could);
    }
}

use leasehold_core::rng::SeededRandom;
use leasehold_core::{Holder, Ttl};

use super::*;

const WHO: Asker<'_> = (0, 1, "c0");

fn fence() -> Fence {
    Fence::new(7).unwrap()
}

fn name() -> Name {
    Name::new("sim:0").unwrap()
}

fn lease(left: u64) -> Lease {
    Lease {
        name: name(),
        holder: "c0.1".to_owned(),
        class: None,
        fence: Some(fence()),
        remaining: Some(Duration::from_millis(left)),
        age: None,
        waiters: None,
    }
}

fn token() -> Token {
    Token::fresh(&Holder::new("c0.1").unwrap(), "c0", &SeededRandom::new(1))
}

/// One acquire, granted after a second for two seconds.
fn granted() -> Ledger {
    granted_to(false)
}

/// The same, perhaps to a message that the store had seen before.
fn granted_to(again: bool) -> Ledger {
    let token = token();
    let mut books = Ledger::default();
    let ttl = Ttl::new(Duration::from_secs(2)).unwrap();
    books.begins(WHO);
    books.asks(0, 1, &Ask::new(name(), token.clone(), ttl));
    books.grants((name(), fence()), &token, ((0, 1), again), SEC);
    books.sees(&name(), Some(&lease(2_000)), None, SEC);
    books
}

/// How many, how many of them soon, how many too late, and the age of the oldest in milliseconds.
fn found(mut books: Ledger) -> (u64, u64, u64, u64) {
    books.close(60 * SEC);
    let found = books.found;
    (found.count, found.soon, found.overdue, found.oldest.0 / MS)
}

#[test]
fn what_is_held_is_no_orphan_and_what_is_undone_is_one_until_then() {
    let mut books = granted();
    books.ends(WHO, true, 1_500 * MS);
    books.sees(&name(), None, None, 1_700 * MS);
    assert_eq!(found(books), (0, 0, 0, 0));
    let mut books = granted();
    books.ends(WHO, false, 1_500 * MS);
    books.sees(&name(), None, None, 1_700 * MS);
    assert_eq!(found(books), (1, 1, 0, 200));
    let mut books = granted();
    books.dies(0, 1_500 * MS);
    books.sees(&name(), None, None, 1_700 * MS);
    assert_eq!(found(books), (1, 1, 0, 200));
}

/// Its process dies with it, and a renewal that is late makes it last.
#[test]
fn what_a_hold_got_after_the_fact_is_no_orphan() {
    let mut books = Ledger::default();
    books.begins(WHO);
    books.ends(WHO, true, 500 * MS);
    let ttl = Ttl::new(Duration::from_secs(2)).unwrap();
    books.asks(0, 1, &Ask::new(name(), token(), ttl));
    books.grants((name(), fence()), &token(), ((0, 1), false), SEC);
    books.sees(&name(), Some(&lease(2_000)), None, SEC);
    books.dies(0, 1_500 * MS);
    books.sees(&name(), Some(&lease(2_000)), None, 2_900 * MS);
    assert_eq!(found(books), (0, 0, 0, 0));
}

#[test]
fn it_counts_from_its_grant_if_that_was_later() {
    let mut books = granted();
    books.ends(WHO, false, 500 * MS);
    books.sees(&name(), None, None, 1_700 * MS);
    assert_eq!(found(books), (1, 1, 0, 700));
}

#[test]
fn one_that_runs_out_was_gone_then_and_not_when_it_was_next_looked_for() {
    let mut books = granted();
    books.ends(WHO, false, 1_500 * MS);
    assert_eq!(found(books), (1, 0, 0, 1_500));
}

/// How many could be undone, and how many of them were within a second of that.
fn possible(mut books: Ledger) -> (u64, u64) {
    books.close(60 * SEC);
    (books.found.possible, books.found.undone)
}

#[test]
fn time_counts_against_the_client_only_while_it_can_undo() {
    const WAY: (usize, u32) = (0, 1);
    let undone_at = |at: Nanos, open: &[(Nanos, Nanos)]| {
        let mut books = granted();
        books.ends(WHO, false, 1_500 * MS);
        books.sees(&name(), Some(&lease(20_000)), None, 1_600 * MS);
        for (from, to) in open {
            books.ways.open(WAY, *from, *to);
        }
        books.sees(&name(), None, Some(&token()), at);
        possible(books)
    };
    assert_eq!(undone_at(2 * SEC, &[(0, 2 * SEC)]), (1, 1));
    assert_eq!(undone_at(3 * SEC, &[(0, 3 * SEC)]), (1, 0), "too late");
    let away = [(0, SEC), (5 * SEC, 6 * SEC)];
    assert_eq!(undone_at(5_500 * MS, &away), (1, 1), "as soon as it could");
    let away = [(0, SEC), (5 * SEC, 7 * SEC)];
    assert_eq!(undone_at(7 * SEC, &away), (1, 0), "not even then");
}

#[test]
fn one_that_nobody_undid_counts_if_there_was_a_second_to_do_so() {
    let ran_out = |open: Nanos, given: Option<Token>| {
        let mut books = granted();
        books.ends(WHO, false, 1_500 * MS);
        books.ways.open((0, 1), 0, 1_500 * MS + open);
        books.sees(&name(), None, given.as_ref(), 3_100 * MS);
        possible(books)
    };
    assert_eq!(ran_out(0, None), (0, 0));
    assert_eq!(ran_out(900 * MS, None), (0, 0));
    assert_eq!(ran_out(1_200 * MS, None), (1, 0));
    // An undo that came after it had run out has undone nothing.
    assert_eq!(ran_out(900 * MS, Some(token())), (0, 0));
}

#[test]
fn one_that_something_keeps_alive_is_overdue() {
    let mut books = granted();
    books.ends(WHO, false, 1_500 * MS);
    books.sees(&name(), Some(&lease(10_000)), None, 2 * SEC);
    assert_eq!(found(books), (1, 0, 1, 10_500));
}

/// A message that the store had seen before is nobody's: its sender was answered long ago and undoes nothing.
#[test]
fn nobody_is_late_with_what_a_repeated_message_was_granted() {
    for (again, could) in [(false, (1, 0)), (true, (0, 0))] {
        let mut books = granted_to(again);
        books.ends(WHO, false, 500 * MS);
        books.ways.open((0, 1), 0, 60 * SEC);
        assert_eq!(possible(books), could);
    }
}

/// Nor with what the store grants because it has forgotten the undo.
#[test]
fn nobody_undoes_twice_because_a_store_has_forgotten() {
    let again = Fence::new(8).unwrap();
    for (given, could) in [(false, (2, 1)), (true, (1, 1))] {
        let mut books = granted();
        books.ends(WHO, false, 1_500 * MS);
        books.ways.open((0, 1), 0, 60 * SEC);
        books.sees(&name(), None, Some(&token()), 1_700 * MS);
        if given {
            books.gives(&token());
        }
        books.grants((name(), again), &token(), ((0, 1), false), 2 * SEC);
        let lease = Lease {
            fence: Some(again),
            ..lease(2_000)
        };
        books.sees(&name(), Some(&lease), None, 2 * SEC);
        assert_eq!(possible(books), could);
    }
}

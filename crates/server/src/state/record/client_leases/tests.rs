//! Which leases count against the quotas.

use leasehold::Ttl;
use leasehold::clock::BootClock;
use leasehold::store::Grant;

use super::*;
use crate::state::record::{Feed, History};
use crate::state::state_db::StateDb;

fn leases(max_leases: usize) -> ClientLeases {
    let state_db = Arc::new(StateDb::open(None).unwrap());
    let (feed, history) = (Feed::new(1, 8), History::new(state_db, 1));
    let recorder = Recorder::new(BootClock::shared(), "memory", feed, history);
    ClientLeases { max_leases, ..ClientLeases::new(recorder) }
}

fn token(number: u32) -> Token {
    Token::parse(&format!("h|scheduler|{number:032x}")).unwrap()
}

fn acquire(leases: &ClientLeases, who: &str, name: &Name, token: &Token) {
    let ttl = Ttl::new(Duration::from_secs(60)).unwrap();
    let request = AcquireRequest::new(name.clone(), token.clone(), ttl);
    let grant = Ok(AcquireResponse::Granted(Grant::new(Fence::new(7).unwrap())));
    leases.acquired(who, &request, &grant, Duration::ZERO, false, Moment::from_nanos(1));
}

/// Finding 21 of the security review: one token counted once, however many names it held.
#[test]
fn finding_21_locks_are_counted_by_token_and_name() {
    let (leases, token) = (leases(100), token(1));
    let names: Vec<_> = (0..3).map(|number| Name::new(&format!("a:{number}")).unwrap()).collect();
    let check = |name| leases.check_quota("a", &TokenOnName::new(name, &token), 2).is_ok();
    acquire(&leases, "a", &names[0], &token);
    assert!(check(&names[1]));
    acquire(&leases, "a", &names[1], &token);
    assert!(!check(&names[2]) && check(&names[0]), "a repeated request is no new lock");
    // A release of another name with this token changes nothing.
    leases.released(&names[2], &token, ReleaseResponse::NotOwned, false, Moment::from_nanos(2));
    assert!(!check(&names[2]));
    leases.released(&names[0], &token, ReleaseResponse::Released, false, Moment::from_nanos(2));
    assert!(check(&names[2]));
}

/// Finding 21 of the security review: leases that were not followed were not counted either.
#[test]
fn finding_21_no_more_locks_than_are_counted() {
    let leases = leases(1);
    let name = |number: u32| Name::new(&format!("a:{number}")).unwrap();
    acquire(&leases, "a", &name(1), &token(1));
    let check =
        |number, quota| leases.check_quota("b", &TokenOnName::new(&name(number), &token(number)), quota);
    assert_eq!(check(2, 10).unwrap_err().code(), "quota_reached");
    assert!(check(2, usize::MAX).is_ok(), "an administrator is served");
    assert!(check(1, 10).is_ok(), "a repeated request is no new lock");
}

use std::time::Duration;

use leasehold_core::rng::OsRandom;
use leasehold_core::store::{AcquireRequest, Capabilities, Mode, Promise, StoreErrorKind};
use leasehold_core::{Holder, Name, NameSet, Token, Ttl};

fn request(names: &[&str]) -> AcquireRequest {
    let names = NameSet::new(names.iter().map(|name| Name::new(name).unwrap())).unwrap();
    let token = Token::fresh(&Holder::new("me").unwrap(), "test", &OsRandom);
    AcquireRequest::new(names, token, Ttl::MIN)
}

#[test]
fn what_is_not_served_is_refused_by_name() {
    let none = Capabilities::new("bare", Promise::Volatile);
    let longer = Ttl::new(Duration::from_secs(2)).unwrap();
    let permits = Mode::permits(3, 1).unwrap();
    for (request, able, named) in [
        (request(&["a"]).with_mode(Mode::Shared), none.with_modes(true, false), "shared leases"),
        (request(&["a"]).with_mode(permits), none.with_modes(false, true), "permits"),
        (request(&["a", "b"]), none.with_several_names(), "several names"),
    ] {
        assert!(able.check_acquire(&request).is_ok());
        let refused = none.check_acquire(&request).unwrap_err();
        assert!(refused.kind == StoreErrorKind::Unsupported && !refused.unknown, "{refused}");
        assert!(refused.message().contains(named) && refused.message().contains("bare"), "{refused}");
    }
    assert!(none.check_acquire(&request(&["a"])).is_ok());
    let coarse = none.with_ttl_limits(longer, Duration::from_secs(1));
    let refused = coarse.check_acquire(&request(&["a"])).unwrap_err();
    assert!(refused.message().contains("100ms") && refused.message().contains("2s"), "{refused}");
}

#[test]
fn permits_are_at_least_one_and_at_most_the_limit() {
    assert!(Mode::permits(3, 3).is_ok());
    for (of, weight) in [(0, 0), (0, 1), (3, 0), (3, 4)] {
        assert!(Mode::permits(of, weight).is_err(), "{weight} of {of}");
    }
}

use std::collections::HashSet;

use leasehold_core::rng::OsRandom;
use leasehold_core::{Holder, Token};

#[test]
fn token_uniqueness() {
    let me = Holder::of_this_process();
    let all: HashSet<_> = (0..10_000).map(|_| Token::fresh(&me, "scheduler", &OsRandom)).collect();
    assert_eq!(all.len(), 10_000);
}

#[test]
fn parts_come_back() {
    let me = Holder::new("web-1:7").unwrap();
    let token = Token::fresh(&me, "approval", &OsRandom);
    assert_eq!((token.holder(), token.class(), token.random().len()), ("web-1:7", "approval", 32));
    assert_eq!(Token::parse(token.expose()).unwrap(), token);
}

#[test]
fn debug_hides_the_secret() {
    let token = Token::fresh(&Holder::new("h").unwrap(), "c", &OsRandom);
    let shown = format!("{token:?}");
    assert!(!shown.contains(token.random()) && shown.contains(&token.fingerprint()));
}

#[test]
fn foreign_values_are_not_tokens() {
    for bad in [
        "",
        "abc",
        "a|b",
        "a|b|c",
        "a|b|0123456789abcdef0123456789abcdeX",
        "|b|0123456789abcdef0123456789abcdef",
        "a|\u{1b}[2J|0123456789abcdef0123456789abcdef",
        "a|Class|0123456789abcdef0123456789abcdef",
    ] {
        assert!(Token::parse(bad).is_err(), "{bad}");
    }
}

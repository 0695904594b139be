//! Overrides: all or nothing, in force until their end and not after it.
//!
//! The input is lines: `CLASS PATH DURATION REASON`, then the value, and so on.
#![no_main]

use std::time::Duration;

use leasehold_core::clock::Moment;
use leasehold_core::policy::{MAX_OVERRIDE_DURATION, PolicyBook, check, duration};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let book = PolicyBook::builtin();
    let before: Vec<_> = book.classes().iter().map(|name| book.class(name, Moment::ZERO)).collect();
    let (mut now, mut latest) = (Moment::ZERO, Moment::ZERO);
    let mut lines = text.lines();
    while let (Some(order), Some(value)) = (lines.next(), lines.next()) {
        let mut words = order.splitn(4, ' ');
        let mut word = || words.next().unwrap_or_default();
        let (class, path, lasting, reason) = (word(), word(), word(), word());
        let lasting = duration::parse(lasting).unwrap_or(Duration::from_secs(60));
        let (version, was) = (book.version(), book.class(class, now));
        match book.set_override(class, path, value, reason, lasting, now) {
            Ok(change) => {
                assert!(lasting >= Duration::from_secs(1) && lasting <= MAX_OVERRIDE_DURATION);
                assert!(book.version() > version, "a change that nobody is told of");
                assert_eq!(change.until, Some(now + lasting));
                let resolved = book.explain(class, now).expect("it can be explained");
                assert_eq!(resolved.value(path).map(str::to_owned), Some(change.to));
                check(&resolved.class).expect("what is in force can work");
                latest = latest.max(now + lasting);
                now = now + lasting / 2;
            }
            Err(_) => {
                assert_eq!(book.version(), version, "refused, and yet something has changed");
                assert_eq!(book.class(class, now).ok(), was.ok());
            }
        }
    }
    // It reverts without any further call.
    let after: Vec<_> = book.classes().iter().map(|name| book.class(name, latest)).collect();
    assert_eq!(after, before, "an override has outlived its end");
});

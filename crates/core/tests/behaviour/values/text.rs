//! What values print, in messages and in panics of tests.

use std::time::Duration;

use leasehold_core::store::{Promise, Severity, StoreError, StoreErrorKind};
use leasehold_core::{Fence, Holder, Loss, Name, NameSet, Ttl};

#[test]
fn values_print_themselves() {
    let (name, fence) = (Name::new("a:b").unwrap(), Fence::new(7).unwrap());
    let set = NameSet::from(name.clone());
    let (ttl, holder) = (Ttl::new(Duration::from_secs(2)).unwrap(), Holder::new("h:1").unwrap());
    assert_eq!(format!("{name} {fence} {set} {holder:>5}"), "a:b 7 a:b   h:1");
    assert_eq!(format!("{name:?} {fence:?} {set:?} {holder:?} {ttl:?}"), "`a:b` Fence(7) {`a:b`} `h:1` 2s");
    let promises = [Promise::Volatile, Promise::Durable, Promise::Consensus];
    assert_eq!(promises.map(|promise| promise.to_string()), ["volatile", "durable", "consensus"]);
    let severities = [Severity::Note, Severity::Risk, Severity::Breaks];
    assert_eq!(severities.map(|severity| severity.to_string()), ["note", "risk", "breaks"]);
    assert_eq!(Loss::Broken.to_string(), "an operator broke it");
}

#[test]
fn errors_say_what_is_known() {
    let error = StoreError::not_done(StoreErrorKind::ReadOnly, "a replica");
    assert_eq!(error.to_string(), "read-only: a replica (nothing was changed)");
    let error = StoreError::unknown(StoreErrorKind::TimedOut, "no answer");
    assert_eq!(error.to_string(), "timed out: no answer (it may have taken effect)");
}

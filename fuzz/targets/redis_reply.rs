//! What a Redis server, or a proxy in its place, can say: a lock's value and an error.
//!
//! The two modules are private to their crate and are compiled into this target as they are.
#![no_main]

#[allow(dead_code, reason = "only what reads is fuzzed")]
#[path = "../../crates/redis/src/error.rs"]
mod error;
#[allow(dead_code, reason = "only what reads is fuzzed")]
#[path = "../../crates/redis/src/value.rs"]
mod value;

use leasehold_core::types::{Fence, Token};
use libfuzzer_sys::fuzz_target;
use redis::{ServerError, Value};

fuzz_target!(|bytes: &[u8]| {
    seen(bytes);
    if let Ok(Value::ServerError(answer)) = redis::parse_redis_value(bytes) {
        failure(&answer);
    }
});

/// A foreign value may be secret; ours comes back in its parts, without the secret one.
fn seen(bytes: &[u8]) {
    let seen = value::LockValue::parse(bytes);
    let Some(fence) = seen.fence else {
        let mark = seen.holder.strip_prefix("foreign#").expect("a foreign value is marked");
        assert!(mark.len() == 8 && mark.bytes().all(|byte| byte.is_ascii_hexdigit()));
        assert_eq!(seen.class, None);
        return;
    };
    let class = seen.class.as_deref().expect("ours has a class");
    assert!(
        !seen.holder.chars().chain(class.chars()).any(char::is_control),
        "`leasehold list` would write this to a terminal: {seen:?}"
    );
    let text = String::from_utf8_lossy(bytes);
    let (token, last) = text.rsplit_once('|').expect("ours has parts");
    let token = Token::parse(token).expect("ours has a token");
    assert_eq!(last.parse::<Fence>().ok(), Some(fence));
    assert_eq!((seen.holder.as_str(), class), (token.holder(), token.class()));
}

/// Hazard R12: only what the closed table names was definitely not done, and nothing secret is repeated.
fn failure(answer: &ServerError) {
    const LISTED: &str = "READONLY MASTERDOWN LOADING CLUSTERDOWN TRYAGAIN BUSY NOREPLICAS MISCONF OOM NOSCRIPT NOAUTH \
                          WRONGPASS NOPERM DENIED EXECABORT MOVED ASK CROSSSLOT LHFULL LHCOUNTER ERR";
    let failure = error::from_server(answer);
    let listed = LISTED.split(' ').any(|code| code == answer.code());
    assert!(listed || failure.unknown, "{answer:?} was taken for a definite no");
    let detail = answer.details().unwrap_or_default();
    if detail.contains(" script: ") && matches!(answer.code(), "ERR" | "NOPERM") {
        assert!(failure.unknown, "an error from the middle of a script: {answer:?}");
    }
    let said = failure.to_string();
    let digits = said.split(|ch: char| !ch.is_ascii_hexdigit()).map(str::len).max();
    assert!(digits < Some(32), "a token's random part is repeated: {said}");
}

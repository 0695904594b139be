//! The documents of the daemon's wire: what is read is written back the same, and nothing shows a token.
//!
//! The first byte chooses the document.
#![no_main]

use std::fmt::Debug;

use leasehold_http::wire::{
    Acquire, Break, LockList, Problem, Release, Renew, RenewBatch, Renewals, StoreView, Wait,
};
use libfuzzer_sys::fuzz_target;
use serde::Serialize;
use serde::de::DeserializeOwned;

fn same<T: DeserializeOwned + Serialize + PartialEq + Debug>(body: &[u8]) -> Option<String> {
    let document: T = serde_json::from_slice(body).ok()?;
    let written = serde_json::to_vec(&document).expect("what was read can be written");
    let again: T = serde_json::from_slice(&written).expect("what was written can be read");
    assert!(document == again, "{document:?} became {again:?}");
    Some(format!("{document:?}"))
}

fuzz_target!(|bytes: &[u8]| {
    let Some((which, body)) = bytes.split_first() else {
        return;
    };
    let shown = match which % 10 {
        0 => same::<Acquire>(body),
        1 => same::<Renew>(body),
        2 => same::<RenewBatch>(body),
        3 => same::<Release>(body),
        4 => same::<Break>(body),
        5 => same::<Wait>(body),
        6 => same::<Problem>(body),
        7 => same::<Renewals>(body),
        8 => same::<LockList>(body),
        _ => same::<StoreView>(body),
    };
    // A token's random part, if the document has one, is not in what a log line would show.
    let text = String::from_utf8_lossy(body);
    let secret = text.split('|').nth(2).and_then(|rest| rest.get(..32));
    if let (Some(shown), Some(secret), 0..=3 | 5) = (shown, secret, which % 10)
        && secret.bytes().all(|byte| byte.is_ascii_hexdigit())
        && text.matches(secret).count() == 1
        && text.contains("\"token\"")
        && !text.contains("\"name\"")
        && !text.contains("\"holder\"")
    {
        assert!(!shown.contains(secret), "{shown}");
    }
});

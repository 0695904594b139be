//! The store that prefixes names: names of different prefixes do not meet, and a name that does not fit
//! is refused.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::Arc;
use std::time::Duration;

use leasehold_core::adapter::PrefixedStore;
use leasehold_core::clock::{BootClock, RuntimeClock};
use leasehold_core::memory::MemoryStore;
use leasehold_core::rng::OsRandom;
use leasehold_core::store::{
    AcquireRequest, AcquireResponse, ReleaseRequest, RenewRequest, RenewResponse, SharedStore, Store,
};
use leasehold_core::types::{Fence, Holder, Name, Token, Ttl};

const CALL_TIMEOUT: Duration = Duration::from_secs(1);

fn ask(name: &str) -> AcquireRequest {
    let token = Token::fresh(&Holder::new("me").unwrap(), "test", &OsRandom);
    AcquireRequest::new(Name::new(name).unwrap(), token, Ttl::MAX)
}

fn renewal(request: &AcquireRequest, fence: Fence) -> RenewRequest {
    RenewRequest::new(request.names.clone(), request.token.clone(), fence, request.ttl)
}

#[test]
fn prefixes_end_in_a_separator() {
    let memory: SharedStore = Arc::new(MemoryStore::new(BootClock::shared()));
    for (prefix, fits) in
        [("team:", true), ("a/b/", true), ("team", false), ("", false), ("a b:", false), ("{a}:", false)]
    {
        let made = PrefixedStore::new(Arc::clone(&memory), prefix);
        assert_eq!(made.is_ok(), fits, "{prefix}");
        if let Err(refused) = made {
            assert_eq!(refused.field, "prefix");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn prefixes_isolate_names() {
    let memory: SharedStore = Arc::new(MemoryStore::new(RuntimeClock::shared()));
    let [one, two] = ["one:", "two:"].map(|prefix| PrefixedStore::new(Arc::clone(&memory), prefix).unwrap());
    for store in [&one, &two] {
        assert!(matches!(store.acquire(&ask("job"), CALL_TIMEOUT).await, Ok(AcquireResponse::Granted(_))));
        assert!(matches!(store.acquire(&ask("job"), CALL_TIMEOUT).await, Ok(AcquireResponse::Busy(_))));
        let listed = store.list("", 10, CALL_TIMEOUT).await.unwrap();
        assert_eq!(listed.leases.len(), 1);
        assert_eq!(listed.leases[0].name.as_str(), "job");
        let shown = store.inspect(&listed.leases[0].name, CALL_TIMEOUT).await.unwrap().into_first().unwrap();
        assert_eq!(shown.name.as_str(), "job");
    }
    assert_eq!(memory.list("", 10, CALL_TIMEOUT).await.unwrap().leases.len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_name_equal_to_the_prefix_is_not_listed() {
    let memory: SharedStore = Arc::new(MemoryStore::new(RuntimeClock::shared()));
    let store = PrefixedStore::new(Arc::clone(&memory), "one:").unwrap();
    memory.acquire(&ask("one:"), CALL_TIMEOUT).await.unwrap();
    store.acquire(&ask("a"), CALL_TIMEOUT).await.unwrap();
    let listed = store.list("", 1, CALL_TIMEOUT).await.unwrap();
    assert_eq!((listed.leases.len(), listed.truncated), (1, false));
    store.acquire(&ask("b"), CALL_TIMEOUT).await.unwrap();
    let listed = store.list("", 1, CALL_TIMEOUT).await.unwrap();
    assert_eq!((listed.leases.len(), listed.truncated), (1, true));
}

#[tokio::test(start_paused = true)]
async fn a_name_that_does_not_fit_is_refused_by_every_verb() {
    let memory: SharedStore = Arc::new(MemoryStore::new(RuntimeClock::shared()));
    let store = PrefixedStore::new(memory, "team:").unwrap();
    let (long, fits) = (ask(&"x".repeat(508)), ask(&"x".repeat(507)));
    let Ok(AcquireResponse::Granted(grant)) = store.acquire(&fits, CALL_TIMEOUT).await else {
        panic!("the longest name that fits is refused");
    };
    let mut renewed =
        store.renew(&[renewal(&long, grant.fence), renewal(&fits, grant.fence)], CALL_TIMEOUT).await;
    assert!(matches!(renewed.pop(), Some(Ok(RenewResponse::Extended { .. }))));
    let request = ReleaseRequest::by_owner(long.names.clone(), long.token.clone());
    for refused in [
        store.acquire(&long, CALL_TIMEOUT).await.err(),
        store.release(&request, CALL_TIMEOUT).await.err(),
        store.inspect(long.names.first(), CALL_TIMEOUT).await.err(),
        renewed.pop().and_then(Result::err),
    ] {
        let refused = refused.unwrap();
        assert!(!refused.unknown && refused.message().contains("508 bytes"), "{refused}");
    }
}

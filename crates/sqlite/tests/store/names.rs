//! Names and prefixes are plain text: no character in them is special in a query.

use leasehold_core::store::Store;

use crate::fixture::{CALL_TIMEOUT, Fixture, TestClient};

#[tokio::test]
async fn names_and_prefixes_are_literal() {
    let context = Fixture::new();
    let store = context.open();
    for name in ["a%b", "a_b", "axb", "a%", "a", "A%b", "';DROP/**/TABLE/**/leases;--", "é", "日本"] {
        TestClient::new("h", name).expect_granted(&store).await;
    }
    let list = async |prefix: &str| {
        let listing = store.list(prefix, 100, CALL_TIMEOUT).await.unwrap();
        listing.leases.into_iter().map(|lease| lease.name.to_string()).collect::<Vec<_>>()
    };
    assert_eq!(list("a%").await, ["a%", "a%b"]);
    assert_eq!(list("a_").await, ["a_b"]);
    assert_eq!(list("%").await, [""; 0]);
    assert_eq!(list("é").await, ["é"]);
    assert_eq!(list("").await.len(), 9);
    let cut = store.list("a", 2, CALL_TIMEOUT).await.unwrap();
    assert_eq!((cut.leases.len(), cut.truncated), (2, true));
    let all = store.list("a", 5, CALL_TIMEOUT).await.unwrap();
    assert_eq!((all.leases.len(), all.truncated), (5, false));
}

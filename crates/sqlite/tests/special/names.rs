//! Names and prefixes are text: no character of them means anything to a query.

use leasehold_core::store::Store;

use crate::scene::{Scene, WITHIN, Who};

#[tokio::test]
async fn names_and_prefixes_mean_themselves() {
    let scene = Scene::new();
    let store = scene.open();
    for name in [
        "a%b",
        "a_b",
        "axb",
        "a%",
        "a",
        "A%b",
        "';DROP/**/TABLE/**/leases;--",
        "é",
        "日本",
    ] {
        Who::new("h", name).gets(&store).await;
    }
    let list = async |prefix: &str| {
        let listing = store.list(prefix, 100, WITHIN).await.unwrap();
        listing
            .leases
            .into_iter()
            .map(|lease| lease.name.to_string())
            .collect::<Vec<_>>()
    };
    assert_eq!(list("a%").await, ["a%", "a%b"]);
    assert_eq!(list("a_").await, ["a_b"]);
    assert_eq!(list("%").await, [""; 0]);
    assert_eq!(list("é").await, ["é"]);
    assert_eq!(list("").await.len(), 9);
    let cut = store.list("a", 2, WITHIN).await.unwrap();
    assert_eq!((cut.leases.len(), cut.truncated), (2, true));
    let all = store.list("a", 5, WITHIN).await.unwrap();
    assert_eq!((all.leases.len(), all.truncated), (5, false));
}

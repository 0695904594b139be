//! The document says what is served, no more and no less, and is the one that is committed.

use std::collections::BTreeSet;
use std::path::Path;

use serde_json::Value;

use crate::stage::Daemon;

#[tokio::test]
async fn every_route_is_in_the_document() {
    let daemon = Daemon::start().await;
    let document: Value = daemon.get("/openapi.json").await.ok();
    let mut told = BTreeSet::new();
    for (path, item) in document["paths"].as_object().unwrap() {
        for method in item.as_object().unwrap().keys() {
            told.insert(format!("{} {path}", method.to_uppercase()));
        }
    }
    let served: BTreeSet<_> = daemon
        .rules
        .iter()
        .map(|(method, path, _)| format!("{method} {path}"))
        .filter(|route| !matches!(route.as_str(), "GET /" | "GET /openapi.json"))
        .collect();
    assert_eq!(told, served);
}

#[test]
fn the_committed_document_is_the_served_one() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/openapi.json");
    let served = leasehold_server::openapi_document();
    if std::env::var_os("LEASEHOLD_BLESS").is_some() {
        std::fs::write(&path, &served).unwrap();
    }
    let committed = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        committed == served,
        "docs/openapi.json is not what is served; LEASEHOLD_BLESS=1 cargo nextest run -p leasehold-server openapi writes it"
    );
}

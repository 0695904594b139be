//! The OpenAPI document lists exactly the served routes, and equals the committed one.

use std::collections::BTreeSet;
use std::path::Path;

use serde_json::Value;

use crate::fixture::{Daemon, DaemonPlan};

#[tokio::test]
async fn every_route_is_in_the_document() {
    assert_same_routes(&Daemon::start().await).await;
}

#[tokio::test]
async fn every_route_of_the_control_plane_is_in_the_document_if_it_is_served() {
    assert_same_routes(&DaemonPlan::with_plane().start().await).await;
}

async fn assert_same_routes(daemon: &Daemon) {
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
        .filter(|route| {
            !matches!(route.as_str(), "GET /" | "GET /openapi.json") && !route.contains("/assets/")
        })
        .collect();
    assert_eq!(told, served);
}

/// The rights in the document are those that the gate requires.
#[tokio::test]
async fn the_rights_in_the_document_are_those_of_the_gate() {
    let daemon = DaemonPlan::with_plane().start().await;
    let document: Value = daemon.get("/openapi.json").await.ok();
    let mut message = 0;
    for (method, path, role) in &daemon.rules {
        let operation = &document["paths"][path][method.to_lowercase()];
        if let Some(told) = operation.get("x-right") {
            assert_eq!(told.as_str(), role.as_deref(), "{method} {path}");
            message += 1;
        }
    }
    assert!(message >= 22, "the control plane's routes say what they demand: {message}");
}

#[tokio::test]
async fn the_committed_document_is_the_served_one() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/openapi.json");
    let served = DaemonPlan::with_plane().start().await.get("/openapi.json").await.text;
    assert_eq!(served, leasehold_server::openapi_document());
    if std::env::var_os("LEASEHOLD_BLESS").is_some() {
        std::fs::write(&path, &served).unwrap();
    }
    let committed = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        committed == served,
        "docs/openapi.json is not what is served; LEASEHOLD_BLESS=1 cargo nextest run -p leasehold-server openapi writes it"
    );
}

//! Policies over HTTP: shown with their origin, overridden for a while, reverted, recorded.

use serde_json::{Value, json};

use crate::fixture::{Daemon, eventually};

fn value(class: &Value, field: &str) -> (String, String) {
    let found = class["values"].as_array().unwrap().iter().find(|row| row["field"] == field).unwrap();
    let text = |key: &str| found[key].as_str().unwrap().to_owned();
    (text("value"), text("origin"))
}

#[tokio::test]
async fn an_override_applies_reverts_and_is_recorded() {
    let daemon = Daemon::start().await;
    let path = "/v1/policies/scheduler";
    assert_eq!(value(&daemon.get(path).await.ok(), "ttl").0, "1m");
    let set = |field: &str, value: &str, reason: &str| json!({"field": field, "value": value, "reason": reason, "lasting_ms": 600_000});
    let changed = daemon.post("/v1/policies/scheduler/overrides", set("ttl", "90s", "slow store")).await.ok();
    assert!(changed["change"].as_str().unwrap().contains("local: slow store"), "{changed}");
    let (ttl, origin) = value(&daemon.get(path).await.ok(), "ttl");
    assert!(ttl == "1m 30s" || ttl == "1m30s" || ttl == "90s", "{ttl}");
    assert!(origin.contains("override") && origin.contains("slow store"), "{origin}");
    let granted = daemon.post("/v1/locks/job:1/acquire", json!({})).await.ok();
    assert_eq!(granted["ttl_ms"], 90_000);
    for (field, to, reason) in [("ttl", "never", "x"), ("nonsense", "1", "x"), ("ttl", "90s", " ")] {
        let refused = daemon.post("/v1/policies/scheduler/overrides", set(field, to, reason)).await;
        assert_eq!((refused.status, refused.code().as_str()), (422, "invalid"), "{refused:?}");
    }
    assert_eq!(daemon.post("/v1/policies/none/overrides", set("ttl", "90s", "x")).await.status, 404);
    let clear = "/v1/policies/scheduler/overrides/ttl";
    daemon.call("DELETE", clear, None, None).await.ok();
    assert_eq!(daemon.call("DELETE", clear, None, None).await.status, 404);
    assert_eq!(value(&daemon.get(path).await.ok(), "ttl").0, "1m");
    eventually("both changes", async || {
        let changes = daemon.get("/v1/policy-history").await.ok();
        changes["changes"].as_array().unwrap().len() == 2
    })
    .await;
}

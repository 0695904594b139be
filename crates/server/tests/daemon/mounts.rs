//! Routes of another crate pass the same gate.

use axum::Router;
use axum::routing::{get, post};
use http::Method;
use leasehold_server::auth::{Right, Rule, TargetSource};
use leasehold_server::{Caller, Mount};

use crate::fixture::DaemonPlan;

#[tokio::test]
async fn mounted_routes_need_a_declared_rule() {
    let mut plan = DaemonPlan::new();
    let tokens = plan.identities(&[("a", &["hold:job"]), ("b", &["admin:other"])]);
    let router = Router::new()
        .route("/v1/jobs", post(|Caller(who): Caller| async move { who.id().to_owned() }))
        .route("/v1/forgotten", get(|| async { "open to all?" }));
    plan.mounts = vec![Mount::new(router).rule(
        Method::POST,
        "/v1/jobs",
        Rule::new(Right::Hold, TargetSource::Fixed("job")),
    )];
    let daemon = plan.start().await;
    let call = |method: &'static str, path: &'static str, who: usize| {
        daemon.call(method, path, tokens.get(who).map(String::as_str), None)
    };
    assert_eq!(call("POST", "/v1/jobs", 0).await.text, "a");
    assert_eq!(call("POST", "/v1/jobs", 1).await.code(), "forbidden");
    assert_eq!(call("POST", "/v1/jobs", 9).await.code(), "unauthorized");
    assert_eq!(call("GET", "/v1/jobs", 0).await.code(), "method_not_allowed");
    assert_eq!(call("GET", "/v1/forgotten", 1).await.code(), "forbidden");
}

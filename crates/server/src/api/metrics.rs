//! `GET /metrics`: the event stream as Prometheus metrics.

use std::sync::Arc;

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::HeaderValue;
use http::header::CONTENT_TYPE;

use crate::state::app::App;

/// Metrics for Prometheus
///
/// By class, namespace and store, never by name. Needs a grant on `*`: the metrics include all
/// namespaces.
#[utoipa::path(
    get, path = "/metrics", tag = "daemon", operation_id = "metrics",
    responses((status = 200, description = "OpenMetrics text", body = String, content_type = "application/openmetrics-text")),
)]
pub(crate) async fn metrics(State(app): State<Arc<App>>) -> Response {
    let kind = (CONTENT_TYPE, HeaderValue::from_static(leasehold_metrics::CONTENT_TYPE));
    let plane = app.plane.as_ref().map(|served| &served.plane);
    ([kind], app.recorder.metrics_registry.text(plane).await).into_response()
}

//! `GET /metrics`: the event stream as numbers, for Prometheus.

use std::sync::Arc;

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::HeaderValue;
use http::header::CONTENT_TYPE;

use crate::app::App;

/// Numbers for Prometheus
///
/// By class, namespace and store, never by name. Needs a grant on `*`: namespaces of others are in it.
#[utoipa::path(
    get, path = "/metrics", tag = "daemon", operation_id = "metrics",
    responses((status = 200, description = "OpenMetrics text", body = String, content_type = "application/openmetrics-text")),
)]
pub(crate) async fn metrics(State(app): State<Arc<App>>) -> Response {
    let kind = (
        CONTENT_TYPE,
        HeaderValue::from_static(leasehold_metrics::CONTENT_TYPE),
    );
    count_jobs(&app).await;
    ([kind], app.recorder.metrics.encode()).into_response()
}

/// How many jobs are in each state now. If the plane's store does not answer, the last count stands.
async fn count_jobs(app: &App) {
    let Some(served) = &app.plane else { return };
    match served.plane.tally().await {
        Ok(tally) => {
            for (state, jobs) in tally {
                let jobs = u32::try_from(jobs).unwrap_or(u32::MAX);
                let labels = vec![("state", state.word().to_owned())];
                let metrics = &app.recorder.metrics;
                metrics.set(leasehold_plane::metrics::JOBS, labels, f64::from(jobs));
            }
        }
        Err(error) => tracing::warn!(%error, "jobs could not be counted for the metrics"),
    }
}

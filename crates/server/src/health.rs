//! `GET /healthz`, `GET /readyz`: alive, and able to serve.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use leasehold::Name;
use leasehold_http::wire::Problem;
use serde::Serialize;
use utoipa::ToSchema;

use crate::app::App;
use crate::document::Doc;
use crate::problem::Refusal;

/// What a probe waits for the store.
const PATIENCE: Duration = Duration::from_secs(2);

/// A probe's answer.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Health {
    /// `ok`.
    status: &'static str,
    /// The kind of store.
    store: &'static str,
    /// The daemon's version.
    version: &'static str,
}

/// The process is alive
///
/// Says nothing about the store: restarting the daemon does not mend that.
#[utoipa::path(
    get, path = "/healthz", tag = "daemon", operation_id = "health",
    responses((status = 200, description = "Alive", body = Health)),
)]
pub(crate) async fn healthz(State(app): State<Arc<App>>) -> Doc<Health> {
    Doc(Health::of(app.store().capabilities().kind))
}

/// The daemon can serve
///
/// The store is asked a question that changes nothing; a daemon that is stopping is not ready.
#[utoipa::path(
    get, path = "/readyz", tag = "daemon", operation_id = "ready",
    responses(
        (status = 200, description = "Ready", body = Health),
        (status = 503, description = "The store does not answer, or the daemon is stopping", body = Problem, content_type = "application/problem+json"),
    ),
)]
pub(crate) async fn readyz(State(app): State<Arc<App>>) -> Result<Doc<Health>, Refusal> {
    if app.stopping.is_cancelled() {
        return Err(Refusal::stopping());
    }
    let probe = Name::new("leasehold:ready")?;
    app.within(PATIENCE, app.store().inspect(&probe, PATIENCE))
        .await?;
    Ok(Doc(Health::of(app.store().capabilities().kind)))
}

impl Health {
    /// Of a process on this kind of store.
    pub(crate) fn of(store: &'static str) -> Self {
        Self {
            status: "ok",
            store,
            version: env!("CARGO_PKG_VERSION"),
        }
    }
}

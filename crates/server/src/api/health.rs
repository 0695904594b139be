//! `GET /healthz` and `GET /readyz`: the liveness and readiness probes.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use leasehold::Name;
use leasehold::clock::Moment;
use leasehold_wire::Problem;
use serde::Serialize;
use utoipa::ToSchema;

use crate::api::document::JsonBody;
use crate::api::problem::Refusal;
use crate::state::app::App;

// Orchestrators usually time a probe out within a few seconds; answer before they do.
const READINESS_STORE_TIMEOUT: Duration = Duration::from_secs(2);
// Shorter than the interval of any prober.
const READINESS_MAX_AGE: Duration = Duration::from_millis(500);

/// The response of a probe.
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
/// Does not check the store: restarting the daemon would not repair it.
#[utoipa::path(
    get, path = "/healthz", tag = "daemon", operation_id = "health",
    responses((status = 200, description = "Alive", body = Health)),
)]
pub(crate) async fn healthz(State(app): State<Arc<App>>) -> JsonBody<Health> {
    JsonBody(Health::new(app.store().capabilities().kind))
}

/// The daemon can serve
///
/// Reads one lease from the store, at most twice a second. A daemon that is stopping is not ready.
#[utoipa::path(
    get, path = "/readyz", tag = "daemon", operation_id = "ready",
    responses(
        (status = 200, description = "Ready", body = Health),
        (status = 503, description = "The store does not answer, or the daemon is stopping", body = Problem, content_type = "application/problem+json"),
    ),
)]
pub(crate) async fn readyz(State(app): State<Arc<App>>) -> Result<JsonBody<Health>, Refusal> {
    if app.stopping.is_cancelled() {
        return Err(Refusal::stopping());
    }
    // Held during the store call: callers that come meanwhile share its result.
    let mut last = Arc::clone(&app.readiness.last).lock_owned().await;
    let now = app.clock.now();
    let recent = last.as_ref().filter(|(at, _)| now.since(*at) < READINESS_MAX_AGE);
    let ready = match recent {
        Some((_, ready)) => ready.clone(),
        // With the lock: callers that disconnect would otherwise cause a store call each.
        None => {
            let probed = Arc::clone(&app);
            let probe = async move {
                let ready = probe_store(&probed).await;
                *last = Some((probed.clock.now(), ready.clone()));
                ready
            };
            Arc::clone(&app).run_to_end(probe).await?
        }
    };
    ready.map(|()| JsonBody(Health::new(app.store().capabilities().kind)))
}

async fn probe_store(app: &App) -> Result<(), Refusal> {
    // A read of a reserved name: it exercises the store and changes nothing.
    let probe = Name::new("leasehold:ready")?;
    app.with_timeout(READINESS_STORE_TIMEOUT, app.store().inspect(&probe, READINESS_STORE_TIMEOUT)).await?;
    Ok(())
}

type StoreAnswer = (Moment, Result<(), Refusal>);

/// The last answer of the store to a readiness probe, and when it came. Probes need no identity, so
/// they must not cause one store call each.
#[derive(Debug, Default)]
pub(crate) struct Readiness {
    last: Arc<tokio::sync::Mutex<Option<StoreAnswer>>>,
}

impl Health {
    /// The response of a process whose store is of this kind (`Capabilities::kind`).
    pub(crate) fn new(store: &'static str) -> Self {
        Self { status: "ok", store, version: env!("CARGO_PKG_VERSION") }
    }
}

//! `GET /v1/drills`: reports of fault drills in the daemon's state directory.
//!
//! `leasehold drill all --out STATE/drills/ANY-NAME` writes one. Reports are read on request and
//! never changed.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use axum::extract::State;
use jiff::Timestamp;
use serde::Serialize;
use serde_json::Value;
use utoipa::ToSchema;

use crate::api::document::JsonBody;
use crate::state::app::App;

const MAX_REPORTS: usize = 20;
// No drill writes a larger report; a larger file is something else.
const MAX_REPORT_BYTES: u64 = 1 << 20;

/// The drill reports that the daemon found.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Drills {
    /// The directory that is searched; missing if the daemon has no state directory.
    #[serde(skip_serializing_if = "Option::is_none")]
    folder: Option<String>,
    /// The reports, newest first.
    reports: Vec<Report>,
}

/// One drill report.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Report {
    /// The name of the report's directory.
    name: String,
    /// The time at which the report was written.
    #[schema(format = DateTime)]
    at: String,
    /// The report as `leasehold drill -o json` prints it.
    #[schema(value_type = Object)]
    report: Value,
}

/// Read the reports of drills
#[utoipa::path(
    get, path = "/v1/drills", tag = "daemon", operation_id = "readDrills",
    responses((status = 200, description = "Newest first, at most 20", body = Drills)),
)]
pub(crate) async fn read(State(app): State<Arc<App>>) -> JsonBody<Drills> {
    let folder = app.config.state_dir.as_ref().map(|state| state.join("drills"));
    let shown = folder.as_ref().map(|folder| folder.display().to_string());
    // File access blocks, so it runs off the async threads.
    let found = tokio::task::spawn_blocking(move || folder.map(|folder| reports(&folder)));
    JsonBody(Drills { folder: shown, reports: found.await.ok().flatten().unwrap_or_default() })
}

/// Reads the reports. A file that cannot be read or parsed is skipped.
fn reports(folder: &Path) -> Vec<Report> {
    let Ok(entries) = fs::read_dir(folder) else {
        return Vec::new();
    };
    let mut found: Vec<(SystemTime, String, PathBuf)> = entries
        .filter_map(|entry| {
            let entry = entry.ok()?;
            let path = entry.path().join("report.json");
            let about = fs::metadata(&path).ok()?;
            let good = about.is_file() && about.len() <= MAX_REPORT_BYTES;
            let name = entry.file_name().to_string_lossy().into_owned();
            good.then_some((about.modified().ok()?, name, path))
        })
        .collect();
    found.sort_by(|a, b| b.cmp(a));
    found
        .into_iter()
        .take(MAX_REPORTS)
        .filter_map(|(at, name, path)| {
            let at = Timestamp::try_from(at).ok()?;
            let report = serde_json::from_slice(&fs::read(path).ok()?).ok()?;
            Some(Report { name, at: format!("{at:.0}"), report })
        })
        .collect()
}

//! `GET /v1/drills`: the reports that drills have left in the daemon's state folder, for people to look at.
//!
//! `leasehold drill all --out STATE/drills/ANY-NAME` writes one. They are read when they are asked for, and never changed.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use axum::extract::State;
use jiff::Timestamp;
use serde::Serialize;
use serde_json::Value;
use utoipa::ToSchema;

use crate::app::App;
use crate::document::Doc;

/// The most reports that are shown.
const SHOWN: usize = 20;
/// No report of a drill is longer.
const LONGEST: u64 = 1 << 20;

/// Reports of drills.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Drills {
    /// Where they are looked for; missing if the daemon keeps nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    folder: Option<String>,
    /// Newest first.
    reports: Vec<Report>,
}

/// One report.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Report {
    /// The folder's name.
    name: String,
    /// When it was written.
    #[schema(format = DateTime)]
    at: String,
    /// As `leasehold drill -o json` prints it.
    #[schema(value_type = Object)]
    report: Value,
}

/// Read the reports of drills
#[utoipa::path(
    get, path = "/v1/drills", tag = "daemon", operation_id = "readDrills",
    responses((status = 200, description = "Newest first, at most 20", body = Drills)),
)]
pub(crate) async fn read(State(app): State<Arc<App>>) -> Doc<Drills> {
    let folder = app.config.state.as_ref().map(|state| state.join("drills"));
    let shown = folder.as_ref().map(|folder| folder.display().to_string());
    let found = tokio::task::spawn_blocking(move || folder.map(|folder| reports(&folder)));
    Doc(Drills {
        folder: shown,
        reports: found.await.ok().flatten().unwrap_or_default(),
    })
}

/// What cannot be read is not a report.
fn reports(folder: &Path) -> Vec<Report> {
    let Ok(entries) = fs::read_dir(folder) else {
        return Vec::new();
    };
    let mut found: Vec<(SystemTime, String, PathBuf)> = entries
        .filter_map(|entry| {
            let entry = entry.ok()?;
            let path = entry.path().join("report.json");
            let about = fs::metadata(&path).ok()?;
            let good = about.is_file() && about.len() <= LONGEST;
            let name = entry.file_name().to_string_lossy().into_owned();
            good.then_some((about.modified().ok()?, name, path))
        })
        .collect();
    found.sort_by(|a, b| b.cmp(a));
    found
        .into_iter()
        .take(SHOWN)
        .filter_map(|(at, name, path)| {
            let at = Timestamp::try_from(at).ok()?;
            let report = serde_json::from_slice(&fs::read(path).ok()?).ok()?;
            Some(Report {
                name,
                at: format!("{at:.0}"),
                report,
            })
        })
        .collect()
}

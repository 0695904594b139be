//! `/v1/workflows` and `/v1/runs`.

use std::sync::Arc;

use axum::body::Bytes;
use axum::extract::{Path, RawQuery, State};
use axum::http::StatusCode;
use leasehold_core::Invalid;
use serde::Deserialize;
use serde_json::{Value, json};

use super::Shared;
use super::reply::{Doc, Reply, limit, read};
use crate::view;
use crate::workflow::{StartRun, parse};

/// The body is the workflow's file itself.
pub(super) async fn apply(State(shared): State<Arc<Shared>>, body: Bytes) -> Reply {
    let text = std::str::from_utf8(&body).map_err(|_| Invalid::new("body", "…", "must be TOML in UTF-8"))?;
    let workflow = parse("body", text)?;
    let version = shared.plane.apply_workflow(&workflow).await?;
    Ok(json!({"schema_version": 1, "name": workflow.name, "version": version}).into())
}

pub(super) async fn list(State(shared): State<Arc<Shared>>, RawQuery(query): RawQuery) -> Reply {
    let runs = shared.plane.runs(&[], limit(query.as_deref())?).await?;
    let runs: Vec<_> = runs.iter().map(view::run).collect();
    Ok(json!({"schema_version": 1, "runs": runs}).into())
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Start {
    workflow: String,
    id: Option<String>,
    #[serde(default)]
    org: String,
    #[serde(default)]
    input: Value,
    key: Option<String>,
}

pub(super) async fn start(State(shared): State<Arc<Shared>>, body: Bytes) -> Reply {
    let start: Start = read(&body)?;
    let started = shared
        .plane
        .start(StartRun {
            workflow: start.workflow,
            id: start.id,
            org: start.org,
            input: start.input,
            key: start.key,
        })
        .await?;
    let status = if started.repeated {
        StatusCode::OK
    } else {
        StatusCode::CREATED
    };
    Ok(Doc(status, view::run(&started.run)))
}

pub(super) async fn show(State(shared): State<Arc<Shared>>, Path(id): Path<String>) -> Reply {
    Ok(view::run(&shared.plane.run(&id).await?).into())
}

pub(super) async fn timeline(State(shared): State<Arc<Shared>>, Path(id): Path<String>) -> Reply {
    let run = shared.plane.run(&id).await?;
    let events = shared.plane.timeline(&run.id).await?;
    let events: Vec<_> = events.iter().map(view::event).collect();
    Ok(json!({"schema_version": 1, "id": id, "events": events}).into())
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Reason {
    #[serde(default)]
    reason: String,
}

pub(super) async fn cancel(State(shared): State<Arc<Shared>>, Path(id): Path<String>, body: Bytes) -> Reply {
    let Reason { reason } = read(&body)?;
    let why = if reason.is_empty() {
        "cancelled over HTTP"
    } else {
        &reason
    };
    let run = shared.plane.cancel_run(&id, why).await?;
    Ok(Doc(StatusCode::ACCEPTED, view::run(&run)))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Rerun {
    from: String,
}

pub(super) async fn rerun(State(shared): State<Arc<Shared>>, Path(id): Path<String>, body: Bytes) -> Reply {
    let Rerun { from } = read(&body)?;
    let run = shared.plane.rerun(&id, &from).await?;
    Ok(Doc(StatusCode::ACCEPTED, view::run(&run)))
}

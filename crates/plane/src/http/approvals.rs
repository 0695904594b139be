//! `/v1/approvals`.

use std::sync::Arc;

use axum::body::Bytes;
use axum::extract::{Path, RawQuery, State};
use serde::Deserialize;
use serde_json::{Value, json};

use super::Shared;
use super::reply::{Reply, limit, read};
use crate::approval::Verdict;
use crate::view;

pub(super) async fn list(State(shared): State<Arc<Shared>>, RawQuery(query): RawQuery) -> Reply {
    let jobs = shared.plane.approvals(limit(query.as_deref())?).await?;
    let jobs: Vec<_> = jobs.iter().map(view::job).collect();
    Ok(json!({"schema_version": 1, "approvals": jobs}).into())
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Decide {
    by: String,
    reason: String,
    snapshot: Option<String>,
    payload: Option<Value>,
}

impl Decide {
    fn split(self) -> (Verdict, Option<Value>) {
        let verdict = Verdict {
            by: self.by,
            reason: self.reason,
            snapshot: self.snapshot,
        };
        (verdict, self.payload)
    }
}

pub(super) async fn approve(State(shared): State<Arc<Shared>>, Path(id): Path<String>, body: Bytes) -> Reply {
    let (verdict, _) = read::<Decide>(&body)?.split();
    Ok(view::job(&shared.plane.approve(&id, &verdict).await?).into())
}

pub(super) async fn reject(State(shared): State<Arc<Shared>>, Path(id): Path<String>, body: Bytes) -> Reply {
    let (verdict, _) = read::<Decide>(&body)?.split();
    Ok(view::job(&shared.plane.reject(&id, &verdict).await?).into())
}

pub(super) async fn repair(State(shared): State<Arc<Shared>>, Path(id): Path<String>, body: Bytes) -> Reply {
    let (verdict, payload) = read::<Decide>(&body)?.split();
    let job = shared
        .plane
        .repair(&id, payload.unwrap_or_default(), &verdict)
        .await?;
    Ok(view::job(&job).into())
}

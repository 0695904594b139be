//! `/v1/jobs` and `/v1/topics`.

use std::sync::Arc;

use axum::body::Bytes;
use axum::extract::{Path, RawQuery, State};
use axum::http::StatusCode;
use leasehold_core::Fence;
use serde::Deserialize;
use serde_json::{Value, json};

use super::Shared;
use super::reply::{Doc, Reply, asked, limit, read};
use crate::error::PlaneError;
use crate::job::{JobSpec, Work};
use crate::plane::Cancelled;
use crate::scheduler::Claim;
use crate::state::JobState;
use crate::view;

pub(super) async fn list(State(shared): State<Arc<Shared>>, RawQuery(query): RawQuery) -> Reply {
    let query = query.as_deref();
    let states: Result<Vec<JobState>, _> = asked(query, "state").iter().map(|state| state.parse()).collect();
    let topic = asked(query, "topic").pop();
    let jobs = shared
        .plane
        .jobs(&states?, topic.as_deref(), limit(query)?)
        .await?;
    let jobs: Vec<_> = jobs.iter().map(view::job).collect();
    Ok(json!({"schema_version": 1, "jobs": jobs}).into())
}

pub(super) async fn submit(State(shared): State<Arc<Shared>>, body: Bytes) -> Reply {
    let spec: JobSpec = read(&body)?;
    if matches!(spec.work, Work::Exec(_)) {
        return Err(PlaneError::Conflict {
            code: "commands_need_admin",
            what: "a job that runs a command is submitted at /v1/jobs/commands, by an admin".into(),
        });
    }
    submitted(&shared, spec).await
}

pub(super) async fn submit_command(State(shared): State<Arc<Shared>>, body: Bytes) -> Reply {
    submitted(&shared, read(&body)?).await
}

async fn submitted(shared: &Shared, spec: JobSpec) -> Reply {
    let submitted = shared.plane.submit(spec).await?;
    let status = if submitted.repeated {
        StatusCode::OK
    } else {
        StatusCode::CREATED
    };
    Ok(Doc(status, view::job(&submitted.job)))
}

pub(super) async fn show(State(shared): State<Arc<Shared>>, Path(id): Path<String>) -> Reply {
    Ok(view::job(&shared.plane.job(&id).await?).into())
}

pub(super) async fn history(State(shared): State<Arc<Shared>>, Path(id): Path<String>) -> Reply {
    let job = shared.plane.job(&id).await?;
    let events = shared.plane.job_history(&job.id).await?;
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
    match shared.plane.cancel(&id, why).await? {
        Cancelled::Requested(job) => Ok(Doc(StatusCode::ACCEPTED, view::job(&job))),
        Cancelled::Now(job) => Ok(view::job(&job).into()),
        // Said twice, it is the same end.
        Cancelled::Ended(job) if job.state == JobState::Cancelled => Ok(view::job(&job).into()),
        Cancelled::Ended(job) => Err(PlaneError::Conflict {
            code: "terminal",
            what: format!("job {id} has ended as {}", job.state),
        }),
    }
}

pub(super) async fn retry(State(shared): State<Arc<Shared>>, Path(id): Path<String>) -> Reply {
    let submitted = shared.plane.replay(&id).await?;
    let status = if submitted.repeated {
        StatusCode::OK
    } else {
        StatusCode::CREATED
    };
    Ok(Doc(status, view::job(&submitted.job)))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Worker {
    worker: String,
}

pub(super) async fn claim(
    State(shared): State<Arc<Shared>>,
    Path(topic): Path<String>,
    body: Bytes,
) -> Reply {
    let Worker { worker } = read(&body)?;
    let Some(claimed) = shared.scheduler.claim(&topic, &worker).await? else {
        return Ok(Doc(StatusCode::OK, json!({"schema_version": 1, "claim": null})));
    };
    Ok(json!({
        "schema_version": 1,
        "claim": claimed.claim,
        "job": view::job(&claimed.job),
        "heartbeat_ms": u64::try_from(claimed.heartbeat.as_millis()).unwrap_or(u64::MAX),
    })
    .into())
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Shown {
    attempt: u32,
    fence: Option<Fence>,
    done: Option<Value>,
    failed: Option<String>,
}

impl Shown {
    fn claim(&self, job: String) -> Claim {
        Claim {
            job,
            attempt: self.attempt,
            fence: self.fence,
        }
    }
}

pub(super) async fn heartbeat(
    State(shared): State<Arc<Shared>>,
    Path(id): Path<String>,
    body: Bytes,
) -> Reply {
    let shown: Shown = read(&body)?;
    let next = shared.scheduler.heartbeat(&shown.claim(id)).await?;
    let next = u64::try_from(next.as_millis()).unwrap_or(u64::MAX);
    Ok(json!({"schema_version": 1, "heartbeat_ms": next}).into())
}

pub(super) async fn result(State(shared): State<Arc<Shared>>, Path(id): Path<String>, body: Bytes) -> Reply {
    let shown: Shown = read(&body)?;
    let claim = shown.claim(id);
    let result = match (shown.done, shown.failed) {
        (done, None) => Ok(done.unwrap_or(Value::Null)),
        (None, Some(why)) => Err(why),
        (Some(_), Some(_)) => {
            let why = "must not be there together with `failed`: it is one or the other";
            return Err(leasehold_core::Invalid::new("done", "…", why).into());
        }
    };
    let reported = shared.scheduler.report(&claim, result).await?;
    let mut view = view::job(&reported.job);
    view["repeated"] = json!(reported.repeated);
    Ok(view.into())
}

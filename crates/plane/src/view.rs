//! Jobs, runs and events as JSON documents: what the command prints and the daemon answers.

use serde_json::{Map, Value, json};

use crate::job::Job;
use crate::store::Event;
use crate::workflow::Run;

/// Grows when a field changes its meaning or goes; new fields may come without it.
const SCHEMA: u32 = 1;

fn with(body: Value, fields: Value) -> Value {
    let mut all = Map::new();
    all.insert("schema_version".into(), SCHEMA.into());
    for part in [fields, body] {
        if let Value::Object(part) = part {
            all.extend(part);
        }
    }
    Value::Object(all)
}

/// A job.
#[must_use]
pub fn job(job: &Job) -> Value {
    let fields = json!({
        "id": job.id,
        "state": job.state,
        "version": job.version,
        "snapshot": job.snapshot(),
        "created_ms": job.created,
        "updated_ms": job.updated,
        "due_ms": job.due,
    });
    with(serde_json::to_value(job).unwrap_or_default(), fields)
}

/// A run.
#[must_use]
pub fn run(run: &Run) -> Value {
    let fields = json!({
        "id": run.id,
        "state": run.state,
        "version": run.version,
        "created_ms": run.created,
        "updated_ms": run.updated,
    });
    with(serde_json::to_value(run).unwrap_or_default(), fields)
}

/// An event of a job or a run.
#[must_use]
pub fn event(event: &Event) -> Value {
    let body: Value = serde_json::from_str(&event.body).unwrap_or_default();
    with(body, json!({"version": event.version, "at_ms": event.at}))
}

//! The jobs that belong to a run, as the stores find them when the run is deleted. `plane.lua` repeats these rules.

use serde_json::Value;

use crate::job::{MAX_STEP_ATTEMPTS, step_job_id};
use crate::state::JobState;

/// The ids that the jobs of a run's steps may have, from the run's id and body.
pub(crate) fn step_jobs(run: &str, body: &str) -> Vec<String> {
    let body: Value = serde_json::from_str(body).unwrap_or_default();
    let steps = body["steps"].as_object().into_iter().flatten();
    let jobs = steps.flat_map(|(step, at)| {
        let newest: u32 = at["attempt"].as_u64().and_then(|attempt| attempt.try_into().ok()).unwrap_or(0);
        let first = newest.saturating_sub(MAX_STEP_ATTEMPTS - 1).max(1);
        (first..=newest).map(move |attempt| step_job_id(run, step, attempt))
    });
    jobs.collect()
}

/// Whether the job with this state and body is one of the run's, and has ended.
pub(crate) fn is_ended_job_of(run: &str, state: &str, body: &str) -> bool {
    let body: Value = serde_json::from_str(body).unwrap_or_default();
    body["parent"]["run"] == run && state.parse().is_ok_and(JobState::is_terminal)
}

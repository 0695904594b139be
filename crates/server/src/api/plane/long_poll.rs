//! Long polls: reads a job or run until its version has changed, so that clients need not poll.

use std::time::Duration;

use leasehold_plane::workflow::Run;
use leasehold_plane::{Job, PlaneError};
use serde::Deserialize;
use utoipa::IntoParams;

use super::document_watchers::DocumentName;
use crate::api::history::{parse_list_limit, parse_number};
use crate::api::problem::Refusal;
use crate::auth::Principal;
use crate::state::app::App;

/// Milliseconds; the daemon's own `max_wait` may be shorter.
const MAX_LONG_POLL_MS: u64 = 60_000;

/// The query of a read that may wait for a change.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct LongPollQuery {
    /// Answer when the version is greater than this, or when `wait_ms` is over.
    #[param(value_type = Option<u64>, minimum = 0)]
    after: Option<String>,
    /// How long to wait for a newer version; not at all if not given.
    #[param(value_type = Option<u64>, minimum = 0, maximum = 60_000)]
    wait_ms: Option<String>,
}

impl LongPollQuery {
    /// The job when its version is newer than `after`, or when the time is over.
    pub(crate) async fn job_when_newer(self, app: &App, who: &Principal, id: &str) -> Result<Job, Refusal> {
        let plane = app.served()?.plane.clone();
        let read = move |id: String| {
            let plane = plane.clone();
            async move { plane.job(&id).await }
        };
        self.read_when_newer(app, who, ("job", id.to_owned()), |job: &Job| job.version, read).await
    }

    /// The run when its version is newer than `after`, or when the time is over.
    pub(crate) async fn run_when_newer(self, app: &App, who: &Principal, id: &str) -> Result<Run, Refusal> {
        let plane = app.served()?.plane.clone();
        let read = move |id: String| {
            let plane = plane.clone();
            async move { plane.run(&id).await }
        };
        self.read_when_newer(app, who, ("run", id.to_owned()), |run: &Run| run.version, read).await
    }

    async fn read_when_newer<T: 'static, F: Future<Output = Result<T, PlaneError>> + Send + 'static>(
        self,
        app: &App,
        who: &Principal,
        name: DocumentName,
        version: fn(&T) -> u64,
        read: impl Fn(String) -> F + Clone + Send + Sync + 'static,
    ) -> Result<T, Refusal> {
        let id = name.1.clone();
        let after = parse_number("after", self.after, 0, u64::MAX)?;
        let wait =
            Duration::from_millis(parse_number("wait_ms", self.wait_ms, 0, MAX_LONG_POLL_MS)?.unwrap_or(0));
        let (Some(after), false) = (after, wait.is_zero()) else {
            return Ok(read(id).await?);
        };
        // Held for the whole wait: a long poll keeps its connection busy.
        let _place = app.take_wait_slot(who)?;
        let end = app.clock.now() + wait.min(app.config.max_wait);
        let mut interrupted = std::pin::pin!(app.interrupted(who));
        // Before the first read: a version that is written in between is not missed.
        let (shared_read, shared_id) = (read.clone(), id.clone());
        let mut newer = app.served()?.watchers.subscribe(&app.clock, name, move || {
            let found = shared_read(shared_id.clone());
            async move { found.await.map(|found| version(&found)) }
        });
        loop {
            let found = read(id.clone()).await?;
            if version(&found) > after || app.clock.now() >= end {
                return Ok(found);
            }
            tokio::select! {
                refusal = &mut interrupted => return Err(refusal),
                () = app.clock.sleep_until(end) => {}
                // The poll ends only after this receiver; a closed channel is read once more at the end.
                _ = newer.changed() => {}
            }
        }
    }
}

/// Parses the `limit` of a list.
pub(crate) fn parse_limit(text: Option<String>) -> Result<usize, Refusal> {
    parse_list_limit(text, 100, 1000)
}

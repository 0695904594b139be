//! Long polls: reads a job or run until its version has changed, so that clients need not poll.

use std::time::Duration;

use leasehold::clock::ClockExt;
use leasehold_plane::PlaneError;
use serde::Deserialize;
use utoipa::IntoParams;

use crate::api::history::parse_number;
use crate::api::problem::Refusal;
use crate::auth::Principal;
use crate::state::app::App;

// The plane's store has no wake-ups, so the daemon polls it on behalf of the waiting client.
const LONG_POLL_INTERVAL: Duration = Duration::from_millis(100);
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
    /// Reads until the version is newer than `after`, or until the time is over.
    pub(crate) async fn read_when_newer<T, F: Future<Output = Result<T, PlaneError>>>(
        self,
        app: &App,
        who: &Principal,
        version: impl Fn(&T) -> u64,
        read: impl Fn() -> F,
    ) -> Result<T, Refusal> {
        let after = parse_number("after", self.after, 0, u64::MAX)?;
        let wait =
            Duration::from_millis(parse_number("wait_ms", self.wait_ms, 0, MAX_LONG_POLL_MS)?.unwrap_or(0));
        let (Some(after), false) = (after, wait.is_zero()) else {
            return Ok(read().await?);
        };
        // Held for the whole wait: a long poll keeps its connection busy.
        let _place = app.take_wait_slot(who)?;
        let end = app.clock.now() + wait.min(app.config.max_wait);
        loop {
            let found = read().await?;
            if version(&found) > after || app.clock.now() >= end {
                return Ok(found);
            }
            tokio::select! {
                () = app.stopping.cancelled() => return Err(Refusal::stopping()),
                () = app.clock.sleep(LONG_POLL_INTERVAL) => {}
            }
        }
    }
}

/// Parses the `limit` of a list.
pub(crate) fn parse_limit(text: Option<String>) -> Result<usize, Refusal> {
    let limit = parse_number("limit", text, 1, 1000)?.unwrap_or(100);
    Ok(usize::try_from(limit).unwrap_or(1000))
}

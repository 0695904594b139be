//! Looking at one thing until it has changed, instead of asking for it again and again.

use std::time::Duration;

use leasehold::clock::ClockExt;
use leasehold_plane::PlaneError;
use serde::Deserialize;
use utoipa::IntoParams;

use crate::app::App;
use crate::auth::Principal;
use crate::past::number;
use crate::problem::Refusal;

/// How often the plane's store is looked at for someone who waits.
const LOOK: Duration = Duration::from_millis(100);
/// The longest wait, before the daemon's own limit.
const LONGEST: u64 = 60_000;

/// How to look.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct Look {
    /// Answer when its version is greater than this, or when `wait_ms` is over.
    #[param(value_type = Option<u64>, minimum = 0)]
    after: Option<String>,
    /// How long to wait for that; not at all if not given.
    #[param(value_type = Option<u64>, minimum = 0, maximum = 60_000)]
    wait_ms: Option<String>,
}

impl Look {
    /// Reads until there is something newer, or until the time is over.
    pub(crate) async fn at<T, F: Future<Output = Result<T, PlaneError>>>(
        self,
        app: &App,
        who: &Principal,
        version: impl Fn(&T) -> u64,
        read: impl Fn() -> F,
    ) -> Result<T, Refusal> {
        let after = number("after", self.after, 0, u64::MAX)?;
        let wait = Duration::from_millis(number("wait_ms", self.wait_ms, 0, LONGEST)?.unwrap_or(0));
        let (Some(after), false) = (after, wait.is_zero()) else {
            return Ok(read().await?);
        };
        let _place = app.wait(who)?;
        let end = app.clock.now() + wait.min(app.config.longest_wait);
        loop {
            let found = read().await?;
            if version(&found) > after || app.clock.now() >= end {
                return Ok(found);
            }
            tokio::select! {
                () = app.stopping.cancelled() => return Err(Refusal::stopping()),
                () = app.clock.sleep(LOOK) => {}
            }
        }
    }
}

/// How many of a list.
pub(crate) fn limit(text: Option<String>) -> Result<usize, Refusal> {
    let limit = number("limit", text, 1, 1000)?.unwrap_or(100);
    Ok(usize::try_from(limit).unwrap_or(1000))
}

//! `GET /v1/history`: who held what, and how it ended.

use std::sync::Arc;

use axum::extract::State;
use http::StatusCode;
use leasehold_http::wire::Problem;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use crate::app::App;
use crate::auth::Role;
use crate::document::{Asked, Caller, Doc};
use crate::locks::beginning;
use crate::problem::Refusal;
use crate::record::{HistoryRow, Wanted};

/// The longest page.
const LONGEST: usize = 1000;

/// No `seq` is greater: the file counts in 63 bits.
const NEWEST: u64 = i64::MAX.unsigned_abs();

/// Which holds.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct Which {
    /// Only names that begin with this.
    #[param(max_length = 512)]
    prefix: Option<String>,
    /// At most so many; 100 if not given.
    #[param(value_type = Option<u32>, minimum = 1, maximum = 1000)]
    limit: Option<String>,
    /// Only older ones than this `seq`.
    #[param(value_type = Option<u64>, minimum = 1)]
    before: Option<String>,
}

/// A page of the history.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Past {
    /// Newest first.
    holds: Vec<HistoryRow>,
}

/// Read the history of holds
#[utoipa::path(
    get, path = "/v1/history", tag = "daemon", operation_id = "readHistory", params(Which),
    responses(
        (status = 200, description = "Newest first", body = Past),
        (status = 503, description = "The daemon's own file cannot be read", body = Problem, content_type = "application/problem+json"),
    ),
)]
pub(crate) async fn read(
    State(app): State<Arc<App>>,
    Caller(who): Caller,
    Asked(which): Asked<Which>,
) -> Result<Doc<Past>, Refusal> {
    let wanted = Wanted {
        prefix: beginning(which.prefix)?,
        limit: usize::try_from(number("limit", which.limit, 1, 1000)?.unwrap_or(100)).unwrap_or(LONGEST),
        before: number("before", which.before, 1, NEWEST)?,
    };
    let seen = move |name: &leasehold::Name| who.covers(Role::Read, name);
    let holds = app.recorder.history.read(wanted, seen).await;
    holds.map(|holds| Doc(Past { holds })).map_err(unreadable)
}

/// The daemon's own file does not answer.
pub(crate) fn unreadable(why: String) -> Refusal {
    Refusal::new(StatusCode::SERVICE_UNAVAILABLE, "overloaded", why)
        .retry_after(std::time::Duration::from_secs(1))
}

/// A number in a query.
pub(crate) fn number(
    field: &str,
    text: Option<String>,
    least: u64,
    most: u64,
) -> Result<Option<u64>, Refusal> {
    let Some(text) = text else { return Ok(None) };
    let plain = text.bytes().all(|byte| byte.is_ascii_digit());
    let number = text
        .parse()
        .ok()
        .filter(|number| plain && (least..=most).contains(number));
    match number {
        Some(number) => Ok(Some(number)),
        None => Err(Refusal::invalid(
            field,
            format!("{field}: must be a whole number from {least} to {most}"),
        )),
    }
}

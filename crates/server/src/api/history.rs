//! `GET /v1/history`: past and current holds.

use std::sync::Arc;

use axum::extract::State;
use leasehold_wire::{ErrorCode, HistoryPage, Problem};
use serde::Deserialize;
use utoipa::IntoParams;

use crate::api::document::{Caller, JsonBody, QueryParams};
use crate::api::locks::{check_prefix, scope_prefixes};
use crate::api::problem::Refusal;
use crate::auth::{Principal, Right};
use crate::state::app::App;
use crate::state::record::HistoryFilter;
use crate::state::shares::Share;

const MAX_HISTORY_PAGE: usize = 1000;

// SQLite integers are signed, so `seq` has 63 bits.
const MAX_HISTORY_SEQ: u64 = i64::MAX.unsigned_abs();

/// The query of the history.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct HistoryQuery {
    /// Only holds of names that begin with this prefix.
    #[param(max_length = 512)]
    prefix: Option<String>,
    /// The page size; 100 if not given.
    #[param(value_type = Option<u32>, minimum = 1, maximum = 1000)]
    limit: Option<String>,
    /// Only holds older than this `seq`.
    #[param(value_type = Option<u64>, minimum = 1)]
    before: Option<String>,
}

/// Read the history of holds
#[utoipa::path(
    get, path = "/v1/history", tag = "daemon", operation_id = "readHistory", params(HistoryQuery),
    responses(
        (status = 200, description = "Newest first", body = HistoryPage),
        (status = 503, description = "The daemon's own file cannot be read", body = Problem, content_type = "application/problem+json"),
    ),
)]
pub(crate) async fn read(
    State(app): State<Arc<App>>,
    Caller(who): Caller,
    QueryParams(which): QueryParams<HistoryQuery>,
) -> Result<JsonBody<HistoryPage>, Refusal> {
    let wanted = HistoryFilter {
        prefixes: scope_prefixes(&who, &check_prefix(which.prefix)?),
        limit: parse_list_limit(which.limit, 100, MAX_HISTORY_PAGE)?,
        before: parse_number("before", which.before, 1, MAX_HISTORY_SEQ)?,
    };
    let share = take_history_share(&app, &who)?;
    // The share belongs to the query, not to the caller: a queued query costs as much without one.
    let seen = move |name: &leasehold::Name| {
        let _held = &share;
        who.covers(Right::Read, name)
    };
    let holds = app.recorder.history.read(wanted, seen).await;
    holds.map(|holds| JsonBody(HistoryPage { holds })).map_err(state_db_unavailable)
}

/// Takes one of the caller's share of queries of the daemon's database.
pub(crate) fn take_history_share(app: &App, who: &Principal) -> Result<Share, Refusal> {
    app.history_reads.take(who.id()).ok_or_else(|| {
        let why = "too many requests read the history at this moment, or too many of yours";
        state_db_unavailable(why.to_owned())
    })
}

/// The error response when the daemon's database cannot be read.
pub(crate) fn state_db_unavailable(why: String) -> Refusal {
    Refusal::new(ErrorCode::Overloaded, why).retry_after(std::time::Duration::from_secs(1))
}

/// The length of a list from a query: from 1 to `most`, or the default.
pub(crate) fn parse_list_limit(text: Option<String>, default: usize, most: usize) -> Result<usize, Refusal> {
    let limit = parse_number("limit", text, 1, most as u64)?;
    Ok(limit.map_or(default, |limit| usize::try_from(limit).unwrap_or(most)))
}

/// Parses a number in a query, within bounds.
pub(crate) fn parse_number(
    field: &str,
    text: Option<String>,
    least: u64,
    most: u64,
) -> Result<Option<u64>, Refusal> {
    let Some(text) = text else { return Ok(None) };
    // `parse` alone would also accept a leading `+`.
    let plain = text.bytes().all(|byte| byte.is_ascii_digit());
    let number = text.parse().ok().filter(|number| plain && (least..=most).contains(number));
    match number {
        Some(number) => Ok(Some(number)),
        None => {
            Err(Refusal::invalid(field, format!("{field}: must be a whole number from {least} to {most}")))
        }
    }
}

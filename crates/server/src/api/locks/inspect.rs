//! `GET /v1/locks`, `GET /v1/locks/{name}` and `GET /v1/store`: read-only views of the store.

use std::sync::Arc;

use axum::extract::State;
use leasehold_wire::{LockList, LockView, StoreView};
use serde::Deserialize;
use utoipa::IntoParams;

use super::DEFAULT_STORE_TIMEOUT;
use crate::api::document::{Caller, JsonBody, LockName, QueryParams};
use crate::api::history::parse_list_limit;
use crate::api::problem::Refusal;
use crate::auth::{Principal, Right, Scope};
use crate::state::app::App;

/// The list length if the caller names none.
const DEFAULT_LIST_LIMIT: usize = 1000;
const MAX_LIST_LIMIT: usize = 10_000;
// The daemon may have to fetch foreign names and filter them out. This bounds that work.
const MAX_SCANNED_LEASES: usize = 100_000;

/// The query of the lock list.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct LockQuery {
    /// Only names that begin with this prefix.
    #[param(max_length = 512)]
    prefix: Option<String>,
    /// The maximum number of locks; 1000 if not given.
    #[param(value_type = Option<u32>, minimum = 1, maximum = 10_000)]
    limit: Option<String>,
}

/// Show a lock
#[utoipa::path(
    get, path = "/v1/locks/{name}", tag = "locks", operation_id = "showLock",
    params(("name" = String, Path, description = "What may be locked", min_length = 1, max_length = 512, pattern = "^[^\\s{}\\x00-\\x1f\\x7f-\\x9f]+$")),
    responses(
        (status = 200, description = "Who holds it, or that it is free", body = LockView),
    ),
)]
pub(crate) async fn show(
    State(app): State<Arc<App>>,
    LockName(name): LockName,
) -> Result<JsonBody<LockView>, Refusal> {
    let found =
        app.with_timeout(DEFAULT_STORE_TIMEOUT, app.store().inspect(&name, DEFAULT_STORE_TIMEOUT)).await?;
    Ok(JsonBody(match &found.into_first() {
        Some(lease) => LockView::from(lease),
        None => LockView::free(name.as_str()),
    }))
}

/// List the locks that are held
///
/// Lists the locks that the caller may read, ordered by name.
#[utoipa::path(
    get, path = "/v1/locks", tag = "locks", operation_id = "listLocks", params(LockQuery),
    responses(
        (status = 200, description = "Held locks", body = LockList),
    ),
)]
pub(crate) async fn list(
    State(app): State<Arc<App>>,
    Caller(who): Caller,
    QueryParams(which): QueryParams<LockQuery>,
) -> Result<JsonBody<LockList>, Refusal> {
    let limit = parse_list_limit(which.limit, DEFAULT_LIST_LIMIT, MAX_LIST_LIMIT)?;
    let prefix = check_prefix(which.prefix)?;
    let share = app.take_list_share(&who)?;
    // The share belongs to the scan, not to the caller: the store works on it also without one.
    let scan = {
        let app = Arc::clone(&app);
        async move {
            let _held = share;
            scan_locks(&app, &who, &prefix, limit).await
        }
    };
    app.run_to_end(scan).await?.map(JsonBody)
}

/// Lists up to `limit` locks that the caller may read.
async fn scan_locks(app: &App, who: &Principal, prefix: &str, limit: usize) -> Result<LockList, Refusal> {
    let mut list = LockList { locks: Vec::new(), truncated: false };
    for begin in scope_prefixes(who, prefix) {
        let mut fetch = limit;
        // A store filters by prefix only, so foreign names may use up a limit that is for the
        // caller's own: fetch more until enough of them are found.
        let (seen, truncated) = loop {
            let found = app
                .with_timeout(DEFAULT_STORE_TIMEOUT, app.store().list(&begin, fetch, DEFAULT_STORE_TIMEOUT))
                .await?;
            let own = found.leases.iter().filter(|lease| {
                who.covers(Right::Read, &lease.name) && lease.name.as_str().starts_with(prefix)
            });
            let seen: Vec<_> = own.map(LockView::from).collect();
            if !found.truncated || seen.len() >= limit || fetch >= MAX_SCANNED_LEASES {
                break (seen, found.truncated);
            }
            fetch = (fetch * 8).min(MAX_SCANNED_LEASES);
        };
        list.truncated |= truncated;
        list.locks.extend(seen);
    }
    list.locks.sort_by(|a, b| a.name.cmp(&b.name));
    // Overlapping scopes list the same name twice.
    list.locks.dedup_by(|a, b| a.name == b.name);
    if list.locks.len() > limit {
        list.locks.truncate(limit);
        list.truncated = true;
    }
    Ok(list)
}

/// Checks the prefix of a query.
pub(crate) fn check_prefix(prefix: Option<String>) -> Result<String, Refusal> {
    let prefix = prefix.unwrap_or_default();
    if prefix.len() > leasehold::Name::MAX {
        return Err(Refusal::invalid(
            "prefix",
            format!("prefix: no name is longer than {} bytes", leasehold::Name::MAX),
        ));
    }
    Ok(prefix)
}

fn reads_everything(who: &Principal) -> bool {
    who.scopes(Right::Read).any(Scope::is_everything)
}

/// The prefixes to list, so that foreign names are not even fetched where possible.
pub(crate) fn scope_prefixes(who: &Principal, prefix: &str) -> Vec<String> {
    if reads_everything(who) {
        return vec![prefix.to_owned()];
    }
    let mut all: Vec<_> = who
        .scopes(Right::Read)
        .filter_map(|scope| {
            let mine = scope.prefix();
            if mine.starts_with(prefix) {
                Some(mine)
            } else {
                prefix.starts_with(&mine).then(|| prefix.to_owned())
            }
        })
        .collect();
    all.sort();
    all.dedup();
    all
}

/// What the store promises
///
/// The promise under the store's current configuration, and what limits it.
#[utoipa::path(
    get, path = "/v1/store", tag = "daemon", operation_id = "showStore",
    responses((status = 200, description = "The promise", body = StoreView)),
)]
pub(crate) async fn store(State(app): State<Arc<App>>) -> Result<JsonBody<StoreView>, Refusal> {
    let promised =
        app.with_timeout(DEFAULT_STORE_TIMEOUT, app.store().promise(DEFAULT_STORE_TIMEOUT)).await?;
    Ok(JsonBody(StoreView {
        kind: app.store().capabilities().kind.to_owned(),
        promise: promised.promise,
        because: promised.limits,
    }))
}

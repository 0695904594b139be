//! `GET /v1/locks` and `GET /v1/locks/{name}`, and what the store promises.

use std::sync::Arc;

use axum::extract::State;
use leasehold_http::wire::{LockList, LockView, StoreView};
use serde::Deserialize;
use utoipa::IntoParams;

use super::WITHIN;
use crate::app::App;
use crate::auth::{Principal, Role, Scope};
use crate::document::{Asked, Caller, Doc, LockName};
use crate::problem::Refusal;

/// How many locks are listed if nobody says.
const LIMIT: usize = 1000;
/// The longest list.
const LONGEST: usize = 10_000;
/// How many are looked through for names without a namespace, which do not begin alike.
const LOOKED_THROUGH: usize = 100_000;

/// Which locks to list.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct Which {
    /// Only names that begin with this.
    #[param(max_length = 512)]
    prefix: Option<String>,
    /// At most so many; 1000 if not given.
    #[param(value_type = Option<u32>, minimum = 1, maximum = 10_000)]
    limit: Option<String>,
}

/// Show a lock
#[utoipa::path(
    get, path = "/v1/locks/{name}", tag = "locks", operation_id = "showLock",
    params(("name" = String, Path, description = "What may be locked", min_length = 1, max_length = 512, pattern = "^[^\\s{}\\x00-\\x1f\\x7f-\\x9f]+$")),
    responses(
        (status = 200, description = "Who holds it, or that nobody does", body = LockView),
    ),
)]
pub(crate) async fn show(
    State(app): State<Arc<App>>,
    LockName(name): LockName,
) -> Result<Doc<LockView>, Refusal> {
    let found = app.within(WITHIN, app.store().inspect(&name, WITHIN)).await?;
    Ok(Doc(match &found {
        Some(lease) => LockView::from(lease),
        None => LockView::free(name.as_str()),
    }))
}

/// List the locks that are held
///
/// Those the caller may see, in the order of their names.
#[utoipa::path(
    get, path = "/v1/locks", tag = "locks", operation_id = "listLocks", params(Which),
    responses(
        (status = 200, description = "Held locks", body = LockList),
    ),
)]
pub(crate) async fn list(
    State(app): State<Arc<App>>,
    Caller(who): Caller,
    Asked(which): Asked<Which>,
) -> Result<Doc<LockList>, Refusal> {
    let limit = match which.limit.as_deref() {
        None => LIMIT,
        Some(text) => text
            .parse()
            .ok()
            .filter(|limit| (1..=LONGEST).contains(limit))
            .ok_or_else(|| Refusal::invalid("limit", format!("limit: must be from 1 to {LONGEST}")))?,
    };
    let prefix = beginning(which.prefix)?;
    let mut list = LockList {
        locks: Vec::new(),
        truncated: false,
    };
    for begin in beginnings(&who, &prefix) {
        let narrow = begin.len() >= prefix.len() && !begin.is_empty();
        let fetch = if narrow || sees_all(&who) {
            limit
        } else {
            LOOKED_THROUGH
        };
        let found = app
            .within(WITHIN, app.store().list(&begin, fetch, WITHIN))
            .await?;
        list.truncated |= found.truncated;
        let seen = found
            .leases
            .iter()
            .filter(|lease| who.covers(Role::Read, &lease.name) && lease.name.as_str().starts_with(&prefix));
        list.locks.extend(seen.map(LockView::from));
    }
    list.locks.sort_by(|a, b| a.name.cmp(&b.name));
    list.locks.dedup_by(|a, b| a.name == b.name);
    if list.locks.len() > limit {
        list.locks.truncate(limit);
        list.truncated = true;
    }
    Ok(Doc(list))
}

/// What names are to begin with.
pub(crate) fn beginning(prefix: Option<String>) -> Result<String, Refusal> {
    let prefix = prefix.unwrap_or_default();
    if prefix.len() > leasehold::Name::MAX {
        return Err(Refusal::invalid(
            "prefix",
            format!("prefix: no name is longer than {} bytes", leasehold::Name::MAX),
        ));
    }
    Ok(prefix)
}

fn sees_all(who: &Principal) -> bool {
    who.scopes(Role::Read).any(Scope::is_everything)
}

/// What to ask the store for, so that foreign names are not even fetched where that can be helped.
fn beginnings(who: &Principal, prefix: &str) -> Vec<String> {
    if sees_all(who) {
        return vec![prefix.to_owned()];
    }
    let mut all: Vec<_> = who
        .scopes(Role::Read)
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
/// As it is configured right now, with what limits it.
#[utoipa::path(
    get, path = "/v1/store", tag = "daemon", operation_id = "showStore",
    responses((status = 200, description = "The promise", body = StoreView)),
)]
pub(crate) async fn store(State(app): State<Arc<App>>) -> Result<Doc<StoreView>, Refusal> {
    let promised = app.within(WITHIN, app.store().promise(WITHIN)).await?;
    Ok(Doc(StoreView {
        kind: app.store().capabilities().kind.to_owned(),
        promise: promised.promise,
        because: promised.because,
    }))
}

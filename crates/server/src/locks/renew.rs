//! `POST /v1/locks/{name}/renew`, and the same for many of a namespace.

use std::sync::Arc;

use axum::extract::FromRequestParts;
use axum::extract::State;
use http::request::Parts;
use leasehold::store::{Renewal, Renewed};
use leasehold::{Name, Ttl};
use leasehold_http::wire::{Problem, Renew, RenewBatch, RenewItem, Renewals, RenewedView, millis};

use super::{duration, token, ttl, within};
use crate::app::App;
use crate::document::{Doc, LockName, parameter};
use crate::problem::Refusal;

/// The most leases in one request.
const ITEMS: usize = 200;

/// Renew a lock
///
/// Extends the lease from now, if it is still this token's with this fence. 410 means: stop.
#[utoipa::path(
    post, path = "/v1/locks/{name}/renew", tag = "locks", operation_id = "renewLock",
    params(("name" = String, Path, description = "What is held", min_length = 1, max_length = 512, pattern = "^[^\\s{}\\x00-\\x1f\\x7f-\\x9f]+$")),
    request_body = Renew,
    responses(
        (status = 200, description = "Extended", body = RenewedView),
        (status = 410, description = "Not this token's any more", body = Problem, content_type = "application/problem+json"),
    ),
)]
pub(crate) async fn renew(
    State(app): State<Arc<App>>,
    LockName(name): LockName,
    Doc(want): Doc<Renew>,
) -> Result<Doc<RenewedView>, Refusal> {
    let token = token(&want.token)?;
    let class = app.class(token.class());
    let (of_class, delay) = match &class {
        Ok(class) => (Some(class.ttl), Some(class.release.lock_delay)),
        Err(_) => (None, None),
    };
    let ttl = match want.ttl_ms {
        Some(millis) => ttl(millis)?,
        None => of_class.ok_or_else(|| {
            Refusal::invalid(
                "ttl_ms",
                "ttl_ms: is missing, and this token's class is not known here",
            )
        })?,
    };
    let lock_delay = duration("lock_delay_ms", want.lock_delay_ms, 0, 86_400_000)?;
    let renewal = Renewal {
        name: name.clone(),
        token,
        fence: want.fence,
        ttl,
        lock_delay: lock_delay.or(delay).unwrap_or_default(),
    };
    let within = within(want.within_ms)?;
    let mut results = app.renew(&[renewal], within).await;
    match results.pop() {
        Some(Ok((Renewed::NotOwned, _))) => Err(Refusal::not_owned(name.as_str())),
        Some(result) => Ok(Doc(view(result?))),
        None => Err(Refusal::not_owned(name.as_str())),
    }
}

/// The namespace in the path.
pub(crate) struct InNamespace(String);

impl<S: Send + Sync> FromRequestParts<S> for InNamespace {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Refusal> {
        let namespace = parameter(parts, state, "namespace").await?;
        // As one that could stand before a `:` in a name.
        let named = Name::new(&format!("{namespace}:x"))?;
        if named.namespace() != namespace {
            return Err(Refusal::invalid("namespace", "namespace: has no `:` in it"));
        }
        Ok(Self(namespace))
    }
}

/// Renew many locks of a namespace
///
/// One result per item, in order.
#[utoipa::path(
    post, path = "/v1/namespaces/{namespace}/renew", tag = "locks", operation_id = "renewLocks",
    params(("namespace" = String, Path, description = "What precedes the first `:` of the names, or `default`", min_length = 1, max_length = 512)),
    request_body = RenewBatch,
    responses((status = 200, description = "What became of each", body = Renewals)),
)]
pub(crate) async fn renew_many(
    State(app): State<Arc<App>>,
    InNamespace(namespace): InNamespace,
    Doc(want): Doc<RenewBatch>,
) -> Result<Doc<Renewals>, Refusal> {
    if want.items.len() > ITEMS {
        return Err(Refusal::invalid(
            "items",
            format!("items: at most {ITEMS} in one request"),
        ));
    }
    let batch = want
        .items
        .iter()
        .map(|item| renewal(item, &namespace))
        .collect::<Result<Vec<_>, _>>()?;
    let within = within(want.within_ms)?;
    let results = app.renew(&batch, within).await;
    let results = results.into_iter().map(|result| match result {
        Ok(renewed) => view(renewed),
        Err(failure) => RenewedView::Failed {
            cause: failure.cause.to_string(),
            unknown: failure.unknown,
            detail: failure.message().to_owned(),
        },
    });
    Ok(Doc(Renewals {
        results: results.collect(),
    }))
}

/// An item, if it is of the namespace that the caller's right was asked for.
fn renewal(item: &RenewItem, namespace: &str) -> Result<Renewal, Refusal> {
    let name = Name::new(&item.name)?;
    if name.namespace() != namespace {
        return Err(Refusal::invalid(
            "items",
            "items: a name is not of the namespace in the path",
        ));
    }
    let ttl: Ttl = ttl(item.ttl_ms)?;
    let lock_delay = duration("lock_delay_ms", item.lock_delay_ms, 0, 86_400_000)?;
    Ok(Renewal {
        name,
        token: token(&item.token)?,
        fence: item.fence,
        ttl,
        lock_delay: lock_delay.unwrap_or_default(),
    })
}

fn view((renewed, asked_to_release): (Renewed, Option<String>)) -> RenewedView {
    match renewed {
        Renewed::Extended { was_left } => RenewedView::Extended {
            was_left_ms: was_left.map(millis),
            asked_to_release,
        },
        Renewed::NotOwned => RenewedView::NotOwned,
    }
}

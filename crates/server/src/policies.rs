//! `/v1/policies`: the classes in force, and changing them for a while.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::{FromRequestParts, State};
use http::request::Parts;
use leasehold::policy::Origin;
use leasehold_http::wire::{Problem, millis};
use rusqlite::params;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::app::App;
use crate::audit::Act;
use crate::document::{Caller, Doc, parameter};
use crate::past::unreadable;
use crate::problem::Refusal;
use crate::record::stamp;

/// One value of a class.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ValueView {
    /// Its path, e.g. `renew.every`.
    field: String,
    /// What is in force.
    value: String,
    /// Where it came from.
    origin: String,
    /// If it is overridden: when it reverts by itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    reverts_in_ms: Option<u64>,
}

/// A class in force.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ClassView {
    /// Its name.
    class: String,
    /// Every value.
    values: Vec<ValueView>,
}

/// All classes.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Policies {
    /// In the order of their names.
    classes: Vec<ClassView>,
}

/// `POST /v1/policies/{class}/overrides`.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Override {
    /// Which value, e.g. `acquire.on_error`.
    #[schema(min_length = 1, max_length = 64)]
    field: String,
    /// What it is to be, as a policy file has it.
    #[schema(min_length = 1, max_length = 128)]
    value: String,
    /// Why; everybody who reads the policy sees it.
    #[schema(min_length = 1, max_length = 512)]
    reason: String,
    /// For how long; then it reverts by itself.
    #[schema(minimum = 1000, maximum = 604_800_000)]
    lasting_ms: u64,
}

/// A change.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ChangeView {
    /// Of which class.
    class: String,
    /// What, from, to, why: one line.
    change: String,
    /// When; missing if it was just now.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(format = DateTime, value_type = Option<String>)]
    at: Option<String>,
}

/// The changes.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Changes {
    /// Newest first.
    changes: Vec<ChangeView>,
}

/// A part of the path.
pub(crate) struct ClassName(String);
/// Another part of the path.
pub(crate) struct FieldName(String);

impl<S: Send + Sync> FromRequestParts<S> for ClassName {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Refusal> {
        parameter(parts, state, "class").await.map(Self)
    }
}

impl<S: Send + Sync> FromRequestParts<S> for FieldName {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Refusal> {
        parameter(parts, state, "field").await.map(Self)
    }
}

/// Show the classes in force
///
/// With the origin of every value.
#[utoipa::path(
    get, path = "/v1/policies", tag = "policies", operation_id = "listPolicies",
    responses((status = 200, description = "All classes", body = Policies)),
)]
pub(crate) async fn list(State(app): State<Arc<App>>) -> Result<Doc<Policies>, Refusal> {
    let names = app.locks.policies().classes();
    let classes = names
        .iter()
        .map(|name| view(&app, name))
        .collect::<Result<_, _>>()?;
    Ok(Doc(Policies { classes }))
}

/// Show a class
#[utoipa::path(
    get, path = "/v1/policies/{class}", tag = "policies", operation_id = "showPolicy",
    params(("class" = String, Path, description = "The class", min_length = 1, max_length = 64)),
    responses(
        (status = 200, description = "The class", body = ClassView),
        (status = 404, description = "There is no such class", body = Problem, content_type = "application/problem+json"),
    ),
)]
pub(crate) async fn show(
    State(app): State<Arc<App>>,
    ClassName(class): ClassName,
) -> Result<Doc<ClassView>, Refusal> {
    known(&app, &class)?;
    view(&app, &class).map(Doc)
}

fn known(app: &App, class: &str) -> Result<(), Refusal> {
    match app.class(class) {
        Ok(_) => Ok(()),
        Err(invalid) => Err(Refusal::not_found(&invalid.to_string())),
    }
}

fn view(app: &App, class: &str) -> Result<ClassView, Refusal> {
    let resolved = app.locks.policies().explain(class, app.clock.now())?;
    let value = |[field, value, origin]: [String; 3]| {
        let reverts_in_ms = match resolved.origins.get(&field) {
            Some(Origin::Override { until, .. }) => Some(millis(until.since(resolved.at))),
            _ => None,
        };
        ValueView {
            field,
            value,
            origin,
            reverts_in_ms,
        }
    };
    Ok(ClassView {
        class: class.to_owned(),
        values: resolved.rows().into_iter().map(value).collect(),
    })
}

/// Change a value for a while
///
/// Holds of the class live by it at once; it reverts by itself.
#[utoipa::path(
    post, path = "/v1/policies/{class}/overrides", tag = "policies", operation_id = "overridePolicy",
    params(("class" = String, Path, description = "The class", min_length = 1, max_length = 64)),
    request_body = Override,
    responses(
        (status = 200, description = "In force", body = ChangeView),
        (status = 404, description = "There is no such class", body = Problem, content_type = "application/problem+json"),
    ),
)]
pub(crate) async fn set(
    State(app): State<Arc<App>>,
    Caller(who): Caller,
    ClassName(class): ClassName,
    Doc(want): Doc<Override>,
) -> Result<Doc<ChangeView>, Refusal> {
    known(&app, &class)?;
    let lasting = crate::locks::duration("lasting_ms", Some(want.lasting_ms), 1000, 604_800_000)?;
    let lasting = lasting.unwrap_or(Duration::from_secs(1));
    if want.reason.trim().is_empty() || want.reason.len() > 512 || want.reason.chars().any(char::is_control) {
        return Err(Refusal::invalid(
            "reason",
            "reason: must say in 1 to 512 printable bytes why",
        ));
    }
    let act = Act::new("policy.set", &who).detail(&format!("{class}.{}: {}", want.field, want.reason));
    sure(app.audit.before(act).await)?;
    let reason = format!("{}: {}", who.id(), want.reason);
    let change = app
        .locks
        .set_policy(&class, &want.field, &want.value, &reason, lasting)?;
    Ok(Doc(ChangeView {
        class,
        change: change.to_string(),
        at: None,
    }))
}

/// Take an override back
#[utoipa::path(
    delete, path = "/v1/policies/{class}/overrides/{field}", tag = "policies", operation_id = "clearOverride",
    params(
        ("class" = String, Path, description = "The class", min_length = 1, max_length = 64),
        ("field" = String, Path, description = "Which value, e.g. acquire.on_error", min_length = 1, max_length = 64),
    ),
    responses(
        (status = 200, description = "Taken back", body = ChangeView),
        (status = 404, description = "There is no such class or override", body = Problem, content_type = "application/problem+json"),
    ),
)]
pub(crate) async fn clear(
    State(app): State<Arc<App>>,
    Caller(who): Caller,
    ClassName(class): ClassName,
    FieldName(field): FieldName,
) -> Result<Doc<ChangeView>, Refusal> {
    known(&app, &class)?;
    let act = Act::new("policy.clear", &who).detail(&format!("{class}.{field}"));
    sure(app.audit.before(act).await)?;
    let change = app
        .locks
        .clear_policy(&class, &field)
        .map_err(|invalid| Refusal::not_found(&invalid.to_string()))?;
    Ok(Doc(ChangeView {
        class,
        change: change.to_string(),
        at: None,
    }))
}

/// Read what changed
///
/// Every change of a class, whoever or whatever made it.
#[utoipa::path(
    get, path = "/v1/policy-history", tag = "policies", operation_id = "readPolicyHistory",
    responses((status = 200, description = "Newest first, at most a thousand", body = Changes)),
)]
pub(crate) async fn history(State(app): State<Arc<App>>) -> Result<Doc<Changes>, Refusal> {
    let changes = app
        .ledger
        .read(|db| {
            let mut statement = db
                .prepare_cached("SELECT at, class, change FROM policy_change ORDER BY seq DESC LIMIT 1000")?;
            let rows = statement.query_map(params![], |row| {
                Ok(ChangeView {
                    at: Some(stamp(row.get(0)?)),
                    class: row.get(1)?,
                    change: row.get(2)?,
                })
            })?;
            rows.collect()
        })
        .await;
    changes
        .map(|changes| Doc(Changes { changes }))
        .map_err(unreadable)
}

/// What an administrator does is on the disk first.
pub(crate) fn sure(written: bool) -> Result<(), Refusal> {
    if written {
        Ok(())
    } else {
        Err(Refusal::new(
            http::StatusCode::SERVICE_UNAVAILABLE,
            "overloaded",
            "the audit log cannot be written, so nothing was changed",
        )
        .retry_after(Duration::from_secs(5)))
    }
}

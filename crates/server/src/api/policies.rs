//! `/v1/policies`: shows the classes in force and overrides single values for a limited time.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Path, State};
use leasehold::policy::Origin;
use leasehold_wire::{ErrorCode, Problem, millis};
use rusqlite::params;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::api::document::{Caller, JsonBody};
use crate::api::history::state_db_unavailable;
use crate::api::problem::Refusal;
use crate::state::app::App;
use crate::state::audit::AuditEntry;
use crate::state::record::format_micros;

/// One value of a class and where it comes from.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ValueView {
    /// The value's path, for example `renew.every`.
    field: String,
    /// The value in force.
    value: String,
    /// Where the value comes from: a default, a file or an override.
    origin: String,
    /// If overridden: the time until it reverts.
    #[serde(skip_serializing_if = "Option::is_none")]
    reverts_in_ms: Option<u64>,
}

/// A class in force, with all its values.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ClassView {
    /// The class's name.
    class: String,
    /// Every value of the class.
    values: Vec<ValueView>,
}

/// All classes.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Policies {
    /// The classes, ordered by name.
    classes: Vec<ClassView>,
}

/// The body of `POST /v1/policies/{class}/overrides`.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Override {
    /// The value to override, for example `acquire.on_error`.
    #[schema(min_length = 1, max_length = 64)]
    field: String,
    /// The new value, written as in a policy file.
    #[schema(min_length = 1, max_length = 128)]
    value: String,
    /// The reason; every reader of the policy sees it.
    #[schema(min_length = 1, max_length = 512)]
    reason: String,
    /// How long the override lasts; then it reverts by itself.
    #[schema(minimum = 1000, maximum = 604_800_000)]
    lasting_ms: u64,
}

/// One change of a class.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ChangeView {
    /// The class that changed.
    class: String,
    /// The field, its old and new value and the reason, in one line.
    change: String,
    /// The time of the change; missing in the response to the change itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(format = DateTime, value_type = Option<String>)]
    at: Option<String>,
}

/// The changes of all classes.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Changes {
    /// The changes, newest first.
    changes: Vec<ChangeView>,
}

/// Show the classes in force
///
/// Each value is shown with its origin.
#[utoipa::path(
    get, path = "/v1/policies", tag = "policies", operation_id = "listPolicies",
    responses((status = 200, description = "All classes", body = Policies)),
)]
pub(crate) async fn list(State(app): State<Arc<App>>) -> Result<JsonBody<Policies>, Refusal> {
    let names = app.locks.policies().classes();
    let classes = names.iter().map(|name| class_view(&app, name)).collect::<Result<_, _>>()?;
    Ok(JsonBody(Policies { classes }))
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
    Path(class): Path<String>,
) -> Result<JsonBody<ClassView>, Refusal> {
    require_class(&app, &class)?;
    class_view(&app, &class).map(JsonBody)
}

fn require_class(app: &App, class: &str) -> Result<(), Refusal> {
    match app.class(class) {
        Ok(_) => Ok(()),
        Err(invalid) => Err(Refusal::not_found(&invalid.to_string())),
    }
}

fn class_view(app: &App, class: &str) -> Result<ClassView, Refusal> {
    let resolved = app.locks.policies().explain(class, app.clock.now())?;
    let value = |[field, value, origin]: [String; 3]| {
        let reverts_in_ms = match resolved.origins.get(&field) {
            Some(Origin::Override { until, .. }) => Some(millis(until.since(resolved.at))),
            _ => None,
        };
        ValueView { field, value, origin, reverts_in_ms }
    };
    Ok(ClassView { class: class.to_owned(), values: resolved.rows().into_iter().map(value).collect() })
}

/// Change a value for a while
///
/// Existing holds of the class follow it at once. It reverts by itself.
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
    Path(class): Path<String>,
    JsonBody(want): JsonBody<Override>,
) -> Result<JsonBody<ChangeView>, Refusal> {
    require_class(&app, &class)?;
    let lasting = crate::api::locks::parse_duration("lasting_ms", Some(want.lasting_ms), 1000, 604_800_000)?;
    let lasting = lasting.unwrap_or(Duration::from_secs(1));
    if want.reason.trim().is_empty() || want.reason.len() > 512 || want.reason.chars().any(char::is_control) {
        return Err(Refusal::invalid("reason", "reason: must say in 1 to 512 printable bytes why"));
    }
    let act = AuditEntry::new("policy.set", &who).detail(&format!("{class}.{}: {}", want.field, want.reason));
    // The audit line comes first: a change without a durable record must not happen.
    require_audited(app.audit.record_before(act).await)?;
    // The stored reason names the caller, so the policy history shows who made the change.
    let reason = format!("{}: {}", who.id(), want.reason);
    let change = app.locks.set_policy(&class, &want.field, &want.value, &reason, lasting)?;
    Ok(JsonBody(ChangeView { class, change: change.to_string(), at: None }))
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
    Path((class, field)): Path<(String, String)>,
) -> Result<JsonBody<ChangeView>, Refusal> {
    require_class(&app, &class)?;
    let act = AuditEntry::new("policy.clear", &who).detail(&format!("{class}.{field}"));
    require_audited(app.audit.record_before(act).await)?;
    let change =
        app.locks.clear_policy(&class, &field).map_err(|invalid| Refusal::not_found(&invalid.to_string()))?;
    Ok(JsonBody(ChangeView { class, change: change.to_string(), at: None }))
}

/// Read what changed
///
/// Every change of every class, by an operator, a file or an expired override.
#[utoipa::path(
    get, path = "/v1/policy-history", tag = "policies", operation_id = "readPolicyHistory",
    responses((status = 200, description = "Newest first, at most a thousand", body = Changes)),
)]
pub(crate) async fn history(State(app): State<Arc<App>>) -> Result<JsonBody<Changes>, Refusal> {
    let changes = app
        .state_db
        .read(|db| {
            let mut statement = db
                .prepare_cached("SELECT at, class, change FROM policy_change ORDER BY seq DESC LIMIT 1000")?;
            let rows = statement.query_map(params![], |row| {
                Ok(ChangeView {
                    at: Some(format_micros(row.get(0)?)),
                    class: row.get(1)?,
                    change: row.get(2)?,
                })
            })?;
            rows.collect()
        })
        .await;
    changes.map(|changes| JsonBody(Changes { changes })).map_err(state_db_unavailable)
}

/// Refuses an admin action whose audit line is not on the disk.
pub(crate) fn require_audited(written: bool) -> Result<(), Refusal> {
    if written {
        Ok(())
    } else {
        Err(Refusal::new(ErrorCode::Overloaded, "the audit log cannot be written, so nothing was changed")
            .retry_after(Duration::from_secs(5)))
    }
}
